//! The recipes of the golden files: one small filter of every kind, in a meaningful state. A recipe never changes; if
//! you need another state, add a recipe.

use super::wire;
use bloomery::filter::foreign::{Encoding, Growth, Link, LinkSpec, RedisBloomPlan, Scheme};
use bloomery::filter::{FilterRef, Foreign, Live, Origin, Rebuild};
use bloomery::parallel::alone;
use bloomery::wire::Decoder;
use bloomery::wire::import::{self, bitmap};
use bloomery::{
    Bloom, Cell, Cuckoo, CuckooSpec, Family, Filter, HashKind, Layout, Overflow, Seed, Spec, StaticBuilder,
    Tightening,
};
use std::path::PathBuf;

/// A golden file's name, and the function that makes its Bloom filter.
pub(crate) type Recipe = (&'static str, fn() -> Bloom);

/// A golden file's name, and the function that makes its cuckoo filter.
pub(crate) type CuckooRecipe = (&'static str, fn() -> Cuckoo);

/// A golden file's name, and the function that makes its filter in another system's format.
pub(crate) type ForeignRecipe = (&'static str, fn() -> Foreign);

/// A golden file's name, and the function that makes its filter, which is being rebuilt.
pub(crate) type RebuildRecipe = (&'static str, fn() -> Rebuild);

const SEED: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;

fn make(spec: Spec) -> Bloom {
    Bloom::new(Spec { seed: Seed::from(SEED), ..spec }).unwrap()
}

/// Item `i`. Most are short, but every eighth has up to 300 bytes, so that every branch of the hash functions is taken.
pub(crate) fn item(i: u32) -> Vec<u8> {
    let len = if i.is_multiple_of(8) { i as usize * 37 % 300 } else { i as usize % 21 };
    let mut item = format!("{i}").into_bytes();
    item.resize(len.max(item.len()), (i % 251) as u8);
    item
}

fn table(spec: Spec) -> Spec {
    Spec { layout: Some(Layout::Quotient), ..spec }
}

/// The number of items that are tested in every golden filter: members and absent ones.
const ASKED: u32 = 600;

/// Adds items by number.
fn add(filter: &mut Bloom, items: impl IntoIterator<Item = u32>) {
    for i in items {
        filter.add(filter.hash(item(i))).unwrap();
    }
}

fn with(spec: Spec, items: u32) -> Bloom {
    let mut filter = make(spec);
    add(&mut filter, 0..items);
    filter
}

/// A filter that accepts items beyond its capacity. The first items get counts of 1 to 20, and others are deleted
/// again. 4-bit counters saturate at 15.
fn counted(spec: Spec) -> Bloom {
    counted_in(make(Spec { family: Family::Fixed(Overflow::Saturate), ..spec }))
}

fn counted_in(mut filter: Bloom) -> Bloom {
    (0..20).for_each(|i| add(&mut filter, std::iter::repeat_n(i, i as usize + 1)));
    add(&mut filter, 20..80);
    (60..80).for_each(|i| assert!(filter.remove(filter.hash(item(i))).unwrap().present));
    filter
}

/// A chain of several layers, the last of which isn't full.
fn grown(expansion: u32, tightening: Tightening, spec: Spec, items: u32) -> Bloom {
    with(Spec { family: Family::Scaling { expansion, tightening }, ..spec }, items)
}

/// A window that got forty items in each of several generations, some of which have been dropped.
fn rotated(spec: Spec, every_ms: u64) -> Bloom {
    let generations = 4;
    let family = Family::Window { generations, overflow: Overflow::Saturate, every_ms };
    let spec = Spec { family, seed: Seed::from(SEED), ..spec };
    let mut filter = Bloom::new_since(spec, 1_700_000_000_000 * every_ms.min(1)).unwrap();
    for number in [0, 1, 2, 3, 5, 6] {
        // Some rotations are due to the clock, so that the generation's number isn't the number of manual rotations.
        let by_clock = number % 5 == 0;
        if by_clock { filter.advance(number) } else { filter.rotate(number) }.unwrap();
        add(&mut filter, number as u32 * 30..number as u32 * 30 + 40);
    }
    filter
}

/// A window that got sixty items in each of several generations, which share a table. In a short window, the cells
/// reuse the numbers of generations.
fn aged(spec: Spec, generations: u16, overflow: Overflow, every_ms: u64) -> Bloom {
    let family = Family::Window { generations, overflow, every_ms };
    let spec = Spec { family, seed: Seed::from(SEED), ..table(spec) };
    let mut filter = Bloom::new_since(spec, 1_700_000_000_000 * every_ms.min(1)).unwrap();
    for number in [0, 1, 2, 3, 4, 5, 6, 9, 10, 40, 41] {
        let by_clock = number % 5 == 0;
        if by_clock { filter.advance(number) } else { filter.rotate(number) }.unwrap();
        add(&mut filter, number as u32 * 10..number as u32 * 10 + 60);
    }
    (415..420).for_each(|i| assert!(filter.remove(filter.hash(item(i))).unwrap().present));
    filter
}

/// A cuckoo filter with these items, which has grown as often as necessary.
fn nested(spec: CuckooSpec, items: impl IntoIterator<Item = u32>) -> Cuckoo {
    let mut filter = Cuckoo::new(CuckooSpec { seed: Seed::from(SEED), ..spec }).unwrap();
    for i in items {
        let item = filter.hash(&item(i));
        while filter.try_insert(item).is_err() {
            filter.grow().unwrap();
        }
    }
    filter
}

/// A cuckoo filter in which every slot is in use, and to which some items were added several times.
fn crammed(spec: CuckooSpec) -> Cuckoo {
    let mut filter = nested(spec, [0, 0, 0, 0, 1, 1, 1, 2, 2]);
    for i in 3..ASKED {
        let _ = filter.try_insert(filter.hash(&item(i)));
    }
    filter
}

/// Deletes items from a cuckoo filter that has grown, without compacting it.
fn thinned(mut filter: Cuckoo, items: impl IntoIterator<Item = u32>) -> Cuckoo {
    for i in items {
        assert!(filter.remove(filter.hash(&item(i))));
    }
    filter
}

/// Sets capacity, slots per bucket and growth. The other options have their defaults.
fn cuckoo_spec(capacity: u64, bucket_size: u8, expansion: u16) -> CuckooSpec {
    let (hash, seed) = (HashKind::Xxh3, Seed::default());
    CuckooSpec { capacity, bucket_size, max_iterations: 20, expansion, origin: Origin::Bloomery, hash, seed }
}

/// Options with RedisBloom's hash, or with its hash from before 2.2.0.
fn redisbloom_cuckoo(origin: Origin, bucket_size: u8, expansion: u16) -> CuckooSpec {
    // Without a seed, and with a capacity that RedisBloom's own encoding can express.
    CuckooSpec { origin, capacity: 32 * u64::from(bucket_size), ..cuckoo_spec(0, bucket_size, expansion) }
}

fn unkeyed(spec: CuckooSpec, items: impl IntoIterator<Item = u32>) -> Cuckoo {
    let mut filter = Cuckoo::new(spec).unwrap();
    for i in items {
        let item = filter.hash(&item(i));
        while filter.try_insert(item).is_err() {
            filter.grow().unwrap();
        }
    }
    filter
}

/// A RedisBloom filter whose fingerprints are where our own search for room puts them: in any slot of their buckets.
/// RedisBloom itself makes no such filter, but the format allows it, so a reader must accept it.
fn moved_in(spec: CuckooSpec, items: impl IntoIterator<Item = u32>) -> Cuckoo {
    const HASH: usize = wire::ENVELOPE + 40;
    let its = Cuckoo::new(spec).unwrap();
    let mut filter = Cuckoo::new(CuckooSpec { origin: Origin::RedisBloom1, ..spec }).unwrap();
    for item in items.into_iter().map(|i| its.hash(&item(i))) {
        while filter.try_insert(item).is_err() {
            filter.grow().unwrap();
        }
    }
    let mut bytes = wire::encode(&filter);
    bytes[HASH] = wire::encode(&its)[HASH];
    let pieces = wire::pieces(&bytes);
    wire::seal(&mut bytes, &pieces);
    Decoder::read(&bytes).unwrap().into_cuckoo().unwrap()
}

/// Adds the items to another system's empty filter, except those that it can't contain, and returns the filter.
fn filled(filter: Result<Foreign, impl std::fmt::Debug>, items: std::ops::Range<u32>) -> Foreign {
    let mut filter = filter.unwrap();
    let encoding = filter.encoding();
    for item in items.map(item).filter(|item| encoding.encode(item).is_some()) {
        if filter.try_add(&item).is_err() {
            assert_eq!(filter.grow(), Ok(true));
            filter.try_add(&item).unwrap();
        }
    }
    filter
}

/// A RedisBloom chain with this link, without items.
fn redisbloom_chain(
    plan: RedisBloomPlan,
    options: u32,
    growth: u32,
    link: LinkSpec,
) -> Result<Foreign, bloomery::Error> {
    let growth = Growth::RedisBloom { options, growth };
    Foreign::new(Scheme::RedisBloom(plan), Encoding::Bytes, growth, vec![Link::empty(link)?])
}

/// A filter without items, imported from a Guava file.
fn guava(strategy: u8, encoding: Encoding) -> Result<Foreign, bloomery::wire::DecodeError> {
    let mut blob = vec![strategy, 7, 0, 0, 0, 40];
    blob.resize(6 + 40 * 8, 0);
    import::guava(&blob, encoding, &alone)
}

/// A filter without items, imported from a bits-and-blooms file in which bitset and filter differ in length.
fn bloom_v3() -> Result<Foreign, bloomery::wire::DecodeError> {
    let mut blob = [2875u64, 10, 2880].map(u64::to_be_bytes).concat();
    blob.resize(24 + 45 * 8, 0);
    import::bloom_v3(&blob, &alone)
}

/// A filter imported from a valkey-bloom payload with one empty filter for 50 items at 1%.
fn valkey_bloom() -> Result<Foreign, bloomery::wire::DecodeError> {
    let mut payload = vec![1, 2, 0, 0, 0];
    payload.extend([0.01f64, 0.5].map(f64::to_le_bytes).concat());
    payload.push(1);
    payload.extend([1u64, 45 + 60].map(u64::to_le_bytes).concat());
    payload.extend([1, 60, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0]);
    payload.extend(SEED.to_le_bytes());
    payload.extend((!SEED).to_le_bytes());
    payload.resize(payload.len() + 60, 0);
    payload.extend([0u64, 50].map(u64::to_le_bytes).concat());
    import::valkey_bloom_payload(&payload, &alone)
}

/// All Bloom filters.
#[rustfmt::skip] // a table
pub(crate) const RECIPES: &[Recipe] = &[
    ("bits-empty",            || make(Spec::fixed(100, 0.01))),
    ("bits-classic",          || with(Spec { layout: Some(Layout::Classic), ..Spec::fixed(200, 0.01) }, 200)),
    ("bits-blocked",          || with(Spec { layout: Some(Layout::Blocked), ..Spec::fixed(200, 0.0001) }, 200)),
    ("bits-classic-sharded",  || with(Spec { layout: Some(Layout::Classic), shards: 8, ..Spec::fixed(400, 0.001) }, 200)),
    ("bits-blocked-sharded",  || with(Spec { layout: Some(Layout::Blocked), shards: 4, ..Spec::fixed(400, 0.01) }, 400)),
    ("bits-siphash",          || with(Spec { hash: HashKind::SipHash, ..Spec::fixed(200, 0.01) }, 200)),
    ("bits-saturated",        || with(Spec { family: Family::Fixed(Overflow::Saturate), ..Spec::fixed(40, 0.1) }, 120)),
    ("bits-partitioned",      || with(Spec { layout: Some(Layout::Partitioned), shards: 2, ..Spec::fixed(400, 0.01) }, 400)),
    ("counter4-classic",      || counted(Spec { layout: Some(Layout::Classic), ..Spec::counting(80, 0.01) })),
    ("counter4-blocked",      || counted(Spec { layout: Some(Layout::Blocked), shards: 2, ..Spec::counting(80, 0.01) })),
    ("counter8-partitioned",  || counted(Spec { cell: Cell::Counter8, layout: Some(Layout::Partitioned), ..Spec::fixed(80, 0.05) })),
    ("counter8-siphash",      || counted(Spec { cell: Cell::Counter8, hash: HashKind::SipHash, ..Spec::fixed(80, 0.01) })),
    ("counter16-blocked",     || counted(Spec { cell: Cell::Counter16, layout: Some(Layout::Blocked), ..Spec::fixed(80, 0.1) })),
    ("chain-by-2",            || grown(2, Tightening::INVERSE_SQUARE, Spec { layout: Some(Layout::Classic), ..Spec::fixed(50, 0.01) }, 500)),
    ("chain-by-1-sharded",    || grown(1, Tightening::INVERSE_SQUARE, Spec { shards: 2, ..Spec::fixed(50, 0.01) }, 220)),
    ("chain-partitioned",     || grown(2, Tightening::INVERSE_SQUARE, Spec { layout: Some(Layout::Partitioned), hash: HashKind::SipHash, ..Spec::fixed(50, 0.01) }, 400)),
    ("chain-tightening",      || grown(3, Tightening::geometric(0.5).unwrap(), Spec { layout: Some(Layout::Classic), ..Spec::fixed(40, 0.001) }, 300)),
    ("quotient-empty",        || make(table(Spec::scaling(100, 0.01)))),
    ("quotient",              || with(table(Spec::fixed(150, 0.001)), 150)),
    ("quotient-after-bits",   || grown(2, Tightening::INVERSE_SQUARE, Spec::fixed(50, 0.01), 200)),
    ("quotient-scaling",      || with(table(Spec { hash: HashKind::SipHash, ..Spec::scaling(20, 0.01) }), 300)),
    ("quotient-counting",     || counted_in(make(table(Spec::counting(80, 0.01))))),
    ("quotient-leaves",       || {
        let mut filter = make(table(Spec { error_rate: 0.2, ..Spec::scaling(100, 0.01) }));
        add(&mut filter, 300..2900);
        filter
    }),
    ("quotient-window",       || aged(Spec::fixed(50, 0.01), 3, Overflow::Error, 0)),
    ("quotient-window-grown", || aged(Spec::fixed(5, 0.01), 3, Overflow::Saturate, 0)),
    ("quotient-window-timed", || aged(Spec { hash: HashKind::SipHash, ..Spec::fixed(20, 0.001) }, 60, Overflow::Forget, 60_000)),
    ("static-empty",          || built(Spec { layout: Some(Layout::Fuse), ..Spec::fixed(1, 0.01) }, 0).build().unwrap()),
    ("static",                || built(Spec { layout: Some(Layout::Fuse), ..Spec::fixed(100, 0.001) }, 150).build().unwrap()),
    ("static-siphash",        || built(Spec { layout: Some(Layout::Fuse), hash: HashKind::SipHash, ..Spec::fixed(1, 1e-9) }, 200).build().unwrap()),
    ("static-ribbon-empty",   || built(Spec { layout: Some(Layout::Ribbon), ..Spec::fixed(1, 0.01) }, 0).build().unwrap()),
    ("static-ribbon",         || built(Spec { layout: Some(Layout::Ribbon), ..Spec::fixed(100, 0.15) }, 400).build().unwrap()),
    ("static-ribbon-siphash", || built(Spec { layout: Some(Layout::Ribbon), hash: HashKind::SipHash, ..Spec::fixed(1, 1e-9) }, 200).build().unwrap()),
    ("window-rotated",        || rotated(Spec::fixed(100, 0.01), 0)),
    ("window-timed-siphash",  || rotated(Spec { hash: HashKind::SipHash, ..Spec::fixed(100, 0.01) }, 60_000)),
];

/// All cuckoo filters.
#[rustfmt::skip] // a table
pub(crate) const CUCKOOS: &[CuckooRecipe] = &[
    ("cuckoo-empty",          || nested(cuckoo_spec(1024, 2, 1), [])),
    ("cuckoo-full",           || crammed(CuckooSpec { max_iterations: 500, ..cuckoo_spec(128, 2, 0) })),
    ("cuckoo-padded",         || thinned(nested(cuckoo_spec(12, 3, 1), (0..100).chain(0..10)), 80..100)),
    ("cuckoo-siphash",        || nested(CuckooSpec { hash: HashKind::SipHash, ..cuckoo_spec(60, 4, 2) }, 0..300)),
    ("cuckoo-wide",           || nested(cuckoo_spec(510, 255, 32_768), (0..100).chain(0..100).chain([0; 200]))),
    ("cuckoo-redisbloom",     || thinned(moved_in(redisbloom_cuckoo(Origin::RedisBloom, 2, 2), 0..200), 180..200)),
    ("cuckoo-redisbloom-2",   || thinned(unkeyed(redisbloom_cuckoo(Origin::RedisBloom, 2, 2), 0..200), 180..200)),
    ("cuckoo-redisbloom-1",   || unkeyed(redisbloom_cuckoo(Origin::RedisBloom1, 2, 1), 0..150)),
];

/// All filters of other systems.
#[rustfmt::skip] // a table
pub(crate) const FOREIGN: &[ForeignRecipe] = &[
    ("foreign-go-zero",       || filled(bitmap::go_zero(4001, bitmap::GO_ZERO_PROBES, &[], &alone), 0..150)),
    ("foreign-redisson",      || filled(bitmap::redisson(2875, 7, Encoding::Kryo5, &[], &alone), 0..300)),
    ("foreign-redisson-json", || filled(bitmap::redisson(2875, 7, Encoding::Json, &[], &alone), 0..300)),
    ("foreign-bloom-v3",      || filled(bloom_v3(), 0..200)),
    ("foreign-guava",         || filled(guava(1, Encoding::Bytes), 0..250)),
    ("foreign-guava-utf16",   || filled(guava(1, Encoding::Utf16), 0..400)),
    ("foreign-guava-32",      || filled(guava(0, Encoding::Bytes), 0..250)),
    ("foreign-sbbf",          || filled(import::sbbf(&[0; 11 * 32], Encoding::Bytes, &alone), 0..200)),
    ("foreign-sbbf-long",     || filled(import::sbbf(&[0; 32], Encoding::Long, &alone), 0..600)),
    ("foreign-valkey",        || filled(valkey_bloom(), 0..130)),
    ("foreign-redisbloom",    || filled(redisbloom_chain(RedisBloomPlan::Full, 5, 2, TODAYS_LINK), 0..200)),
    ("foreign-redisbloom-2",  || filled(redisbloom_chain(RedisBloomPlan::FullOrCut, 4, 2, OLD_LINK), 0..250)),
    ("foreign-redisbloom-1",  || filled(redisbloom_chain(RedisBloomPlan::Narrow, 0, 1, OLD_LINK), 0..250)),
];

/// All filters that are being rebuilt.
#[rustfmt::skip] // a table
pub(crate) const REBUILDS: &[RebuildRecipe] = &[
    ("rebuild-counting",      || rebuilt(Live::Bloom(counted(Spec::counting(80, 0.01))), with(Spec::counting(100, 0.01), 90), 20)),
    ("rebuild-chain",         || rebuilt(Live::Bloom(grown(2, Tightening::INVERSE_SQUARE, Spec { layout: Some(Layout::Classic), ..Spec::fixed(50, 0.01) }, 300)), with(Spec::fixed(400, 0.001), 200), 0)),
    ("rebuild-windows",       || {
        let live = rotated(Spec::fixed(100, 0.01), 60_000);
        let family = Family::Window { generations: 3, overflow: Overflow::Saturate, every_ms: 60_000 };
        let mut shadow = make(Spec { family, ..Spec::fixed(150, 0.01) }).in_step_with(live.window());
        add(&mut shadow, 180..240);
        rebuilt(Live::Bloom(live), shadow, 0)
    }),
    ("rebuild-static",        || {
        let spec = Spec { layout: Some(Layout::Fuse), ..Spec::fixed(40, 0.01) };
        rebuilt(Live::Bloom(built(spec, 100).build().unwrap()), built(spec, 120).into_list(), 0)
    }),
    ("rebuild-static-ribbon", || {
        let spec = Spec { layout: Some(Layout::Ribbon), ..Spec::fixed(40, 0.3) };
        rebuilt(Live::Bloom(built(spec, 100).build().unwrap()), built(spec, 120).into_list(), 0)
    }),
    ("rebuild-redisbloom",    || {
        let live = filled(redisbloom_chain(RedisBloomPlan::Full, 5, 2, TODAYS_LINK), 0..200);
        rebuilt(Live::Foreign(Box::new(live)), grown(2, Tightening::INVERSE_SQUARE, Spec::fixed(90, 0.01), 100), 0)
    }),
];

fn built(spec: Spec, items: u32) -> StaticBuilder {
    let mut builder = StaticBuilder::with_spec(Spec { seed: Seed::from(SEED), ..spec }).unwrap();
    (0..items).for_each(|i| builder.insert(item(i)).unwrap());
    builder
}

fn rebuilt(live: Live, shadow: Bloom, deletes_missed: u64) -> Rebuild {
    Rebuild::new(live, shadow, deletes_missed).unwrap()
}

/// The link that RedisBloom makes today for `BF.RESERVE key 0.01 30`.
const TODAYS_LINK: LinkSpec = LinkSpec {
    modulus: 384,
    probes: 8,
    capacity: 30,
    error_rate: 0.005,
    bits_per_item: 11.027_753_418_256_411,
    bits: 384,
    log2: 0,
    bytes: 48,
};

/// The link that RedisBloom made for `BF.RESERVE key 0.01 100` before 2.2.0, when it rounded bits up to a power of two.
const OLD_LINK: LinkSpec = LinkSpec {
    modulus: 1024,
    probes: 7,
    capacity: 106,
    error_rate: 0.01,
    bits_per_item: 9.585_058_377_367_446,
    bits: 1024,
    log2: 10,
    bytes: 128,
};

/// The Bloom filter of this name.
pub(crate) fn bloom(name: &str) -> Bloom {
    RECIPES.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("{name}")).1()
}

/// The cuckoo filter of this name.
pub(crate) fn cuckoo(name: &str) -> Cuckoo {
    CUCKOOS.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("{name}")).1()
}

/// The other system's filter of this name.
pub(crate) fn foreign(name: &str) -> Foreign {
    FOREIGN.iter().find(|(other, _)| *other == name).unwrap_or_else(|| panic!("{name}")).1()
}

/// The names of all golden files, and the filters that today's code makes.
pub(crate) fn all() -> Vec<(&'static str, Filter)> {
    let bloom = RECIPES.iter().map(|(name, recipe)| (*name, Filter::Bloom(recipe())));
    let cuckoo = CUCKOOS.iter().map(|(name, recipe)| (*name, Filter::Cuckoo(recipe())));
    let foreign = FOREIGN.iter().map(|(name, recipe)| (*name, Filter::Foreign(Box::new(recipe()))));
    let rebuild = REBUILDS.iter().map(|(name, recipe)| (*name, Filter::Rebuild(Box::new(recipe()))));
    bloom.chain(cuckoo).chain(foreign).chain(rebuild).collect()
}

/// The names of all golden files.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let ours = RECIPES.iter().map(|(name, _)| *name).chain(CUCKOOS.iter().map(|(name, _)| *name));
    let ours = ours.chain(FOREIGN.iter().map(|(name, _)| *name));
    ours.chain(REBUILDS.iter().map(|(name, _)| *name))
}

/// The path of a file in tests/golden.
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

/// A filter's answers for the [`items`], as JSON, so that decoders in other languages can be checked: the numbers of
/// items and of set cells, then a 1 or 0 for each item, its count if the filter counts, and in a window its age as of
/// the newest generation, or −1 if it is absent. For a filter that is being rebuilt, the live filter's answers, then
/// the shadow's.
pub(crate) fn answers<'f>(filter: impl Into<FilterRef<'f>>) -> String {
    match filter.into() {
        FilterRef::Bloom(filter) => {
            let hashes: Vec<_> = (0..ASKED).map(|i| filter.hash(item(i))).collect();
            let contains = hashes.iter().map(|hash| filter.contains(*hash)).collect();
            let counts = hashes.iter().map(|hash| filter.count(*hash).ok()).collect();
            let ages = filter.window().map(|window| {
                let age = |hash| window.age(hash, window.newest()).map_or(-1, |age| age as i64);
                hashes.iter().map(|hash| age((*hash).into())).collect()
            });
            json(filter.items(), filter.ones(), contains, counts, ages)
        }
        FilterRef::Cuckoo(filter) => {
            let hashes: Vec<_> = (0..ASKED).map(|i| filter.hash(&item(i))).collect();
            let contains = hashes.iter().map(|hash| filter.contains(*hash)).collect();
            let counts = hashes.iter().map(|hash| filter.count(*hash)).collect();
            // A slot in use is an item.
            json(filter.items(), filter.items(), contains, Some(counts), None)
        }
        FilterRef::Foreign(filter) => {
            let contains = (0..ASKED).map(|i| filter.contains(&item(i))).collect();
            json(filter.items(), filter.ones(), contains, None, None)
        }
        FilterRef::Rebuild(rebuild) => {
            let (live, shadow) = (answers(rebuild.live()), answers(rebuild.shadow()));
            let live = live.strip_suffix("\n}\n").expect("an object");
            format!("{live},\n\"deletes missed\": {},\n\"shadow\": {shadow}}}\n", rebuild.deletes_missed())
        }
    }
}

fn json(
    items: u64,
    ones: u64,
    contains: Vec<bool>,
    counts: Option<Vec<u64>>,
    ages: Option<Vec<i64>>,
) -> String {
    let contains: String = contains.into_iter().map(|present| if present { '1' } else { '0' }).collect();
    format!(
        "{{\n\"items\": {items},\n\"ones\": {ones},\n\"contains\": \"{contains}\",\n\"counts\": {},\n\"ages\": {}\n}}\n",
        counts.map_or("null".into(), |counts| format!("{counts:?}")),
        ages.map_or("null".into(), |ages| format!("{ages:?}")),
    )
}
