//! The memory of filters: bits per item at the promised rate, the overhead of small filters, the cost of growth, and
//! the cost of supporting deletes, with counters, fingerprints or tables.

use bloomery::filter::{Live, LiveRef, Origin, Union};
use bloomery::parallel::ParallelFor;
use bloomery::{Bloom, Cell, Cuckoo, CuckooSpec, Family, Filter, HashKind, Layout, Overflow, Seed, Spec};

fn bits_per_item(capacity: u64, error_rate: f64, layout: Option<Layout>) -> f64 {
    let spec = Spec { layout, ..Spec::fixed(capacity, error_rate) };
    Bloom::bytes_for(&spec).unwrap() as f64 * 8.0 / capacity as f64
}

#[test]
fn bits_per_item_at_the_promised_rate() {
    let figures = [
        (0.01, Some(Layout::Blocked), 9.95),
        (0.001, Some(Layout::Blocked), 15.6),
        (0.01, Some(Layout::Classic), 9.62),
        (0.001, Some(Layout::Classic), 14.42),
        (0.01, Some(Layout::Partitioned), 9.62),
        (0.001, Some(Layout::Partitioned), 14.42),
    ];
    for (error_rate, layout, target) in figures {
        for capacity in [100_000, 1_000_000, 10_000_000, 1_000_000_000] {
            let bits = bits_per_item(capacity, error_rate, layout);
            println!("{layout:?} {capacity} at {error_rate}: {bits:.3} bits an item, at most {target}");
            assert!(bits <= target);
            // If this were below the theoretical minimum for Bloom filters, the computation would be wrong.
            assert!(bits > -error_rate.log2() / std::f64::consts::LN_2);
        }
    }
}

/// With LAYOUT CLASSIC, a filter of counters has as many cells as one of bits, each as wide as a counter.
#[test]
fn counters_cost_their_width() {
    for (cell, width) in [(Cell::Counter4, 4.0), (Cell::Counter8, 8.0), (Cell::Counter16, 16.0)] {
        let spec = Spec { cell, layout: Some(Layout::Classic), ..Spec::fixed(1_000_000, 0.01) };
        let bits = Bloom::bytes_for(&spec).unwrap() as f64 * 8.0 / 1e6;
        assert!(bits <= 9.62 * width, "{cell:?}: {bits}");
    }
}

/// The size of a filter with default options, without its cells. A server with a million small keys needs this a
/// million times.
#[test]
fn an_empty_default_filter() {
    let filter = Bloom::new(Spec::scaling(100, 0.01)).unwrap();
    println!("{} bytes, of which {} are cells", filter.allocated(), filter.bytes());
    assert!(filter.allocated() <= filter.bytes() as usize + 88, "{}", filter.allocated());
}

/// Bytes of a RedisBloom filter with one link at 1%: 96 for chain and link, and `capacity · ln(1/rate) / ln² 2` bits,
/// rounded up to whole words. A chain that can grow gives its first link half of the rate.
fn redisblooms(capacity: u64, may_grow: bool) -> u64 {
    let rate: f64 = if may_grow { 0.005 } else { 0.01 };
    let bits = (capacity as f64 * -rate.ln() / 0.480_453_013_918_201) as u64;
    96 + bits.max(1).div_ceil(64) * 8
}

/// MEMORY USAGE of a filter, compared with RedisBloom's, for every capacity up to 40,000. Both include the 32 bytes
/// that the server counts for a short key. A filter that can't grow has a few more cells than RedisBloom's, which
/// exceeds its error rate by about 5%.
#[test]
fn small_filters_beside_redisblooms() {
    for (may_grow, most) in [(true, 8), (false, 16)] {
        for capacity in 1..=40_000u64 {
            let spec = if may_grow { Spec::scaling(capacity, 0.01) } else { Spec::fixed(capacity, 0.01) };
            let (ours, theirs) =
                (Bloom::new(spec).unwrap().allocated() as u64, redisblooms(capacity, may_grow));
            assert!(
                !(may_grow || capacity < 1000) || ours <= theirs + most,
                "{capacity}: {ours}, {theirs} bytes"
            );
            let ratio = (ours + 32) as f64 / (theirs + 32) as f64;
            assert!(ratio <= 1.05, "{capacity}, may grow: {may_grow}: {ratio}");
        }
    }
}

/// MEMORY USAGE of cuckoo filters with two and four slots per bucket, compared with RedisBloom's. RedisBloom needs 56
/// bytes in addition to the slots, whose number is the same here. Only the smallest filter, with 4 slots, has 4 more
/// bytes, which every allocator adds in RedisBloom, too.
#[test]
fn small_cuckoo_filters_beside_redisblooms() {
    for bucket_size in [2, 4] {
        for capacity in 2 * u64::from(bucket_size)..=4000 {
            let value = Filter::from(Cuckoo::new(cuckoo(capacity, bucket_size)).unwrap());
            let slots = (capacity / u64::from(bucket_size)).next_power_of_two() * u64::from(bucket_size);
            assert_eq!(
                value.allocated() as u64,
                56 + slots.max(8),
                "{capacity}, {bucket_size} slots a bucket"
            );
        }
    }
}

/// The one-time cost of the first delete, move or growth.
#[test]
fn a_cuckoo_filter_that_was_used() {
    let mut filter = Cuckoo::new(cuckoo(1024, 2)).unwrap();
    let empty = filter.allocated();
    filter.insert(b"item").unwrap();
    assert_eq!(filter.allocated(), empty);
    assert!(filter.remove(b"item"));
    assert_eq!(filter.allocated(), empty + 88);
    filter.grow().unwrap();
    assert_eq!(filter.allocated(), empty + 88 + 2 * 24 + 1024);
}

fn cuckoo(capacity: u64, bucket_size: u8) -> CuckooSpec {
    let (hash, seed) = (HashKind::Xxh3, Seed::from(7));
    CuckooSpec {
        capacity,
        bucket_size,
        max_iterations: 20,
        expansion: 1,
        origin: Origin::Bloomery,
        hash,
        seed,
    }
}

/// Fraction of a million absent items that test positive.
fn measured(contains: impl Fn(&[u8]) -> bool) -> f64 {
    let strangers = 1_000_000u32;
    let hits = (0..strangers).filter(|i| contains(&(i | 1 << 31).to_le_bytes())).count();
    hits as f64 / f64::from(strangers)
}

/// The cost of filters that can delete: fingerprints in buckets of two and four slots, as full as they get without
/// growing, and counters for the same number of items and rate.
#[test]
fn a_deletable_item_in_a_cuckoo_filter_and_in_a_counting_one() {
    let slots = 1u64 << 20;
    let mut table = String::from("filter                     bits an item    error rate\n");
    let mut row = |name: String, bits, rate| table += &format!("{name:26} {bits:11.2} {rate:13.4}\n");
    for (bucket_size, load, most) in [(2, 0.84, 9.6), (4, 0.95, 8.5)] {
        let items = (slots as f64 * load) as u32;
        let mut filter = Cuckoo::new(cuckoo(slots, bucket_size)).unwrap();
        (0..items).for_each(|i| filter.try_insert(filter.hash(&i.to_le_bytes())).unwrap());
        let bits = filter.bytes() as f64 * 8.0 / f64::from(items);
        let rate = measured(|item| filter.contains(filter.hash(item)));
        row(format!("cuckoo, {bucket_size} slots, {:.0} % full", load * 100.0), bits, rate);
        // The exponent is the number of fingerprints that a test of an absent item compares.
        let expected = 1.0 - (1.0 - 1.0 / 255.0f64).powf(2.0 * f64::from(bucket_size) * load);
        assert!((rate / expected - 1.0).abs() < 0.05, "{rate}, not {expected}");
        assert!(bits <= most, "{bits}");

        for layout in [Some(Layout::Classic), Some(Layout::Blocked)] {
            let mut counting = Bloom::new(Spec { layout, ..Spec::counting(items.into(), expected) }).unwrap();
            for i in 0..items {
                counting.add(counting.hash(i.to_le_bytes())).unwrap();
            }
            let counted = counting.bytes() as f64 * 8.0 / f64::from(items);
            let rate = measured(|item| counting.contains(counting.hash(item)));
            row(format!("counting, {layout:?}"), counted, rate);
            assert!(rate <= expected * 1.05, "{rate}, not {expected}");
            assert!(counted > 3.0 * bits, "{counted} is less than three times {bits}");
        }
    }
    print!("{table}");
}

/// For large fixed, counting and window filters, `allocated` is little more than the size of the cells.
#[test]
fn large_filters_have_no_overhead_to_speak_of() {
    let specs = [Spec::fixed(100_000, 0.01), Spec::counting(100_000, 0.01), Spec::window(100_000, 0.01, 8)];
    for spec in specs {
        let filter = Bloom::new(spec).unwrap();
        assert_eq!(filter.bytes(), Bloom::bytes_for(&spec).unwrap());
        let overhead = filter.allocated() as f64 / filter.bytes() as f64 - 1.0;
        assert!((0.0..0.005).contains(&overhead), "{overhead}");
    }
}

/// A filter that has grown from the default capacity.
fn grown(layout: Option<Layout>, cell: Cell, error_rate: f64, items: u64) -> Bloom {
    let spec = Spec { cell, layout, ..Spec::scaling(100, error_rate) };
    let mut filter = Bloom::new(Spec { seed: Seed::from(7), ..spec }).unwrap();
    for item in 0..items {
        filter.add(item.to_le_bytes()).unwrap();
    }
    filter
}

/// Tables alone, and bits with a table.
#[test]
fn filters_that_have_grown() {
    let table = Some(Layout::Quotient);
    for (layout, error_rate, most) in
        [(table, 0.01, 17.5), (table, 0.001, 21.5), (None, 0.01, 18.5), (None, 0.001, 22.0)]
    {
        for items in [10_000, 100_000, 1_000_000] {
            let filter = grown(layout, Cell::Bit, error_rate, items);
            let bits = filter.allocated() as f64 * 8.0 / items as f64;
            println!("{layout:?} {items} at {error_rate}: {bits:.2} bits an item, at most {most}");
            assert!(bits < most, "{layout:?} {items} at {error_rate}: {bits}");
            assert_eq!(filter.layers().len(), if layout == table { 1 } else { 2 });
        }
    }
}

/// A table shrinks when items are deleted.
#[test]
fn a_table_that_has_shrunk() {
    for items in [10_000, 100_000, 1_000_000u64] {
        let mut filter = grown(Some(Layout::Quotient), Cell::Counter4, 0.01, items);
        let full = filter.allocated();
        (0..items * 9 / 10).for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
        let left = filter.allocated() as f64 / full as f64;
        println!("{items}: {:.2} bits an item, {left:.3} left", full as f64 * 8.0 / items as f64);
        assert!(left <= 0.3, "{items}: {left}");
        (items * 9 / 10..items).for_each(|item| _ = filter.remove(item.to_le_bytes()).unwrap());
        // Of the oldest prefixes, which became several cells as the table grew, a delete removes only one cell.
        let empty = filter.allocated() as f64 / full as f64;
        println!("{items}: {} cells are left, {empty:.3} of the memory", filter.ones());
        assert!(filter.items() <= items / 100 && empty <= 0.15, "{}, {empty}", filter.items());
    }
}

/// A filter that is sized by bytes needs about as many when it is full, however many items come and however often a
/// window rotates.
#[test]
fn a_filter_within_a_number_of_bytes() {
    let window = |generations, overflow| Family::Window { generations, overflow, every_ms: 0 };
    let kinds = [
        ("fixed", Family::Fixed(Overflow::Error), Cell::Bit, None),
        ("counters", Family::Fixed(Overflow::Error), Cell::Counter4, Some(Layout::Classic)),
        ("a table of counts", Family::Fixed(Overflow::Error), Cell::Counter8, Some(Layout::Quotient)),
        ("a ring", window(8, Overflow::Error), Cell::Bit, None),
        ("a window that refuses", window(8, Overflow::Error), Cell::Bit, Some(Layout::Quotient)),
        ("a window that forgets", window(32, Overflow::Forget), Cell::Bit, Some(Layout::Quotient)),
    ];
    for (name, family, cell, layout) in kinds {
        for (error_rate, bytes) in [(0.01, 4096), (1e-6, 1 << 16), (0.001, 1 << 20)] {
            let spec = Spec { family, cell, layout, seed: Seed::from(7), ..Spec::fixed(1, error_rate) };
            let spec = spec.within(bytes).unwrap();
            let mut filter = Bloom::new(spec).unwrap();
            let mut most = 0;
            for item in 0..3 * filter.capacity() {
                if filter.window().is_some() && item % (2 * spec.capacity) == 0 {
                    drop(filter.rotate(item / spec.capacity));
                }
                let _ = filter.add(item);
                if item % 64 == 0 {
                    most = most.max(filter.bytes());
                }
            }
            println!("{name} at {error_rate}: {most} of {bytes}");
            let about = bytes - bytes / 10..=bytes + bytes / 20;
            assert!(about.contains(&most), "{name} at {error_rate}: {most} of {bytes}");
        }
    }
    let least = Spec { layout: Some(Layout::Quotient), ..Spec::counting(1, 0.01) };
    assert_eq!(least.within(7).unwrap_err(), bloomery::Error::Capacity(0));
}

fn filled(error_rate: f64, cell: Cell, (capacity, items): (u64, u32), first: u32) -> Filter {
    let layout = Some(Layout::Quotient);
    let mut filter = Bloom::new(Spec { cell, layout, ..Spec::scaling(capacity, error_rate) }).unwrap();
    (first..first + items).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
    Filter::Bloom(filter)
}

/// The union of two tables, and the number of bytes that were estimated for it.
fn union_of(base: LiveRef<'_>, source: &Filter) -> (Live, u64) {
    let parallel: &ParallelFor<'_> = &|tasks, task| (0..tasks).for_each(task);
    let mut union = Union::plan(Some(base), &[source.live().unwrap()], None).unwrap();
    union.join(base, parallel).unwrap();
    (union.apart(base, parallel).unwrap().0, union.bytes())
}

/// The union of two tables, which needs about what was estimated.
fn united(base: LiveRef<'_>, source: &Filter) -> Live {
    let (made, estimate) = union_of(base, source);
    let [before, after] = [base.bytes(), made.as_ref().bytes()];
    let (more, spare) = (after.saturating_sub(before), before / 3 + 1000);
    assert!(
        more <= estimate * 9 / 8 + spare && estimate <= more * 3 + spare,
        "{before} + {}: {more} of {estimate}",
        source.live().unwrap().bytes()
    );
    made
}

/// What a table may need for its capacity is known when it is created.
#[test]
fn a_full_table_has_the_bytes_that_were_reserved() {
    for cell in [Cell::Bit, Cell::Counter4, Cell::Counter16] {
        for (error_rate, capacity) in [(0.01, 100_000), (1e-6, 100_000), (0.2, 1_000_000)] {
            let size = |items| match filled(error_rate, cell, (capacity, items), 0) {
                Filter::Bloom(filter) => (filter.bytes(), filter.reserved_bytes()),
                _ => unreachable!("it is a Bloom filter"),
            };
            let ([_, reserved], [bytes, after]) = (size(0).into(), size(capacity as u32).into());
            println!("{cell:?} at {error_rate}: {bytes} of {reserved} bytes");
            assert!(after <= reserved + reserved / 10 && bytes >= reserved / 2);
        }
    }
}

/// If the first table has many leaves, so has the intersection, even with a small table.
#[test]
fn an_intersection_needs_what_was_estimated() {
    let parallel: &ParallelFor<'_> = &|tasks, task| (0..tasks).for_each(task);
    let sparse = filled(0.01, Cell::Bit, (10_000_000, 10_000), 0);
    let small = filled(0.01, Cell::Bit, (1, 10_000), 0);
    let tiny = filled(0.01, Cell::Bit, (1, 10), 0);
    let bloom = |filter: &Filter| filter.snapshot().unwrap().into_bloom().unwrap();
    for [first, other] in [[&sparse, &small], [&small, &sparse], [&sparse, &sparse], [&small, &tiny]] {
        let (first, other) = (bloom(first), bloom(other));
        let needed = first.bytes() + first.intersection(&[&other], parallel).unwrap().bytes();
        for others in [&[&other][..], &[&other, &bloom(&tiny)]] {
            let asked = first.intersection_bytes(others);
            println!("{needed} of {asked} bytes");
            assert!(needed <= asked + asked / 8 && asked <= needed * 2, "{needed} of {asked}");
        }
    }
}

/// Cells become wider if the other table's prefixes are longer, and more if they are shorter.
#[test]
fn a_union_needs_what_was_estimated() {
    let sizes = [(1, 30), (1, 3000), (1, 100_000), (1_000_000, 1000), (100_000, 100_000)];
    for cell in [Cell::Bit, Cell::Counter4] {
        for [rate, other] in [[0.01, 0.01], [1e-6, 0.01], [0.01, 1e-6], [0.01, 0.2], [0.2, 0.2]] {
            let mine = sizes.map(|size| filled(rate, cell, size, 0));
            let theirs = sizes.map(|size| [1 << 29, 1 << 30].map(|first| filled(other, cell, size, first)));
            for (base, [one, two]) in mine.iter().flat_map(|a| theirs.iter().map(move |b| (a, b))) {
                united(united(base.live().unwrap(), one).as_ref(), two);
            }
        }
    }
}

/// After a union with a few long prefixes, some leaves are wide. The others become so by the next one.
#[test]
fn a_union_after_another_needs_what_was_estimated() {
    let base = filled(0.01, Cell::Bit, (100_000, 100_000), 0);
    let [few, many] = [10, 1000].map(|items| filled(1e-9, Cell::Bit, (1, items), 1 << 30));
    united(united(base.live().unwrap(), &few).as_ref(), &many);
}

/// The parts of divided prefixes are cells, but not items.
#[test]
fn a_union_with_divided_prefixes_needs_what_was_estimated() {
    let window = |capacity, error_rate, items: u32| {
        let family = Family::Window { generations: 4, overflow: Overflow::Saturate, every_ms: 0 };
        let spec = Spec { family, layout: Some(Layout::Quotient), ..Spec::fixed(capacity, error_rate) };
        let mut filter = Bloom::new(spec).unwrap();
        (0..items).for_each(|item| _ = filter.add(item.to_le_bytes()).unwrap());
        filter
    };
    for (capacity, expired, items) in [(1_000_000, 0, 200), (30_000_000, 0, 3), (30_000_000, 10_000, 3)] {
        let mut planned = window(capacity, 0.01, expired);
        drop(planned.rotate(4).unwrap());
        let [coarse, few] =
            [(0.2, items), (0.01, 10)].map(|(error_rate, items)| window(1, error_rate, items));
        let divided = Filter::from(united(LiveRef::Bloom(&planned), &coarse.into()));
        united(LiveRef::Bloom(&few), &divided);
        let mut divided = divided.into_bloom().unwrap();
        drop(divided.rotate(8).unwrap());
        let bytes = union_of(LiveRef::Bloom(&few), &divided.into()).0.as_ref().bytes();
        assert!(bytes < few.bytes() + 1000, "{bytes}");
    }
}
