//! The header of a filter that is being rebuilt. After its own fields, it contains the headers of the live filter and
//! of its shadow, each laid out as in a separate head. The body consists of the live filter's cells, then the shadow's
//! cells.

use super::bloom::{self, BloomHead};
use super::foreign::{self, ForeignHead};
use super::{Whole, cells_of};
use crate::filter::layout::quotient::Loading;
use crate::filter::{Live, LiveRef, Rebuild};
use crate::mem::{crc32c, crc32c_append};
use crate::params::{Cell, limits};
use crate::wire::arrival::Place;
use crate::wire::codec::{Kind, headers, read, write};
use crate::wire::error::DecodeError;
use alloc::{boxed::Box, vec::Vec};

headers! {
    struct OwnHeader {
        deletes_missed: u64,
        /// Length of the live filter's header in bytes. The shadow's header follows it.
        live_len: u32,
        live_kind: u8,
        shadow_kind: u8,
        reserved: u16,
    }
}

/// The validated content of a header: everything that is needed to build both filters, except their cells.
#[derive(Debug)]
pub(in crate::wire) struct RebuildHead {
    live: LiveHead,
    shadow: BloomHead,
    deletes_missed: u64,
}

/// The head of the live filter, which can be neither a cuckoo filter nor a filter that is already being rebuilt.
#[derive(Debug)]
enum LiveHead {
    Bloom(BloomHead),
    Foreign(ForeignHead),
}

impl LiveHead {
    fn stamp(&self) -> u32 {
        match self {
            LiveHead::Bloom(head) => head.stamp,
            LiveHead::Foreign(head) => head.stamp,
        }
    }

    fn array(&self, index: usize) -> Option<u64> {
        match self {
            LiveHead::Bloom(head) => head.array(index),
            LiveHead::Foreign(head) => head.array(index),
        }
    }

    /// Number of arrays.
    fn count(&self) -> usize {
        match self {
            LiveHead::Bloom(head) => head.count(),
            LiveHead::Foreign(head) => head.count(),
        }
    }

    fn build(self, arrays: Vec<Whole>) -> Result<Live, DecodeError> {
        Ok(match self {
            LiveHead::Bloom(head) => Live::Bloom(head.build(arrays)?),
            LiveHead::Foreign(head) => Live::Foreign(Box::new(head.build(cells_of(arrays)?)?)),
        })
    }
}

impl RebuildHead {
    /// The stamp: a number that identifies the head and the chunks of one dump.
    pub(super) fn stamp(&self) -> u32 {
        stamp(self.live.stamp(), self.shadow.stamp)
    }

    /// What loads array `index`, if it is a table.
    pub(super) fn loading(&self, index: usize) -> Option<Loading> {
        match (index.checked_sub(self.live.count()), &self.live) {
            (Some(index), _) => self.shadow.loading(index),
            (None, LiveHead::Bloom(head)) => head.loading(index),
            (None, LiveHead::Foreign(_)) => None,
        }
    }

    /// Length of the cell array `index`, in the order of the body.
    pub(super) fn array(&self, index: usize) -> Option<u64> {
        match index.checked_sub(self.live.count()) {
            None => self.live.array(index),
            Some(index) => self.shadow.array(index),
        }
    }

    /// How parts of array `index` are written into its words.
    pub(super) fn place(&self, index: usize) -> Place {
        match (index.checked_sub(self.live.count()), &self.live) {
            (Some(index), _) => self.shadow.place(index),
            (None, LiveHead::Bloom(head)) => head.place(index),
            (None, LiveHead::Foreign(_)) => bloom::place_cells(Cell::Bit),
        }
    }

    /// Builds both filters from all their arrays.
    pub(super) fn build(self, mut arrays: Vec<Whole>) -> Result<Rebuild, DecodeError> {
        let live = self.live.count();
        if arrays.len() < live {
            return Err(DecodeError::Length("body"));
        }
        let shadow = self.shadow.build(arrays.split_off(live))?;
        Ok(Rebuild::new(self.live.build(arrays)?, shadow, self.deletes_missed)?)
    }
}

/// CRC-32C of both stamps. It changes when either stamp changes.
fn stamp(live: u32, shadow: u32) -> u32 {
    crc32c_append(crc32c(&live.to_le_bytes()), &shadow.to_le_bytes())
}

/// Appends the header of a filter that is being rebuilt, and returns its kind.
pub(super) fn encode(rebuild: &Rebuild, to: &mut Vec<u8>) -> Kind {
    let mut both = Vec::new();
    let live_kind = match rebuild.live() {
        LiveRef::Bloom(live) => bloom::encode(live, &mut both),
        LiveRef::Foreign(live) => foreign::encode(live, &mut both),
    };
    let live_len = u32::try_from(both.len()).unwrap_or(u32::MAX);
    let shadow_kind = bloom::encode(rebuild.shadow(), &mut both);
    let own = OwnHeader {
        deletes_missed: rebuild.deletes_missed(),
        live_len,
        live_kind: live_kind as u8,
        shadow_kind: shadow_kind as u8,
        reserved: 0,
    };
    write(to, &own);
    to.extend_from_slice(&both);
    Kind::Rebuild
}

/// The stamp of a filter that is being rebuilt.
pub(super) fn stamp_of(rebuild: &Rebuild) -> u32 {
    let live = match rebuild.live() {
        LiveRef::Bloom(live) => bloom::stamp_of(live),
        LiveRef::Foreign(live) => foreign::stamp_of(live),
    };
    stamp(live, bloom::stamp_of(rebuild.shadow()))
}

/// Reads and validates a header.
pub(super) fn decode(mut rest: &[u8]) -> Result<RebuildHead, DecodeError> {
    use Kind::{Chain, Fixed, Foreign, Window};
    let field = DecodeError::Field;
    let own: OwnHeader = read(&mut rest)?;
    if own.reserved != 0 {
        return Err(field("reserved"));
    }
    let live_len = usize::try_from(own.live_len).map_err(|_| DecodeError::Length("header"))?;
    let (live, shadow) = rest.split_at_checked(live_len).ok_or(DecodeError::Length("header"))?;
    let live_kind = Kind::from_number(own.live_kind);
    let Some(live_kind @ (Fixed | Chain | Window | Foreign)) = live_kind else {
        return Err(field("kind of the live filter"));
    };
    let Some(shadow_kind @ (Fixed | Chain | Window)) = Kind::from_number(own.shadow_kind) else {
        return Err(field("kind of the shadow"));
    };
    let live = match live_kind {
        Foreign => LiveHead::Foreign(foreign::decode(live)?),
        kind => LiveHead::Bloom(bloom::decode(kind, live)?.live()?),
    };
    let shadow = bloom::decode(shadow_kind, shadow)?;
    let (counts, schedule) = match &live {
        LiveHead::Bloom(live) => (live.can_delete(), live.schedule()),
        LiveHead::Foreign(_) => (false, None),
    };
    // If the live filter doesn't support deletes, the shadow can't have missed any.
    if own.deletes_missed > if counts { limits::MAX_DELETES_MISSED } else { 0 } {
        return Err(field("deletes missed"));
    }
    if schedule.is_some() && shadow.schedule().is_some() && schedule != shadow.schedule() {
        return Err(field("schedule of the shadow"));
    }
    Ok(RebuildHead { live, shadow, deletes_missed: own.deletes_missed })
}
