//! Computes what filters cost.

use crate::refused::Refused;
use crate::wanted::{Wanted, command};
use bloomery::{Cell, CuckooSpec, Family, Layout, Overflow, Spec};
use serde::Serialize;

/// Number of generations of the window in the comparison.
pub(crate) const GENERATIONS: u16 = 4;

/// Load at which adds start to fail, for buckets of two and of four slots (Fan et al., CoNEXT 2014, table 2: 84%, 95%).
pub(crate) const CUCKOO_LOADS: [(u8, f64); 2] = [(2, 0.84), (4, 0.95)];

/// What one filter costs.
#[derive(Debug, Serialize)]
pub struct Cost {
    pub(crate) kind: String,
    pub(crate) command: String,
    /// Number of items that all layers together are sized for.
    pub(crate) capacity: u64,
    /// Number of items that fit. A cuckoo filter may be full before it contains `capacity` items.
    pub(crate) room: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) bits_per_item: f64,
    /// Error rate at capacity.
    pub(crate) error_rate: f64,
    pub(crate) cells: u64,
    pub(crate) bits_per_cell: u32,
    /// Probes per item in each layer; for a cuckoo filter, the slots that a test compares.
    pub(crate) probes: u32,
    pub(crate) layout: &'static str,
    pub(crate) layers: u64,
    /// Maximum number of cache lines that a test of a present item reads.
    pub(crate) cache_lines: u64,
    pub(crate) deletes: bool,
    pub(crate) when_full: &'static str,
}

/// The plan also names LAYOUT QUOTIENT if it needs at most this fraction of the memory of AUTO's choice. A smaller
/// gain isn't worth naming, because QUOTIENT supports fewer operations, and its tests read one more cache line than
/// those of BLOCKED.
const SMALLER: f64 = 0.9;

/// Computes what a new filter costs.
pub(crate) fn cost(wanted: &Wanted) -> Result<Cost, Refused> {
    match wanted {
        Wanted::Bloom(spec) => bloom(spec),
        Wanted::Cuckoo(spec) => Ok(cuckoo(spec, spec.capacity)),
    }
}

/// Computes how many items the largest filter of this kind has room for that needs at most `bytes` when it is full.
pub(crate) fn within(wanted: &Wanted, bytes: u64) -> Option<u64> {
    match wanted {
        Wanted::Bloom(spec) => Some(bloom(&spec.within(bytes).ok()?).ok()?.capacity),
        Wanted::Cuckoo(spec) => {
            // The number of buckets is a power of two.
            let buckets = 1 << (bytes / u64::from(spec.bucket_size)).checked_ilog2()?;
            Some((load(spec.bucket_size) * spec.slots_of(buckets) as f64) as u64)
        }
    }
}

pub(crate) fn bloom(spec: &Spec) -> Result<Cost, Refused> {
    let shape = spec.next_shape(&[])?;
    let (kind, layers, when_full) = match spec.family {
        _ if spec.is_static() => ("static".into(), 1, "accepts no adds"),
        Family::Fixed(overflow) => {
            let kind =
                if spec.cell.counts() { format!("counting {}", spec.cell.bits()) } else { "fixed".into() };
            (kind, 1, on_full(overflow))
        }
        Family::Scaling { .. } if spec.cell.counts() => {
            (format!("counting {}", spec.cell.bits()), 1, "grows")
        }
        Family::Scaling { .. } if spec.is_table() => ("scaling".into(), 1, "grows"),
        Family::Scaling { .. } if spec.adds_table() => ("scaling".into(), 1, "adds a table"),
        Family::Scaling { .. } => ("scaling".into(), 1, "grows by a layer"),
        Family::Window { generations, overflow, .. } => {
            let (layers, when_full) = match shape.generations {
                0 => (generations.into(), on_full(overflow)),
                _ if overflow == Overflow::Saturate => (1, "grows"),
                _ => (1, on_full(overflow)),
            };
            (format!("window {generations}"), layers, when_full)
        }
    };
    let capacity = shape.capacity.saturating_mul(layers);
    let memory_bytes = shape.bytes().saturating_mul(layers);
    let one = shape.rate_at(shape.capacity as f64);
    Ok(Cost {
        kind,
        command: command(&Wanted::Bloom(*spec), "KEY").join(" "),
        capacity,
        room: capacity,
        memory_bytes,
        bits_per_item: memory_bytes as f64 * 8.0 / capacity as f64,
        error_rate: 1.0 - (1.0 - one).powi(i32::try_from(layers).unwrap_or(i32::MAX)),
        cells: shape.cells.saturating_mul(layers),
        bits_per_cell: shape.cell_bits(),
        probes: shape.probes,
        layout: shape.layout.as_str(),
        layers,
        cache_lines: layers * shape.lines(),
        deletes: spec.cell.counts() || shape.generations > 0,
        when_full,
    })
}

/// Computes what the filter costs in LAYOUT QUOTIENT, if the layout was left to AUTO and QUOTIENT is smaller by enough
/// ([`SMALLER`]).
pub(crate) fn smaller(wanted: &Wanted) -> Option<Cost> {
    let Wanted::Bloom(spec) = wanted else { return None };
    let table = Spec { layout: Some(Layout::Quotient), ..*spec };
    if spec.layout.is_some() || table.validate().is_err() {
        return None;
    }
    let (chosen, table) = (bloom(spec).ok()?, bloom(&table).ok()?);
    (table.memory_bytes as f64 <= SMALLER * chosen.memory_bytes as f64).then_some(table)
}

pub(crate) fn on_full(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Error => "refuses new items",
        Overflow::Saturate => "error rate rises",
        Overflow::Forget => "forgets the oldest",
        other => other.as_str(),
    }
}

/// Computes what a cuckoo filter with `items` items costs.
pub(crate) fn cuckoo(spec: &CuckooSpec, items: u64) -> Cost {
    let buckets = spec.first_buckets();
    let slots = spec.slots_of(buckets);
    let memory_bytes = spec.bytes_of(buckets);
    let fill = (items as f64 / slots as f64).min(1.0);
    let seen = 2 * u32::from(spec.bucket_size);
    Cost {
        kind: format!("cuckoo {}", spec.bucket_size),
        command: command(&Wanted::Cuckoo(*spec), "KEY").join(" "),
        capacity: items,
        room: items.min((load(spec.bucket_size) * slots as f64) as u64),
        memory_bytes,
        bits_per_item: memory_bytes as f64 * 8.0 / items as f64,
        error_rate: cuckoo_rate(spec.bucket_size.into(), 1, fill),
        cells: slots,
        bits_per_cell: 8,
        probes: seen,
        layout: "BUCKETS",
        layers: 1,
        cache_lines: 2,
        deletes: true,
        when_full: if spec.expansion == 0 { "refuses new items" } else { "grows by a sub-filter" },
    }
}

/// Load at which adds start to fail, for buckets of this size: 50% with one slot. With more than four slots, the load
/// is at least as high as with four.
pub(crate) fn load(bucket_size: u8) -> f64 {
    match bucket_size {
        1 => 0.5,
        2 | 3 => CUCKOO_LOADS[0].1,
        _ => CUCKOO_LOADS[1].1,
    }
}

/// Error rate of a cuckoo filter: an absent item is compared with the fingerprints in two buckets of every sub-filter,
/// and matches each of them with a probability of 1/255.
pub fn cuckoo_rate(bucket_size: u64, sub_filters: u64, fill: f64) -> f64 {
    let seen = 2.0 * bucket_size as f64 * sub_filters as f64 * fill;
    1.0 - (1.0 - 1.0 / 255.0f64).powf(seen)
}

/// The smallest cuckoo filter of this bucket size whose first sub-filter has room for `items` items.
pub(crate) fn roomy_cuckoo(items: u64, bucket_size: u8, load: f64, like: &Spec) -> CuckooSpec {
    let spec = |capacity: u64| CuckooSpec {
        capacity: capacity.max(2 * u64::from(bucket_size)),
        bucket_size,
        hash: like.hash,
        seed: like.seed,
        ..CuckooSpec::new(0)
    };
    let slots = |spec: &CuckooSpec| spec.slots_of(spec.first_buckets());
    let has_room = |spec: &CuckooSpec| items as f64 <= load * slots(spec) as f64;
    // The number of buckets is a power of two, so most capacities leave enough room, and twice the slots always do.
    let tight = spec(items);
    let candidates = [tight, spec((items as f64 / load).ceil() as u64)];
    candidates.into_iter().find(has_room).unwrap_or_else(|| spec(2 * slots(&tight)))
}

/// Returns the number of items of this filter, and a Bloom filter with the same error rate. The other kinds get their
/// parameters from that Bloom filter.
pub(crate) fn like(wanted: &Wanted) -> (u64, Spec) {
    match wanted {
        Wanted::Bloom(spec) => {
            let generations = match spec.family {
                Family::Window { generations, .. } => generations.into(),
                _ => 1,
            };
            (spec.capacity.saturating_mul(generations), *spec)
        }
        // The error rate is the one that the filter has when it is full.
        Wanted::Cuckoo(spec) => {
            let rate = cuckoo(spec, spec.slots_of(spec.first_buckets())).error_rate;
            (spec.capacity, Spec { hash: spec.hash, ..Spec::scaling(spec.capacity, rate) })
        }
    }
}

/// Computes what each kind costs for this number of items, with those settings of the filter `like` that the kind also
/// has.
pub(crate) fn kinds(items: u64, like: &Spec) -> Vec<Cost> {
    let Spec { hash, layout, shards, seed, .. } = *like;
    // Only static filters can have a static layout.
    let layout = layout.filter(|layout| !layout.is_built());
    let spec = |like: Spec| Spec { hash, layout, shards, seed, capacity: items, ..like };
    let rate = like.error_rate;
    let mut specs = vec![spec(Spec::fixed(items, rate)), spec(Spec::scaling(items, rate))];
    for cell in [Cell::Counter4, Cell::Counter8, Cell::Counter16] {
        // What COUNTING creates.
        let counting = match (layout, shards) {
            (None | Some(Layout::Quotient), 1) => {
                Spec { layout: Some(Layout::Quotient), ..spec(Spec::scaling(items, rate)) }
            }
            _ => spec(Spec::counting(items, rate)),
        };
        specs.push(Spec { cell, ..counting });
    }
    let generation = items.div_ceil(GENERATIONS.into());
    let window = Spec { capacity: generation, ..spec(Spec::window(items, rate, GENERATIONS)) };
    specs.push(window);
    for layout in [Some(Layout::Fuse), Some(Layout::Ribbon)] {
        specs.push(Spec { layout, shards: 1, ..spec(Spec::fixed(items, rate)) });
    }
    // A kind that can't reach the error rate at any size is left out.
    let with_smaller = |spec: &Spec| bloom(spec).ok().into_iter().chain(smaller(&Wanted::Bloom(*spec)));
    let mut costs: Vec<Cost> = specs.iter().flat_map(with_smaller).collect();
    costs.extend(
        CUCKOO_LOADS.iter().map(|&(slots, load)| cuckoo(&roomy_cuckoo(items, slots, load, like), items)),
    );
    costs
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomery::{Bloom, Filter};

    #[test]
    fn the_costs_are_those_of_real_filters() {
        for (spec, kind) in [
            (Spec::fixed(10_000, 0.01), "fixed"),
            (Spec::counting(10_000, 0.001), "counting 4"),
            (Spec::window(10_000, 0.01, 5), "window 5"),
        ] {
            let cost = bloom(&spec).unwrap();
            let real = Bloom::new(spec).unwrap();
            assert_eq!(
                (cost.kind.as_str(), cost.memory_bytes, cost.cells),
                (kind, real.bytes(), real.cells())
            );
            assert_eq!(cost.capacity, real.capacity());
            assert!(
                cost.error_rate <= spec.error_rate && cost.error_rate > 0.9 * spec.error_rate,
                "{cost:?}"
            );
        }
        for layout in [Some(Layout::Fuse), Some(Layout::Ribbon)] {
            let spec = Spec { layout, ..Spec::fixed(10_000, 0.01) };
            let mut real = bloomery::StaticBuilder::with_spec(spec).unwrap();
            (0..10_000u32).for_each(|item| real.insert(item.to_le_bytes()).unwrap());
            let (cost, real) = (bloom(&spec).unwrap(), real.build().unwrap());
            assert_eq!((cost.kind.as_str(), cost.memory_bytes), ("static", real.bytes()));
            assert_eq!(cost.cells, real.cells());
            assert!((cost.error_rate - real.rate_now()).abs() < 1e-12);
        }
        let spec = roomy_cuckoo(10_000, 4, 0.95, &Spec::fixed(1, 0.1));
        let real = bloomery::Cuckoo::new(spec).unwrap();
        assert_eq!(cuckoo(&spec, 10_000).memory_bytes, Filter::Cuckoo(real).bytes());
    }

    #[test]
    fn what_fits_into_memory_is_the_most_that_fits() {
        let table = Spec { layout: Some(Layout::Quotient), ..Spec::fixed(1, 0.01) };
        let fuse = Spec { layout: Some(Layout::Fuse), ..Spec::fixed(1, 0.01) };
        for spec in [Spec::fixed(1, 0.01), Spec::scaling(1, 1e-4), Spec::window(1, 0.01, 4), fuse, table] {
            let items = within(&Wanted::Bloom(spec), 1 << 20).unwrap();
            let generations =
                if let Family::Window { generations, .. } = spec.family { generations } else { 1 };
            let memory = |items: u64| {
                let spec = Spec { capacity: items / u64::from(generations), ..spec };
                bloomery::Bloom::bytes_for(&spec).unwrap()
            };
            assert!(memory(items) <= 1 << 20 && memory(items + items / 16) > 1 << 20, "{spec:?}: {items}");
        }
        for (bucket_size, room) in [(2, 880_803), (3, 660_602), (4, 996_147)] {
            let spec = CuckooSpec { bucket_size, ..CuckooSpec::new(1) };
            assert_eq!(within(&Wanted::Cuckoo(spec), 1 << 20), Some(room));
        }
        assert_eq!(within(&Wanted::Cuckoo(CuckooSpec::new(1)), 1), None);
    }

    /// In LAYOUT QUOTIENT, a counting filter is smaller, but a window and a fixed filter at 1% aren't. Filters that
    /// can't have this layout, or were requested in another one, aren't considered.
    #[test]
    fn quotients_are_named_where_they_are_smaller() {
        let saturates = Family::Fixed(Overflow::Saturate);
        for (spec, is_smaller) in [
            (Spec::counting(10_000_000, 0.01), true),
            (Spec::fixed(10_000_000, 1e-4), true),
            (Spec::fixed(10_000_000, 0.01), false),
            (Spec::window(10_000_000, 0.01, 32), false),
            (Spec { shards: 2, ..Spec::counting(10_000_000, 0.01) }, false),
            (Spec { family: saturates, ..Spec::counting(10_000_000, 0.01) }, false),
            (Spec { layout: Some(Layout::Blocked), ..Spec::counting(10_000_000, 0.01) }, false),
        ] {
            let cost = smaller(&Wanted::Bloom(spec));
            assert_eq!(cost.is_some(), is_smaller, "{spec:?}");
            let is_named =
                |cost: &Cost| cost.command.contains("QUOTIENT") || cost.command.contains("COUNTING");
            assert!(cost.is_none_or(|cost| is_named(&cost) && cost.cache_lines == 3));
        }
    }

    #[test]
    fn a_window_of_quotients_grows() {
        let like = Spec { layout: Some(Layout::Quotient), ..Spec::fixed(1000, 0.01) };
        let kinds = kinds(1000, &like);
        let window = kinds.iter().find(|cost| cost.kind == "window 4").unwrap();
        assert_eq!(window.command, "BF.RESERVE KEY 0.01 250 WINDOW 4 LAYOUT QUOTIENT");
        assert_eq!((window.layout, window.when_full), ("QUOTIENT", "grows"));
    }

    #[test]
    fn the_room_of_a_cuckoo_filter_is_found() {
        let like = Spec::fixed(1, 0.1);
        for (slots, load) in CUCKOO_LOADS {
            // This filter is tight: its capacity is its number of slots.
            let spec = CuckooSpec { capacity: 1 << 14, ..roomy_cuckoo(1 << 14, slots, load, &like) };
            let cost = cuckoo(&spec, spec.capacity);
            assert!(cost.room < spec.capacity);
            let mut real = bloomery::Cuckoo::new(CuckooSpec { expansion: 0, ..spec }).unwrap();
            for item in 0..cost.room {
                let hash = real.hash(&item.to_le_bytes());
                assert!(real.try_insert(hash).is_ok(), "{item} of {}", cost.room);
            }
        }
    }

    #[test]
    fn a_cuckoo_filter_for_the_items_has_room_for_them() {
        for items in [4, 1000, 55_000, 65_000, 1 << 20, 10_000_000] {
            for (slots, load) in CUCKOO_LOADS {
                let spec = roomy_cuckoo(items, slots, load, &Spec::fixed(1, 0.1));
                assert!(items as f64 <= load * spec.slots_of(spec.first_buckets()) as f64, "{items} {slots}");
                assert_eq!(cuckoo(&spec, items).room, items);
            }
        }
    }
}
