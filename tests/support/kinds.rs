//! Many kinds of filters, small enough to be filled thousands of times. They combine families, layouts, cells, numbers
//! of shards and hashes.

use Cell::{Counter4, Counter8, Counter16};
use HashKind::SipHash;
use Layout::{Blocked, Classic, Partitioned, Quotient};
use bloomery::{Cell, Family, HashKind, Layout, Overflow, Spec, Tightening};

/// The capacity of the filters that don't scale. The laws add up to four times this number of items.
const CAPACITY: u64 = 60;

/// High enough that false positives happen in every case, so that the laws are also tried on them.
const ERROR_RATE: f64 = 0.02;

const INVERSE_SQUARE: Tightening = Tightening::INVERSE_SQUARE;

const SATURATE: Family = Family::Fixed(Overflow::Saturate);

fn fixed(layout: impl Into<Option<Layout>>) -> Spec {
    Spec { layout: layout.into(), family: SATURATE, ..Spec::fixed(CAPACITY, ERROR_RATE) }
}

fn counting(layout: impl Into<Option<Layout>>, cell: Cell) -> Spec {
    Spec { cell, ..fixed(layout) }
}

fn scaling(layout: impl Into<Option<Layout>>, capacity: u64, expansion: u32, tightening: Tightening) -> Spec {
    Spec {
        layout: layout.into(),
        family: Family::Scaling { expansion, tightening },
        ..Spec::fixed(capacity, ERROR_RATE)
    }
}

fn window(layout: impl Into<Option<Layout>>, generations: u16, every_ms: u64) -> Spec {
    let family = Family::Window { generations, overflow: Overflow::Saturate, every_ms };
    Spec { layout: layout.into(), family, ..Spec::fixed(CAPACITY, ERROR_RATE) }
}

fn halving() -> Tightening {
    Tightening::geometric(0.5).expect("0.5 is a ratio")
}

/// A kind with its name.
pub(crate) type Kind = (&'static str, fn() -> Spec);

/// One function per kind, and a list of all.
macro_rules! kinds {
    ($list:ident: $($name:ident: $spec:expr;)+) => {
        $(pub(crate) fn $name() -> Spec {
            $spec
        })+

        /// Every kind with its name.
        pub(crate) const $list: &[Kind] = &[$((stringify!($name), $name)),+];
    };
}

#[rustfmt::skip] // a table
kinds! {
    ALL:
    bits_auto:                   fixed(None);
    bits_classic:                fixed(Classic);
    bits_blocked:                fixed(Blocked);
    bits_partitioned:            fixed(Partitioned);
    bits_classic_sharded:        Spec { shards: 8, ..fixed(Classic) };
    bits_blocked_sharded:        Spec { shards: 4, ..fixed(Blocked) };
    bits_partitioned_sharded:    Spec { shards: 4, hash: SipHash, ..fixed(Partitioned) };
    bits_classic_siphash:        Spec { hash: SipHash, ..fixed(Classic) };
    bits_blocked_siphash:        Spec { hash: SipHash, shards: 2, ..fixed(Blocked) };
    bits_refusing:               Spec { family: Family::Fixed(Overflow::Error), ..fixed(None) };
    counter4_classic:            counting(Classic, Counter4);
    counter4_blocked:            counting(Blocked, Counter4);
    counter8_classic:            counting(Classic, Counter8);
    counter8_blocked:            counting(Blocked, Counter8);
    counter8_partitioned:        counting(Partitioned, Counter8);
    counter16_classic:           counting(Classic, Counter16);
    counter16_blocked:           counting(Blocked, Counter16);
    counter4_classic_sharded:    Spec { shards: 8, ..counting(Classic, Counter4) };
    counter8_blocked_sharded:    Spec { shards: 4, hash: SipHash, ..counting(Blocked, Counter8) };
    counter4_refusing:           Spec { family: Family::Fixed(Overflow::Error), ..counting(None, Counter4) };
    scaling_classic:             scaling(Classic, 10, 2, INVERSE_SQUARE);
    scaling_blocked:             scaling(Blocked, 10, 2, INVERSE_SQUARE);
    scaling_partitioned:         scaling(Partitioned, 10, 2, INVERSE_SQUARE);
    scaling_by_1:                scaling(Classic, 12, 1, INVERSE_SQUARE);
    scaling_by_4:                scaling(Classic, 5, 4, INVERSE_SQUARE);
    scaling_from_1:              scaling(Classic, 1, 3, INVERSE_SQUARE);
    scaling_auto:                scaling(None, 10, 2, halving());
    scaling_tightening:          scaling(Classic, 10, 2, halving());
    scaling_tightening_blocked:  scaling(Blocked, 10, 1, halving());
    scaling_sharded_siphash:     Spec { shards: 4, hash: SipHash, ..scaling(None, 10, 2, INVERSE_SQUARE) };
    window_classic:              window(Classic, 3, 0);
    window_blocked:              window(Blocked, 4, 0);
    window_partitioned:          window(Partitioned, 3, 0);
    window_sharded:              Spec { shards: 2, ..window(Classic, 2, 0) };
    window_siphash:              Spec { hash: SipHash, ..window(None, 5, 0) };
    window_timed:                window(None, 3, 1000);
    window_refusing:             refusing_window();
}

// Tables, alone or after bits.
#[rustfmt::skip] // a table
kinds! {
    TABLES:
    quotient_fixed:              quotient(Cell::Bit);
    quotient_counting8:          quotient(Counter8);
    quotient_scaling:            scaling(Quotient, 10, 2, INVERSE_SQUARE);
    quotient_from_1:             scaling(Quotient, 1, 1, halving());
    quotient_siphash:            Spec { hash: SipHash, ..scaling(Quotient, 10, 2, INVERSE_SQUARE) };
    quotient_long:               Spec { error_rate: 1e-12, ..scaling(Quotient, 10, 2, INVERSE_SQUARE) };
    quotient_short:              Spec { error_rate: 0.3, cell: Counter4, ..scaling(Quotient, 10, 2, INVERSE_SQUARE) };
    quotient_scaling_counting4:  Spec { cell: Counter4, ..scaling(Quotient, 10, 2, INVERSE_SQUARE) };
    quotient_scaling_counting16: Spec { cell: Counter16, hash: SipHash, ..scaling(Quotient, 10, 2, INVERSE_SQUARE) };
    outgrown:                    scaling(None, 10, 2, INVERSE_SQUARE);
    outgrown_from_1:             Spec { hash: SipHash, ..scaling(None, 1, 1, INVERSE_SQUARE) };
    quotient_window:             window(Quotient, 3, 0);
    quotient_window_refusing:    window_table(2, Overflow::Error, 0);
    quotient_window_rotating:    Spec { hash: SipHash, ..window_table(7, Overflow::Forget, 1000) };
    quotient_window_long:        window(Quotient, 100, 0);
}

fn quotient(cell: Cell) -> Spec {
    Spec { layout: Some(Quotient), cell, ..Spec::fixed(CAPACITY, ERROR_RATE) }
}

fn window_table(generations: u16, overflow: Overflow, every_ms: u64) -> Spec {
    let family = Family::Window { generations, overflow, every_ms };
    Spec { layout: Some(Quotient), family, ..Spec::fixed(CAPACITY, ERROR_RATE) }
}

fn refusing_window() -> Spec {
    let family = Family::Window { generations: 3, overflow: Overflow::Error, every_ms: 0 };
    Spec { family, ..window(None, 3, 0) }
}

/// Options of BF.RESERVE for every family.
pub(crate) const RESERVE_OPTIONS: [&str; 13] = [
    "NONSCALING",
    "NONSCALING LAYOUT CLASSIC HASH SIPHASH SEED 7",
    "NONSCALING LAYOUT BLOCKED SHARDS 8",
    "ONFULL SATURATE SHARDS 4",
    "LAYOUT PARTITIONED SHARDS 2",
    "EXPANSION 2",
    "EXPANSION 1 TIGHTENING 0.5",
    "COUNTING NONSCALING LAYOUT CLASSIC",
    "COUNTING 8 SHARDS 4",
    "COUNTING 16",
    "COUNTING NONSCALING",
    "WINDOW 3",
    "WINDOW 3 EVERY 1000",
];
