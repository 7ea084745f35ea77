//! The parameters of a filter, as the user specifies them: [`Spec`]. The layouts (`filter/layout`) derive the geometry
//! from it.

pub mod limits;

use crate::error::Error;
use crate::hash::{HashKind, Seed};
use crate::spelling::spelling;

/// Number of the formulas by which Bloom filters get their sizes, grow and shrink. Whoever changes one increases it and
/// keeps the earlier formulas for filters with the earlier number. The formulas decide which bits an add sets, so a
/// replica of another version, or a server that reads another version's append-only file, would silently have another
/// filter than its primary. The number is in the format and in the creations that replicas get, and a server refuses
/// numbers that it doesn't know. `tests/library/sizing.rs` shows whether a formula has changed.
pub const SIZES: u16 = 0;

/// How a layer stores its items: where the cells of an item are, and what they contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Layout {
    /// Anywhere in the shard: needs less memory than BLOCKED.
    Classic = 1,
    /// Inside one 512-bit block: one cache miss per item.
    Blocked = 2,
    /// A set of hash prefixes: three cache lines per item. It grows and shrinks with its items, and items can be
    /// deleted or expire. Of the layouts that accept adds, it needs the least memory at low error rates and for
    /// counting.
    Quotient = 3,
    /// A binary fuse filter, which is built from all its items at once: three cache misses per item, and an eighth more
    /// than log2(1/p) bits per item.
    Fuse = 4,
    /// A list of the items' hashes, from which a static filter is built. Users can't request it.
    List = 5,
    /// A ribbon filter, which is built from all its items at once: only 5% to 6% more than log2(1/p) bits per item, but
    /// more instructions.
    Ribbon = 6,
    /// Each probe in its own slice of the shard: two probes of an item never meet in one cell.
    Partitioned = 7,
}

spelling!(pub Layout {
    Blocked = "BLOCKED", Classic = "CLASSIC", Fuse = "FUSE", Partitioned = "PARTITIONED", Quotient = "QUOTIENT",
    Ribbon = "RIBBON"; List = "LIST",
});

impl Layout {
    /// The word for leaving the choice to the filter.
    pub const AUTO: &str = "AUTO";

    /// The layouts that BF.RESERVE accepts, in lower case, each with its help text.
    pub(crate) const CHOICES: &[(&str, &str)] = &[
        (
            "auto",
            "Blocked above 512 KiB if that costs at most 15% more memory, else classic; quotient for counting, and if \
             only that supports the options",
        ),
        ("blocked", "One cache line per item"),
        ("classic", "The least memory"),
        ("partitioned", "Like classic, but each probe has a slice of its own"),
        ("quotient", "Grows and shrinks with its items; the least memory for counting and below 0.1%"),
    ];

    /// The layouts of static filters, as [`CHOICES`](Layout::CHOICES).
    #[doc(hidden)]
    pub const STATIC_CHOICES: &[(&str, &str)] = &[
        ("fuse", "Three cache lines per item"),
        ("ribbon", "A tenth less memory at 1%; a test needs more time"),
    ];

    /// The layouts that BF.RESERVE and BF.REBUILD BEGIN accept, as an error text says them.
    pub(crate) const EXPECTED: &str = "AUTO, BLOCKED, CLASSIC, FUSE, PARTITIONED, QUOTIENT or RIBBON";

    /// Number of the layout in saved filters. 0 stands for AUTO.
    #[inline(always)]
    pub(crate) const fn number(self) -> u8 {
        self as u8
    }

    /// The layout with this number.
    #[inline(always)]
    pub(crate) const fn from_number(number: u8) -> Option<Layout> {
        Some(match number {
            1 => Layout::Classic,
            2 => Layout::Blocked,
            3 => Layout::Quotient,
            4 => Layout::Fuse,
            5 => Layout::List,
            6 => Layout::Ribbon,
            7 => Layout::Partitioned,
            _ => return None,
        })
    }

    /// Whether the cells are computed from all items at once.
    #[inline]
    pub const fn is_built(self) -> bool {
        matches!(self, Layout::Fuse | Layout::Ribbon)
    }

    /// Whether this is the layout of a static filter, or of the list from which one is built.
    #[inline]
    pub(crate) const fn is_static(self) -> bool {
        self.is_built() || matches!(self, Layout::List)
    }

    /// Whether an item's probes set cells that other items may also set.
    #[inline]
    pub const fn has_probes(self) -> bool {
        matches!(self, Layout::Classic | Layout::Blocked | Layout::Partitioned)
    }
}

/// Why a static layout can't be combined with a family, counters or shards.
pub const STATIC_ALONE: &str = "LAYOUT FUSE and RIBBON are built from all items at once, so COUNTING, WINDOW, SHARDS, \
                                       EXPANSION, NONSCALING, TIGHTENING and ONFULL cannot be combined with them";

/// The unit that one probe points to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Cell {
    /// One bit: supports add and test.
    #[default]
    Bit = 1,
    /// A saturating counter of 4 bits: also supports delete, and counts to 15.
    Counter4 = 4,
    /// A saturating counter of 8 bits: counts to 255.
    Counter8 = 8,
    /// A saturating counter of 16 bits: counts to 65,535.
    Counter16 = 16,
}

impl Cell {
    /// The cell with this number in saved filters, which is its width.
    pub(crate) const fn from_number(number: u8) -> Option<Cell> {
        Some(match number {
            1 => Cell::Bit,
            4 => Cell::Counter4,
            8 => Cell::Counter8,
            16 => Cell::Counter16,
            _ => return None,
        })
    }

    /// Width in bits.
    pub const fn bits(self) -> u32 {
        self as u32
    }

    /// Binary logarithm of the number of cells per word. Dividing by that number would take ten times as long as a
    /// shift.
    #[inline]
    pub(crate) const fn log2_per_word(self) -> u32 {
        u64::BITS.trailing_zeros() - self.bits().trailing_zeros()
    }

    /// Whether the cell is a counter, so that items can be deleted.
    pub const fn counts(self) -> bool {
        !matches!(self, Cell::Bit)
    }

    /// Number of bits of the count in a table's cell; 0 if there is no count.
    pub(crate) const fn payload(self) -> u32 {
        if self.counts() { self.bits() } else { 0 }
    }
}

/// What an add does if the filter is full and doesn't scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Overflow {
    /// Refuse the item.
    #[default]
    Error = 0,
    /// Accept it, so the real error rate rises above the promise.
    Saturate = 1,
    /// Forget the oldest items early, a few at a time. Only for windows of [`Layout::Quotient`].
    Forget = 2,
}

spelling!(pub Overflow { Error = "ERROR", Saturate = "SATURATE", Forget = "FORGET" });

impl Overflow {
    /// The choice with this number in saved filters.
    pub(crate) fn from_number(number: u8) -> Option<Overflow> {
        Overflow::ALL.iter().copied().find(|overflow| *overflow as u8 == number)
    }
}

/// The number of steps in which items leave a window that keeps each item for a certain time after its last add. This
/// time is the time to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps(u16);

impl Steps {
    /// One step: items leave all at once.
    pub const ONE: Steps = Steps(1);

    /// This number of steps. `None` if it is 0, or if a window can't have enough generations for it.
    pub fn new(steps: u64) -> Option<Steps> {
        let most = limits::GENERATIONS_IN_TABLE.end() - 1;
        u16::try_from(steps).ok().filter(|steps| (1..=most).contains(&u32::from(*steps))).map(Steps)
    }

    /// The number of steps that this time to live allows. The time between rotations is a whole number of milliseconds,
    /// so with more steps, rounding up would keep items too long.
    pub fn within(self, ttl_ms: u64) -> Steps {
        Steps(ttl_ms.div_ceil(self.every_ms(ttl_ms).max(1)).clamp(1, self.0.into()) as u16)
    }

    /// The number of steps.
    pub fn count(self) -> u16 {
        self.0
    }

    /// Number of generations: one more than the number of steps, so that an item stays for all steps even if its
    /// generation is nearly over when it is added.
    pub fn generations(self) -> u16 {
        self.0 + 1
    }

    /// Milliseconds between rotations, for this time to live.
    pub fn every_ms(self, ttl_ms: u64) -> u64 {
        ttl_ms.div_ceil(self.0.into())
    }

    /// The capacity of a generation, for this number of items within the time to live.
    pub fn capacity(self, items: u64) -> u64 {
        items.div_ceil(self.0.into())
    }
}

impl Default for Steps {
    /// 31: an item leaves late by at most a 31st of the time to live.
    fn default() -> Steps {
        Steps(31)
    }
}

/// How the layers of a scaling filter share its error rate.
///
/// [`Tightening::INVERSE_SQUARE`] gives most of it to the first layer, which is the only one of most chains. A
/// table gets the rest; see `sizing`. A ratio r gives layer i the share (1−r)·rⁱ (Almeida et al., "Scalable Bloom
/// Filters", 2007).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tightening(f64);

impl Tightening {
    /// Layer j gets the share 6/((3j+2)(3j+5)), which falls with the square of j.
    pub const INVERSE_SQUARE: Tightening = Tightening(0.0);

    /// Geometric shares with ratio `ratio` in (0, 1).
    ///
    /// # Errors
    /// [`Error::Tightening`] outside that range.
    pub fn geometric(ratio: f64) -> Result<Tightening, Error> {
        if ratio > 0.0 && ratio < 1.0 { Ok(Tightening(ratio)) } else { Err(Error::Tightening(ratio)) }
    }

    /// The geometric ratio; `None` for inverse squares.
    pub fn ratio(self) -> Option<f64> {
        (self.0 != 0.0).then_some(self.0)
    }
}

/// The three families of filters. They can't be combined: a window's generations need one fixed geometry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Family {
    /// One layer of bits or counters.
    Fixed(Overflow),
    /// A chain of layers that grows when the newest layer is full; or a table, which grows by itself.
    Scaling {
        /// Ratio of a layer's capacity to the previous layer's, `1..=32768`. No effect on tables.
        expansion: u32,
        /// How the layers share the error rate.
        tightening: Tightening,
    },
    /// Generations. A rotation drops the oldest.
    Window {
        /// Number of generations that are alive at once: `2..=64`, or `2..=1000` in a table. The filter's capacity is
        /// the capacity of each.
        generations: u16,
        /// What an add to a full generation does. In a table, what an add does when all generations together are full;
        /// with [`Overflow::Saturate`], the table grows.
        overflow: Overflow,
        /// Milliseconds between rotations by the clock; 0 if the window is only rotated manually.
        every_ms: u64,
    },
}

/// Everything that determines a filter's geometry and answers. Two filters with equal specs that have gone through the
/// same operations are equal bit for bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    /// Number of items that the filter (in a window, each generation; in a chain, the first layer) is sized for.
    pub capacity: u64,
    /// The promise: when the whole filter is full, the chance that an item that was never added tests positive.
    pub error_rate: f64,
    /// Key of the hash function.
    pub seed: Seed,
    /// Number of independent arrays per layer, a power of two in `1..=1024`.
    pub shards: u32,
    /// Hash function.
    pub hash: HashKind,
    /// The layout. `None` is AUTO: BLOCKED for a layer of more than 512 KiB, if it needs at most 15% more memory than
    /// CLASSIC (10% in a chain); otherwise CLASSIC. Commands choose QUOTIENT for counting, and for options that only it
    /// supports.
    pub layout: Option<Layout>,
    /// Bits or counters.
    pub cell: Cell,
    /// Fixed, scaling or window.
    pub family: Family,
}

const ONLY_TABLES_FORGET: &str = "ONFULL FORGET forgets the oldest items early, so it is only for TTL, or WINDOW generations LAYOUT \
     QUOTIENT; use ONFULL ERROR or SATURATE";

/// Why a table doesn't saturate.
pub(crate) const TABLE_SATURATES: &str =
    "LAYOUT QUOTIENT grows or refuses items, so ONFULL SATURATE cannot be combined with it; use ONFULL SCALE";

impl Spec {
    /// A filter of bits that has room for `capacity` items and refuses more.
    pub fn fixed(capacity: u64, error_rate: f64) -> Spec {
        Spec {
            capacity,
            error_rate,
            seed: Seed::default(),
            shards: 1,
            hash: HashKind::Xxh3,
            layout: None,
            cell: Cell::Bit,
            family: Family::Fixed(Overflow::Error),
        }
    }

    /// A filter with 4-bit counters, from which items can be deleted.
    pub fn counting(capacity: u64, error_rate: f64) -> Spec {
        Spec { cell: Cell::Counter4, ..Spec::fixed(capacity, error_rate) }
    }

    /// A filter that grows when it is full: it adds a table, which takes all further items.
    pub fn scaling(capacity: u64, error_rate: f64) -> Spec {
        let family = Family::Scaling { expansion: 2, tightening: Tightening::INVERSE_SQUARE };
        Spec { family, ..Spec::fixed(capacity, error_rate) }
    }

    /// A filter that needs no capacity: a table that grows with its items.
    pub fn growing(error_rate: f64) -> Spec {
        Spec { layout: Some(Layout::Quotient), ..Spec::scaling(1, error_rate) }
    }

    /// This spec with a seed that nobody can guess, so that nobody can prepare items that collide.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn with_random_seed(self) -> Result<Spec, Error> {
        let seed = Seed::random(self.hash)?;
        Ok(Spec { seed, ..self })
    }

    /// The word for the layout.
    pub fn layout_word(&self) -> &'static str {
        self.layout.map_or(Layout::AUTO, Layout::as_str)
    }

    /// Whether the filter is built from all its items at once and refuses adds.
    pub fn is_static(&self) -> bool {
        self.layout.is_some_and(Layout::is_built)
    }

    /// Whether the filter is a table, which grows by itself, and which all generations of a window share.
    pub fn is_table(&self) -> bool {
        self.layout == Some(Layout::Quotient)
    }

    /// Number of generations that share a table; 0 without them.
    pub(crate) fn table_generations(&self) -> u16 {
        match self.family {
            Family::Window { generations, .. } if self.is_table() => generations,
            _ => 0,
        }
    }

    /// Whether a table grows beyond the capacity.
    #[doc(hidden)]
    pub fn grows(&self) -> bool {
        matches!(self.family, Family::Scaling { .. } | Family::Window { overflow: Overflow::Saturate, .. })
    }

    /// Whether the filter, when it is full, adds a table that takes all further items. A scaling filter with a chosen
    /// layout, shards or tightening adds layers instead.
    #[doc(hidden)]
    pub fn adds_table(&self) -> bool {
        let adds_layers = self.layout.is_some() || self.shards > 1;
        !adds_layers && matches!(self.family, Family::Scaling { tightening: Tightening::INVERSE_SQUARE, .. })
    }

    /// Factor by which the capacity grows from layer to layer; `None` if the capacity is fixed.
    pub fn expansion(&self) -> Option<u32> {
        match self.family {
            Family::Scaling { expansion, .. } => Some(expansion),
            _ => None,
        }
    }

    /// What happens to a new item when the filter is full, as BF.RESERVE's ONFULL spells it.
    pub fn on_full(&self) -> &'static str {
        match self.family {
            _ if self.grows() && self.is_table() => "SCALE",
            Family::Fixed(overflow) | Family::Window { overflow, .. } => overflow.as_str(),
            Family::Scaling { .. } => "SCALE",
        }
    }

    /// The usual name for this kind of filter.
    pub fn kind(&self) -> &'static str {
        match self.family {
            _ if self.is_static() => "static",
            _ if self.cell.counts() => "counting",
            Family::Fixed(_) => "fixed",
            Family::Scaling { .. } => "scaling",
            Family::Window { .. } => "window",
        }
    }

    /// A window of `generations` generations for `capacity` items each, rotated manually.
    pub fn window(capacity: u64, error_rate: f64, generations: u16) -> Spec {
        let family = Family::Window { generations, overflow: Overflow::Saturate, every_ms: 0 };
        Spec { family, ..Spec::fixed(capacity, error_rate) }
    }

    /// The spec of the list of hashes from which a static filter is built. The list grows.
    #[doc(hidden)]
    pub fn list(self) -> Spec {
        let family = Family::Scaling { expansion: 2, tightening: Tightening::INVERSE_SQUARE };
        Spec { family, shards: 1, cell: Cell::Bit, ..self }
    }

    /// The spec of the static filter that is built from a list with this many different items.
    #[doc(hidden)]
    pub fn built(self, items: u64) -> Spec {
        Spec { family: Family::Fixed(Overflow::Error), capacity: items.max(1), ..self }
    }

    /// Whether this is the spec of a [list](Spec::list) of hashes.
    #[doc(hidden)]
    pub fn is_list(&self) -> bool {
        self.is_static() && matches!(self.family, Family::Scaling { .. })
    }

    /// Checks that every parameter is within its [`limits`], and that the parameters don't exclude each other.
    ///
    /// # Errors
    /// The first parameter that is out of bounds, or two parameters that exclude each other.
    pub fn validate(&self) -> Result<(), Error> {
        if !(limits::MIN_ERROR_RATE..1.0).contains(&self.error_rate) {
            return Err(Error::ErrorRate(self.error_rate));
        }
        if !(1..=limits::MAX_CAPACITY).contains(&self.capacity) {
            return Err(Error::Capacity(self.capacity));
        }
        if !self.shards.is_power_of_two() || self.shards > limits::MAX_SHARDS {
            return Err(Error::Shards(self.shards.into()));
        }
        if self.layout == Some(Layout::List) {
            return Err(Error::Exclusive(
                "a list is only for building a static filter; use LAYOUT FUSE or RIBBON",
            ));
        }
        if self.is_table() {
            self.validate_table()?;
        }
        if self.is_static() {
            self.validate_static()?;
        }
        match self.family {
            Family::Fixed(Overflow::Forget) => return Err(Error::Exclusive(ONLY_TABLES_FORGET)),
            Family::Fixed(_) => {}
            Family::Scaling { expansion, .. } => {
                if !(1..=limits::MAX_EXPANSION).contains(&expansion) {
                    return Err(Error::Expansion(expansion.into()));
                }
                if self.cell.counts() && !self.is_table() {
                    return Err(Error::Exclusive(
                        "a filter of counters cannot scale: a delete could not tell which layer holds the item; use \
                         LAYOUT QUOTIENT",
                    ));
                }
            }
            Family::Window { generations, every_ms, overflow } => {
                let is_table = self.is_table();
                let possible = if is_table { limits::GENERATIONS_IN_TABLE } else { limits::GENERATIONS };
                if !possible.contains(&generations.into()) {
                    return Err(Error::Generations(generations.into()));
                }
                if overflow == Overflow::Forget && !is_table {
                    return Err(Error::Exclusive(ONLY_TABLES_FORGET));
                }
                if every_ms > i64::MAX as u64 {
                    return Err(Error::Period(every_ms));
                }
                if self.cell.counts() {
                    return Err(Error::Exclusive(
                        "a window cannot count: its items leave with their generation, not one by one",
                    ));
                }
            }
        }
        Ok(())
    }

    fn validate_table(&self) -> Result<(), Error> {
        let excluded = if self.shards > 1 {
            "LAYOUT QUOTIENT has one writer and so no SHARDS; use LAYOUT BLOCKED or CLASSIC"
        } else if self.family == Family::Fixed(Overflow::Saturate) {
            TABLE_SATURATES
        } else {
            return Ok(());
        };
        Err(Error::Exclusive(excluded))
    }

    fn validate_static(&self) -> Result<(), Error> {
        let is_alone = self.shards == 1 && self.cell == Cell::Bit;
        if is_alone
            && (self.is_list() && *self == self.list() || self.family == Family::Fixed(Overflow::Error))
        {
            return Ok(());
        }
        Err(Error::Exclusive(STATIC_ALONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For every time to live, even 0, rotations are at least a millisecond apart, and all of them fit into the time to
    /// live.
    #[test]
    fn steps_fit_into_the_time_to_live() {
        for steps in [1, 2, 31, 999].map(|steps| Steps::new(steps).unwrap()) {
            for ttl_ms in 0..3000 {
                let Steps(within) = steps.within(ttl_ms);
                assert!((1..=steps.0).contains(&within), "{steps:?} {ttl_ms}");
                assert!(u64::from(within) <= ttl_ms.max(1), "{steps:?} {ttl_ms}");
            }
        }
    }
}
