//! The header of a filter that is being rebuilt: kind 6. Behind its own fields stand the headers of the live filter and of
//! its shadow, each as in a head of its own; the body is the cells of the one, then those of the other.

use super::decode::Filled;
use super::head::{self, Header, header, read, write};
use super::{DecodeError, bloom};
use crate::filter::{Filter, Rebuild};
use crate::params::limits;
use serde::{Deserialize, Serialize};

/// Number of the kind.
pub(super) const KIND: u8 = 6;

#[derive(Clone, Copy, Serialize, Deserialize)]
struct RebuildHeader {
    deletes_missed: u64,
    /// Length of the header of the live filter. That of the shadow is the rest.
    live_len: u32,
    live_kind: u8,
    shadow_kind: u8,
    reserved: u16,
}

/// What a header says, validated: everything that is needed to build both filters but their cells.
#[derive(Debug)]
pub(super) struct Description {
    live: head::Description,
    shadow: bloom::Description,
    deletes_missed: u64,
}

impl Description {
    /// Identifies head and chunks of one dump.
    pub(super) fn stamp(&self) -> u32 {
        stamp(self.live.stamp(), self.shadow.stamp)
    }

    /// Bytes of each array of cells, in the order of the body.
    pub(super) fn arrays(&self) -> Vec<u64> {
        let mut arrays = self.live.arrays();
        arrays.extend(self.shadow.arrays());
        arrays
    }

    /// Both filters, from all their arrays.
    pub(super) fn build(self, mut arrays: Vec<Filled>) -> Result<Filter, DecodeError> {
        let live = self.live.arrays().len();
        if arrays.len() < live {
            return Err(DecodeError::Length("body"));
        }
        let shadow = self.shadow.build(arrays.split_off(live))?;
        let shadow = shadow.into_bloom().ok_or(DecodeError::Field("kind of the shadow"))?;
        let live =
            self.live.build(arrays)?.into_live().ok_or(DecodeError::Field("kind of the live filter"))?;
        let rebuild = Rebuild::new(live, shadow, self.deletes_missed)?;
        Ok(Filter::Rebuild(Box::new(rebuild)))
    }
}

/// CRC-32C of both stamps: it changes when one of them does.
fn stamp(live: u32, shadow: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&live.to_le_bytes()), &shadow.to_le_bytes())
}

/// The header of a filter that is being rebuilt.
pub(super) fn encode(rebuild: &Rebuild) -> Header {
    let (live, shadow) = (header(rebuild.live().into()), bloom::encode(rebuild.shadow()));
    let own = RebuildHeader {
        deletes_missed: rebuild.deletes_missed(),
        live_len: u32::try_from(live.bytes.len()).unwrap_or(u32::MAX),
        live_kind: live.kind,
        shadow_kind: shadow.kind,
        reserved: 0,
    };
    let mut bytes = Vec::new();
    write(&mut bytes, &own);
    bytes.extend_from_slice(&live.bytes);
    bytes.extend_from_slice(&shadow.bytes);
    Header { kind: KIND, bytes, stamp: stamp(live.stamp, shadow.stamp) }
}

/// Reads and validates a header.
pub(super) fn decode(mut rest: &[u8]) -> Result<Description, DecodeError> {
    let field = DecodeError::Field;
    let own: RebuildHeader = read(&mut rest)?;
    if own.reserved != 0 {
        return Err(field("reserved"));
    }
    let live_len = usize::try_from(own.live_len).map_err(|_| DecodeError::Length("header"))?;
    let (live, shadow) = rest.split_at_checked(live_len).ok_or(DecodeError::Length("header"))?;
    // No cuckoo filter, and no rebuild inside a rebuild.
    if !matches!(own.live_kind, 1..=3 | 5) {
        return Err(field("kind of the live filter"));
    }
    if !matches!(own.shadow_kind, 1..=3) {
        return Err(field("kind of the shadow"));
    }
    let live = head::describe(own.live_kind, live)?;
    let shadow = bloom::decode(own.shadow_kind, shadow)?;
    let (counts, schedule) = match &live {
        head::Description::Bloom(live) => (live.counts(), live.schedule()),
        _ => (false, None),
    };
    // Only counting filters delete.
    if own.deletes_missed > if counts { limits::MAX_DELETES_MISSED } else { 0 } {
        return Err(field("deletes missed"));
    }
    if schedule.is_some() && shadow.schedule().is_some() && schedule != shadow.schedule() {
        return Err(field("schedule of the shadow"));
    }
    Ok(Description { live, shadow, deletes_missed: own.deletes_missed })
}
