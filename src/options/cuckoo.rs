//! The options of a cuckoo filter.

use super::bloom::{CAPACITY, EXPANSION, HASH, NOCREATE, SEED};
use super::{OptionRow, Options, PLAIN, Value, set, text};
use crate::filter::{CuckooSpec, Origin};
use crate::spelling::unsigned;

/// The options of CF.RESERVE, in the order in which they are written.
pub const CUCKOO: &[OptionRow] = &[
    OptionRow {
        word: "BUCKETSIZE",
        flag: ("bucket-size", "SLOTS"),
        value: Value::Integer { name: "bucketsize", bounds: (1, u8::MAX as u64) },
        help: "Slots per bucket of a cuckoo filter [default: 2]",
        parse: |options, value| set(&mut options.bucket_size, u8::try_from(unsigned(value)?).ok()),
        write: |options| text(options.bucket_size),
        ..PLAIN
    },
    OptionRow {
        word: "MAXITERATIONS",
        flag: ("max-iterations", "N"),
        value: Value::Integer { name: "maxiterations", bounds: (1, u16::MAX as u64) },
        help: "Number of fingerprints that one add to a cuckoo filter may move [default: 20]",
        parse: |options, value| set(&mut options.max_iterations, u16::try_from(unsigned(value)?).ok()),
        write: |options| text(options.max_iterations),
        ..PLAIN
    },
    EXPANSION,
    HASH,
    SEED,
];

/// The options of CF.INSERT.
pub const CUCKOO_INSERT: &[OptionRow] = &[CAPACITY, NOCREATE];

impl Options {
    /// The options with which CF.RESERVE creates a filter of this spec, whatever the server's configuration.
    pub fn of_cuckoo(spec: &CuckooSpec) -> Options {
        let is_native = spec.origin == Origin::Bloomery;
        Options {
            bucket_size: Some(spec.bucket_size),
            max_iterations: Some(spec.max_iterations),
            expansion: Some(spec.expansion.into()),
            hash: is_native.then_some(spec.hash),
            seed: is_native.then(|| format!("{:x}", u128::from(spec.seed))),
            ..Options::default()
        }
    }

    /// This spec with what the options give, but with its own seed.
    pub fn cuckoo(&self, spec: CuckooSpec) -> CuckooSpec {
        let expansion = self.expansion.and_then(|expansion| u32::try_from(expansion).ok());
        CuckooSpec {
            bucket_size: self.bucket_size.unwrap_or(spec.bucket_size),
            max_iterations: self.max_iterations.unwrap_or(spec.max_iterations),
            expansion: expansion.map_or(spec.expansion, CuckooSpec::expansion_for),
            hash: self.hash.unwrap_or(spec.hash),
            ..spec
        }
    }
}
