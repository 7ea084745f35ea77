//! Sizing is part of the format: a primary, its replica and a later version each compute the layers of a growing
//! filter, and must get the same result. Whoever changes a row increases [`SIZES`](bloomery::params::SIZES).
//!
//! `cargo test --test library sizing:: -- --nocapture` prints the table as it is now.

use bloomery::Cell::{self, Bit, Counter4, Counter8, Counter16};
use bloomery::params::SIZES;
use bloomery::{Bloom, Family, LayerSpec, Layout, Spec, Tightening};

/// The number of the formulas that the tables below belong to.
const OF_THE_TABLES: u16 = 0;

/// capacity, error rate, layout, cell, shards → cells, probes, layout
type Row = (u64, f64, Option<Layout>, Cell, u32, u64, u32, Layout);

#[rustfmt::skip] // a table
const LAYERS: &[Row] = &[
    (1, 0.1, Some(Layout::Classic), Bit, 1, 64, 4, Layout::Classic),
    (1, 0.1, Some(Layout::Blocked), Bit, 1, 512, 4, Layout::Blocked),
    (1, 0.01, Some(Layout::Classic), Bit, 1, 64, 7, Layout::Classic),
    (1, 0.01, Some(Layout::Blocked), Bit, 1, 512, 7, Layout::Blocked),
    (1, 0.001, Some(Layout::Classic), Bit, 1, 64, 10, Layout::Classic),
    (1, 0.001, Some(Layout::Blocked), Bit, 1, 512, 10, Layout::Blocked),
    (1, 0.0001, Some(Layout::Classic), Bit, 1, 64, 14, Layout::Classic),
    (1, 0.0001, Some(Layout::Blocked), Bit, 1, 512, 14, Layout::Blocked),
    (100, 0.01, Some(Layout::Classic), Bit, 1, 1024, 7, Layout::Classic),
    (100, 0.01, Some(Layout::Blocked), Bit, 1, 1024, 7, Layout::Blocked),
    (100, 0.001, Some(Layout::Classic), Bit, 1, 1472, 10, Layout::Classic),
    (100, 0.001, Some(Layout::Blocked), Bit, 1, 1536, 10, Layout::Blocked),
    (100, 0.0001, Some(Layout::Classic), Bit, 1, 1984, 14, Layout::Classic),
    (100, 0.0001, Some(Layout::Blocked), Bit, 1, 2560, 14, Layout::Blocked),
    (10_000, 0.01, Some(Layout::Classic), Bit, 1, 95_936, 7, Layout::Classic),
    (10_000, 0.01, Some(Layout::Blocked), Bit, 1, 99_328, 7, Layout::Blocked),
    (10_000, 0.001, Some(Layout::Classic), Bit, 1, 143_808, 10, Layout::Classic),
    (10_000, 0.001, Some(Layout::Blocked), Bit, 1, 155_648, 9, Layout::Blocked),
    (10_000, 0.0001, Some(Layout::Classic), Bit, 1, 191_744, 13, Layout::Classic),
    (10_000, 0.0001, Some(Layout::Blocked), Bit, 1, 220_672, 12, Layout::Blocked),
    (1_000_000, 0.1, Some(Layout::Classic), Bit, 1, 4_808_384, 3, Layout::Classic),
    (1_000_000, 0.1, Some(Layout::Blocked), Bit, 1, 4_835_840, 3, Layout::Blocked),
    (1_000_000, 0.01, Some(Layout::Classic), Bit, 1, 9_592_960, 7, Layout::Classic),
    (1_000_000, 0.01, Some(Layout::Blocked), Bit, 1, 9_918_464, 6, Layout::Blocked),
    (1_000_000, 0.001, Some(Layout::Classic), Bit, 1, 14_377_664, 10, Layout::Classic),
    (1_000_000, 0.001, Some(Layout::Blocked), Bit, 1, 15_545_344, 9, Layout::Blocked),
    (1_000_000, 0.0001, Some(Layout::Classic), Bit, 1, 19_172_992, 13, Layout::Classic),
    (1_000_000, 0.0001, Some(Layout::Blocked), Bit, 1, 22_029_312, 12, Layout::Blocked),
    (100_000_000, 0.1, Some(Layout::Classic), Bit, 1, 480_832_768, 3, Layout::Classic),
    (100_000_000, 0.1, Some(Layout::Blocked), Bit, 1, 483_579_392, 3, Layout::Blocked),
    (100_000_000, 0.01, Some(Layout::Classic), Bit, 1, 959_295_488, 7, Layout::Classic),
    (100_000_000, 0.01, Some(Layout::Blocked), Bit, 1, 991_803_904, 6, Layout::Blocked),
    (100_000_000, 0.001, Some(Layout::Classic), Bit, 1, 1_437_763_968, 10, Layout::Classic),
    (100_000_000, 0.001, Some(Layout::Blocked), Bit, 1, 1_554_537_984, 9, Layout::Blocked),
    (100_000_000, 0.0001, Some(Layout::Classic), Bit, 1, 1_917_295_488, 13, Layout::Classic),
    (100_000_000, 0.0001, Some(Layout::Blocked), Bit, 1, 2_202_918_400, 12, Layout::Blocked),
    (1_000_000, 0.01, None, Bit, 1, 9_918_464, 6, Layout::Blocked),
    (1_000_000, 1e-6, None, Bit, 1, 28_755_328, 20, Layout::Classic),
    (1_000_000, 1e-12, None, Bit, 1, 57_510_592, 40, Layout::Classic),
    (50_000, 0.01, Some(Layout::Classic), Counter4, 1, 479_664, 7, Layout::Classic),
    (50_000, 0.01, Some(Layout::Blocked), Counter4, 1, 542_464, 6, Layout::Blocked),
    (50_000, 0.01, Some(Layout::Classic), Counter8, 1, 479_656, 7, Layout::Classic),
    (50_000, 0.01, Some(Layout::Blocked), Counter8, 1, 607_232, 5, Layout::Blocked),
    (50_000, 0.01, Some(Layout::Classic), Counter16, 1, 479_652, 7, Layout::Classic),
    (50_000, 0.01, Some(Layout::Blocked), Counter16, 1, 738_176, 5, Layout::Blocked),
    (100_000, 0.01, Some(Layout::Classic), Bit, 2, 959_360, 7, Layout::Classic),
    (100_000, 0.01, Some(Layout::Blocked), Bit, 2, 992_256, 6, Layout::Blocked),
    (100_000, 0.01, Some(Layout::Classic), Bit, 16, 960_512, 7, Layout::Classic),
    (100_000, 0.01, Some(Layout::Blocked), Bit, 16, 999_424, 7, Layout::Blocked),
    (100_000, 0.01, Some(Layout::Classic), Bit, 1024, 2_097_152, 7, Layout::Classic),
    (100_000, 0.01, Some(Layout::Blocked), Bit, 1024, 2_097_152, 7, Layout::Blocked),
    (100_000, 0.001, None, Counter4, 64, 1_440_768, 10, Layout::Classic),
    (1, 0.1, Some(Layout::Partitioned), Bit, 1, 64, 1, Layout::Partitioned),
    (1, 0.01, Some(Layout::Partitioned), Bit, 1, 128, 2, Layout::Partitioned),
    (1, 0.0001, Some(Layout::Partitioned), Bit, 1, 192, 3, Layout::Partitioned),
    (100, 0.01, Some(Layout::Partitioned), Bit, 1, 1152, 6, Layout::Partitioned),
    (100, 0.001, Some(Layout::Partitioned), Bit, 1, 1536, 8, Layout::Partitioned),
    (10_000, 0.01, Some(Layout::Partitioned), Bit, 1, 96_320, 7, Layout::Partitioned),
    (1_000_000, 0.1, Some(Layout::Partitioned), Bit, 1, 4_808_448, 3, Layout::Partitioned),
    (1_000_000, 0.01, Some(Layout::Partitioned), Bit, 1, 9_593_024, 7, Layout::Partitioned),
    (1_000_000, 0.001, Some(Layout::Partitioned), Bit, 1, 14_378_240, 10, Layout::Partitioned),
    (1_000_000, 0.0001, Some(Layout::Partitioned), Bit, 1, 19_173_440, 13, Layout::Partitioned),
    (1_000_000, 1e-12, Some(Layout::Partitioned), Bit, 1, 57_512_960, 40, Layout::Partitioned),
    (100_000_000, 0.01, Some(Layout::Partitioned), Bit, 1, 959_295_680, 7, Layout::Partitioned),
    (50_000, 0.01, Some(Layout::Partitioned), Counter4, 1, 479_696, 7, Layout::Partitioned),
    (50_000, 0.01, Some(Layout::Partitioned), Counter16, 1, 479_668, 7, Layout::Partitioned),
    (100_000, 0.01, Some(Layout::Partitioned), Bit, 16, 960_512, 7, Layout::Partitioned),
    (100_000, 0.01, Some(Layout::Partitioned), Bit, 1024, 2_359_296, 6, Layout::Partitioned),
];

/// first capacity, error rate, expansion, tightening ratio (0: inverse square) → (capacity, cells, probes) by layer
type ChainRow = (u64, f64, u32, f64, &'static [(u64, u64, u32)]);

#[rustfmt::skip] // a table
const CHAINS: &[ChainRow] = &[
    (100, 0.01, 2, 0.0, &[(100, 1088, 8), (200, 2752, 10), (400, 6080, 11), (800, 13_120, 12), (1600, 27_648, 12), (3200, 57_600, 13), (6400, 119_168, 13), (12_800, 245_376, 13), (25_600, 503_104, 14), (51_200, 1_028_032, 14), (102_400, 2_096_192, 14), (204_800, 4_266_624, 14), (409_600, 8_666_944, 15), (819_200, 17_581_568, 15), (1_638_400, 35_628_288, 15), (3_276_800, 72_134_400, 15), (6_553_600, 145_930_816, 15), (13_107_200, 294_940_224, 16)]),
    (100, 0.01, 1, 0.0, &[(100, 1088, 8), (100, 1408, 10), (100, 1536, 11), (100, 1664, 12), (100, 1728, 12), (100, 1856, 13)]),
    (1000, 0.001, 4, 0.0, &[(1000, 15_488, 11), (4000, 73_344, 13), (16_000, 319_552, 14), (64_000, 1_352_704, 15), (256_000, 5_642_368, 15), (1_024_000, 23_328_448, 16), (4_096_000, 95_891_648, 16), (16_384_000, 392_556_288, 17)]),
    (1_000_000, 0.01, 2, 0.0, &[(1_000_000, 10_657_664, 7), (2_000_000, 27_081_792, 9), (4_000_000, 60_735_808, 11), (8_000_000, 130_750_528, 11), (16_000_000, 275_930_240, 12)]),
    (100, 0.01, 2, 0.5, &[(100, 1152, 8), (200, 2560, 9), (400, 5632, 10), (800, 12_352, 11), (1600, 26_944, 12), (3200, 58_432, 13), (6400, 126_016, 14), (12_800, 270_528, 15), (25_600, 577_920, 16), (51_200, 1_229_632, 17)]),
    (10, 0.1, 10, 0.85, &[(10, 128, 7), (100, 960, 7), (1000, 9472, 7), (10_000, 97_600, 7), (100_000, 1_009_472, 7), (1_000_000, 10_852_864, 7), (10_000_000, 112_371_200, 7)]),
];

/// bytes and rate_now after 2, 101, 10,001 and 100,000 adds and, if it can delete, after 95,000 deletes
#[rustfmt::skip] // a table
const TABLES: &[(u64, &str)] = &[
    (24, "1.907e-6"), (224, "9.632e-5"), (20_720, "2.321e-3"), (198_128, "3.746e-3"),
    (24, "2.384e-7"), (320, "1.204e-5"), (28_912, "2.640e-4"), (325_104, "3.981e-4"), (20_208, "2.328e-6"),
    (336, "3.815e-6"), (1392, "1.717e-4"), (26_352, "8.465e-3"), (267_504, "8.749e-3"),
    (1336, "2.526e-23"), (1336, "8.056e-10"), (22_056, "6.918e-3"), (218_664, "7.479e-3"),
];

#[test]
fn layers_are_sized_as_ever() {
    for &(capacity, error_rate, layout, cell, shards, cells, probes, resolved) in LAYERS {
        let spec = LayerSpec { capacity, error_rate, layout, cell, shards, generations: 0 };
        let shape = spec.shape().unwrap();
        println!(
            "    ({capacity}, {error_rate:?}, {}, {cell:?}, {shards}, {}, {}, Layout::{:?}),",
            layout.map_or("None".into(), |layout| format!("Some(Layout::{layout:?})")),
            shape.cells,
            shape.probes,
            shape.layout
        );
        assert_eq!((shape.cells, shape.probes, shape.layout), (cells, probes, resolved), "{spec:?}");
        assert_eq!(shape.check(), Ok(()));
    }
}

#[test]
fn chains_grow_as_ever() {
    for &(capacity, error_rate, expansion, ratio, layers) in CHAINS {
        let tightening = Tightening::geometric(ratio).unwrap_or(Tightening::INVERSE_SQUARE);
        let family = Family::Scaling { expansion, tightening };
        // With AUTO and no ratio, the second layer is a table.
        let layout = (ratio == 0.0).then_some(Layout::Classic);
        let spec = Spec { family, layout, ..Spec::fixed(capacity, error_rate) };
        let (mut capacities, mut found) = (Vec::new(), Vec::new());
        for _ in layers {
            let shape = spec.next_shape(&capacities).unwrap();
            capacities.push(shape.capacity);
            found.push((shape.capacity, shape.cells, shape.probes));
        }
        println!("    ({capacity}, {error_rate:?}, {expansion}, {ratio:?}, &{found:?}),");
        assert_eq!(found, layers, "{spec:?}");
    }
}

/// Tables grow with their items, and shrink. Their bytes, and the sum of their prefixes' shares, show when and how.
#[test]
fn tables_grow_and_shrink_as_ever() {
    let counting = Spec { cell: Counter4, ..Spec::growing(0.001) };
    let window = Spec { layout: Some(Layout::Quotient), ..Spec::window(1000, 0.01, 4) };
    let specs = [Spec::growing(0.01), counting, window, Spec::scaling(1000, 0.01)];
    let mut found = Vec::new();
    for spec in specs {
        let mut filter = Bloom::new(spec).unwrap();
        let mut at = |filter: &Bloom| found.push((filter.bytes(), format!("{:.3e}", filter.rate_now())));
        for number in 0..100_000_u64 {
            filter.insert(number).unwrap();
            if [1, 100, 10_000, 99_999].contains(&number) {
                at(&filter);
            }
        }
        if spec.cell.counts() {
            (0..95_000_u64).for_each(|number| assert!(filter.remove(number).unwrap().present));
            at(&filter);
        }
    }
    let found: Vec<_> = found.iter().map(|(bytes, rate)| (*bytes, rate.as_str())).collect();
    println!("{found:?}");
    assert_eq!(found, TABLES);
}

#[test]
fn the_tables_have_the_number_of_the_formulas() {
    assert_eq!(SIZES, OF_THE_TABLES, "print the tables as they are now, and set OF_THE_TABLES");
}

/// Each generation of a window gets an equal share of the promised rate.
#[test]
fn a_window_divides_its_promise() {
    for generations in [2, 4, 64] {
        let shape = Spec::window(10_000, 0.01, generations).next_shape(&[]).unwrap();
        let share = 0.01 / f64::from(generations);
        assert_eq!(shape, LayerSpec::new(10_000, share).shape().unwrap());
    }
}
