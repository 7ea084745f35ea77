//! The recipes of the golden files: one small filter of every kind, in a state that says something. A recipe never changes;
//! whoever needs another state adds one.

use bloomery::{Cell, Family, Filter, HashKind, LayoutChoice, Overflow, Seed, Spec, Tightening};
use std::path::PathBuf;

/// A golden file: its name, and the filter that it holds.
pub(crate) type Recipe = (&'static str, fn() -> Filter);

const SEED: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;

fn make(spec: Spec) -> Filter {
    Filter::new(Spec { seed: Seed::from(SEED), ..spec }).unwrap()
}

/// Item `i`. Most are short; every eighth is one of up to 300 bytes, so that every branch of the hashes is taken.
pub(crate) fn item(i: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(8) { i as usize * 37 % 300 } else { i as usize % 21 };
    let mut item = format!("{i}").into_bytes();
    item.resize(len.max(item.len()), (i % 251) as u8);
    item
}

/// Items that every golden filter is asked for: members and strangers.
const ASKED: u32 = 600;

/// Adds items by number.
fn add(filter: &mut Filter, items: impl IntoIterator<Item = u32>) {
    for i in items {
        filter.add(filter.hash(&item(i))).unwrap();
    }
}

fn with(spec: Spec, items: u32) -> Filter {
    let mut filter = make(spec);
    add(&mut filter, 0..items);
    filter
}

/// Counts of 1 to 20 for the first items, some deleted again; four-bit counters lose count at 15.
fn counted(spec: Spec) -> Filter {
    let mut filter = make(Spec { family: Family::Fixed(Overflow::Saturate), ..spec });
    (0..20).for_each(|i| add(&mut filter, std::iter::repeat_n(i, i as usize + 1)));
    add(&mut filter, 20..80);
    (60..80).for_each(|i| assert!(filter.remove(filter.hash(&item(i))).unwrap().present));
    filter
}

/// A chain of layers, the last of them begun.
fn grown(expansion: u32, tightening: Tightening, spec: Spec, items: u32) -> Filter {
    with(Spec { family: Family::Scaling { expansion, tightening }, ..spec }, items)
}

/// Thirty items in each of several generations, of which some have been dropped.
fn rotated(spec: Spec, every_ms: u64) -> Filter {
    let generations = 4;
    let family = Family::Window { generations, overflow: Overflow::Saturate, every_ms };
    let spec = Spec { family, seed: Seed::from(SEED), ..spec };
    let mut filter = Filter::new_since(spec, 1_700_000_000_000 * every_ms.min(1)).unwrap();
    for number in [0, 1, 2, 3, 5, 6] {
        // By the clock or by hand: the number of the generation is not the number of rotations by hand.
        let by_clock = number % 5 == 0;
        if by_clock { filter.advance(number) } else { filter.rotate(number) }.unwrap();
        add(&mut filter, number as u32 * 30..number as u32 * 30 + 40);
    }
    filter
}

/// All of them.
#[rustfmt::skip] // a table
pub(crate) const RECIPES: &[Recipe] = &[
    ("bits-empty",            || make(Spec::fixed(100, 0.01))),
    ("bits-classic",          || with(Spec { layout: LayoutChoice::Classic, ..Spec::fixed(200, 0.01) }, 200)),
    ("bits-blocked",          || with(Spec { layout: LayoutChoice::Blocked, ..Spec::fixed(200, 0.0001) }, 200)),
    ("bits-classic-sharded",  || with(Spec { layout: LayoutChoice::Classic, shards: 8, ..Spec::fixed(400, 0.001) }, 200)),
    ("bits-blocked-sharded",  || with(Spec { layout: LayoutChoice::Blocked, shards: 4, ..Spec::fixed(400, 0.01) }, 400)),
    ("bits-siphash",          || with(Spec { hash: HashKind::SipHash, ..Spec::fixed(200, 0.01) }, 200)),
    ("bits-saturated",        || with(Spec { family: Family::Fixed(Overflow::Saturate), ..Spec::fixed(40, 0.1) }, 120)),
    ("counter4-classic",      || counted(Spec { layout: LayoutChoice::Classic, ..Spec::counting(80, 0.01) })),
    ("counter4-blocked",      || counted(Spec { layout: LayoutChoice::Blocked, shards: 2, ..Spec::counting(80, 0.01) })),
    ("counter8-siphash",      || counted(Spec { cell: Cell::Counter8, hash: HashKind::SipHash, ..Spec::fixed(80, 0.01) })),
    ("counter16-blocked",     || counted(Spec { cell: Cell::Counter16, layout: LayoutChoice::Blocked, ..Spec::fixed(80, 0.1) })),
    ("chain-by-2",            || grown(2, Tightening::INVERSE_SQUARE, Spec::fixed(50, 0.01), 500)),
    ("chain-by-1-sharded",    || grown(1, Tightening::INVERSE_SQUARE, Spec { shards: 2, ..Spec::fixed(50, 0.01) }, 220)),
    ("chain-tightening",      || grown(3, Tightening::geometric(0.5).unwrap(), Spec { layout: LayoutChoice::Classic, ..Spec::fixed(40, 0.001) }, 300)),
    ("window-rotated",        || rotated(Spec::fixed(100, 0.01), 0)),
    ("window-timed-siphash",  || rotated(Spec { hash: HashKind::SipHash, ..Spec::fixed(100, 0.01) }, 60_000)),
];

/// Where a file of tests/golden lies.
pub(crate) fn path(name: &str, extension: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.{extension}"))
}

/// The golden bytes as they are in the repository.
pub(crate) fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(path(name, "bin")).unwrap_or_else(|why| panic!("{name}: {why}; BLOOMERY_BLESS=1 writes it"))
}

/// The items that the answers are about, as JSON: hexadecimal, in order.
pub(crate) fn items() -> String {
    let hex = |item: Vec<u8>| item.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let items: Vec<_> = (0..ASKED).map(|i| format!("\"{}\"", hex(item(i)))).collect();
    format!("[\n{}\n]\n", items.join(",\n"))
}

/// What the filter says of those items, as JSON for readers that are not ours: a 1 or 0 for each, its count where the
/// filter counts, and in a window its age under the newest generation, −1 for none.
pub(crate) fn answers(filter: &Filter) -> String {
    let hashes: Vec<_> = (0..ASKED).map(|i| filter.hash(&item(i))).collect();
    let contains: String = hashes.iter().map(|hash| if filter.contains(*hash) { '1' } else { '0' }).collect();
    let counts: Result<Vec<_>, _> = hashes.iter().map(|hash| filter.count(*hash)).collect();
    let ages = filter.window().map(|window| {
        let age = |hash| window.age(hash, window.newest()).map_or(-1, |age| age as i64);
        hashes.iter().map(|hash| age(*hash)).collect::<Vec<_>>()
    });
    format!(
        "{{\n\"items\": {},\n\"ones\": {},\n\"contains\": \"{contains}\",\n\"counts\": {},\n\"ages\": {}\n}}\n",
        filter.items(),
        filter.ones(),
        counts.map_or("null".into(), |counts| format!("{counts:?}")),
        ages.map_or("null".into(), |ages| format!("{ages:?}")),
    )
}
