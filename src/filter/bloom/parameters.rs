//! The form in which a filter stores its parameters.

use crate::filter::usage::Usage;
use crate::hash::{HashKind, Hasher, Seed};
use crate::params::{Cell, Family, Layout, Overflow, Spec, Tightening, limits};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use once_cell::race::OnceBox;

/// The parameters of a [`Spec`] and the usage counters, in 32 bytes. A [`Spec`] alone needs 56. Properties that most
/// filters lack are in a box, and the capacity is usually taken from the first layer.
pub(super) struct Parameters {
    error_rate: f64,
    seed_low: u64,
    /// Allocated on demand. Usage counters aren't needed before the first test, and most small filters only receive
    /// adds or are idle.
    extra: OnceBox<Extra>,
    /// A window's number of generations, or a chain's expansion.
    count: u16,
    kind: Kind,
    log2_shards: u8,
    hash: HashKind,
    layout: Option<Layout>,
    cell: Cell,
}

const _: () = assert!(size_of::<Parameters>() == 32 && limits::MAX_EXPANSION <= u16::MAX as u32);

/// What only a few filters have: a capacity other than their first layer's, a wide seed, a tightening, or usage
/// counters.
#[derive(Default)]
struct Extra {
    /// The filter's capacity, if the first layer came from a merge and has a different capacity; otherwise 0.
    capacity: AtomicU64,
    seed_high: u64,
    tightening: Option<Tightening>,
    usage: Usage,
}

/// A [`Family`] without its numbers.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Fixed,
    FixedSaturates,
    Scaling,
    Window,
    WindowSaturates,
    WindowForgets,
}

impl Parameters {
    /// Creates the parameters of a valid spec. `first` is the capacity of the filter's first layer.
    pub(super) fn new(spec: &Spec, first: u64) -> Parameters {
        let (kind, count, tightening) = match spec.family {
            Family::Fixed(Overflow::Saturate) => (Kind::FixedSaturates, 0, None),
            Family::Fixed(_) => (Kind::Fixed, 0, None),
            Family::Scaling { expansion, tightening } => {
                (Kind::Scaling, expansion as u16, tightening.ratio().map(|_| tightening))
            }
            Family::Window { generations, overflow, .. } => {
                let kind = match overflow {
                    Overflow::Error => Kind::Window,
                    Overflow::Saturate => Kind::WindowSaturates,
                    Overflow::Forget => Kind::WindowForgets,
                };
                (kind, generations, None)
            }
        };
        let Seed { low: seed_low, high: seed_high } = spec.seed;
        let is_rare = seed_high != 0 || tightening.is_some();
        let extra = is_rare.then(|| Box::new(Extra { seed_high, tightening, ..Extra::default() }));
        let parameters = Parameters {
            error_rate: spec.error_rate,
            seed_low,
            extra: extra.map_or_else(OnceBox::new, OnceBox::with_value),
            count,
            kind,
            log2_shards: spec.shards.trailing_zeros() as u8,
            hash: spec.hash,
            layout: spec.layout,
            cell: spec.cell,
        };
        parameters.set_capacity(spec.capacity, first);
        parameters
    }

    /// Sets the capacity of a filter whose first layer has capacity `first`.
    pub(super) fn set_capacity(&self, capacity: u64, first: u64) {
        if capacity != first {
            self.extra.get_or_init(Box::default).capacity.store(capacity, Relaxed);
        } else if let Some(extra) = self.extra.get() {
            extra.capacity.store(0, Relaxed);
        }
    }

    /// The spec of a filter whose first layer has capacity `first` and, if it is a window, whose period is `every_ms`.
    pub(super) fn spec(&self, first: u64, every_ms: u64) -> Spec {
        let generations = self.count;
        let window = |overflow| Family::Window { generations, overflow, every_ms };
        let extra = self.extra.get();
        let tightening = extra.and_then(|extra| extra.tightening);
        let capacity = extra.map_or(0, |extra| extra.capacity.load(Relaxed));
        Spec {
            capacity: if capacity == 0 { first } else { capacity },
            error_rate: self.error_rate,
            seed: self.seed(),
            shards: 1 << self.log2_shards,
            hash: self.hash,
            layout: self.layout,
            cell: self.cell,
            family: match self.kind {
                Kind::Fixed => Family::Fixed(Overflow::Error),
                Kind::FixedSaturates => Family::Fixed(Overflow::Saturate),
                Kind::Scaling => Family::Scaling {
                    expansion: self.count.into(),
                    tightening: tightening.unwrap_or(Tightening::INVERSE_SQUARE),
                },
                Kind::Window => window(Overflow::Error),
                Kind::WindowSaturates => window(Overflow::Saturate),
                Kind::WindowForgets => window(Overflow::Forget),
            },
        }
    }

    #[inline(always)]
    fn seed(&self) -> Seed {
        let high = match self.hash {
            HashKind::Xxh3 => 0,
            HashKind::SipHash => self.extra.get().map_or(0, |extra| extra.seed_high),
        };
        Seed { low: self.seed_low, high }
    }

    /// The keyed hash function.
    #[inline(always)]
    pub(super) fn hasher(&self) -> Hasher {
        self.hash.hasher(self.seed())
    }

    /// Whether the newest layer refuses new items when it is full.
    #[inline(always)]
    pub(super) fn refuse_when_full(&self) -> bool {
        matches!(self.kind, Kind::Fixed | Kind::Scaling | Kind::Window | Kind::WindowForgets)
    }

    /// Whether a table grows beyond the capacity.
    #[inline(always)]
    pub(super) fn grows(&self) -> bool {
        matches!(self.kind, Kind::Scaling | Kind::WindowSaturates)
    }

    /// Whether the filter is a window that forgets its oldest items when it is full.
    #[inline(always)]
    pub(super) fn forget_when_full(&self) -> bool {
        matches!(self.kind, Kind::WindowForgets)
    }

    /// The layout that was chosen; `None` for AUTO.
    pub(super) fn layout(&self) -> Option<Layout> {
        self.layout
    }

    /// Whether every cell has a counter, so that items can be deleted.
    #[inline(always)]
    pub(super) fn counts(&self) -> bool {
        self.cell.counts()
    }

    /// The usage counters, if they have been allocated.
    pub(super) fn usage_so_far(&self) -> Option<&Usage> {
        self.extra.get().map(|extra| &extra.usage)
    }

    /// The usage counters, which are allocated on first use.
    #[inline(always)]
    pub(super) fn usage(&self) -> &Usage {
        &self.extra.get_or_init(Box::default).usage
    }

    /// Bytes of memory in addition to this struct: first as if nothing had been counted, then in total.
    pub(super) fn allocated(&self) -> (usize, usize) {
        self.extra.get().map_or((0, 0), |extra| {
            let is_rare =
                extra.seed_high != 0 || extra.tightening.is_some() || extra.capacity.load(Relaxed) != 0;
            let own = if is_rare { size_of::<Extra>() } else { 0 };
            (own, size_of::<Extra>() + extra.usage.allocated())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spec_is_kept_as_it_is() {
        let large = Spec {
            capacity: limits::MAX_CAPACITY,
            error_rate: 1e-12,
            seed: Seed::from(u128::MAX - 1),
            shards: limits::MAX_SHARDS,
            hash: HashKind::SipHash,
            layout: Some(Layout::Blocked),
            cell: Cell::Counter16,
            family: Family::Fixed(Overflow::Error),
        };
        let tightening = Tightening::geometric(0.3).unwrap();
        let families = [
            Family::Fixed(Overflow::Saturate),
            Family::Scaling { expansion: limits::MAX_EXPANSION, tightening },
            Family::Scaling { expansion: 1, tightening: Tightening::INVERSE_SQUARE },
            Family::Window { generations: 64, overflow: Overflow::Error, every_ms: 7 },
            Family::Window { generations: 2, overflow: Overflow::Saturate, every_ms: 7 },
            Family::Window { generations: 1000, overflow: Overflow::Forget, every_ms: 7 },
        ];
        let plain = Spec { layout: Some(Layout::Partitioned), ..Spec::fixed(1, 0.5) };
        for spec in [large, plain] {
            for family in families.into_iter().chain([spec.family]) {
                let spec = Spec { family, ..spec };
                let kept = Parameters::new(&spec, spec.capacity);
                assert_eq!((kept.spec(spec.capacity, 7), kept.hasher()), (spec, spec.hash.hasher(spec.seed)));
                let (own, all) = kept.allocated();
                kept.usage().answered(true);
                assert!(own == all && kept.allocated().0 == own && kept.allocated().1 > 0);
                for first in [100, spec.capacity] {
                    kept.set_capacity(spec.capacity, first);
                    assert_eq!(
                        (kept.spec(first, 7), Parameters::new(&spec, first).spec(first, 7)),
                        (spec, spec)
                    );
                }
            }
        }
    }
}
