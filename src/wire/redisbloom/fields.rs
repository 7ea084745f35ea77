//! The fields in RDB files and DUMP payloads, in all versions.

use super::raw::{OLD_HASH, RawCuckoo, RawLink, marked_deletes, plan};
use crate::filter::foreign::{Encoding, Foreign, Growth, Link, Scheme};
use crate::filter::{Cuckoo, Filter, fingerprints};
use crate::mem::Words;
use crate::wire::error::DecodeError;
use crate::wire::stream::{Sink, Source};
use alloc::{boxed::Box, vec::Vec};

/// The version of the encoding that is written, and the newest that is read.
pub const ENCODING: u32 = 4;

const END: DecodeError = DecodeError::Length("payload");

/// The growth factor of chains that were written before the encoding had a field for it.
const OLD_GROWTH: u32 = 2;

/// Reads a Bloom filter of the type `MBbloom--`.
pub fn load_bloom(from: &mut impl Source, encoding: u32) -> Result<Filter, DecodeError> {
    let field = DecodeError::Field;
    // Encoding 2, which used a different hash, existed for a few weeks between two releases.
    if encoding > ENCODING || encoding == 2 {
        return Err(field("encoding version"));
    }
    // The number of items, which the links also contain.
    from.unsigned().ok_or(END)?;
    let count = from.unsigned().ok_or(END)?;
    let mut small = |present: bool, otherwise: u32, name| match present {
        true => from.unsigned().ok_or(END).and_then(|value| u32::try_from(value).map_err(|_| field(name))),
        false => Ok(otherwise),
    };
    let options = small(encoding >= 3, 0, "options")?;
    let growth = small(encoding >= 4, OLD_GROWTH, "growth")?;
    let mut links = Vec::new();
    // A hostile count is harmless: each link is read from the payload, which ends first.
    for _ in 0..count {
        links.push(load_link(from, encoding)?);
    }
    let specs: Vec<_> = links.iter().map(|link| *link.spec()).collect();
    let scheme = Scheme::RedisBloom(plan(options, &specs));
    let growth = Growth::RedisBloom { options, growth };
    Ok(Filter::Foreign(Box::new(Foreign::new(scheme, Encoding::Bytes, growth, links)?)))
}

fn load_link(from: &mut impl Source, encoding: u32) -> Result<Link, DecodeError> {
    let capacity = from.unsigned().ok_or(END)?;
    let error_rate = from.double().ok_or(END)?;
    let hashes = from.unsigned().ok_or(END)?;
    let bits_per_item = from.double().ok_or(END)?;
    let (bits, log2) = if encoding >= 1 {
        (from.unsigned().ok_or(END)?, from.unsigned().ok_or(END)?)
    } else {
        (truncated(capacity as f64 * bits_per_item), 0)
    };
    let raw = |bytes| RawLink { bytes, bits, error_rate, bits_per_item, hashes, capacity, log2 };
    let words = from.string(|bytes| {
        let spec = raw(bytes.len() as u64).spec()?;
        Ok::<_, DecodeError>((spec, Words::from_bytes(bytes)?))
    });
    let (spec, words) = words.ok_or(END)??;
    let items = from.unsigned().ok_or(END)?;
    let ones = Words::ones(&words);
    Ok(Link::from_words(spec, items, words, ones)?)
}

/// Converts a double to an integer, with the same result as C wherever C defines one.
fn truncated(value: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, reason = "Rust saturates, and validation checks the result")]
    let integer = value as u64;
    integer
}

/// Writes a Bloom filter that came from RedisBloom.
pub fn save_bloom(to: &mut impl Sink, filter: &Foreign) {
    let (options, growth) = match filter.growth() {
        Growth::RedisBloom { options, growth } => (options, growth),
        _ => (0, 0),
    };
    to.unsigned(filter.items());
    to.unsigned(filter.links().len() as u64);
    to.unsigned(options.into());
    to.unsigned(growth.into());
    for link in filter.links() {
        let spec = link.spec();
        to.unsigned(spec.capacity);
        to.double(spec.error_rate);
        to.unsigned(spec.probes.into());
        to.double(spec.bits_per_item);
        to.unsigned(spec.bits);
        to.unsigned(spec.log2.into());
        to.words(link.words(), spec.bytes);
        to.unsigned(link.items());
    }
}

/// Reads a cuckoo filter of the type `MBbloomCF`.
pub fn load_cuckoo(from: &mut impl Source, encoding: u32) -> Result<Filter, DecodeError> {
    if !matches!(encoding, 1 | 3 | 4) {
        return Err(DecodeError::Field("encoding version"));
    }
    let filters = from.unsigned().ok_or(END)?;
    let buckets = from.unsigned().ok_or(END)?;
    // The number of items, which equals the number of slots in use.
    from.unsigned().ok_or(END)?;
    let is_old = encoding < 4;
    // Older encodings don't have these fields. The defaults are the mark of the old hash, and the values that were
    // constants in RedisBloom.
    let mut next = |otherwise| if is_old { Ok(otherwise) } else { from.unsigned().ok_or(END) };
    let raw = RawCuckoo {
        filters,
        buckets,
        deletes: next(OLD_HASH)?,
        bucket_size: next(2)?,
        max_iterations: next(500)?,
        expansion: next(1)?,
    };
    let (spec, filters) = raw.spec(raw.origin())?;
    let mut arrays = Vec::new();
    for buckets in (0..filters).map_while(|index| spec.buckets_of(index)) {
        if !is_old && from.unsigned().ok_or(END)? != buckets {
            return Err(DecodeError::Field("number of buckets"));
        }
        let slots = spec.slots_of(buckets);
        let words =
            from.string(
                |bytes| {
                    if bytes.len() as u64 == slots { Ok(Words::from_bytes(bytes)?) } else { Err(END) }
                },
            );
        arrays.push(words.ok_or(END)??);
    }
    let tables = arrays.into_iter().map(|words| {
        let items = fingerprints(&words);
        (words, items)
    });
    let filter = Cuckoo::from_parts(spec, tables, raw.deletes & !OLD_HASH, 0)?;
    Ok(Filter::Cuckoo(filter))
}

/// Writes a cuckoo filter that came from RedisBloom.
pub fn save_cuckoo(to: &mut impl Sink, filter: &Cuckoo) {
    let spec = filter.spec();
    to.unsigned(filter.tables().len() as u64);
    to.unsigned(spec.first_buckets());
    to.unsigned(filter.items());
    to.unsigned(marked_deletes(filter));
    to.unsigned(spec.bucket_size.into());
    to.unsigned(spec.max_iterations.into());
    to.unsigned(spec.expansion.into());
    for table in filter.tables() {
        to.unsigned(table.buckets());
        to.words(table.words(), spec.slots_of(table.buckets()));
    }
}
