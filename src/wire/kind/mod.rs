//! The header of each kind of filter: written, read and validated. One file has both the
//! writer and the reader, with the structs in the order in which they are written.

mod bloom;
mod cuckoo;
mod foreign;
mod rebuild;

use super::codec::{Filled, Header, Kind};
use super::error::DecodeError;
use crate::filter::{Filter, FilterRef};
use bloom::BloomHead;
use cuckoo::CuckooHead;
use foreign::ForeignHead;
use rebuild::RebuildHead;

/// What a head says, validated: everything that building the filter needs, except its cells.
#[derive(Debug)]
pub(super) enum Head {
    Bloom(BloomHead),
    Cuckoo(CuckooHead),
    Foreign(ForeignHead),
    Rebuild(Box<RebuildHead>),
}

impl Head {
    /// Identifies the head and the chunks of one dump.
    pub(super) fn stamp(&self) -> u32 {
        match self {
            Head::Bloom(head) => head.stamp,
            Head::Cuckoo(head) => head.stamp,
            Head::Foreign(head) => head.stamp,
            Head::Rebuild(head) => head.stamp(),
        }
    }

    /// Bytes of each array of cells, in the order of the body.
    pub(super) fn arrays(&self) -> Vec<u64> {
        match self {
            Head::Bloom(head) => head.arrays().collect(),
            Head::Cuckoo(head) => head.arrays().collect(),
            Head::Foreign(head) => head.arrays().collect(),
            Head::Rebuild(head) => head.arrays(),
        }
    }

    /// The filter, from all its arrays.
    pub(super) fn build(self, arrays: Vec<Filled>) -> Result<Filter, DecodeError> {
        Ok(match self {
            Head::Bloom(head) => Filter::Bloom(head.build(arrays)?),
            Head::Cuckoo(head) => Filter::Cuckoo(Box::new(head.build(arrays)?)),
            Head::Foreign(head) => Filter::Foreign(Box::new(head.build(arrays)?)),
            Head::Rebuild(head) => Filter::Rebuild(Box::new(head.build(arrays)?)),
        })
    }
}

/// The header of a filter.
pub(super) fn encode(filter: FilterRef<'_>) -> Header {
    match filter {
        FilterRef::Bloom(filter) => bloom::encode(filter),
        FilterRef::Cuckoo(filter) => cuckoo::encode(filter),
        FilterRef::Foreign(filter) => foreign::encode(filter),
        FilterRef::Rebuild(rebuild) => rebuild::encode(rebuild),
    }
}

/// Reads and validates a header.
pub(super) fn decode(kind: Kind, header: &[u8]) -> Result<Head, DecodeError> {
    Ok(match kind {
        Kind::Fixed | Kind::Chain | Kind::Window => Head::Bloom(bloom::decode(kind, header)?),
        Kind::Cuckoo => Head::Cuckoo(cuckoo::decode(header)?),
        Kind::Foreign => Head::Foreign(foreign::decode(header)?),
        Kind::Rebuild => Head::Rebuild(Box::new(rebuild::decode(header)?)),
    })
}
