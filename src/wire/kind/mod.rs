//! Writes, reads and validates the header of each kind of filter. The writer and the reader of a header are in the same
//! file. The fields of the structs are in the order in which they are written.

mod bloom;
mod cuckoo;
mod foreign;
mod rebuild;

use super::arrival::{Filled, Place};
use super::codec::Kind;
use super::error::DecodeError;
use crate::filter::layout::quotient::Loading;
use crate::filter::{Census, Filter, FilterRef, slots_in_use};
use crate::mem::Words;
use crate::params::Cell;
use alloc::{boxed::Box, vec::Vec};
use bloom::BloomHead;
use cuckoo::CuckooHead;
use foreign::ForeignHead;
use rebuild::RebuildHead;

/// The validated content of a head: everything that building the filter needs, except its cells.
#[derive(Debug)]
pub(super) enum Head {
    Bloom(BloomHead),
    Cuckoo(CuckooHead),
    Foreign(ForeignHead),
    Rebuild(Box<RebuildHead>),
}

impl Head {
    /// The stamp: a number that identifies the head and the chunks of one dump.
    pub(super) fn stamp(&self) -> u32 {
        match self {
            Head::Bloom(head) => head.stamp,
            Head::Cuckoo(head) => head.stamp,
            Head::Foreign(head) => head.stamp,
            Head::Rebuild(head) => head.stamp(),
        }
    }

    /// Length of the cell array `index`, in the order of the body; `None` after the last one: its size in bytes or, for
    /// a table, the number of its positions. Lengths are computed on request, because an 80-byte head can declare
    /// 65,536 sub-filters, and a list of their sizes would need 512 KiB.
    pub(super) fn array(&self, index: usize) -> Option<u64> {
        match self {
            Head::Bloom(head) => head.array(index),
            Head::Cuckoo(head) => head.array(index),
            Head::Foreign(head) => head.array(index),
            Head::Rebuild(head) => head.array(index),
        }
    }

    /// Total length of all arrays, if the sum doesn't overflow.
    pub(super) fn body_len(&self) -> Option<u64> {
        (0..).map_while(|index| self.array(index)).try_fold(0u64, u64::checked_add)
    }

    /// Bytes of memory of the cell array `index`. For a table, this is an estimate.
    pub(super) fn bytes(&self, index: usize) -> Option<u64> {
        match self.loading(index) {
            Some(loading) => Some(loading.estimate()),
            None => self.array(index),
        }
    }

    /// Like [`bytes`](Head::bytes), but for a table at least what it may need for items up to its capacity.
    pub(super) fn reserved_bytes(&self, index: usize) -> Option<u64> {
        let reserved = self.loading(index).map_or(0, |loading| loading.reserved());
        self.bytes(index).map(|bytes| bytes.max(reserved))
    }

    /// What loads array `index`, if it is a table.
    pub(super) fn loading(&self, index: usize) -> Option<Loading> {
        match self {
            Head::Bloom(head) => head.loading(index),
            Head::Rebuild(head) => head.loading(index),
            Head::Cuckoo(_) | Head::Foreign(_) => None,
        }
    }

    /// How parts of array `index` are written into its words, and how their cells are counted.
    pub(super) fn place(&self, index: usize) -> Place {
        match self {
            Head::Cuckoo(_) => Place::By(place_slots),
            Head::Bloom(head) => head.place(index),
            Head::Foreign(_) => bloom::place_cells(Cell::Bit),
            Head::Rebuild(head) => head.place(index),
        }
    }

    /// Builds the filter from all its arrays.
    pub(super) fn build(self, arrays: Vec<Whole>) -> Result<Filter, DecodeError> {
        Ok(match self {
            Head::Bloom(head) => Filter::Bloom(head.build(arrays)?),
            Head::Cuckoo(head) => Filter::Cuckoo(head.build(cells_of(arrays)?)?),
            Head::Foreign(head) => Filter::Foreign(Box::new(head.build(cells_of(arrays)?)?)),
            Head::Rebuild(head) => Filter::Rebuild(Box::new(head.build(arrays)?)),
        })
    }
}

/// A complete array of a filter's cells.
#[derive(Debug)]
pub(super) enum Whole {
    Cells(Filled),
    Table(Box<Loading>),
}

/// The arrays of a filter without tables.
fn cells_of(arrays: Vec<Whole>) -> Result<Vec<Filled>, DecodeError> {
    let cells = arrays.into_iter().map(|array| match array {
        Whole::Cells(filled) => Ok(filled),
        Whole::Table(_) => Err(DecodeError::Length("body")),
    });
    cells.collect()
}

/// Writes the slots of a cuckoo filter into zeroed words, and counts the fingerprints.
fn place_slots(words: &Words, offset: u64, bytes: &[u8]) -> Census {
    words.write_bytes(offset, bytes);
    Census::of_set(slots_in_use(bytes))
}

/// Appends the header of a filter, and returns the filter's kind.
pub(super) fn encode(filter: FilterRef<'_>, to: &mut Vec<u8>) -> Kind {
    match filter {
        FilterRef::Bloom(filter) => bloom::encode(filter, to),
        FilterRef::Cuckoo(filter) => cuckoo::encode(filter, to),
        FilterRef::Foreign(filter) => foreign::encode(filter, to),
        FilterRef::Rebuild(rebuild) => rebuild::encode(rebuild, to),
    }
}

/// The stamp, which identifies the head and the chunks of one dump: a checksum of what must not change during the dump.
pub(super) fn stamp(filter: FilterRef<'_>) -> u32 {
    match filter {
        FilterRef::Bloom(filter) => bloom::stamp_of(filter),
        FilterRef::Cuckoo(filter) => cuckoo::stamp_of(filter),
        FilterRef::Foreign(filter) => foreign::stamp_of(filter),
        FilterRef::Rebuild(rebuild) => rebuild::stamp_of(rebuild),
    }
}

/// Returns the kind and the header of a [packed](super::packed) filter. A Bloom filter's header is shorter than in a
/// head.
pub(super) fn pack(filter: FilterRef<'_>) -> (Kind, Vec<u8>) {
    match filter {
        FilterRef::Bloom(filter) => bloom::pack(filter),
        other => {
            let mut bytes = Vec::new();
            (encode(other, &mut bytes), bytes)
        }
    }
}

/// Reads and validates the header of a packed filter.
pub(super) fn unpack(kind: Kind, header: &[u8]) -> Result<Head, DecodeError> {
    match kind {
        Kind::Fixed | Kind::Chain | Kind::Window => Ok(Head::Bloom(bloom::unpack(kind, header)?.live()?)),
        _ => decode(kind, header),
    }
}

/// Reads and validates a header.
pub(super) fn decode(kind: Kind, header: &[u8]) -> Result<Head, DecodeError> {
    Ok(match kind {
        Kind::Fixed | Kind::Chain | Kind::Window => Head::Bloom(bloom::decode(kind, header)?.live()?),
        Kind::Cuckoo => Head::Cuckoo(cuckoo::decode(header)?),
        Kind::Foreign => Head::Foreign(foreign::decode(header)?),
        Kind::Rebuild => Head::Rebuild(Box::new(rebuild::decode(header)?)),
    })
}
