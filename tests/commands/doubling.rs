//! The law of doubling: if one dimension of a command or of the state doubles, the command takes at most about twice as
//! long. If the dimension doesn't concern the command, it takes no longer.
//!
//! A search for the worst case only covers a limited range. But quadratic time shows in any range. By sending more
//! data, a client could make a quadratic command last for seconds. So every command runs at sizes s, 2s, 4s and 8s of
//! each dimension. Each time is the thread's processor time in the shortest of several runs. A command that takes at
//! most 5 ms at the largest size is skipped.
//!
//! A busy machine can make these tests fail, so they run only if they are asked for:
//! `cargo test --test commands doubling:: -- --ignored`.

use crate::support::fake_server::FakeServer;
use crate::support::rdb::{Field, Fields};
use bloomery::filter::{Bloom, Filter};
use bloomery::wire::{Encoder, redisbloom};
use bloomery::{Family, Overflow, Spec};
use bloomery_commands::config::Settings;
use bloomery_commands::table;
use std::time::Duration;

type Words = Vec<Vec<u8>>;

const SIZES: [usize; 4] = [1, 2, 4, 8];
/// A command that is faster than this at the largest size delays no other client.
const SHORT: Duration = Duration::from_millis(5);
/// How far the measured exponent may exceed the law's. Some excess is normal, because caches are smaller than the
/// state. Quadratic time would exceed a linear law by 1.
const TOLERANCE: f64 = 0.45;

/// Commands to be timed on a server that is prepared for each size.
struct Case<'a> {
    what: String,
    /// The smallest size.
    first: usize,
    /// The time may be proportional to this power of the size.
    law: f64,
    prepare: &'a dyn Fn(&FakeServer, usize) -> Vec<Words>,
}

/// Makes the allocator keep the pages of large blocks, as a server's allocator does. Otherwise it maps some blocks
/// again each time, which takes three times as long. Which blocks these are depends on the order of all allocations.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn keep_pages() {
    for option in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: an option of the allocator, with a value in its range.
        unsafe { libc::mallopt(option, 32 << 20) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_pages() {}

/// This thread's processor time. The system updates it when the thread yields.
fn processor_time() -> Duration {
    std::thread::yield_now();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(stat.split(' ').next().unwrap().parse().unwrap())
}

impl Case<'_> {
    fn time(&self, size: usize, times: usize) -> Duration {
        keep_pages();
        let once = || {
            let server = FakeServer::default();
            // All work is done on this thread.
            server.settings.set(Settings { offload_min_items: u64::MAX, ..Settings::DEFAULT });
            let commands = (self.prepare)(&server, size);
            let commands: Vec<Vec<&[u8]>> =
                commands.iter().map(|words| words.iter().map(Vec::as_slice).collect()).collect();
            let started = processor_time();
            for words in &commands {
                let _ = server.run(words); // being refused must not take long either
            }
            processor_time() - started
        };
        (0..times).map(|_| once()).min().unwrap()
    }

    /// The times and their exponent, if they violate the law.
    fn check(&self) -> Option<String> {
        if self.time(8 * self.first, 1) <= SHORT {
            return None;
        }
        let mut best = [Duration::MAX; SIZES.len()];
        let mut exponent = 0.0;
        for attempt in 0..4 {
            for (best, size) in best.iter_mut().zip(SIZES) {
                *best = self.time(size * self.first, 2).min(*best);
            }
            let [first, .., last] = best.map(|time| time.as_secs_f64());
            exponent = (last / first.max(5e-4)).log2() / 3.0;
            if best[3] <= SHORT || exponent <= self.law + TOLERANCE {
                return None;
            }
            // Twice in a row, this is too far off to be noise. Once, a busy machine can cause it.
            if attempt > 0 && exponent > self.law + 2.0 * TOLERANCE {
                break;
            }
        }
        Some(format!(
            "{}, from {}: {best:.1?}, exponent {exponent:.2}, not {}",
            self.what, self.first, self.law
        ))
    }
}

fn words(line: &str) -> Words {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

fn assert_hold(cases: &[Case<'_>]) {
    let broken: Vec<String> = cases.iter().filter_map(Case::check).collect();
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

fn items(count: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..count as u64).map(|item| item.to_le_bytes().to_vec())
}

// ---- the state ------------------------------------------------------------------------------------------------------

/// Puts chains with this number of layers, all of different shapes, into `k` and `other`.
fn layers(server: &FakeServer, count: usize) {
    for (key, first) in [("k", 1), ("other", 10_000)] {
        server.put(key, Bloom::new(Spec { seed: Default::default(), ..Spec::scaling(5000, 0.01) }).unwrap());
        let capacities: Vec<u64> = (first..).take(count - 1).collect();
        for some in capacities.chunks(15) {
            let mut merge = words(&format!("BF.MERGE {key}"));
            for capacity in some {
                let spec = Spec { seed: Default::default(), ..Spec::fixed(*capacity, 0.01) };
                let mut filter = Bloom::new(spec).unwrap();
                filter.add(filter.hash(capacity.to_le_bytes())).unwrap();
                server.put(&format!("of:{capacity}"), filter);
                merge.push(format!("of:{capacity}").into_bytes());
            }
            server.run_words(&merge).unwrap();
            some.iter().for_each(|capacity| {
                server.keys.borrow_mut().remove(format!("of:{capacity}").as_bytes());
            });
        }
    }
}

/// Puts a RedisBloom chain with this number of links into `k`.
fn links(server: &FakeServer, count: usize) {
    let mut fields =
        vec![Field::Unsigned(0), Field::Unsigned(count as u64), Field::Unsigned(5), Field::Unsigned(2)];
    for _ in 0..count {
        fields.extend([100, 0].map(Field::Unsigned));
        *fields.last_mut().unwrap() = Field::Double(0.01);
        fields.extend([Field::Unsigned(1), Field::Double(9.6), Field::Unsigned(64), Field::Unsigned(0)]);
        fields.extend([Field::String(vec![0; 8]), Field::Unsigned(0)]);
    }
    let filter = redisbloom::load_bloom(&mut Fields(fields.into()), 4).unwrap().into_foreign().unwrap();
    server.put("k", filter);
}

/// The commands that load a RedisBloom cuckoo filter with this number of 4-slot sub-filters: one for the head, and one
/// for each chunk.
fn tables_in_chunks(key: &str, count: usize) -> Vec<Words> {
    let load = |iterator: usize, data: &[u8]| {
        let mut load = words(&format!("CF.LOADCHUNK {key} {iterator}"));
        load.push(data.to_vec());
        load
    };
    let numbers = [count as u64 * 4, 2, 0, count as u64];
    let mut head: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    head.extend([2u16, 20, 1].iter().flat_map(|number| number.to_le_bytes()));
    let chunks = (0..count).map(|index| load(4 * index + 5, &[7, 8, 9, (index % 250) as u8]));
    std::iter::once(load(1, &head)).chain(chunks).collect()
}

/// Puts a RedisBloom cuckoo filter with one free slot and this maximum number of moves into `k`. An add makes all of
/// these moves, and undoes them: with the same fingerprint in all slots, a walk stays in four buckets, which hardly
/// ever include the last bucket, where the free slot is.
fn moves(server: &FakeServer, most: usize) {
    let buckets = 1u64 << 14;
    let mut head: Vec<u8> =
        [4 * buckets - 1, buckets, 0, 1].iter().flat_map(|number| number.to_le_bytes()).collect();
    head.extend([4, u16::try_from(most).unwrap(), 0].iter().flat_map(|number| number.to_le_bytes()));
    let mut slots = vec![1; 4 * buckets as usize];
    *slots.last_mut().unwrap() = 0;
    let load = |iterator: String, data: Vec<u8>| {
        [words("CF.LOADCHUNK k"), vec![iterator.into_bytes(), data]].concat()
    };
    run_all(server, &[load("1".to_owned(), head), load((4 * buckets + 1).to_string(), slots)]);
}

/// Creates `k` and `other`, which the commands use, and `count` more keys, alternately Bloom and cuckoo filters.
fn keys_beside(server: &FakeServer, count: usize) {
    reserved(server, &["k", "other"].map(|key| format!("BF.RESERVE {key} 0.01 100 SEED 1")));
    reserved(server, &["BF.RESERVE of:0 0.01 10".to_owned(), "CF.RESERVE of:1 10".to_owned()]);
    for number in 2..count {
        server.put(&format!("of:{number}"), server.copy(&format!("of:{}", number % 2)));
    }
}

fn run_all(server: &FakeServer, commands: &[Words]) {
    server.obey(commands);
}

fn reserved(server: &FakeServer, lines: &[String]) {
    for line in lines {
        server.line(line).unwrap_or_else(|why| panic!("{line}: {why}"));
    }
}

/// A dimension of the state: its name, its smallest size, the power of the size that a command's time may be
/// proportional to, and a function that makes the state. The filter is in `k`, and there may be a similar one in
/// `other`.
type State = (&'static str, usize, f64, fn(&FakeServer, usize));

const STATES: [State; 10] = [
    ("layers", 250, 1.0, layers),
    ("links", 512, 1.0, links),
    // A few thousand sub-filters fit in the caches. The maximum number doesn't, and then visiting each one takes three
    // times as long.
    ("sub-filters", 8191, 1.5, |server, count| run_all(server, &tables_in_chunks("k", count))),
    ("generations", 8, 1.0, |server, count| {
        let spec = Spec::fixed(1000, 0.01);
        let generations = u16::try_from(count).unwrap();
        for key in ["k", "other"] {
            let family = Family::Window { generations, every_ms: 0, overflow: Overflow::Error };
            server.put(key, Bloom::new(Spec { family, seed: Default::default(), ..spec }).unwrap());
        }
    }),
    ("shards", 128, 1.0, |server, count| {
        let lines = ["k", "other"].map(|key| format!("BF.RESERVE {key} 0.01 100000 SEED 1 SHARDS {count}"));
        reserved(server, &lines);
    }),
    ("bytes of cells", 1 << 20, 1.0, |server, count| {
        let lines =
            ["k", "other"].map(|key| format!("BF.RESERVE {key} 0.01 {} SEED 1 NONSCALING", count / 10 * 8));
        reserved(server, &lines);
    }),
    ("bytes of slots", 1 << 20, 1.0, |server, count| reserved(server, &[format!("CF.RESERVE k {count}")])),
    ("moves of an add", 8191, 1.0, moves),
    ("keys beside it", 4096, 0.0, keys_beside),
    // Each load declares as many sub-filters as a load can have.
    ("loads that wait", 7, 0.0, |server, count| {
        for load in 0..count {
            run_all(server, &tables_in_chunks(&format!("load{load}"), 65_535)[..2]);
        }
        reserved(
            server,
            &["BF.RESERVE k 0.01 100 SEED 1", "BF.RESERVE other 0.01 100 SEED 1"].map(str::to_owned),
        );
    }),
];

/// Lines that run a command on a [`State`].
pub(super) fn lines(command: &str) -> &'static [&'static str] {
    match command {
        "bf.reserve" => {
            &["BF.RESERVE new 0.01 100", "BF.RESERVE k 0.01 100", "BF.RESERVE new 0.01 5000 LIKE k"]
        }
        "bf.insert" => &["BF.INSERT k ITEMS x", "BF.INSERT new ITEMS x"],
        "bf.add" => &["BF.ADD k x", "BF.ADD new x"],
        "bf.madd" => &["BF.MADD k x y"],
        "bf.bulkadd" => &["BF.BULKADD k FIXED 1 xy"],
        "bf.addnx" => &["BF.ADDNX k x"],
        "bf.exists" => &["BF.EXISTS k x"],
        "bf.mexists" => &["BF.MEXISTS k x y"],
        "bf.bulktest" => &["BF.BULKTEST k FIXED 1 xy"],
        "bf.test" => &["BF.TEST k x"],
        "bf.del" => &["BF.DEL k x"],
        "bf.mdel" => &["BF.MDEL k x y"],
        "bf.count" => &["BF.COUNT k x"],
        "bf.rotate" => &["BF.ROTATE k"],
        "bf.age" => &["BF.AGE k x"],
        "bf.clear" => &["BF.CLEAR k"],
        "bf.card" => &["BF.CARD k"],
        "bf.info" => &["BF.INFO k"],
        "bf.stats" => &["BF.STATS k"],
        "bf.debug" => &["BF.DEBUG k"],
        "bf.feedback" => &["BF.FEEDBACK k 1 0"],
        "bf.merge" => &["BF.MERGE k other", "BF.MERGE merged k other", "BF.MERGE k k", "BF.MERGE k BLOB x"],
        "bf.intersect" => &["BF.INTERSECT common k other", "BF.INTERSECT all k k other"],
        "bf.equal" => &["BF.EQUAL k other", "BF.EQUAL k k"],
        "bf.rebuild" => &["BF.REBUILD k BEGIN", "BF.REBUILD k STATUS"],
        "bf.scandump" => &["BF.SCANDUMP k 0", "BF.SCANDUMP k 1"],
        "bf.loadchunk" => &["BF.LOADCHUNK new 1 x", "BF.LOADCHUNK new 9 x", "BF.LOADCHUNK k 1 x"],
        "bf.export" => &["BF.EXPORT k", "BF.EXPORT k OFFSET 0 COUNT 100"],
        "bf.import" => &["BF.IMPORT new GOZERO none BITS 64"],
        "bf.load" => &["BF.LOAD new x"],
        "cf.reserve" => &["CF.RESERVE new 100", "CF.RESERVE k 100"],
        "cf.insert" => &["CF.INSERT k ITEMS x", "CF.INSERT new ITEMS x"],
        "cf.insertnx" => &["CF.INSERTNX k ITEMS x"],
        "cf.add" => &["CF.ADD k x", "CF.ADD new x"],
        "cf.addnx" => &["CF.ADDNX k x"],
        "cf.exists" => &["CF.EXISTS k x"],
        "cf.mexists" => &["CF.MEXISTS k x y"],
        "cf.del" => &["CF.DEL k x"],
        "cf.count" => &["CF.COUNT k x"],
        "cf.compact" => &["CF.COMPACT k"],
        "cf.info" => &["CF.INFO k"],
        "cf.stats" => &["CF.STATS k"],
        "cf.debug" => &["CF.DEBUG k"],
        "cf.scandump" => &["CF.SCANDUMP k 0", "CF.SCANDUMP k 1"],
        "cf.loadchunk" => &["CF.LOADCHUNK new 1 x", "CF.LOADCHUNK new 9 x"],
        "cms.initbydim" => &["CMS.INITBYDIM new 20 5"],
        "cms.initbyprob" => &["CMS.INITBYPROB new 0.1 0.1"],
        "cms.incrby" => &["CMS.INCRBY cms x 1 y 2"],
        "cms.query" => &["CMS.QUERY cms x y"],
        "cms.merge" => &["CMS.MERGE cms 1 cms"],
        "cms.info" => &["CMS.INFO cms"],
        "topk.reserve" => &["TOPK.RESERVE new 3"],
        "topk.add" => &["TOPK.ADD topk x y"],
        "topk.incrby" => &["TOPK.INCRBY topk x 1 y 2"],
        "topk.query" => &["TOPK.QUERY topk x y"],
        "topk.count" => &["TOPK.COUNT topk x y"],
        "topk.list" => &["TOPK.LIST topk"],
        "topk.info" => &["TOPK.INFO topk"],
        "tdigest.create" => &["TDIGEST.CREATE new"],
        "tdigest.reset" => &["TDIGEST.RESET tdigest"],
        "tdigest.add" => &["TDIGEST.ADD tdigest 1 2"],
        "tdigest.merge" => &["TDIGEST.MERGE tdigest 1 tdigest"],
        "tdigest.info" => &["TDIGEST.INFO tdigest"],
        "tdigest.min" => &["TDIGEST.MIN tdigest"],
        "tdigest.max" => &["TDIGEST.MAX tdigest"],
        "tdigest.quantile" => &["TDIGEST.QUANTILE tdigest 0.5 1"],
        "tdigest.cdf" => &["TDIGEST.CDF tdigest 1 2"],
        "tdigest.rank" => &["TDIGEST.RANK tdigest 1 2"],
        "tdigest.revrank" => &["TDIGEST.REVRANK tdigest 1 2"],
        "tdigest.byrank" => &["TDIGEST.BYRANK tdigest 1 2"],
        "tdigest.byrevrank" => &["TDIGEST.BYREVRANK tdigest 1 2"],
        "tdigest.trimmed_mean" => &["TDIGEST.TRIMMED_MEAN tdigest 0 1"],
        other => panic!("{other} has no line here"),
    }
}

#[test]
#[ignore = "compares times"]
fn commands_on_states_of_twice_the_size() {
    let mut commands: Vec<&str> =
        table().iter().flat_map(|entry| lines(&entry.name("bf"))).copied().collect();
    // Commands that destroy the state come last.
    commands.sort_by_key(|line| ["BF.CLEAR k", "BF.ROTATE k", "BF.REBUILD k BEGIN"].contains(line));
    for (dimension, first, law, make) in STATES {
        // All commands run on one server, because preparing a server takes a long time. If they are too slow together,
        // each is timed by itself.
        let whole = |server: &FakeServer, size: usize| {
            make(server, size);
            commands.iter().copied().map(words).collect()
        };
        let together = Case { what: format!("all commands, {dimension}"), first, law, prepare: &whole };
        if together.check().is_some() {
            for line in &commands {
                let prepare = |server: &FakeServer, size: usize| {
                    make(server, size);
                    vec![words(line)]
                };
                assert_hold(&[Case { what: format!("{line}, {dimension}"), first, law, prepare: &prepare }]);
            }
            assert_hold(&[together]);
        }
    }
}

/// The state and the number of items grow together. If a command's time is proportional to each of the two, it may grow
/// with their product, but no faster.
#[test]
#[ignore = "compares times"]
fn twice_the_items_on_states_of_twice_the_size() {
    let [bloom, cuckoo] = [BLOOM, CUCKOO].map(|lines| lines.iter().filter(|line| !line.contains("missing")));
    let commands: Vec<&str> = bloom.chain(cuckoo).copied().collect();
    for (dimension, first, law, make) in STATES {
        // Two items are enough for "moves of an add": each takes a long time, even with the smallest number of moves.
        let (first, items) = (first / 4, if dimension == "moves of an add" { 2 } else { 500 });
        let prepare = |server: &FakeServer, size: usize, commands: &[&str]| {
            make(server, size);
            let _ = server.line("BF.REBUILD k BEGIN CAPACITY 1000");
            commands.iter().map(|command| with_items(command, items * size / first)).collect()
        };
        let all = |server: &FakeServer, size: usize| prepare(server, size, &commands);
        let together = Case { what: format!("items and {dimension}"), first, law: 1.0 + law, prepare: &all };
        if together.check().is_some() {
            for command in &commands {
                let alone = |server: &FakeServer, size: usize| prepare(server, size, &[command]);
                let what = format!("{command}, items and {dimension}");
                assert_hold(&[Case { what, first, law: 1.0 + law, prepare: &alone }]);
            }
            assert_hold(&[together]);
        }
    }
}

/// The head of a load takes no longer if other loads wait, because their heads were examined when they arrived.
#[test]
#[ignore = "compares times"]
fn a_head_beside_the_heads_of_others() {
    let prepare = |server: &FakeServer, count: usize| {
        for load in 0..count {
            run_all(server, &tables_in_chunks(&format!("load{load}"), 65_535)[..1]);
        }
        vec![tables_in_chunks("more", 65_535).swap_remove(0); 4]
    };
    assert_hold(&[Case { what: "heads of others".to_owned(), first: 7, law: 0.0, prepare: &prepare }]);
}

// ---- the arguments --------------------------------------------------------------------------------------------------

#[test]
#[ignore = "compares times"]
fn twice_as_many_names() {
    let cases = ["BF.MERGE new", "BF.MERGE k", "BF.INTERSECT new"].map(|command| {
        let of = move |server: &FakeServer, count: usize, name: &dyn Fn(usize) -> String| {
            server.line("BF.RESERVE k 0.01 10 SEED 1 NONSCALING").unwrap();
            let names: Vec<Vec<u8>> = (0..count).map(|number| name(number).into_bytes()).collect();
            vec![words(command).into_iter().chain(names).collect()]
        };
        (command, of)
    });
    for (command, of) in cases {
        let missing =
            |server: &FakeServer, count: usize| of(server, count, &|number| format!("missing:{number}"));
        let same = |server: &FakeServer, count: usize| of(server, count, &|_| "k".to_owned());
        let alike = |server: &FakeServer, count: usize| {
            let found = of(server, count, &|number| format!("source:{number}"));
            for number in 0..count {
                server.put(&format!("source:{number}"), server.copy("k"));
            }
            found
        };
        let case = |what: &str, first, prepare| Case {
            what: format!("{command}, {what}"),
            first,
            law: 1.0,
            prepare,
        };
        assert_hold(&[
            case("keys that don't exist", 4000, &missing),
            case("one key", 4000, &same),
            case("filters that go together", 1000, &alike),
        ]);
    }
}

/// BF.MERGE with twice as many blobs, whether they can be merged or not, and with a blob of twice the length.
#[test]
#[ignore = "compares times"]
fn twice_as_many_blobs_and_twice_as_long() {
    let of = |server: &FakeServer, key: &str, blob: Vec<u8>, count: usize| {
        server.line("BF.RESERVE k 0.01 10 SEED 1 NONSCALING").unwrap();
        vec![[words(&format!("BF.MERGE {key} BLOB")), vec![blob; count]].concat()]
    };
    let file = |line: &str, key: &str| {
        let maker = FakeServer::default();
        maker.line(line).unwrap();
        maker.dump(key)
    };
    let small = file("BF.RESERVE k 0.01 10 SEED 1 NONSCALING", "k");
    let strange = file("BF.RESERVE k 0.01 10 SEED 2 NONSCALING", "k");
    // The head that takes longest to read: it has 80 bytes, and describes the maximum number of sub-filters.
    let cuckoo = || {
        let maker = FakeServer::default();
        run_all(&maker, &tables_in_chunks("k", 65_535));
        Encoder::native(&maker.copy("k")).head().to_vec()
    };
    let cuckoo = cuckoo();
    let long = |_: &FakeServer, count: usize| {
        let blob = file(&format!("BF.RESERVE k 0.01 {} SEED 1 NONSCALING", count / 10 * 8), "k");
        vec![[words("BF.MERGE new BLOB"), vec![blob]].concat()]
    };
    let alike = |server: &FakeServer, count: usize| of(server, "k", small.clone(), count);
    let new = |server: &FakeServer, count: usize| of(server, "new", small.clone(), count);
    let unlike = |server: &FakeServer, count: usize| of(server, "k", strange.clone(), count);
    let heads = |server: &FakeServer, count: usize| of(server, "k", cuckoo.clone(), count);
    let case = |what: &str, first, prepare| Case { what: what.to_owned(), first, law: 1.0, prepare };
    assert_hold(&[
        case("blobs that go together", 1000, &alike),
        case("blobs for a new key", 1000, &new),
        case("blobs that don't go together", 1000, &unlike),
        Case { law: 0.0, ..case("heads of cuckoo filters", 1000, &heads) },
        case("a long blob", 1 << 20, &long),
    ]);
}

const MANY: [(&str, &[&str]); 8] = [
    ("BF.RESERVE k 0.01 1000000 NONSCALING", BLOOM),
    ("BF.RESERVE k 0.01 10 NONSCALING", BLOOM),
    ("BF.RESERVE k 0.01 100", BLOOM),
    ("BF.RESERVE k 0.01 100000 COUNTING", &["BF.INSERT k ITEMS", "BF.MDEL k", "BF.MADD k"]),
    ("BF.RESERVE k 0.01 100000 WINDOW 8", BLOOM),
    ("BF.IMPORT k GOZERO none BITS 1048576", BLOOM),
    ("CF.RESERVE k 1000000", CUCKOO),
    ("CF.RESERVE k 1000", CUCKOO),
];
const BLOOM: &[&str] = &[
    "BF.MADD k",
    "BF.INSERT k ITEMS",
    "BF.MEXISTS k",
    "BF.BULKADD k FIXED 8",
    "BF.BULKADD k PREFIXED",
    "BF.BULKTEST k FIXED 8",
    "BF.BULKTEST k PREFIXED",
    "BF.REBUILD k ADD",
    "BF.MEXISTS missing",
    "BF.MADD missing",
];
const CUCKOO: &[&str] =
    &["CF.INSERT k ITEMS", "CF.INSERTNX k ITEMS", "CF.MEXISTS k", "CF.INSERT missing ITEMS"];

/// A command with this number of items.
fn with_items(command: &str, count: usize) -> Words {
    let blob = |item: Vec<u8>| {
        if command.ends_with("PREFIXED") { [&[8, 0, 0, 0], &item[..]].concat() } else { item }
    };
    let mut line = words(command);
    match command.contains("BULK") {
        true => line.push(items(count).flat_map(blob).collect()),
        false => line.extend(items(count)),
    }
    line
}

#[test]
#[ignore = "compares times"]
fn twice_as_many_items() {
    for (reserve, commands) in MANY {
        for command in commands {
            let prepare = |server: &FakeServer, count: usize| {
                server.line(reserve).unwrap();
                let _ = server.line("BF.REBUILD k BEGIN CAPACITY 1000");
                vec![with_items(command, count)]
            };
            assert_hold(&[Case {
                what: format!("{command}, items, {reserve}"),
                first: 4000,
                law: 1.0,
                prepare: &prepare,
            }]);
        }
    }
}

#[test]
#[ignore = "compares times"]
fn options_that_are_repeated() {
    for (command, option) in [
        ("BF.RESERVE new 0.01 100", "EXPANSION 2"),
        ("BF.RESERVE new 0.01 100", "LIKE k"),
        ("BF.INSERT new", "CAPACITY 10"),
        ("BF.REBUILD k BEGIN", "CAPACITY 100"),
        ("BF.IMPORT new GOZERO none", "BITS 64"),
        ("BF.ROTATE k", "AT 1"),
        ("CF.RESERVE new 100", "EXPANSION 2"),
        ("CF.INSERT new", "CAPACITY 100"),
    ] {
        let prepare = |server: &FakeServer, count: usize| {
            server.line("BF.RESERVE k 0.01 100").unwrap();
            vec![words(&format!("{command}{}", format!(" {option}").repeat(count)))]
        };
        let case = Case { what: format!("{command}, {option}"), first: 4000, law: 1.0, prepare: &prepare };
        assert_hold(&[case]);
    }
}

/// In place of an option, the command has a word of up to 64 MiB. No option is that long, so there is no need to read
/// all of it.
#[test]
#[ignore = "compares times"]
fn a_word_of_twice_the_length_for_an_option() {
    for (command, rest) in [
        ("BF.RESERVE new 0.01 100", ""),
        ("BF.INSERT new", "ITEMS x"),
        ("BF.REBUILD k", "x"),
        ("BF.REBUILD k BEGIN", ""),
        ("BF.IMPORT new", "x"),
        ("BF.IMPORT new GOZERO none", ""),
        ("BF.IMPORT new REDISSON none config", ""),
        ("BF.IMPORT new GUAVA x", ""),
        ("BF.BULKADD k", "x"),
        ("BF.ROTATE k", "1"),
        ("CF.RESERVE new 100", "1"),
        ("CF.INSERT new", "ITEMS x"),
    ] {
        let prepare = |server: &FakeServer, len: usize| {
            server.line("BF.RESERVE k 0.01 100").unwrap();
            let mut line = words(command);
            line.push(vec![b'x'; len]);
            line.extend(rest.split_terminator(' ').map(|word| word.as_bytes().to_vec()));
            vec![line]
        };
        assert_hold(&[Case { what: command.to_owned(), first: 8 << 20, law: 0.0, prepare: &prepare }]);
    }
}

/// Commands on several kinds of filters get an item of up to 10 million bytes.
#[test]
#[ignore = "compares times"]
fn an_item_of_twice_the_length() {
    let reservations = [
        "BF.RESERVE k 0.01 100",
        "BF.RESERVE k 0.01 100 COUNTING",
        "BF.RESERVE k 0.01 100 WINDOW 8",
        "BF.RESERVE k 0.01 100 HASH SIPHASH",
        "BF.IMPORT k GOZERO none BITS 1048576",
        "CF.RESERVE k 100",
    ]; // fmt: skip
    for reserve in reservations {
        for command in ["ADD", "EXISTS", "ADDNX", "COUNT", "AGE", "DEL", "MEXISTS"] {
            let prepare = |server: &FakeServer, len: usize| {
                server.line(reserve).unwrap();
                let mut line = words(&format!("{}.{command} k", &reserve[..2]));
                line.push(vec![b'x'; len]);
                vec![line]
            };
            if table()
                .iter()
                .any(|entry| entry.name("bf").eq_ignore_ascii_case(&format!("{}.{command}", &reserve[..2])))
            {
                let what = format!("{command}, bytes of the item, {reserve}");
                assert_hold(&[Case { what, first: 10_000_000 / 8, law: 1.0, prepare: &prepare }]);
            }
        }
    }
}

/// A long item is read once, however many probes it has.
#[test]
#[ignore = "compares times"]
fn a_long_item_with_twice_as_many_probes() {
    for command in ["BF.EXISTS", "BF.ADD"] {
        let prepare = |server: &FakeServer, maps: usize| {
            server.line(&format!("BF.IMPORT k GOZERO none BITS 1048576 MAPS {maps}")).unwrap();
            let mut line = words(&format!("{command} k"));
            line.push(vec![b'x'; 1 << 20]);
            vec![line]
        };
        assert_hold(&[Case { what: format!("{command}, MAPS"), first: 32, law: 0.0, prepare: &prepare }]);
    }
}

/// Measures the time for all chunks of a load together. They come from a client or from a primary, in order or
/// backwards.
#[test]
#[ignore = "compares times"]
fn a_load_of_twice_as_many_chunks() {
    for (is_obeyed, is_backwards) in [(false, false), (true, false), (false, true), (true, true)] {
        let prepare = |server: &FakeServer, count: usize| {
            server.obeys.set(is_obeyed);
            let mut commands = tables_in_chunks("k", count);
            if is_backwards {
                commands[1..].reverse();
            }
            commands
        };
        let what = format!("chunks, obeyed {is_obeyed}, backwards {is_backwards}");
        assert_hold(&[Case { what, first: 2000, law: 1.0, prepare: &prepare }]);
    }
}

/// Imports of filters whose bytes are in the command.
#[test]
#[ignore = "compares times"]
fn imports_of_twice_the_bytes() {
    for command in ["BF.IMPORT new GOZERO none BITS", "BF.IMPORT new GUAVA", "BF.LOAD new"] {
        let prepare = |_: &FakeServer, len: usize| {
            let mut line = words(command);
            if command.ends_with("BITS") {
                line.extend(words(&format!("{} DATA", 8 * len)));
            }
            let head = [&[1, 7][..], &u32::try_from(len / 8).unwrap().to_be_bytes()].concat();
            line.push(if command.ends_with("GUAVA") { [head, vec![7; len]].concat() } else { vec![7; len] });
            vec![line]
        };
        assert_hold(&[Case {
            what: format!("{command}, bytes"),
            first: 1 << 20,
            law: 1.0,
            prepare: &prepare,
        }]);
    }
}

/// The functions above create states of the requested size.
#[test]
fn states_have_their_size() {
    let server = FakeServer::default();
    layers(&server, 40);
    assert!(matches!(server.copy("k"), Filter::Bloom(filter) if filter.layers().len() == 40));
    links(&server, 40);
    assert!(matches!(server.copy("k"), Filter::Foreign(filter) if filter.links().len() == 40));
    let server = FakeServer::default();
    run_all(&server, &tables_in_chunks("k", 40));
    assert!(server.copy("k").cuckoo().is_some());
}
