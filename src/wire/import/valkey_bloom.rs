//! valkey-bloom's two encodings: the fields of its type `bloomfltr`, and the payload of its BF.LOAD.
//!
//! In both, each filter is a blob that consists of 45 bytes of fields and the bitmap:
//!
//! ```text
//!  0  u8       1
//!  1  u64      length of the bitmap
//!  9  u32      probes
//! 13  [u8; 32] seed, the same in all filters
//! 45  bitmap, from the lowest bit up
//! ```

use crate::filter::foreign::{BitOrder, Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::math;
use crate::mem::Words;
use crate::parallel::{ParallelFor, alone};
use crate::wire::codec::take;
use crate::wire::error::DecodeError;
use crate::wire::stream::{Sink, Source};
use alloc::vec::Vec;

/// The version of the blob, and of the payload.
const VERSION: u8 = 1;

/// Maximum number of probes in a blob. valkey-bloom's sizing never comes close to this number.
const MAX_PROBES: u32 = 2048;

const END: DecodeError = DecodeError::Length("payload");

/// The fields before the filters.
struct Chain {
    expansion: u32,
    error_rate: f64,
    tightening: f64,
    is_seed_random: bool,
}

/// The error rate of filter `index`.
fn rate_of(index: usize, error_rate: f64, tightening: f64) -> f64 {
    let power = u32::try_from(index).unwrap_or(u32::MAX);
    (error_rate * math::power(tightening, power)).max(f64::MIN_POSITIVE)
}

impl Chain {
    fn rate_of(&self, index: usize) -> f64 {
        rate_of(index, self.error_rate, self.tightening)
    }

    fn finish(self, filters: Vec<(Link, [u8; 32])>) -> Result<Foreign, DecodeError> {
        let Chain { expansion, error_rate, tightening, is_seed_random } = self;
        let ratio = |value: f64| value > 0.0 && value < 1.0;
        if !ratio(error_rate) {
            return Err(DecodeError::Field("fp_rate"));
        }
        if !ratio(tightening) {
            return Err(DecodeError::Field("tightening_ratio"));
        }
        let seed = filters.first().map(|(_, seed)| *seed).ok_or(DecodeError::Field("number of filters"))?;
        if filters.iter().any(|(_, other)| *other != seed) {
            return Err(DecodeError::Field("seed"));
        }
        let growth = Growth::ValkeyBloom { expansion, error_rate, tightening, is_seed_random };
        let links = filters.into_iter().map(|(link, _)| link).collect();
        Ok(Foreign::new(Scheme::ValkeyBloom { seed }, Encoding::Bytes, growth, links)?)
    }
}

/// Reads a blob. `items` is `None` for a filter that is full.
fn filter(
    blob: &[u8],
    error_rate: f64,
    capacity: u64,
    items: Option<u64>,
    parallel: &ParallelFor<'_>,
) -> Result<(Link, [u8; 32]), DecodeError> {
    let short = DecodeError::Length("filter");
    let mut rest = blob;
    let [version] = take(&mut rest).ok_or(short)?;
    if version != VERSION {
        return Err(DecodeError::Field("version of the filter"));
    }
    let len = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
    let probes = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
    let seed = take(&mut rest).ok_or(short)?;
    if len == 0 || len != rest.len() as u64 {
        return Err(DecodeError::Length("bitmap"));
    }
    let items = items.unwrap_or(capacity);
    let spec = link_spec(len, probes, error_rate, capacity, items)?;
    Ok((Link::with_bits(spec, Some(items), BitOrder::Lowest, rest, parallel)?, seed))
}

fn link_spec(
    bytes: u64,
    probes: u32,
    error_rate: f64,
    capacity: u64,
    items: u64,
) -> Result<LinkSpec, DecodeError> {
    if !(1..=MAX_PROBES).contains(&probes) {
        return Err(DecodeError::Field("number of hashes"));
    }
    if capacity == 0 || i64::try_from(capacity).is_err() {
        return Err(DecodeError::Field("capacity"));
    }
    if items > capacity {
        return Err(DecodeError::Field("num_items"));
    }
    let bits = bytes.checked_mul(8).ok_or(DecodeError::Length("bitmap"))?;
    Ok(LinkSpec { capacity, error_rate, ..LinkSpec::bitmap(bits, probes) })
}

/// Link `index` as valkey-bloom's fields describe it. Fails if they can't express the link.
pub(in crate::wire) fn spec_at_home(
    index: usize,
    error_rate: f64,
    tightening: f64,
    spec: &LinkSpec,
    items: u64,
) -> Result<LinkSpec, DecodeError> {
    link_spec(spec.bytes, spec.probes, rate_of(index, error_rate, tightening), spec.capacity, items)
}

fn blob(link: &Link, seed: &[u8; 32]) -> Vec<u8> {
    let spec = link.spec();
    let mut blob = blob_fields(spec, seed);
    Words::append_bytes(link.words(), spec.bytes, &mut blob);
    blob
}

/// The bytes before the bitmap in a blob.
fn blob_fields(spec: &LinkSpec, seed: &[u8; 32]) -> Vec<u8> {
    [&[VERSION][..], &spec.bytes.to_le_bytes(), &spec.probes.to_le_bytes(), seed].concat()
}

/// The bytes before the filters in a payload.
pub(in crate::wire) fn payload_fields(
    expansion: u32,
    error_rate: f64,
    tightening: f64,
    is_seed_random: bool,
    filters: u64,
) -> Vec<u8> {
    [
        &[VERSION][..],
        &expansion.to_le_bytes(),
        &error_rate.to_le_bytes(),
        &tightening.to_le_bytes(),
        &[is_seed_random.into()],
        &filters.to_le_bytes(),
    ]
    .concat()
}

/// The bytes before and after a filter's bitmap in a payload.
pub(in crate::wire) fn payload_fields_of(link: &Link, seed: &[u8; 32]) -> [Vec<u8>; 2] {
    let spec = link.spec();
    let fields = blob_fields(spec, seed);
    let len = spec.bytes.saturating_add(fields.len() as u64);
    [[&len.to_le_bytes()[..], &fields].concat(), [link.items(), spec.capacity].map(u64::to_le_bytes).concat()]
}

/// Reads the fields of the type `bloomfltr`, encoding 1.
///
/// # Errors
/// The first invalid field.
pub fn load(from: &mut impl Source, encoding: u32) -> Result<Foreign, DecodeError> {
    if encoding != 1 {
        return Err(DecodeError::Field("encoding version"));
    }
    let count = from.unsigned().ok_or(END)?;
    let expansion = from.unsigned().ok_or(END)?;
    let chain = Chain {
        expansion: u32::try_from(expansion).map_err(|_| DecodeError::Field("expansion"))?,
        error_rate: from.double().ok_or(END)?,
        tightening: from.double().ok_or(END)?,
        is_seed_random: from.unsigned().ok_or(END)? != 0,
    };
    let mut filters = Vec::new();
    for index in 0..count {
        let error_rate = chain.rate_of(filters.len());
        let capacity = from.unsigned().ok_or(END)?;
        // All filters except the newest are full.
        let is_last = index.checked_add(1) == Some(count);
        let items = if is_last { Some(from.unsigned().ok_or(END)?) } else { None };
        filters.push(from.string(|bytes| filter(bytes, error_rate, capacity, items, &alone)).ok_or(END)??);
    }
    chain.finish(filters)
}

/// Writes the fields of the type `bloomfltr`, encoding 1.
pub fn save(to: &mut impl Sink, filter: &Foreign) {
    let (Scheme::ValkeyBloom { seed }, growth) = (filter.scheme(), filter.growth()) else { return };
    let Growth::ValkeyBloom { expansion, error_rate, tightening, is_seed_random } = growth else { return };
    to.unsigned(filter.links().len() as u64);
    to.unsigned(expansion.into());
    to.double(error_rate);
    to.double(tightening);
    to.unsigned(is_seed_random.into());
    for (index, link) in filter.links().iter().enumerate() {
        to.unsigned(link.spec().capacity);
        if index.saturating_add(1) == filter.links().len() {
            to.unsigned(link.items());
        }
        to.string(&blob(link, seed));
    }
}

/// Reads the payload of BF.LOAD, as in valkey-bloom's AOF files. Bytes after the payload are ignored, as in
/// valkey-bloom.
pub fn payload(bytes: &[u8], parallel: &ParallelFor<'_>) -> Result<Foreign, DecodeError> {
    let mut rest = bytes;
    let [version] = take(&mut rest).ok_or(END)?;
    if version != VERSION {
        return Err(DecodeError::Field("version"));
    }
    let chain = Chain {
        expansion: u32::from_le_bytes(take(&mut rest).ok_or(END)?),
        error_rate: f64::from_le_bytes(take(&mut rest).ok_or(END)?),
        tightening: f64::from_le_bytes(take(&mut rest).ok_or(END)?),
        is_seed_random: take::<1>(&mut rest).ok_or(END)? != [0],
    };
    let word = |rest: &mut &[u8]| take(rest).map(u64::from_le_bytes).ok_or(END);
    let count = word(&mut rest)?;
    let mut filters = Vec::new();
    for index in 0..count {
        let len = usize::try_from(word(&mut rest)?).map_err(|_| END)?;
        let (blob, next) = rest.split_at_checked(len).ok_or(END)?;
        rest = next;
        let items = word(&mut rest)?;
        let capacity = word(&mut rest)?;
        // The RDB fields contain the number of items only for the newest filter. All other filters are full.
        let is_last = index.checked_add(1) == Some(count);
        let items = if is_last { Some(items) } else { None };
        filters.push(filter(blob, chain.rate_of(filters.len()), capacity, items, parallel)?);
    }
    chain.finish(filters)
}
