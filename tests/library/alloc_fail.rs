//! Refused memory, and memory that isn't requested.
//!
//! The cells of a filter come from `alloc_zeroed`, and for them the crate promises an error instead of an abort. The
//! tests' allocator refuses the Nth such request, for every N, in each operation that creates or grows a filter: the
//! operation must return an error, leave the filter unchanged, and leak nothing. Lists, heads and pieces come from
//! `alloc` and `realloc` through `Vec` and `Box`, which abort the process if memory is refused. These requests are
//! counted and bounded here instead.

use crate::support::alloc_counter::{
    forget_largest_infallible, granting, largest_infallible, live, requests,
};
use crate::support::fake_server::FakeServer;
use crate::support::rdb::Fields;
use crate::support::{describe, golden, kinds, wire};
use bloomery::filter::foreign::Encoding;
use bloomery::filter::{FilterRef, Foreign, Origin, Target, Union};
use bloomery::parallel::alone;
use bloomery::wire::import::{self, bitmap};
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Bloom, Cell, Cuckoo, CuckooSpec, Error, Filter, HashKind, Seed, Spec};
/// Runs `work` on copies of the same state, refusing the first request, then the second, and so on, until none is
/// refused. `work` says whether it got an error. If it did, nothing may have changed. Nothing may ever leak.
fn refuse_each<T>(name: &str, make: impl Fn() -> T, work: impl Fn(&mut T) -> Result<(), Error>)
where
    for<'a> &'a T: Into<FilterRef<'a>>,
{
    let state = |filter: &T| (wire::encode(filter), describe(filter));
    let mut refusals = 0;
    loop {
        let at_first = live();
        let mut filter = make();
        let before = state(&filter);
        let (result, refused) = granting(refusals, || work(&mut filter));
        if refused {
            assert!(matches!(result, Err(Error::OutOfMemory { .. })), "{name}: {result:?}");
            assert!(state(&filter) == before, "{name}: changed by a refusal");
            // The filter continues to work as if nothing had happened.
            assert_eq!(work(&mut filter), Ok(()), "{name}");
        } else {
            assert_eq!(result, Ok(()), "{name}");
        }
        drop((filter, before));
        assert_eq!(live(), at_first, "{name}: leaked");
        if !refused {
            break;
        }
        refusals += 1;
    }
    assert!(refusals > 0, "{name} asked for no memory: the test proves nothing");
}

fn filled(spec: Spec) -> Bloom {
    let mut filter = Bloom::new(spec).unwrap();
    for i in 0..40u16 {
        filter.add(filter.hash(i.to_le_bytes())).unwrap();
    }
    filter
}

/// Cuckoo filters without padding, with padding, with large buckets, and with aligned blocks.
#[rustfmt::skip] // a table
const CUCKOOS: &[(&str, CuckooSpec)] = &[
    ("cuckoo",         CUCKOO),
    ("cuckoo padded",  CuckooSpec { capacity: 12, bucket_size: 3, expansion: 1, ..CUCKOO }),
    ("cuckoo wide",    CuckooSpec { capacity: 510, bucket_size: 255, hash: HashKind::SipHash, ..CUCKOO }),
    ("cuckoo aligned", CuckooSpec { capacity: 1024, expansion: 4, ..CUCKOO }),
];

const CUCKOO: CuckooSpec = CuckooSpec {
    capacity: 32,
    bucket_size: 4,
    max_iterations: 20,
    expansion: 2,
    origin: Origin::Bloomery,
    hash: HashKind::Xxh3,
    seed: Seed { low: 7, high: 0 },
};

/// A filter of three sub-filters, full except for the newest, with some items deleted.
fn nested(spec: CuckooSpec) -> Cuckoo {
    let mut filter = Cuckoo::new(spec).unwrap();
    let mut i = 0u32;
    while filter.tables().len() < 3 || i.is_multiple_of(7) {
        if filter.try_insert(filter.hash(&i.to_le_bytes())).is_err() {
            filter.grow().unwrap();
        }
        i += 1;
    }
    (0..4u32).for_each(|i| assert!(filter.remove(filter.hash(&i.to_le_bytes()))));
    filter
}

/// Checks that a constructor returns an error and leaks nothing if memory is refused.
fn refuse_to_create<T>(name: &str, create: impl Fn() -> Result<T, Error>) {
    for granted in 0.. {
        let at_first = live();
        let (result, refused) = granting(granted, &create);
        assert_eq!(result.is_err(), refused, "{name}");
        assert!(!refused || matches!(result, Err(Error::OutOfMemory { .. })), "{name}");
        drop(result);
        assert_eq!(live(), at_first, "{name}: leaked");
        if !refused {
            assert!(granted > 0);
            break;
        }
    }
}

#[test]
fn creating() {
    kinds::ALL
        .iter()
        .chain(kinds::TABLES)
        .for_each(|(name, kind)| refuse_to_create(name, || Bloom::new(kind())));
    CUCKOOS.iter().for_each(|(name, spec)| refuse_to_create(name, || Cuckoo::new(*spec)));
}

#[test]
fn growing() {
    for (name, kind) in kinds::ALL.iter().filter(|(name, _)| name.starts_with("scaling")) {
        refuse_each(name, || filled(kind()), |filter| filter.grow().map(drop));
        // An add that makes a full chain grow.
        let full = || {
            let mut filter = filled(kind());
            let mut i = 0u32;
            while !filter.layers().last().unwrap().is_full() {
                i += 1;
                filter.add(filter.hash(i.to_le_bytes())).unwrap();
            }
            filter
        };
        let stranger =
            |filter: &Bloom| (0u64..).map(|i| filter.hash(i.to_le_bytes())).find(|i| !filter.contains(*i));
        refuse_each(name, full, |filter| match stranger(filter) {
            Some(item) => filter.add(item).map(drop),
            None => unreachable!("no filter of bits has everything"),
        });
    }
    // An add that makes a full filter add a table.
    let outgrown = kinds::TABLES.iter().filter(|(name, _)| name.starts_with("outgrown"));
    for (name, kind) in outgrown {
        let full = || {
            let mut filter = Bloom::new(kind()).unwrap();
            let mut items = 0u64..;
            while !filter.newest_layer().is_full() {
                filter.add(items.next().unwrap().to_le_bytes()).unwrap();
            }
            filter
        };
        refuse_each(name, full, |filter| {
            let stranger =
                (0u64..).map(|item| filter.hash(item.to_le_bytes())).find(|item| !filter.contains(*item));
            filter.add(stranger.unwrap()).map(drop)
        });
    }
    for (name, spec) in CUCKOOS {
        refuse_each(name, || nested(*spec), Cuckoo::grow);
    }
    for (name, recipe) in golden::FOREIGN {
        if recipe().next_link() != Ok(None) {
            refuse_each(name, recipe, |filter| filter.grow().map(drop));
        }
    }
}

#[test]
fn rotating() {
    for (name, kind) in kinds::ALL.iter().filter(|(name, _)| name.starts_with("window")) {
        let full = || {
            let mut filter = filled(kind());
            for number in 1..6 {
                filter.advance(number).unwrap();
                (0..20u64)
                    .for_each(|i| assert!(filter.add(filter.hash((number * 100 + i).to_le_bytes())).is_ok()));
            }
            filter
        };
        for number in [6, 7, 8, 100] {
            refuse_each(name, full, |filter| filter.advance(number).map(drop));
            refuse_each(name, full, |filter| filter.rotate(number).map(drop));
        }
    }
}

#[test]
fn clearing_and_copying() {
    for (name, kind) in kinds::ALL.iter().chain(kinds::TABLES) {
        refuse_each(name, || filled(kind()), |filter| filter.clear().map(drop));
        refuse_each(name, || filled(kind()), |filter| filter.snapshot().map(drop));
    }
    for (name, spec) in CUCKOOS {
        refuse_each(name, || nested(*spec), |filter| filter.snapshot().map(drop));
        refuse_each(
            name,
            || Filter::Cuckoo(nested(*spec)),
            |value| value.snapshot().map(|copy| assert!(wire::encode(&copy) == wire::encode(&*value))),
        );
    }
    for (name, recipe) in golden::FOREIGN {
        refuse_each(name, recipe, |filter| {
            filter.snapshot().map(|copy| assert!(wire::encode(&copy) == wire::encode(&*filter)))
        });
    }
}

/// Set algebra: working copies, intersections, and layers that come from another chain.
#[test]
fn combining() {
    for (name, kind) in kinds::ALL.iter().chain(kinds::TABLES) {
        let value = || Filter::Bloom(filled(kind()));
        refuse_each(name, value, |value| value.snapshot().map(drop));
        let other = filled(kind());
        if filled(kind()).check_intersection(&other).is_ok() {
            refuse_each(name, || filled(kind()), |filter| filter.intersection(&[&other], &alone).map(drop));
        }
    }
    // Layers from another chain, with shapes that this chain doesn't have.
    let (mine, theirs) = (kinds::scaling_classic, || Spec { capacity: 700, ..kinds::scaling_classic() });
    let larger = Filter::Bloom(filled(theirs()));
    refuse_each(
        "union",
        || Filter::Bloom(filled(mine())),
        |value| {
            let (live, source) = (value.live().unwrap(), larger.live().unwrap());
            let mut union = Union::plan(Some(live), &[source], None).map_err(|why| panic!("{why:?}"))?;
            union.join(live, &alone).map_err(|why| panic!("{why:?}"))?;
            let Some(Target::One(live)) = value.target() else { panic!("nothing is being rebuilt") };
            union.apply(live, &alone).map(|changed| assert!(changed))
        },
    );
}

/// Commands that create a filter or can grow one, each preceded by the commands that prepare it.
#[rustfmt::skip] // a table
const COMMANDS: &[(&[&str], &str)] = &[
    (&[], "BF.RESERVE key 0.01 100 SHARDS 2 SEED 1"),
    (&[], "BF.RESERVE key 0.01 100 WINDOW 4 SEED 1"),
    (&[], "CF.RESERVE key 100 SEED 1"),
    (&[CHAIN], "BF.MADD key {items}"),
    (&[CHAIN], "BF.INSERT key ITEMS {items}"),
    (&[CHAIN], "BF.BULKADD key FIXED 3 {blob}"),
    (&["BF.RESERVE key 0.01 9 WINDOW 2 SEED 1", "BF.ADD key a", "BF.ROTATE key", "BF.ADD key b"], "BF.ROTATE key"),
    (&[WINDOW, "BF.MADD key a b c", "BF.ROTATE key", "BF.MADD key d"], "BF.CLEAR key"),
    (&[CHAIN, "BF.MADD key {items}"], "BF.CLEAR key"),
    (&[CHAIN, "BF.RESERVE other 0.1 90 SEED 1", "BF.MADD other {items}"], "BF.MERGE key other"),
    (&[CHAIN, "BF.MADD key a b"], "BF.MERGE new key"),
    (&[CHAIN, "BF.RESERVE other 0.1 90 SEED 1", "BF.MADD other {items}"], "BF.MERGE key BLOB {other}"),
    (&[CHAIN, "BF.RESERVE other 0.1 90 SEED 1", "BF.MADD other {items}"], "BF.MERGE new BLOB {other} {other}"),
    (&[TABLE, "BF.RESERVE other 0.01 100 LIKE key", "BF.MADD other {items}"], "BF.MERGE key other"),
    (&[FIXED, "BF.MADD key a b"], "BF.INTERSECT new key key"),
    (&["CF.RESERVE key 8 SEED 1", "CF.INSERT key ITEMS 100 101 102 103 104 105 106 107"], "CF.ADD key 108"),
];

const TABLE: &str = "BF.RESERVE key 0.01 100 COUNTING SEED 1";
const CHAIN: &str = "BF.RESERVE key 0.1 10 EXPANSION 2 SEED 1";
const WINDOW: &str = "BF.RESERVE key 0.01 100 WINDOW 4 SEED 1";
const FIXED: &str = "BF.RESERVE key 0.01 100 NONSCALING SEED 1";

/// Every command reports the refusal, for the whole command or for an item, and keeps the items that it added before.
/// When repeated, it succeeds as if nothing had happened. A refused command without a list of items changes nothing.
#[test]
fn commands() {
    let items: Vec<String> = (100..160).map(|i| i.to_string()).collect();
    let fill = |line: &str| line.replace("{items}", &items.join(" ")).replace("{blob}", &items.concat());
    let contents = |server: &FakeServer| {
        let keys: Vec<_> = server.keys.borrow().keys().cloned().collect();
        let dump = |key: Vec<u8>| server.dump(std::str::from_utf8(&key).unwrap());
        keys.into_iter().map(|key| (key.clone(), dump(key))).collect::<Vec<_>>()
    };
    let prepared = |before: &[&str]| {
        let server = FakeServer::default();
        before.iter().for_each(|line| drop(server.line(&fill(line)).unwrap()));
        server
    };
    let text = |server: &FakeServer, line: &str| {
        let file = if line.contains("{other}") { server.dump("other") } else { Default::default() };
        let word = |word| if word == "{other}" { &file } else { str::as_bytes(word) };
        let reply = server.run(&line.split(' ').map(word).collect::<Vec<_>>());
        reply.map_or_else(|error| error.to_string(), |reply| format!("{reply:?}"))
    };
    for (before, line) in COMMANDS {
        let command = fill(line);
        let whole = prepared(before);
        assert!(!text(&whole, &command).contains("memory"), "{line}");
        let (whole, mut refusals) = (contents(&whole), 0);
        loop {
            let at_first = live();
            let server = prepared(before);
            let was = contents(&server);
            let (reply, refused) = granting(refusals, || text(&server, &command));
            assert_eq!(reply.to_lowercase().contains("memory"), refused, "{line}: {reply}");
            if refused {
                let many = line.contains("{items}") || line.contains("{blob}");
                assert!(many || contents(&server) == was, "{line}: changed by a refusal");
                text(&server, &command);
            }
            assert!(contents(&server) == whole, "{line}: otherwise than in one go, after {refusals}");
            drop((server, was, reply));
            assert_eq!(live(), at_first, "{line}: leaked");
            if !refused {
                break;
            }
            refusals += 1;
        }
        assert!(refusals > 0, "{line} asked for no memory: the test proves nothing");
    }
}

#[test]
fn decoding() {
    let bloom =
        kinds::ALL.iter().chain(kinds::TABLES).map(|(name, kind)| (name, wire::encode(&filled(kind()))));
    let cuckoo = CUCKOOS.iter().map(|(name, spec)| (name, wire::encode(&nested(*spec))));
    let foreign = golden::FOREIGN.iter().map(|(name, recipe)| (name, wire::encode(&recipe())));
    for (name, bytes) in bloom.chain(cuckoo).chain(foreign) {
        refuse_to_read(name, || Decoder::read(&bytes), |filter| wire::encode(filter) == bytes);
    }
}

/// Checks that `read` returns an error and leaks nothing if memory is refused. `is_right` checks its result if nothing
/// is refused.
fn refuse_to_read<T>(name: &str, read: impl Fn() -> Result<T, DecodeError>, is_right: impl Fn(&T) -> bool) {
    for granted in 0.. {
        let at_first = live();
        let (result, refused) = granting(granted, &read);
        match &result {
            Ok(filter) => assert!(!refused && is_right(filter), "{name}"),
            Err(why) => {
                assert!(refused && matches!(why, DecodeError::OutOfMemory { .. }), "{name}: {why}")
            }
        }
        drop(result);
        assert_eq!(live(), at_first, "{name}: leaked");
        if !refused {
            assert!(granted > 0, "{name} asked for no memory: the test proves nothing");
            break;
        }
    }
}

/// Other systems' data: files, fields and pieces.
#[test]
fn importing() {
    let same = |name: &str| {
        let bytes = wire::body(&golden::foreign(name));
        move |read: &Foreign| wire::body(read) == bytes
    };
    let of_words = |name: &str, head: &[u8]| {
        let words = wire::body(&golden::foreign(name));
        let big = words.chunks(8).flat_map(|word| word.iter().rev().copied());
        head.iter().copied().chain(big).collect::<Vec<u8>>()
    };
    let setbit = |name: &str, len: usize| {
        wire::body(&golden::foreign(name))
            .iter()
            .take(len)
            .map(|byte| byte.reverse_bits())
            .collect::<Vec<u8>>()
    };
    let bits = setbit("foreign-go-zero", 501);
    refuse_to_read("go-zero", || bitmap::go_zero(4001, 14, &bits, &alone), same("foreign-go-zero"));
    let bits = setbit("foreign-redisson", 360);
    let redisson = || bitmap::redisson(2875, 7, Encoding::Kryo5, &bits, &alone);
    refuse_to_read("redisson", redisson, same("foreign-redisson"));
    let blob = of_words("foreign-bloom-v3", &[2875u64, 10, 2880].map(u64::to_be_bytes).concat());
    refuse_to_read("bits-and-blooms", || import::bloom_v3(&blob, &alone), same("foreign-bloom-v3"));
    let blob = of_words("foreign-guava", &[1, 7, 0, 0, 0, 40]);
    refuse_to_read("guava", || import::guava(&blob, Encoding::Bytes, &alone), same("foreign-guava"));
    let blob = wire::body(&golden::foreign("foreign-sbbf"));
    refuse_to_read("sbbf", || import::sbbf(&blob, Encoding::Bytes, &alone), same("foreign-sbbf"));
    let mut fields = Fields::default();
    import::save_valkey_bloom(&mut fields, &golden::foreign("foreign-valkey"));
    let valkey = || import::load_valkey_bloom(&mut fields.clone(), 1);
    refuse_to_read("valkey-bloom", valkey, same("foreign-valkey"));

    for name in ["foreign-redisbloom", "foreign-redisbloom-1", "foreign-redisbloom-2"] {
        let filter = golden::foreign(name);
        let mut fields = Fields::default();
        redisbloom::save_bloom(&mut fields, &filter);
        let same = |read: &Filter| wire::body(read) == wire::body(&filter);
        refuse_to_read(name, || redisbloom::load_bloom(&mut fields.clone(), 4), same);
        refuse_to_read(name, || load_pieces(Loader::bloom, &Encoder::new(&filter)), same);
    }
    for name in ["cuckoo-redisbloom", "cuckoo-redisbloom-1"] {
        let filter = golden::cuckoo(name);
        let mut fields = Fields::default();
        redisbloom::save_cuckoo(&mut fields, &filter);
        let same = |read: &Filter| wire::body(read) == wire::body(&filter);
        refuse_to_read(name, || redisbloom::load_cuckoo(&mut fields.clone(), 4), same);
        refuse_to_read(name, || load_pieces(Loader::cuckoo, &Encoder::new(&filter)), same);
    }
}

fn load_pieces(
    begin: fn(&[u8]) -> Result<Loader, DecodeError>,
    encoder: &Encoder<'_>,
) -> Result<Filter, DecodeError> {
    let mut loader = begin(encoder.head())?;
    let mut pushed = Ok(());
    encoder.chunks(|end, chunk| pushed = pushed.and_then(|()| loader.push(end, chunk)));
    pushed?;
    loader.finish()
}

/// If there is no memory for a chunk, it can be pushed again: the decoder is unchanged.
#[test]
fn a_chunk_that_found_no_memory_can_come_again() {
    let filter = filled(kinds::scaling_classic());
    let bytes = wire::encode(&filter);
    let pieces: Vec<_> = wire::pieces(&bytes).into_iter().map(|at| &bytes[at]).collect();
    let mut decoder = Decoder::new(pieces[0]).unwrap();
    for piece in &pieces[1..] {
        let offset = decoder.offset();
        let (result, refused) = granting(0, || decoder.push(piece));
        assert!(refused && matches!(result, Err(DecodeError::OutOfMemory { .. })));
        assert_eq!(decoder.offset(), offset);
        decoder.push(piece).unwrap();
    }
    assert!(decoder.finish().unwrap().into_bloom().unwrap().equal(&filter));
}

/// If there is no memory for a piece in RedisBloom's format, it can be pushed again.
#[test]
fn a_piece_of_redisblooms_that_found_no_memory_can_come_again() {
    let filter = golden::foreign("foreign-redisbloom");
    let encoder = Encoder::new(&filter);
    let mut loader = Loader::bloom(encoder.head()).unwrap();
    let mut links = 0;
    encoder.chunks(|end, chunk| {
        let (result, refused) = granting(0, || loader.push(end, chunk));
        assert!(refused && matches!(result, Err(DecodeError::OutOfMemory { .. })));
        assert!(!loader.is_complete());
        loader.push(end, chunk).unwrap();
        links += 1;
    });
    assert_eq!(links, filter.links().len());
    assert!(wire::encode(&loader.finish().unwrap()) == wire::encode(&filter));
}

/// A head that declares the largest possible filter needs memory only for itself.
#[test]
fn a_head_alone_allocates_nothing() {
    let mut head = Encoder::new(&Bloom::new(Spec::fixed(100, 0.01)).unwrap()).head().to_vec();
    let cells = 1u64 << 49; // 2^46 bytes
    head[136..144].copy_from_slice(&cells.to_le_bytes());
    head[12..20].copy_from_slice(&(cells / 8).to_le_bytes());
    wire::seal_head(&mut head);
    let at_first = live();
    forget_largest_infallible();
    let decoder = Decoder::new(&head).unwrap();
    assert_eq!(decoder.body_len(), 1 << 46);
    assert!(live() - at_first < 1024, "{} bytes", live() - at_first);
    assert!(largest_infallible() < 1024, "{} bytes", largest_infallible());
}

/// A cuckoo filter's head describes up to 65,536 sub-filters in 80 bytes. Reading it needs memory for no more than a
/// list of them.
#[test]
fn a_head_of_many_sub_filters_allocates_their_list() {
    let mut head = Encoder::new(&Cuckoo::new(CuckooSpec { expansion: 1, ..CUCKOO }).unwrap()).head().to_vec();
    let (slots, tables) = (1u64 << 46, 65_536u32);
    head[12..20].copy_from_slice(&(slots * u64::from(tables)).to_le_bytes());
    head[24..32].copy_from_slice(&slots.to_le_bytes());
    head[72..76].copy_from_slice(&tables.to_le_bytes());
    wire::seal_head(&mut head);
    let at_first = live();
    forget_largest_infallible();
    let decoder = Decoder::new(&head).unwrap();
    assert_eq!(decoder.body_len(), slots * u64::from(tables));
    // Two numbers for each sub-filter: its buckets and its bytes.
    assert!(live() - at_first <= 2 * 8 * 65_536 + 1024, "{} bytes", live() - at_first);
    assert!(largest_infallible() <= 8 * 65_536, "{} bytes", largest_infallible());
    drop(decoder);
    assert_eq!(live(), at_first);
}

/// Questions to a table allocate nothing.
#[test]
fn questions_to_tables_allocate_nothing() {
    for (name, kind) in kinds::TABLES {
        let filter = filled(kind());
        let (reader, before) = (filter.reader(), requests());
        for i in 0..200u16 {
            let item = filter.hash(i.to_le_bytes());
            filter.prefetch(item.into());
            assert_eq!(filter.contains(item), reader.contains(item));
            _ = (filter.count(item), filter.window().map(|window| window.age(item.into(), 0)));
            _ = (filter.items(), filter.ones(), filter.fill(), filter.estimate(), filter.rate_now());
            _ = (filter.bytes(), filter.allocated(), filter.capacity());
        }
        assert_eq!(requests() - before, 0, "{name}");
    }
}

/// Operations on one item allocate nothing, whatever the kind of filter, except for tables: adding a present or a new
/// item, testing, counting, and deleting.
#[test]
fn items_allocate_nothing() {
    for (name, kind) in kinds::ALL {
        let mut filter = filled(Spec { capacity: 10_000, ..kind() });
        let reader = filter.reader();
        let before = requests();
        for i in 0..200u16 {
            let item = filter.hash(i.to_le_bytes());
            filter.prefetch(item.into());
            let present = filter.contains(item);
            filter.add(item).unwrap();
            filter.add_if_absent(item).unwrap();
            assert!(filter.contains_as_of(item, filter.generation_at(0)) && reader.contains(item));
            if filter.spec().cell != Cell::Bit {
                assert!(filter.count(item).unwrap() > u64::from(present));
                filter.remove(item).unwrap();
            }
            if let Some(window) = filter.window() {
                assert_eq!(window.age(item.into(), window.newest()), Some(0));
            }
            let _ = (filter.items(), filter.ones(), filter.fill(), filter.estimate(), filter.rate_now());
            let _ = (filter.bytes(), filter.allocated(), filter.capacity());
        }
        assert_eq!(requests() - before, 0, "{name}");
    }
    for (name, spec) in CUCKOOS {
        let spec = CuckooSpec { capacity: 10_000, ..*spec };
        let mut filter = nested(spec);
        filter.compact(true);
        filter.grow().unwrap();
        let (before, moves) = (requests(), filter.moves());
        for i in 0..200u32 {
            let item = filter.hash(&i.to_le_bytes());
            let count = filter.count(item);
            filter.try_insert(item).unwrap();
            assert!(filter.contains(item) && filter.count(item) > count);
            assert!(filter.remove(item) && !filter.is_sparse());
            let _ = (filter.items(), filter.bytes(), filter.allocated(), filter.next_bytes());
        }
        assert_eq!((requests() - before, filter.moves() - moves), (0, 0), "{name}");
    }
}

/// Operations on one item of another system's filter allocate nothing, if the filter hashes items without encoding them
/// first.
#[test]
fn items_of_other_systems_allocate_nothing() {
    for (name, recipe) in golden::FOREIGN {
        let mut filter = recipe();
        if filter.encoding() != Encoding::Bytes {
            continue;
        }
        while filter.grow() == Ok(true) && filter.links().last().unwrap().spec().capacity < 500 {}
        let before = requests();
        for i in 0..200u32 {
            let item = i.to_le_bytes();
            let present = filter.contains(&item);
            assert_eq!(filter.try_add(&item).unwrap().added, !present, "{name}");
            let _ = (filter.items(), filter.estimate(), filter.rate_now(), filter.next_link());
            let _ = (filter.bytes(), filter.allocated(), filter.capacity());
        }
        assert_eq!(requests() - before, 0, "{name}");
    }
}

/// Only small allocations may abort: lists of layers, and tallies of shards. Cells are not among them, however large
/// the filter.
#[test]
fn what_cannot_fail_is_small() {
    let specs = [
        (Spec { shards: 16, ..Spec::counting(1_000_000, 0.001) }, 16 * 128 + 256),
        (Spec::fixed(10_000_000, 0.01), 512),
        (Spec::window(1_000_000, 0.01, 64), 64 * 24),
    ];
    for (spec, most) in specs {
        forget_largest_infallible();
        let mut filter = Bloom::new(spec).unwrap();
        filter.clear().unwrap();
        let copy = filter.snapshot().unwrap();
        assert!(largest_infallible() <= most, "{spec:?}: {} bytes", largest_infallible());
        drop((filter, copy));
    }
}

/// A search for room lists the slots that it visits, and visits at most a few thousand, however large the filter and
/// its buckets.
#[test]
fn a_search_for_room_is_small() {
    for bucket_size in [1, 4, 255] {
        let spec =
            CuckooSpec { capacity: 1 << 16, bucket_size, max_iterations: u16::MAX, expansion: 0, ..CUCKOO };
        let at_first = live();
        let mut filter = Cuckoo::new(spec).unwrap();
        forget_largest_infallible();
        let refused =
            (0..1u32 << 17).filter(|i| filter.try_insert(filter.hash(&i.to_le_bytes())).is_err()).count();
        assert!(refused > 0 && filter.moves() > 0, "{bucket_size}: no search failed");
        assert!(largest_infallible() <= 192 << 10, "{bucket_size}: {} bytes", largest_infallible());
        drop(filter);
        assert_eq!(live(), at_first, "{bucket_size}: leaked");
    }
}
