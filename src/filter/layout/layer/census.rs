//! Counts cells.

use crate::bits::counter;
use crate::mem::Words;
use crate::params::Cell;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;

/// The result of counting some cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Number of cells that are not 0.
    pub(crate) set: u64,
    /// Sum of the counters.
    pub(in crate::filter::layout) sum: u64,
    /// Number of counters at their maximum.
    pub(in crate::filter::layout) saturated: u64,
    /// Whether any cells are in a state that no command produces.
    pub(crate) is_damaged: bool,
}

impl Census {
    /// Counts the cells in these words.
    #[inline(always)]
    pub(crate) fn of(cell: Cell, words: &[AtomicU64]) -> Census {
        if cell == Cell::Bit {
            return Census::of_set(Words::ones(words));
        }
        words.iter().fold(Census::default(), |mut all, word| {
            let word = word.load(Relaxed);
            let (some, most) = counter::census(cell.bits(), word);
            all.set += u64::from(some);
            all.sum += counter::total(cell.bits(), word);
            all.saturated += u64::from(most);
            all
        })
    }

    /// The census of cells that aren't counters, `set` of which are not 0.
    pub(crate) fn of_set(set: u64) -> Census {
        Census { set, ..Census::default() }
    }

    /// The sum of this census and a census of other cells.
    pub(crate) fn and(self, other: Census) -> Census {
        Census {
            set: self.set.saturating_add(other.set),
            sum: self.sum.saturating_add(other.sum),
            saturated: self.saturated.saturating_add(other.saturated),
            is_damaged: self.is_damaged || other.is_damaged,
        }
    }
}
