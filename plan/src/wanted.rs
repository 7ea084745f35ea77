//! A filter that can be created, and the command that creates it.

use bloomery::options::DEFAULT_EXPANSION;
use bloomery::{CuckooSpec, Family, HashKind, Overflow, Spec};

/// A filter that can be created: its parameters have been validated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// A Bloom filter of any family.
    Bloom(Spec),
    /// A cuckoo filter.
    Cuckoo(CuckooSpec),
}

/// Slots per bucket, moves per add, and growth of a cuckoo filter: the defaults of RedisBloom and of the module.
pub(crate) const BUCKET_SIZE: u8 = 2;
pub(crate) const MAX_ITERATIONS: u16 = 20;
pub(crate) const CUCKOO_EXPANSION: u32 = 1;

/// The words of the BF.RESERVE or CF.RESERVE that creates the filter, or of the BF.REBUILD that begins a static one.
/// Options with default values are left out, and so is the seed.
pub fn command(wanted: &Wanted, key: &str) -> Vec<String> {
    let (mut words, hash) = match wanted {
        Wanted::Bloom(spec) if spec.is_static() => (rebuild(spec, key), spec.hash),
        Wanted::Bloom(spec) => (bloom(spec, key), spec.hash),
        Wanted::Cuckoo(spec) => (cuckoo(spec, key), spec.hash),
    };
    if hash != HashKind::Xxh3 {
        words.extend(["HASH".into(), hash.as_str().into()]);
    }
    words
}

fn rebuild(spec: &Spec, key: &str) -> Vec<String> {
    let (capacity, error_rate) = (spec.capacity.to_string(), spec.error_rate.to_string());
    let words = ["CAPACITY", &capacity, "ERROR", &error_rate, "LAYOUT", spec.layout_word()];
    ["BF.REBUILD", key, "BEGIN"].into_iter().chain(words).map(str::to_owned).collect()
}

fn bloom(spec: &Spec, key: &str) -> Vec<String> {
    let mut words: Vec<String> =
        vec!["BF.RESERVE".into(), key.into(), spec.error_rate.to_string(), spec.capacity.to_string()];
    // COUNTING implies a fixed capacity, unless EXPANSION is given.
    if matches!(spec.family, Family::Fixed(Overflow::Error)) && !spec.cell.counts() {
        words.push("NONSCALING".into());
    }
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if spec.cell.counts() {
        add("COUNTING", spec.cell.bits().to_string());
    }
    match spec.family {
        Family::Fixed(overflow) => {
            if overflow != Overflow::Error {
                add("ONFULL", overflow.as_str().into());
            }
        }
        Family::Scaling { expansion, tightening } => {
            if expansion != DEFAULT_EXPANSION || spec.cell.counts() {
                add("EXPANSION", expansion.to_string());
            }
            if let Some(ratio) = tightening.ratio() {
                add("TIGHTENING", ratio.to_string());
            }
        }
        Family::Window { generations, overflow, every_ms } => {
            add("WINDOW", generations.to_string());
            if every_ms > 0 {
                add("EVERY", every_ms.to_string());
            }
            let is_table = spec.is_table();
            if overflow != if is_table { Overflow::Rotate } else { Overflow::Saturate } {
                add("ONFULL", overflow.as_str().into());
            }
        }
    }
    if spec.layout.is_some() {
        add("LAYOUT", spec.layout_word().into());
    }
    if spec.shards != 1 {
        add("SHARDS", spec.shards.to_string());
    }
    words
}

fn cuckoo(spec: &CuckooSpec, key: &str) -> Vec<String> {
    let mut words: Vec<String> = vec!["CF.RESERVE".into(), key.into(), spec.capacity.to_string()];
    let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
    if spec.bucket_size != BUCKET_SIZE {
        add("BUCKETSIZE", spec.bucket_size.to_string());
    }
    if spec.max_iterations != MAX_ITERATIONS {
        add("MAXITERATIONS", spec.max_iterations.to_string());
    }
    if spec.expansion != CuckooSpec::expansion_for(CUCKOO_EXPANSION) {
        add("EXPANSION", spec.expansion.to_string());
    }
    words
}
