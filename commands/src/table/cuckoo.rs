//! CF.*: commands on cuckoo filters.

use super::ArgumentKind::{Integer, Options, Text};
use super::{Argument, required};
use bloomery::options::{CUCKOO, CUCKOO_INSERT};

pub(crate) const RESERVE: &[Argument] = &[required("capacity", Integer), required("option", Options(CUCKOO))];

pub(crate) const INSERT: &[Argument] = &[
    required("option", Options(CUCKOO_INSERT)),
    Argument { name: "item", token: Some("ITEMS"), kind: Text, optional: false, multiple: true },
];

pub(crate) const O_N: &str = "O(n), where n is the number of sub-filters";
pub(crate) const O_N_M: &str = "O(n * m), where n is the number of sub-filters and m is the number of items";
