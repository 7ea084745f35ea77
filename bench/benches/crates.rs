//! Measures the library beside other crates for filters, at an error rate of 1%. `cargo bench --bench crates` prints a
//! table, and draws `docs/benchmarks/crates.svg`; an argument after `--` is the largest number of items (10 million).
//!
//! A number is ns per item, the least of several rounds. Filters are as full as they were made for. Each crate hashes
//! with its default, fastbloom also with foldhash. sbbf-rs-safe and xorf take hashes instead of items, and get XXH3-64.

use bloomery::{AtomicBloom, Bloom, Cuckoo, Item, Layout, Spec, StaticBuilder};
use fastbloom::{AtomicBloomFilter, BloomFilter};
use foldhash::fast::FixedState;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::hash::Hash;
use std::hint::black_box;
use std::time::Instant;
use xorf::Filter as _;
use xxhash_rust::xxh3::xxh3_64;

const RATE: f64 = 0.01;

/// Numbers of items: filters that fit into a core's cache, into the shared cache, and into neither.
const SIZES: [u64; 4] = [10_000, 1_000_000, 10_000_000, 100_000_000];

/// The largest number of items, unless an argument says otherwise.
const LARGEST: u64 = 10_000_000;

/// The number of items with keys of 16 and 64 bytes, and in the picture.
const SHOWN: u64 = 1_000_000;

/// Number of threads that share a filter.
const THREADS: usize = 2;

/// An item.
trait Key: Item + Hash + AsBytes + Copy + Sync {
    /// The key with this number.
    fn new(number: u64) -> Self;
}

/// An item's bytes.
trait AsBytes {
    /// The bytes.
    fn bytes(&self) -> impl AsRef<[u8]>;
}

impl AsBytes for u64 {
    fn bytes(&self) -> impl AsRef<[u8]> {
        self.to_le_bytes()
    }
}

impl<const N: usize> AsBytes for [u8; N] {
    fn bytes(&self) -> impl AsRef<[u8]> {
        *self
    }
}

impl Key for u64 {
    fn new(number: u64) -> u64 {
        // Different numbers have different products, because the factor is odd.
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl<const N: usize> Key for [u8; N]
where
    [u8; N]: bloomery::ItemBytes,
{
    fn new(number: u64) -> [u8; N] {
        let mut bytes = [b'k'; N];
        bytes[N - 8..].copy_from_slice(&u64::new(number).to_le_bytes());
        bytes
    }
}

/// The hash of a key, for crates that take hashes.
fn hash(key: &impl AsBytes) -> u64 {
    xxh3_64(key.bytes().as_ref())
}

/// ns per item, for this many items: the least of `rounds` rounds. What `make` makes isn't timed.
fn least<T>(rounds: usize, items: usize, make: impl Fn() -> T, work: impl Fn(&mut T)) -> f64 {
    let time = |_| {
        let mut made = make();
        let start = Instant::now();
        work(&mut made);
        start.elapsed().as_secs_f64() * 1e9 / items as f64
    };
    (0..rounds).map(time).fold(f64::INFINITY, f64::min)
}

/// The keys of one size and width, and what was measured with them.
struct Bench<K> {
    present: Vec<K>,
    absent: Vec<K>,
    /// A name, and ns for an insert, a test of a present item, and one of an absent item.
    rows: RefCell<Vec<(&'static str, [f64; 3])>>,
}

impl<K: Key> Bench<K> {
    fn new(items: u64) -> Bench<K> {
        // Tests of more items say nothing new, and their keys would need more memory than the filter.
        let tested = items.min(LARGEST);
        Bench {
            present: (0..items).map(K::new).collect(),
            absent: (items..items + tested).map(K::new).collect(),
            rows: RefCell::default(),
        }
    }

    fn items(&self) -> usize {
        self.present.len()
    }

    /// Rounds in which about 20 million items are handled.
    fn rounds(&self) -> usize {
        (20_000_000 / self.items()).clamp(2, 200)
    }

    /// Measures a filter that is filled by `fill`, and of which `test` counts the keys that test present.
    fn measure<F>(
        &self,
        name: &'static str,
        make: impl Fn() -> F,
        fill: impl Fn(&mut F, &[K]),
        test: impl Fn(&F, &[K]) -> usize,
        bytes: impl Fn(&F) -> usize,
    ) {
        let insert = least(self.rounds().min(20), self.items(), &make, |filter| {
            fill(black_box(filter), &self.present)
        });
        let mut filter = make();
        fill(&mut filter, &self.present);
        let shown = &self.present[..self.absent.len()];
        let time =
            |keys: &[K]| least(self.rounds(), keys.len(), || (), |()| _ = black_box(test(&filter, keys)));
        assert_eq!(test(&filter, shown), shown.len(), "{name} has lost an item");
        let times = [insert, time(shown), time(&self.absent)];
        let [insert, present, absent] = times;
        let rate = test(&filter, &self.absent) as f64 / self.absent.len() as f64;
        let bits = bytes(&filter) as f64 * 8.0 / self.items() as f64;
        let bits = if bits > 0.0 { format!("{bits:.1}") } else { String::new() };
        let (items, width, rate) = (self.items(), size_of::<K>(), rate * 100.0);
        println!(
            "| {items} | {width} | {name} | {bits} | {rate:.2}% | {insert:.1} | {present:.1} | {absent:.1} |"
        );
        self.rows.borrow_mut().push((name, times));
    }

    /// Measures a filter whose items are added and tested one at a time.
    fn single<F>(
        &self,
        name: &'static str,
        make: impl Fn() -> F,
        insert: impl Fn(&mut F, &K),
        test: impl Fn(&F, &K) -> bool,
        bytes: impl Fn(&F) -> usize,
    ) {
        let fill = |filter: &mut F, keys: &[K]| keys.iter().for_each(|key| insert(filter, black_box(key)));
        let count = |filter: &F, keys: &[K]| keys.iter().filter(|key| test(filter, black_box(*key))).count();
        self.measure(name, make, fill, count, bytes);
    }

    fn ours(&self) {
        let items = self.items() as u64;
        let spec = Spec { layout: Some(Layout::Blocked), ..Spec::fixed(items, RATE) };
        let new = || Bloom::new(spec).expect("memory");
        let bytes = |filter: &Bloom| filter.bytes() as usize;
        let insert = |filter: &mut Bloom, key: &K| _ = black_box(filter.insert(*key).expect("room"));
        let test = |filter: &Bloom, key: &K| filter.contains(*key);
        self.single("bloomery, BLOCKED", new, insert, test, bytes);
        self.measure(
            "bloomery, BLOCKED, in groups",
            new,
            |filter, keys| filter.extend(keys.iter().copied()),
            |filter, keys| filter.contains_each(keys.iter().copied()).filter(|yes| *yes).count(),
            bytes,
        );
        self.single("bloomery, growing", || Bloom::growing(RATE).expect("memory"), insert, test, bytes);
        let new = || AtomicBloom::new(spec).expect("memory");
        let insert = |filter: &mut AtomicBloom, key: &K| _ = black_box(filter.insert(*key));
        let bytes = |filter: &AtomicBloom| filter.bytes() as usize;
        self.single("bloomery, atomic", new, insert, |filter, key| filter.contains(*key), bytes);
        self.threads("bloomery, atomic, 2 threads", new, |filter, key| filter.insert(*key));
        let cuckoo = || Cuckoo::with_capacity(items).expect("memory");
        self.single(
            "bloomery, cuckoo",
            cuckoo,
            |filter, key| _ = black_box(filter.insert(filter.hash(key.bytes().as_ref()))),
            |filter, key| filter.contains(filter.hash(key.bytes().as_ref())),
            |filter| filter.bytes() as usize,
        );
        self.measure(
            "bloomery, FUSE of 8 bits",
            || None,
            |filter, keys| {
                let mut builder = StaticBuilder::new(items, 1.0 / 256.0).expect("a rate within the limits");
                keys.iter().for_each(|key| builder.insert(*key).expect("memory"));
                *filter = Some(builder.build().expect("a filter"));
            },
            |filter, keys| {
                keys.iter().filter(|key| filter.as_ref().is_some_and(|made| made.contains(**key))).count()
            },
            |filter| filter.as_ref().map_or(0, |made| made.bytes() as usize),
        );
    }

    /// Measures adds by several threads to one filter; the tests are one thread's.
    fn threads<F: Sync>(
        &self,
        name: &'static str,
        make: impl Fn() -> F,
        insert: impl Fn(&F, &K) -> bool + Sync,
    ) {
        let part = self.items().div_ceil(THREADS);
        let time = least(self.rounds().min(20), self.items(), make, |filter| {
            std::thread::scope(|scope| {
                for keys in self.present.chunks(part) {
                    let (filter, insert) = (&*filter, &insert);
                    scope.spawn(move || {
                        keys.iter().for_each(|key| _ = black_box(insert(filter, black_box(key))))
                    });
                }
            });
        });
        println!("| {} | {} | {name} | | | {time:.1} | | |", self.items(), size_of::<K>());
    }

    fn others(&self) {
        let items = self.items();
        let bytes = |filter: &BloomFilter| filter.num_bits() / 8;
        let new = || BloomFilter::with_false_pos(RATE).expected_items(items);
        self.single(
            "fastbloom",
            new,
            |filter, key| _ = black_box(filter.insert(key)),
            |filter, key| filter.contains(key),
            bytes,
        );
        self.single(
            "fastbloom, foldhash",
            || BloomFilter::with_false_pos(RATE).hasher(FixedState::default()).expected_items(items),
            |filter, key| _ = black_box(filter.insert(key)),
            |filter, key| filter.contains(key),
            |filter| filter.num_bits() / 8,
        );
        let atomic =
            || AtomicBloomFilter::with_false_pos(RATE).hasher(FixedState::default()).expected_items(items);
        let insert = |filter: &AtomicBloomFilter<FixedState>, key: &K| filter.insert(key);
        self.single(
            "fastbloom, foldhash, atomic",
            atomic,
            |filter, key| _ = black_box(insert(filter, key)),
            |filter, key| filter.contains(key),
            |filter| filter.num_bits() / 8,
        );
        self.threads("fastbloom, foldhash, atomic, 2 threads", atomic, insert);
        // 11 bits per item give 1%.
        self.single(
            "sbbf-rs-safe",
            || sbbf_rs_safe::Filter::new(11, items),
            |filter, key| _ = black_box(filter.insert_hash(hash(key))),
            |filter, key| filter.contains_hash(hash(key)),
            |filter| filter.as_bytes().len(),
        );
        self.single(
            "cuckoofilter",
            || cuckoofilter::CuckooFilter::<std::hash::DefaultHasher>::with_capacity(items),
            |filter, key| filter.add(key).expect("room"),
            |filter, key| filter.contains(key),
            |filter| filter.memory_usage(),
        );
        self.single(
            "growable-bloom-filter",
            || growable_bloom_filter::GrowableBloom::new(RATE, 100),
            |filter, key| _ = black_box(filter.insert(key)),
            |filter, key| filter.contains(key),
            // It doesn't say how large it is.
            |_| 0,
        );
        self.measure(
            "xorf, BinaryFuse8",
            || None,
            |filter, keys| {
                let hashes: Vec<u64> = keys.iter().map(hash).collect();
                *filter = Some(xorf::BinaryFuse8::try_from(&hashes).expect("a filter"));
            },
            |filter, keys| {
                keys.iter()
                    .filter(|key| filter.as_ref().is_some_and(|made| made.contains(&hash(*key))))
                    .count()
            },
            |filter| filter.as_ref().map_or(0, |made| made.fingerprints.len()),
        );
    }

    fn run(self) -> Vec<(&'static str, [f64; 3])> {
        self.ours();
        self.others();
        self.rows.into_inner()
    }
}

/// A picture of what was measured: for each filter, three bars of 4 pixels per ns, up to 100 ns.
fn picture(rows: &[(&str, [f64; 3])]) -> String {
    const COLOURS: [&str; 3] = ["#0072b2", "#d55e00", "#999999"];
    const NAMES: [&str; 3] = ["insert", "test, present", "test, absent"];
    let height = 50 + 44 * rows.len();
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 780 {height}" font-family="sans-serif" font-size="13">
<rect width="780" height="{height}" fill="#fff"/>"##
    );
    let mut text = |x: usize, y: usize, anchor: &str, colour: &str, text: &str| {
        _ = writeln!(svg, r#"<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{text}</text>"#);
    };
    text(12, 22, "start", "#000", "ns per item: 1 million u64, error rate 1%, one thread");
    for (index, (name, colour)) in NAMES.iter().zip(COLOURS).enumerate() {
        text(440 + 110 * index, 22, "start", colour, name);
    }
    for (row, (name, _)) in rows.iter().enumerate() {
        text(270, 66 + 44 * row, "end", "#000", name);
    }
    for (row, (_, times)) in rows.iter().enumerate() {
        for (index, (time, colour)) in times.iter().zip(COLOURS).enumerate() {
            let (y, width) = (44 + 44 * row + 12 * index, 4.0 * time.min(100.0));
            _ = writeln!(svg, r#"<rect x="280" y="{y}" width="{width:.1}" height="10" fill="{colour}"/>"#);
            let end = 284.0 + width;
            _ = writeln!(
                svg,
                r##"<text x="{end:.1}" y="{}" font-size="10" fill="#000">{time:.1}</text>"##,
                y + 9
            );
        }
    }
    svg + "</svg>\n"
}

fn main() {
    let largest = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(LARGEST);
    println!(
        "| items | bytes of a key | filter | bits per item | error rate | insert, ns | present, ns | absent, ns |"
    );
    println!("| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    for items in SIZES.into_iter().filter(|items| *items <= largest) {
        let rows = Bench::<u64>::new(items).run();
        if items == SHOWN {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks/crates.svg");
            std::fs::write(path, picture(&rows)).expect("a writable folder");
            Bench::<[u8; 16]>::new(items).run();
            Bench::<[u8; 64]>::new(items).run();
        }
    }
}
