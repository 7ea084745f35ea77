//! Filters from other systems, kept bit for bit. They give the same answers as the originals, including false
//! positives, and add items by the originals' rules. No item of an original is ever missed, because no bit is moved.
//!
//! A [`Foreign`] filter is a chain of links. A link is a bit array with a modulus and a number of probes. In most
//! systems, a filter has only one link. The filter's [`Scheme`] says where an item's bits are, and its [`Growth`] says
//! what happens when it is full.

mod encoding;
mod link;
mod logarithm;
pub mod redisbloom;
mod scheme;
mod sizing;
pub mod valkey_bloom;

pub use encoding::Encoding;
pub use link::{BitOrder, Link, LinkSpec};
pub use redisbloom::ChainSpec;
pub use scheme::{Probe, RedisBloomPlan, Scheme};
pub(crate) use sizing::GO_ZERO_PROBES;
pub use valkey_bloom::ValkeySpec;

use super::change::Added;
use super::dump_number;
use super::usage::Usage;
use crate::error::Error;
use crate::math;
use crate::parallel::{ParallelFor, alone};
use crate::params::limits;
use alloc::vec::Vec;
use smallvec::SmallVec;

/// What a filter does when it is full.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Growth {
    /// It has no capacity limit and accepts every item.
    Bitmap,
    /// It adds a link with `growth` times the capacity and half the error rate, unless the options forbid growth.
    RedisBloom {
        /// The original's flags, unchanged; see [`redisbloom`].
        options: u32,
        /// The original's expansion, unchanged. If scaling is allowed, 0 means 2.
        growth: u32,
    },
    /// It adds a link with `expansion` times the capacity and `tightening` times the error rate. An `expansion` of 0
    /// forbids growth.
    ValkeyBloom {
        /// Ratio of the capacities of consecutive links.
        expansion: u32,
        /// Error rate of the first link.
        error_rate: f64,
        /// Ratio of the error rates of consecutive links.
        tightening: f64,
        /// Whether the seed was generated for this filter.
        is_seed_random: bool,
    },
}

impl Growth {
    /// How a RedisBloom chain with these parameters grows.
    fn redisbloom(spec: &ChainSpec) -> Growth {
        Growth::RedisBloom { options: spec.options(), growth: spec.growth }
    }

    /// How a valkey-bloom chain with these parameters grows.
    pub fn valkey_bloom(spec: &ValkeySpec) -> Growth {
        let ValkeySpec { expansion, error_rate, tightening, seed, .. } = *spec;
        let is_seed_random = seed != valkey_bloom::FIXED_SEED;
        Growth::ValkeyBloom { expansion, error_rate, tightening, is_seed_random }
    }

    /// The next link of a chain that has `count` links with `work` probes in total and ends with `last`. See
    /// [`Foreign::next_link`].
    fn next(&self, last: &LinkSpec, count: usize, work: u64) -> Result<Option<LinkSpec>, Error> {
        if count >= limits::MAX_FOREIGN_LINKS {
            return Err(Error::TooManyLayers);
        }
        let spec = match *self {
            Growth::Bitmap => return Ok(None),
            Growth::RedisBloom { options, .. } if options & redisbloom::NO_SCALING != 0 => return Ok(None),
            Growth::ValkeyBloom { expansion: 0, .. } => return Ok(None),
            Growth::RedisBloom { options, growth } => {
                // Chains that were loaded by LOADCHUNK of an old version of RedisBloom have lost their growth factor.
                let growth = if growth == 0 { 2 } else { growth };
                // A link for 0 items would be full immediately, and so would all later links.
                let capacity = last.capacity.max(1).checked_mul(growth.into());
                LinkSpec::redisbloom(capacity.ok_or(Error::TooManyLayers)?, last.error_rate * 0.5, options)
            }
            Growth::ValkeyBloom { expansion, error_rate, tightening, .. } => {
                let capacity = last.capacity.checked_mul(expansion.into());
                let index = u32::try_from(count).unwrap_or(u32::MAX);
                let error_rate = error_rate * math::power(tightening, index);
                LinkSpec::valkey_bloom(capacity.ok_or(Error::TooManyLayers)?, error_rate)
            }
        };
        // Don't create a chain that couldn't be loaded again.
        let fits = |spec: &LinkSpec| work + u64::from(spec.probes) <= limits::MAX_FOREIGN_WORK;
        Ok(Some(spec.filter(fits).ok_or(Error::TooManyLayers)?))
    }

    /// All further links of a chain that has `count` links with `work` probes in total and ends with `last`.
    pub fn links_after(
        self,
        mut last: Option<LinkSpec>,
        mut count: usize,
        mut work: u64,
    ) -> impl Iterator<Item = LinkSpec> {
        core::iter::from_fn(move || {
            last = self.next(last.as_ref()?, count, work).ok()?;
            count += 1;
            work += last.map_or(0, |link| u64::from(link.probes));
            last
        })
    }
}

impl ChainSpec {
    /// All links that RedisBloom would create as the chain grows, including the first.
    pub fn links(&self) -> impl Iterator<Item = LinkSpec> + use<> {
        let first = self.first_link();
        let work = first.map_or(0, |link| u64::from(link.probes));
        first.into_iter().chain(Growth::redisbloom(self).links_after(first, 1, work))
    }

    fn first_link(&self) -> Option<LinkSpec> {
        // In a chain that grows, the first link gets half of the error rate, the second a quarter, and so on.
        let share = if self.scales { 0.5 } else { 1.0 };
        LinkSpec::redisbloom(self.capacity, self.error_rate * share, self.options())
    }
}

/// Another system's filter.
#[derive(Debug)]
pub struct Foreign {
    scheme: Scheme,
    encoding: Encoding,
    growth: Growth,
    links: Vec<Link>,
    dump_number: u16,
    usage: Usage,
}

impl Foreign {
    /// A filter made of parts that were read and validated.
    ///
    /// # Errors
    /// [`Error::Foreign`] if there is no link, if there are too many links or probes, or if the scheme doesn't match
    /// the growth.
    pub fn new(
        scheme: Scheme,
        encoding: Encoding,
        growth: Growth,
        links: Vec<Link>,
    ) -> Result<Foreign, Error> {
        let fits = match growth {
            Growth::RedisBloom { .. } => matches!(scheme, Scheme::RedisBloom(_)),
            Growth::ValkeyBloom { .. } => matches!(scheme, Scheme::ValkeyBloom { .. }),
            Growth::Bitmap => {
                links.len() == 1 && !matches!(scheme, Scheme::RedisBloom(_) | Scheme::ValkeyBloom { .. })
            }
        };
        let dump_number = dump_number::next();
        let filter = Foreign { scheme, encoding, growth, links, dump_number, usage: Usage::default() };
        if !fits
            || filter.links.is_empty()
            || filter.links.len() > limits::MAX_FOREIGN_LINKS
            || filter.work() > limits::MAX_FOREIGN_WORK
        {
            return Err(Error::Foreign("links"));
        }
        Ok(filter)
    }

    /// An empty chain, as RedisBloom 2.2.0 and later versions create it.
    ///
    /// # Errors
    /// [`Error::Foreign`] if no link can have this error rate and capacity, [`Error::OutOfMemory`].
    pub fn redisbloom(spec: &ChainSpec) -> Result<Foreign, Error> {
        let links = vec![Link::empty(spec.first_link().ok_or(Error::Foreign("error rate or capacity"))?)?];
        Foreign::new(
            Scheme::RedisBloom(RedisBloomPlan::Full),
            Encoding::Bytes,
            Growth::redisbloom(spec),
            links,
        )
    }

    /// An empty chain, as valkey-bloom creates it.
    ///
    /// # Errors
    /// [`Error::Foreign`] if valkey-bloom creates no filter with this error rate and capacity, [`Error::OutOfMemory`].
    pub fn valkey_bloom(spec: &ValkeySpec) -> Result<Foreign, Error> {
        let links = vec![Link::empty(spec.first_link().ok_or(Error::Foreign("error rate or capacity"))?)?];
        let scheme = Scheme::ValkeyBloom { seed: spec.seed };
        Foreign::new(scheme, Encoding::Bytes, Growth::valkey_bloom(spec), links)
    }

    /// A placeholder: a filter without links, items or room.
    pub(super) fn nothing() -> Foreign {
        Foreign {
            scheme: Scheme::GoZero,
            encoding: Encoding::Bytes,
            growth: Growth::Bitmap,
            links: Vec::new(),
            dump_number: 0,
            usage: Usage::default(),
        }
    }

    /// Number of probes of an item in all links. A test may need all of them, and a crafted filter must not make a test
    /// take seconds.
    fn work(&self) -> u64 {
        self.links.iter().map(|link| u64::from(link.spec().probes)).sum()
    }

    /// Where an item's bits are.
    pub fn scheme(&self) -> &Scheme {
        &self.scheme
    }

    /// How an item is turned into the bytes that the original hashed.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// What the filter does when it is full.
    pub fn growth(&self) -> Growth {
        self.growth
    }

    /// The filter's usage counters.
    #[doc(hidden)]
    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The links from oldest to newest.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Name of the system that the filter comes from.
    pub fn origin(&self) -> &'static str {
        match self.scheme {
            Scheme::RedisBloom(_) => "redisbloom",
            Scheme::ValkeyBloom { .. } => "valkey-bloom",
            Scheme::GoZero => "go-zero",
            Scheme::BloomV3 => "bits-and-blooms",
            Scheme::GuavaMitz64 | Scheme::GuavaMitz32 => "guava",
            Scheme::Redisson => "redisson",
            Scheme::Sbbf => "parquet",
        }
    }

    /// The item's possible probe sequences; `None` for an item that the original cannot contain.
    fn probes(&self, item: &[u8]) -> Option<SmallVec<[Probe; 2]>> {
        let item = self.encoding.encode(item)?;
        Some(self.scheme.probes(&item, self.links.last().map_or(0, |link| link.spec().probes)))
    }

    /// Whether the item may be in the filter.
    pub fn contains(&self, item: &[u8]) -> bool {
        self.probes(item).is_some_and(|probes| self.holds(&probes))
    }

    fn holds(&self, probes: &[Probe]) -> bool {
        self.links.iter().rev().any(|link| probes.iter().any(|probe| link.holds(probe)))
    }

    /// Adds the item without adding a link.
    ///
    /// # Errors
    /// [`Error::Full`], in which case [`grow`](Foreign::grow) may make room; [`Error::Foreign`] for an item that the
    /// original cannot contain. In both cases, nothing has changed.
    pub fn try_add(&mut self, item: &[u8]) -> Result<Added, Error> {
        let probes = self.probes(item).ok_or(Error::Foreign("item"))?;
        if self.holds(&probes) {
            return Ok(Added::default());
        }
        let (Some(last), Some(probe)) = (self.links.last_mut(), probes.first()) else {
            return Err(Error::Foreign("links"));
        };
        if self.growth != Growth::Bitmap && last.is_full() {
            return Err(Error::Full);
        }
        last.add(probe);
        Ok(Added { added: true, changed: true })
    }

    /// The link that [`grow`](Foreign::grow) would add; `None` for a filter with a fixed capacity.
    ///
    /// # Errors
    /// [`Error::TooManyLayers`] if the chain has reached its limits, or no link can have the next capacity or error
    /// rate.
    pub fn next_link(&self) -> Result<Option<LinkSpec>, Error> {
        let Some(last) = self.links.last() else { return Ok(None) };
        self.growth.next(last.spec(), self.links.len(), self.work())
    }

    /// All links that further growth would add, in order.
    pub fn next_links(&self) -> impl Iterator<Item = LinkSpec> {
        let last = self.links.last().map(|link| *link.spec());
        self.growth.links_after(last, self.links.len(), self.work())
    }

    /// The ratio of the capacities of consecutive links, as stored in [`Growth`]; `None` if the capacity is fixed.
    pub fn expansion(&self) -> Option<u32> {
        match self.growth {
            Growth::RedisBloom { options, growth } if options & redisbloom::NO_SCALING == 0 => Some(growth),
            Growth::ValkeyBloom { expansion, .. } if expansion > 0 => Some(expansion),
            _ => None,
        }
    }

    /// The ratio of the error rates of consecutive links; `None` if the capacity is fixed.
    pub fn tightening(&self) -> Option<f64> {
        self.expansion().map(|_| match self.growth {
            Growth::ValkeyBloom { tightening, .. } => tightening,
            _ => 0.5,
        })
    }

    /// Adds the next link. If the filter has a fixed capacity, does nothing and returns false.
    ///
    /// # Errors
    /// The errors of [`next_link`](Foreign::next_link), and [`Error::OutOfMemory`].
    pub fn grow(&mut self) -> Result<bool, Error> {
        let Some(spec) = self.next_link()? else { return Ok(false) };
        self.links.push(Link::empty(spec)?);
        Ok(true)
    }

    /// Replaces the bytes that begin at byte `offset`, counted as if the links were concatenated. They must lie in one
    /// link.
    ///
    /// # Errors
    /// [`Error::Foreign`] if they don't; then nothing has changed.
    pub(crate) fn overwrite(&mut self, mut offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for link in &mut self.links {
            let len = link.spec().bytes;
            if offset < len {
                if bytes.is_empty() || bytes.len() as u64 > len - offset {
                    return Err(Error::Foreign("length of the bits"));
                }
                link.overwrite(offset, bytes);
                return Ok(());
            }
            offset -= len;
        }
        Err(Error::Foreign("position of the bits"))
    }

    /// The first difference that affects an item's bits or how the filters grow; `None` if there is no such difference.
    pub fn difference(&self, other: &Foreign) -> Option<&'static str> {
        let specs = |filter: &Foreign| filter.links.iter().map(|link| *link.spec()).collect::<Vec<_>>();
        let seeded = matches!(self.scheme, Scheme::ValkeyBloom { .. });
        [
            ("origin", self.origin() != other.origin()),
            (if seeded { "seed" } else { "hash" }, self.scheme != other.scheme),
            ("encoding of items", self.encoding != other.encoding),
            ("growth", self.growth != other.growth),
            ("shape", specs(self) != specs(other)),
        ]
        .into_iter()
        .find_map(|(what, differs)| differs.then_some(what))
    }

    /// Turns this filter into the union with another one, link by link. The two must not [differ](Foreign::difference).
    /// Returns whether anything changed.
    pub(super) fn union(&mut self, other: &Foreign, parallel: &ParallelFor<'_>) -> bool {
        let is_bounded = self.growth != Growth::Bitmap;
        let links = self.links.iter_mut().zip(&other.links);
        links.fold(false, |changed, (mine, theirs)| mine.union(theirs, is_bounded, parallel) | changed)
    }

    /// Whether both filters give the same answer for every item, which means that they have the same bits in the same
    /// places.
    pub(super) fn equal_in(&self, other: &Foreign, parallel: &ParallelFor<'_>) -> bool {
        (self.scheme, self.encoding, self.links.len()) == (other.scheme, other.encoding, other.links.len())
            && self.links.iter().zip(&other.links).all(|(mine, theirs)| mine.equal_in(theirs, parallel))
    }

    /// Number of items that were added. As in the original, items that tested positive don't count. The originals of
    /// bitmaps have no counter, so for a bitmap this is the number estimated from its fill when it was read, plus the
    /// items added since.
    pub fn items(&self) -> u64 {
        self.links.iter().fold(0, |sum, link| sum.saturating_add(link.items()))
    }

    /// Number of items that the filter is sized for.
    pub fn capacity(&self) -> u64 {
        self.links.iter().fold(0, |sum, link| sum.saturating_add(link.spec().capacity))
    }

    /// The error rate that the filter was created for, over all its links. `None` for a bitmap, which doesn't record
    /// one.
    pub fn error_rate(&self) -> Option<f64> {
        let first = self.links.first()?.spec().error_rate;
        match self.growth {
            Growth::Bitmap => None,
            // The links of a chain get half of the error rate, a quarter, and so on.
            Growth::RedisBloom { options, .. } if options & redisbloom::NO_SCALING == 0 => Some(first * 2.0),
            Growth::RedisBloom { .. } => Some(first),
            Growth::ValkeyBloom { error_rate, .. } => Some(error_rate),
        }
    }

    /// Number of bits that are set.
    pub fn ones(&self) -> u64 {
        self.links.iter().map(Link::ones).sum()
    }

    /// Number of bits that probes can hit.
    pub fn cells(&self) -> u64 {
        self.links.iter().fold(0, |sum, link| sum.saturating_add(link.spec().modulus))
    }

    /// Fraction of the bits that are set. It is limited to 1 because a file can have set bits beyond the last bit that
    /// a probe can hit.
    pub fn fill(&self) -> f64 {
        (self.ones() as f64 / self.cells() as f64).min(1.0)
    }

    /// Number of distinct items, estimated from the fill.
    pub fn estimate(&self) -> u64 {
        self.links.iter().fold(0, |sum, link| sum.saturating_add(link.estimate()))
    }

    /// The current error rate, calculated from the fill: 1 − Π(1 − rate of a link).
    pub fn rate_now(&self) -> f64 {
        // If a test tries two ways of placing bits, an absent item has two chances to match.
        let ways = self.scheme.probes(b"", 0).len() as f64;
        let rate = |link: &Link| match self.scheme {
            Scheme::Sbbf => link.split_block_rate(),
            _ => link.rate_now(),
        };
        -libm::expm1(self.links.iter().map(|link| ways * libm::log1p(-rate(link))).sum())
    }

    /// Size of the bits in bytes.
    pub fn bytes(&self) -> u64 {
        self.links.iter().map(|link| link.words().bytes()).sum()
    }

    /// Bytes of memory, including all overhead, but not what the usage counters allocate.
    pub fn allocated(&self) -> usize {
        size_of::<Foreign>() + self.links.iter().map(Link::allocated).sum::<usize>()
    }

    /// A copy that shares no memory with this filter.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn snapshot(&self) -> Result<Foreign, Error> {
        self.copy(&alone)
    }

    /// Like [`snapshot`](Foreign::snapshot), on the threads of `parallel`.
    pub(super) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Foreign, Error> {
        let links = self.links.iter().map(|link| link.copy(parallel)).collect::<Result<_, _>>()?;
        Ok(Foreign { links, dump_number: dump_number::next(), usage: Usage::default(), ..*self })
    }

    /// See [`FilterRef::dump_number`](super::FilterRef::dump_number).
    pub(super) fn dump_number(&self) -> u16 {
        self.dump_number
    }

    /// A filter that shares this one's bits, for reading in another thread.
    pub(super) fn share(&self) -> Foreign {
        Foreign { links: self.links.iter().map(Link::share).collect(), usage: Usage::default(), ..*self }
    }

    /// Whether the other filter has the same bits in the same memory.
    pub(super) fn is_shared_with(&self, other: &Foreign) -> bool {
        self.links.len() == other.links.len()
            && self.links.iter().zip(&other.links).all(|(mine, theirs)| mine.is_shared_with(theirs))
    }

    /// Swaps the links with those of a filter that differs only in its bits.
    pub(super) fn exchange(&mut self, other: &mut Foreign) {
        core::mem::swap(&mut self.links, &mut other.links);
    }
}
