//! The header of cuckoo filters. The number of items isn't written, because it equals the number of slots in use.

use crate::filter::{Cuckoo, CuckooSpec, Origin};
use crate::hash::{HashKind, Seed};
use crate::mem::crc32c;
use crate::params::limits;
use crate::wire::arrival::Filled;
use crate::wire::codec::{Kind, headers, read, write, written};
use crate::wire::error::DecodeError;
use alloc::vec::Vec;

/// Numbers of RedisBloom's hashes, which have no key. They follow the numbers of our own hashes.
const REDISBLOOM: u8 = 3;
const REDISBLOOM_1: u8 = 4;

headers! {
    struct CuckooHeader {
        capacity: u64,
        seed: [u64; 2],
        deletes: u64,
        moves: u64,
        hash: u8,
        bucket_size: u8,
        max_iterations: u16,
        expansion: u16,
        reserved: u16,
        tables: u32,
        reserved_too: u32,
    }
}

/// The validated content of a header: everything that is needed to build the filter, except its slots.
#[derive(Debug)]
pub(in crate::wire) struct CuckooHead {
    spec: CuckooSpec,
    deletes: u64,
    moves: u64,
    /// Number of sub-filters.
    tables: usize,
    /// Identifies the head and the chunks of one dump, see [`stamp`].
    pub(super) stamp: u32,
}

impl CuckooHead {
    /// Size in bytes of sub-filter `index`, rounded up to whole words.
    pub(super) fn array(&self, index: usize) -> Option<u64> {
        let buckets = if index < self.tables { self.spec.buckets_of(index) } else { None };
        buckets.map(|buckets| self.spec.bytes_of(buckets))
    }

    /// Builds the filter from the slots of all its sub-filters.
    pub(super) fn build(self, arrays: Vec<Filled>) -> Result<Cuckoo, DecodeError> {
        let tables = arrays.into_iter().map(|filled| (filled.words, filled.census.set));
        Ok(Cuckoo::from_parts(self.spec, tables, self.deletes, self.moves)?)
    }
}

/// CRC-32C of the header. It changes when the filter grows and when a fingerprint is moved or deleted, but not when an
/// item is added. If a fingerprint moved from a slot that hasn't been dumped yet to one that has, it would be missing
/// from the copy. A delete that follows an add of the same item can have the same effect. A compaction resets the
/// number of deletes to 0, and gives the filter a new dump number.
fn stamp(header: &CuckooHeader) -> u32 {
    crc32c(&written(header))
}

fn header(filter: &Cuckoo) -> CuckooHeader {
    let spec = filter.spec();
    CuckooHeader {
        capacity: spec.capacity,
        seed: [spec.seed.low, spec.seed.high],
        // Readers accept no larger count. A count that was at the limit when it was loaded may have grown since.
        deletes: filter.deletes().min(limits::MAX_COUNT),
        moves: filter.moves().min(limits::MAX_COUNT),
        hash: match spec.origin {
            Origin::Bloomery => spec.hash as u8,
            Origin::RedisBloom => REDISBLOOM,
            Origin::RedisBloom1 => REDISBLOOM_1,
        },
        bucket_size: spec.bucket_size,
        max_iterations: spec.max_iterations,
        expansion: spec.expansion,
        reserved: 0,
        tables: u32::try_from(filter.tables().len()).unwrap_or(u32::MAX),
        reserved_too: 0,
    }
}

/// Appends the header of `filter`, and returns its kind.
pub(super) fn encode(filter: &Cuckoo, to: &mut Vec<u8>) -> Kind {
    write(to, &header(filter));
    Kind::Cuckoo
}

/// The stamp of `filter`.
pub(super) fn stamp_of(filter: &Cuckoo) -> u32 {
    stamp(&header(filter))
}

/// Reads and validates a header. Refuses every value that no command could have produced.
pub(super) fn decode(mut rest: &[u8]) -> Result<CuckooHead, DecodeError> {
    let field = DecodeError::Field;
    let header: CuckooHeader = read(&mut rest)?;
    if !rest.is_empty() {
        return Err(DecodeError::Length("header"));
    }
    let (origin, hash) = match header.hash {
        REDISBLOOM => (Origin::RedisBloom, HashKind::default()),
        REDISBLOOM_1 => (Origin::RedisBloom1, HashKind::default()),
        number => (Origin::Bloomery, HashKind::from_number(number).ok_or(field("hash"))?),
    };
    let seed = Seed { low: header.seed[0], high: header.seed[1] };
    if seed.narrow(hash) != seed || (origin != Origin::Bloomery && seed != Seed::default()) {
        return Err(field("seed"));
    }
    let spec = CuckooSpec {
        capacity: header.capacity,
        bucket_size: header.bucket_size,
        max_iterations: header.max_iterations,
        expansion: header.expansion,
        origin,
        hash,
        seed,
    };
    spec.validate().map_err(|_| field("parameters"))?;
    if header.reserved != 0 || header.reserved_too != 0 {
        return Err(field("reserved"));
    }
    if header.deletes > limits::MAX_COUNT || header.moves > limits::MAX_COUNT {
        return Err(field("counts"));
    }
    let tables = usize::try_from(header.tables).unwrap_or(usize::MAX);
    if tables == 0 || tables > limits::MAX_TABLES || (tables > 1 && spec.expansion == 0) {
        return Err(field("tables"));
    }
    // Later sub-filters are never smaller, so it is enough to check the last one.
    if spec.buckets_of(tables.saturating_sub(1)).is_none() {
        return Err(field("tables"));
    }
    Ok(CuckooHead { spec, deletes: header.deletes, moves: header.moves, tables, stamp: stamp(&header) })
}
