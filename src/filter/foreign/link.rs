//! One bit array of another system's filter.

use super::logarithm::ln;
use super::redisbloom::NO_ROUND;
use super::scheme::{Probe, SPLIT_BLOCK};
use crate::error::Error;
use crate::math::{self, Spread};
use crate::mem::Words;
use crate::parallel::{ParallelFor, all_pairs, in_parts};
use crate::params::limits;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use alloc::sync::Arc;

/// Geometry of a link, as stored in its file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Number of bits that a probe can hit.
    pub modulus: u64,
    /// Probes per item.
    pub probes: u32,
    /// Number of items that the link is sized for. For a bitmap, the number of items at which half of its bits are set.
    pub capacity: u64,
    /// The error rate when the link contains `capacity` items.
    pub error_rate: f64,
    /// Bits per item; only used by RedisBloom.
    pub bits_per_item: f64,
    /// The stored number of bits, which for RedisBloom can differ from the modulus.
    pub bits: u64,
    /// For RedisBloom, the binary logarithm of the modulus if that is a power of two by construction; otherwise 0.
    pub log2: u8,
    /// Length of the bit array in the file, in bytes.
    pub bytes: u64,
}

impl LinkSpec {
    /// A bitmap of `bits` bits.
    pub fn bitmap(bits: u64, probes: u32) -> LinkSpec {
        let capacity = (bits as f64 / f64::from(probes.max(1)) * core::f64::consts::LN_2) as u64;
        LinkSpec {
            modulus: bits,
            probes,
            capacity: capacity.max(1),
            error_rate: math::power(0.5, probes).max(f64::MIN_POSITIVE),
            bits_per_item: 0.0,
            bits,
            log2: 0,
            bytes: bits.div_ceil(8),
        }
    }

    /// The link that RedisBloom 2.2.0 and later versions create, computed with RedisBloom's constants. `None` if
    /// RedisBloom would refuse these parameters.
    pub(super) fn redisbloom(capacity: u64, error_rate: f64, options: u32) -> Option<LinkSpec> {
        #[allow(clippy::approx_constant, reason = "RedisBloom's, with its digits")]
        const LN_2: f64 = 0.693_147_180_559_945;
        const LN_2_SQUARED: f64 = 0.480_453_013_918_201;
        let bits_per_item = (ln(error_rate) / LN_2_SQUARED).abs();
        let probes = libm::ceil(LN_2 * bits_per_item);
        let wanted = capacity as f64 * bits_per_item;
        if !(probes >= 1.0 && probes <= f64::from(limits::MAX_FOREIGN_PROBES))
            || wanted >= limits::MAX_BYTES as f64 * 8.0
        {
            return None;
        }
        let (log2, capacity, least) = if options & NO_ROUND != 0 {
            (0, capacity, (wanted as u64).max(1))
        } else {
            // Rounding up adds bits, and RedisBloom raises the capacity to use them.
            let log2 = libm::log2(wanted).max(0.0) as u8 + 1;
            let spare = libm::trunc(libm::exp2(log2.into()) - wanted) / bits_per_item;
            (log2, capacity.checked_add(spare as u64)?, 1 << log2)
        };
        let bytes = least.div_ceil(64) * 8;
        Some(LinkSpec {
            modulus: if log2 > 0 { 1 << log2 } else { bytes * 8 },
            probes: probes as u32,
            capacity,
            error_rate,
            bits_per_item,
            bits: bytes * 8,
            log2,
            bytes,
        })
    }

    /// The link that valkey-bloom creates; `None` if valkey-bloom would refuse these parameters.
    pub(super) fn valkey_bloom(capacity: u64, error_rate: f64) -> Option<LinkSpec> {
        use core::f64::consts::LN_2;
        // In valkey-bloom, capacities are signed, and an error rate below the smallest normal number is refused.
        if i64::try_from(capacity).is_err() || error_rate < f64::MIN_POSITIVE {
            return None;
        }
        let items = capacity as f64;
        let bytes = libm::ceil(items * libm::log(error_rate) / (-8.0 * LN_2 * LN_2));
        if !(bytes >= 1.0 && bytes <= limits::MAX_BYTES as f64) {
            return None;
        }
        let probes = libm::round(8.0 * bytes / items * LN_2).max(1.0);
        let bytes = bytes as u64;
        Some(LinkSpec { capacity, error_rate, bytes, ..LinkSpec::bitmap(bytes * 8, probes as u32) })
    }

    /// A Parquet filter with this number of bytes. `None` unless the number is a multiple of a block's size and fits
    /// into an i32, the type in which Parquet stores it.
    pub fn split_block(bytes: u64) -> Option<LinkSpec> {
        let fits = bytes > 0 && bytes.is_multiple_of(SPLIT_BLOCK / 8) && i32::try_from(bytes).is_ok();
        fits.then(|| LinkSpec::bitmap(bytes * 8, 8))
    }

    /// Refuses a geometry that no real filter has.
    ///
    /// # Errors
    /// [`Error::Foreign`] with the name of the offending field.
    pub fn validate(&self) -> Result<(), Error> {
        let refuse = |field| Err(Error::Foreign(field));
        if self.modulus == 0 || self.log2 > 63 {
            return refuse("bits");
        }
        if self.bytes > limits::MAX_BYTES || self.modulus.div_ceil(8) > self.bytes {
            return refuse("length of the bits");
        }
        if !(1..=limits::MAX_FOREIGN_PROBES).contains(&self.probes) {
            return refuse("number of hashes");
        }
        if !(self.error_rate.is_finite() && self.error_rate > 0.0) {
            return refuse("error rate");
        }
        if !(self.bits_per_item.is_finite() && self.bits_per_item >= 0.0) {
            return refuse("bits per item");
        }
        Ok(())
    }

    /// Number of words that hold the bits.
    fn words(&self) -> u64 {
        self.bytes.div_ceil(8)
    }
}

/// The order of the bits in a file. Native filters use [`Lowest`](BitOrder::Lowest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOrder {
    /// Bit p is in byte p/8, from the lowest bit up.
    Lowest,
    /// Bit p is in byte p/8, from the highest bit down, as with SETBIT.
    Highest,
    /// Bit p is in 64-bit word p/64, from the lowest bit up. Each word is stored with its highest byte first.
    BigEndianWords,
}

/// A bit array and what is known about its contents.
#[derive(Debug)]
pub struct Link {
    spec: LinkSpec,
    items: u64,
    ones: u64,
    words: Arc<Words>,
}

impl Link {
    /// A link without items.
    ///
    /// # Errors
    /// The errors of [`LinkSpec::validate`], [`Error::OutOfMemory`].
    pub fn empty(spec: LinkSpec) -> Result<Link, Error> {
        spec.validate()?;
        Ok(Link { spec, items: 0, ones: 0, words: Arc::new(Words::zeroed(spec.words())?) })
    }

    /// A link with these bits; missing bits are 0. If the number of items isn't given, it is estimated.
    ///
    /// # Errors
    /// The errors of [`LinkSpec::validate`], [`Error::OutOfMemory`]; [`Error::Foreign`] if there are more bits than the
    /// link has.
    pub fn with_bits(
        spec: LinkSpec,
        items: Option<u64>,
        order: BitOrder,
        bits: &[u8],
        parallel: &ParallelFor<'_>,
    ) -> Result<Link, Error> {
        let mut link = Link::empty(spec)?;
        if bits.len() as u64 > spec.bytes.next_multiple_of(8) {
            return Err(Error::Foreign("length of the bits"));
        }
        let ones = AtomicU64::new(0);
        in_parts(bits.len().div_ceil(8), parallel, |part| {
            let bits = &bits[part.start * 8..bits.len().min(part.end * 8)];
            let mut set = 0;
            for (word, bytes) in link.words[part].iter().zip(bits.chunks(8)) {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                let value = match order {
                    BitOrder::Lowest => u64::from_le_bytes(padded),
                    BitOrder::Highest => u64::from_le_bytes(padded.map(u8::reverse_bits)),
                    BitOrder::BigEndianWords => u64::from_be_bytes(padded),
                };
                // Zeros aren't written, so that pages of zeros stay untouched.
                if value != 0 {
                    word.store(value, Relaxed);
                    set += u64::from(value.count_ones());
                }
            }
            ones.fetch_add(set, Relaxed);
        });
        link.ones = ones.into_inner();
        link.items = items.unwrap_or_else(|| link.estimate());
        Ok(link)
    }

    /// A link with these words, in which `ones` bits are set.
    ///
    /// # Errors
    /// The errors of [`LinkSpec::validate`]; [`Error::Foreign`] if the number of words is wrong.
    pub(crate) fn from_words(spec: LinkSpec, items: u64, words: Words, ones: u64) -> Result<Link, Error> {
        spec.validate()?;
        if words.len() as u64 != spec.words() {
            return Err(Error::Foreign("length of the bits"));
        }
        Ok(Link { spec, items, ones, words: Arc::new(words) })
    }

    /// Replaces the bytes that begin at `offset`. They must lie within the link.
    pub(super) fn overwrite(&mut self, offset: u64, bytes: &[u8]) {
        let around = Words::around(&self.words, offset, bytes.len());
        let before = Words::ones(around);
        Words::set_bytes(&self.words, offset, bytes);
        self.ones = self.ones - before + Words::ones(around);
    }

    /// The link's geometry.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Number of items, as the original counts them.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Number of bits that are set.
    pub fn ones(&self) -> u64 {
        self.ones
    }

    /// The link's bits.
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }

    pub(super) fn is_full(&self) -> bool {
        self.items >= self.spec.capacity
    }

    /// Whether all bits of the probe are set.
    #[inline]
    pub(super) fn holds(&self, probe: &Probe) -> bool {
        (0..self.spec.probes).all(|i| {
            let bit = probe.position(i, self.spec.modulus);
            self.words[(bit / 64) as usize].load(Relaxed) >> (bit % 64) & 1 == 1
        })
    }

    /// Sets all bits of the probe and counts the item.
    pub(super) fn add(&mut self, probe: &Probe) {
        for i in 0..self.spec.probes {
            let bit = probe.position(i, self.spec.modulus);
            let word = &self.words[(bit / 64) as usize];
            let (old, mask) = (word.load(Relaxed), 1 << (bit % 64));
            if old & mask == 0 {
                word.store(old | mask, Relaxed);
                self.ones += 1;
            }
        }
        self.items = self.items.saturating_add(1);
    }

    /// Adds the bits of a link with the same geometry. Returns whether anything changed.
    ///
    /// The original counts only items that were absent before. For a union, that number is unknown, so it is estimated
    /// within its smallest and largest possible values. If `is_bounded` is true, a link at its capacity is full, so the
    /// estimate doesn't exceed the capacity.
    pub(super) fn union(&mut self, other: &Link, is_bounded: bool, parallel: &ParallelFor<'_>) -> bool {
        let ones = AtomicU64::new(0);
        in_parts(self.words.len(), parallel, |part| {
            let words = &self.words[part.clone()];
            for (mine, theirs) in words.iter().zip(&other.words[part]) {
                let (old, theirs) = (mine.load(Relaxed), theirs.load(Relaxed));
                // Words that don't change aren't stored, so that their pages stay clean.
                if theirs & !old != 0 {
                    mine.store(old | theirs, Relaxed);
                }
            }
            ones.fetch_add(Words::ones(words), Relaxed);
        });
        let before = (self.ones, self.items);
        let least = self.items.max(other.items);
        self.ones = ones.into_inner();
        self.items = if self.ones == before.0 {
            least
        } else {
            let most = if is_bounded { self.spec.capacity } else { u64::MAX };
            let most = most.min(self.items.saturating_add(other.items)).max(least);
            self.estimate().clamp(least, most)
        };
        before != (self.ones, self.items)
    }

    /// Whether both links have the same bits in the same places.
    pub(super) fn equal_in(&self, other: &Link, parallel: &ParallelFor<'_>) -> bool {
        (self.spec.modulus, self.spec.probes, self.words.len())
            == (other.spec.modulus, other.spec.probes, other.words.len())
            && all_pairs(&self.words, &other.words, parallel, |mine, theirs| mine == theirs)
    }

    /// Number of distinct items, estimated from the fill.
    pub fn estimate(&self) -> u64 {
        let bits = self.spec.modulus as f64;
        // If all bits are set, this uses the fill at which one bit is unset.
        let fill = self.fill().min(1.0 - 1.0 / bits);
        let spread = Spread { ranges: 1.0, slices: 1, cells: bits, probes: self.spec.probes };
        libm::round(math::estimate_items(spread, fill)) as u64
    }

    /// The probability that all bits of an absent item are set.
    pub fn rate_now(&self) -> f64 {
        math::power(self.fill(), self.spec.probes)
    }

    /// Like [`rate_now`](Link::rate_now), for Parquet's filter, whose blocks contain different numbers of items.
    pub(super) fn split_block_rate(&self) -> f64 {
        math::split_block_rate(self.estimate() as f64 / (self.spec.modulus / SPLIT_BLOCK) as f64)
    }

    /// Fraction of bits that are set. It is limited to 1 because a file can have set bits beyond the last bit that a
    /// probe can hit.
    pub fn fill(&self) -> f64 {
        (self.ones as f64 / self.spec.modulus as f64).min(1.0)
    }

    /// A copy, made on the threads of `parallel`.
    pub(super) fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Link, Error> {
        let copy = Words::zeroed(self.words.len() as u64)?;
        in_parts(copy.len(), parallel, |part| Words::copy_range(&copy, &self.words, part));
        Ok(Link { words: Arc::new(copy), ..*self })
    }

    /// Another owner of the same bits.
    pub(super) fn share(&self) -> Link {
        Link { words: Arc::clone(&self.words), ..*self }
    }

    /// The address of the link's bits.
    pub(in crate::filter) fn address(&self) -> usize {
        Arc::as_ptr(&self.words).addr()
    }

    /// Number of links that own this link's bits.
    pub(in crate::filter) fn owners(&self) -> usize {
        Arc::strong_count(&self.words)
    }

    /// Whether both links own the same bits.
    pub(super) fn is_shared_with(&self, other: &Link) -> bool {
        Arc::ptr_eq(&self.words, &other.words)
    }

    /// Bytes of memory, including all overhead.
    pub(super) fn allocated(&self) -> usize {
        // An `Arc` stores two counters in front of the words.
        size_of::<Link>() + 2 * size_of::<usize>() + size_of::<Words>() + self.words.allocated()
    }
}
