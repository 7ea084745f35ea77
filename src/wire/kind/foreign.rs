//! The header of other systems' Bloom filters.

use crate::error::Error;
use crate::filter::foreign::{Encoding, Foreign, Growth, Link, LinkSpec, RedisBloomPlan, Scheme};
use crate::mem::crc32c;
use crate::params::limits;
use crate::wire::arrival::Filled;
use crate::wire::codec::{Kind, headers, read, write, written};
use crate::wire::error::DecodeError;
use crate::wire::{import, redisbloom};
use alloc::vec::Vec;

headers! {
    /// The filter's parameters. Fields that its scheme doesn't use are 0.
    struct ForeignHeader {
        scheme: u8,
        /// Only for RedisBloom: the number of its [`RedisBloomPlan`].
        plan: u8,
        /// Only for valkey-bloom: 1 if the seed was generated for this filter.
        random_seed: u8,
        encoding: u8,
        links: u32,
        /// Only for RedisBloom.
        options: u32,
        /// Only for RedisBloom and valkey-bloom.
        growth: u32,
        /// This field and those after it are only for valkey-bloom.
        seed: [u8; 32],
        error_rate: f64,
        tightening: f64,
    }

    struct LinkHeader {
        modulus: u64,
        bits: u64,
        bytes: u64,
        capacity: u64,
        items: u64,
        error_rate: f64,
        bits_per_item: f64,
        probes: u32,
        log2: u32,
    }
}

impl LinkHeader {
    fn new(spec: &LinkSpec, items: u64) -> LinkHeader {
        let LinkSpec { modulus, bits, bytes, capacity, error_rate, bits_per_item, probes, log2 } = *spec;
        LinkHeader {
            modulus,
            bits,
            bytes,
            capacity,
            items,
            error_rate,
            bits_per_item,
            probes,
            log2: log2.into(),
        }
    }
}

const REDISBLOOM: u8 = 6;
const VALKEY_BLOOM: u8 = 7;

/// The number of a scheme in a header.
fn number(scheme: &Scheme) -> u8 {
    match scheme {
        Scheme::GoZero => 1,
        Scheme::BloomV3 => 2,
        Scheme::GuavaMitz64 => 3,
        Scheme::GuavaMitz32 => 4,
        Scheme::Redisson => 5,
        Scheme::RedisBloom(_) => REDISBLOOM,
        Scheme::ValkeyBloom { .. } => VALKEY_BLOOM,
        Scheme::Sbbf => 8,
    }
}

/// The schemes without parameters.
const PLAIN: [Scheme; 6] = [
    Scheme::GoZero,
    Scheme::BloomV3,
    Scheme::GuavaMitz64,
    Scheme::GuavaMitz32,
    Scheme::Redisson,
    Scheme::Sbbf,
];

/// The validated content of a header: everything that is needed to build the filter, except its bits.
#[derive(Debug)]
pub(in crate::wire) struct ForeignHead {
    scheme: Scheme,
    encoding: Encoding,
    growth: Growth,
    links: Vec<(LinkSpec, u64)>,
    /// Identifies the head and the chunks of one dump, see [`stamp`].
    pub(super) stamp: u32,
}

impl ForeignHead {
    /// Size in bytes of link `index`, rounded up to whole words.
    pub(super) fn array(&self, index: usize) -> Option<u64> {
        self.links.get(index).map(|(spec, _)| spec.bytes.next_multiple_of(8))
    }

    /// Number of links.
    pub(super) fn count(&self) -> usize {
        self.links.len()
    }

    /// Builds the filter from the bits of all its links.
    pub(super) fn build(self, arrays: Vec<Filled>) -> Result<Foreign, DecodeError> {
        let links = self.links.into_iter().zip(arrays);
        let links = links
            .map(|((spec, items), filled)| Link::from_words(spec, items, filled.words, filled.census.set));
        let links = links.collect::<Result<_, Error>>()?;
        Ok(Foreign::new(self.scheme, self.encoding, self.growth, links)?)
    }
}

/// CRC-32C of the header with every number of items set to 0. It changes when the filter grows, but not when an item is
/// added.
fn stamp(header: &ForeignHeader, links: &[LinkHeader]) -> u32 {
    let mut bytes = written(header);
    for link in links {
        write(&mut bytes, &LinkHeader { items: 0, ..*link });
    }
    crc32c(&bytes)
}

fn headers(filter: &Foreign) -> (ForeignHeader, Vec<LinkHeader>) {
    let mut header = ForeignHeader {
        scheme: number(filter.scheme()),
        encoding: filter.encoding() as u8,
        links: u32::try_from(filter.links().len()).unwrap_or(u32::MAX),
        ..ForeignHeader::default()
    };
    match filter.scheme() {
        Scheme::RedisBloom(plan) => header.plan = *plan as u8,
        Scheme::ValkeyBloom { seed } => header.seed = *seed,
        _ => {}
    }
    match filter.growth() {
        Growth::Bitmap => {}
        Growth::RedisBloom { options, growth } => (header.options, header.growth) = (options, growth),
        Growth::ValkeyBloom { expansion, error_rate, tightening, is_seed_random } => {
            header.growth = expansion;
            (header.error_rate, header.tightening) = (error_rate, tightening);
            header.random_seed = is_seed_random.into();
        }
    }
    let links = filter.links().iter().map(|link| LinkHeader::new(link.spec(), link.items()));
    (header, links.collect())
}

/// Appends the header of `filter`, and returns its kind.
pub(super) fn encode(filter: &Foreign, to: &mut Vec<u8>) -> Kind {
    let (header, links) = headers(filter);
    write(to, &header);
    links.iter().for_each(|link| write(to, link));
    Kind::Foreign
}

/// The stamp of `filter`.
pub(super) fn stamp_of(filter: &Foreign) -> u32 {
    let (header, links) = headers(filter);
    stamp(&header, &links)
}

/// Reads and validates a header.
pub(super) fn decode(mut rest: &[u8]) -> Result<ForeignHead, DecodeError> {
    let field = DecodeError::Field;
    let header: ForeignHeader = read(&mut rest)?;
    let (scheme, growth, used) = system(&header)?;
    // Fields that a scheme doesn't use are 0, so that every filter has one encoding.
    if written(&header) != written(&used) {
        return Err(field("reserved"));
    }
    let encoding = encodings(&scheme).iter().copied().find(|known| *known as u8 == header.encoding);
    let encoding = encoding.ok_or(field("encoding"))?;
    let count = usize::try_from(header.links).unwrap_or(usize::MAX);
    if count == 0 || count > limits::MAX_FOREIGN_LINKS || (growth == Growth::Bitmap && count > 1) {
        return Err(field("links"));
    }
    // Links are read one by one. If the count is hostile, the bytes run out before much memory is used.
    let links: Vec<LinkHeader> = (0..count).map(|_| read(&mut rest)).collect::<Result<_, _>>()?;
    if !rest.is_empty() {
        return Err(DecodeError::Length("header"));
    }
    let described = links.iter().enumerate().map(|(index, link)| {
        let spec = LinkSpec {
            modulus: link.modulus,
            probes: link.probes,
            capacity: link.capacity,
            error_rate: link.error_rate,
            bits_per_item: link.bits_per_item,
            bits: link.bits,
            log2: u8::try_from(link.log2).map_err(|_| field("bits"))?,
            bytes: link.bytes,
        };
        spec.validate()?;
        // In valkey-bloom, all links except the newest are full.
        let is_full = link.items == link.capacity || index.saturating_add(1) == count;
        let home = at_home(&scheme, growth, index, &spec, link.items)?;
        if written(&LinkHeader::new(&home, link.items)) != written(link)
            || (matches!(growth, Growth::ValkeyBloom { .. }) && !is_full)
        {
            return Err(field("links"));
        }
        Ok((spec, link.items))
    });
    let described: Vec<_> = described.collect::<Result<_, DecodeError>>()?;
    if let (Scheme::RedisBloom(plan), Growth::RedisBloom { options, .. }) = (&scheme, growth) {
        let specs: Vec<_> = described.iter().map(|(spec, _)| *spec).collect();
        if *plan != redisbloom::plan(options, &specs) {
            return Err(field("plan"));
        }
    }
    Ok(ForeignHead { scheme, encoding, growth, links: described, stamp: stamp(&header, &links) })
}

/// The system that a header names, how its filters grow, and the header with only the fields that the system uses.
fn system(header: &ForeignHeader) -> Result<(Scheme, Growth, ForeignHeader), DecodeError> {
    let field = DecodeError::Field;
    let ForeignHeader { scheme, encoding, links, .. } = *header;
    let blank = ForeignHeader { scheme, encoding, links, ..ForeignHeader::default() };
    Ok(match header.scheme {
        REDISBLOOM => {
            let plan = RedisBloomPlan::from_number(header.plan).ok_or(field("plan"))?;
            let growth = Growth::RedisBloom { options: header.options, growth: header.growth };
            let used =
                ForeignHeader { plan: header.plan, options: header.options, growth: header.growth, ..blank };
            (Scheme::RedisBloom(plan), growth, used)
        }
        VALKEY_BLOOM => {
            let ForeignHeader { random_seed, growth, seed, error_rate, tightening, .. } = *header;
            let ratio = |value: f64| value > 0.0 && value < 1.0;
            if !ratio(error_rate) || !ratio(tightening) || random_seed > 1 {
                return Err(field("growth"));
            }
            let is_seed_random = random_seed == 1;
            let used = ForeignHeader { random_seed, growth, seed, error_rate, tightening, ..blank };
            let growth = Growth::ValkeyBloom { expansion: growth, error_rate, tightening, is_seed_random };
            (Scheme::ValkeyBloom { seed }, growth, used)
        }
        known => {
            let scheme = PLAIN.into_iter().find(|scheme| number(scheme) == known);
            (scheme.ok_or(field("scheme"))?, Growth::Bitmap, blank)
        }
    })
}

/// The item encodings that a system's filters can have.
fn encodings(scheme: &Scheme) -> &'static [Encoding] {
    match scheme {
        Scheme::GuavaMitz64 | Scheme::GuavaMitz32 => {
            &[Encoding::Bytes, Encoding::Utf16, Encoding::Long, Encoding::Int]
        }
        Scheme::Sbbf => &[Encoding::Bytes, Encoding::Long, Encoding::Int],
        Scheme::Redisson => &[Encoding::Bytes, Encoding::Json, Encoding::Kryo5],
        _ => &[Encoding::Bytes],
    }
}

/// Returns the link as it will be after being written in its system's own encoding and read back, which a server may do
/// at any time. That encoding has fewer fields than ours, and different limits.
fn at_home(
    scheme: &Scheme,
    growth: Growth,
    index: usize,
    spec: &LinkSpec,
    items: u64,
) -> Result<LinkSpec, DecodeError> {
    let most = match (scheme, growth) {
        (_, Growth::RedisBloom { .. }) => return redisbloom::spec_at_home(spec),
        (_, Growth::ValkeyBloom { error_rate, tightening, .. }) => {
            return import::spec_at_home(index, error_rate, tightening, spec, items);
        }
        (Scheme::Sbbf, _) => {
            return LinkSpec::split_block(spec.bytes).ok_or(DecodeError::Field("length of the bits"));
        }
        (Scheme::GoZero, _) => 256,
        (Scheme::GuavaMitz64 | Scheme::GuavaMitz32, _) => 255,
        _ => limits::MAX_FOREIGN_PROBES,
    };
    if spec.probes > most {
        return Err(DecodeError::Field("number of hashes"));
    }
    let home = LinkSpec::bitmap(spec.modulus, spec.probes);
    match scheme {
        // The bitset in the file can be longer than the filter needs.
        Scheme::BloomV3 => Ok(LinkSpec { bytes: spec.bytes.next_multiple_of(8), ..home }),
        Scheme::GuavaMitz64 | Scheme::GuavaMitz32 if !spec.modulus.is_multiple_of(64) => {
            Err(DecodeError::Field("bits"))
        }
        _ => Ok(home),
    }
}
