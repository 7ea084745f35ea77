//! CF.*: commands on cuckoo filters.

use super::ArgumentKind::{Integer, OneOf, Text};
use super::{Argument, option, optional, required, word};

pub(crate) const RESERVE: &[Argument] = &[
    required("capacity", Integer),
    option("bucketsize", "BUCKETSIZE", Integer),
    option("maxiterations", "MAXITERATIONS", Integer),
    option("expansion", "EXPANSION", Integer),
    option("hash", "HASH", OneOf(&[word("xxh3", "XXH3"), word("siphash", "SIPHASH")])),
    option("seed", "SEED", Text),
];

pub(crate) const INSERT: &[Argument] = &[
    option("capacity", "CAPACITY", Integer),
    optional(word("nocreate", "NOCREATE")),
    Argument { name: "item", token: Some("ITEMS"), kind: Text, optional: false, multiple: true },
];

pub(crate) const O_N: &str = "O(n), where n is the number of sub-filters";
pub(crate) const O_N_M: &str = "O(n * m), where n is the number of sub-filters and m is the number of items";
pub(crate) const O_PIECE: &str = "O(n), where n is the length of the piece";
