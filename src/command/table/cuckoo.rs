//! CF.*: commands on cuckoo filters.

use super::ArgumentKind::{Integer, OneOf, Text};
use super::{Argument, option, optional, required, word};

pub(in crate::command) const RESERVE: &[Argument] = &[
    required("capacity", Integer),
    option("bucketsize", "BUCKETSIZE", Integer),
    option("maxiterations", "MAXITERATIONS", Integer),
    option("expansion", "EXPANSION", Integer),
    option("hash", "HASH", OneOf(&[word("xxh3", "XXH3"), word("siphash", "SIPHASH")])),
    option("seed", "SEED", Text),
];

pub(in crate::command) const INSERT: &[Argument] = &[
    option("capacity", "CAPACITY", Integer),
    optional(word("nocreate", "NOCREATE")),
    Argument { name: "item", token: Some("ITEMS"), kind: Text, optional: false, multiple: true },
];

pub(in crate::command) const O_N: &str = "O(n), where n is the number of sub-filters";
pub(in crate::command) const O_N_M: &str =
    "O(n * m), where n is the number of sub-filters and m is the number of items";
pub(in crate::command) const O_PIECE: &str = "O(n), where n is the length of the piece";
