//! The promise p, measured. Each gate fills filters to capacity, tests absent items that look like the members, and
//! counts the hits X among Q tests:
//!
//! * too many: X > Qp + 5σ with the *promised* rate p, the block penalty, shards, layers and generations included;
//! * too few: X < Qr − 5σ with the rate r that the model of src/math.rs predicts. A sizing that wastes memory, or a
//!   test that measures nothing, fails here.
//!
//! σ is the standard deviation of the binomial distribution. If 16 or more filters are pooled and their results scatter
//! more than that, σ follows from this scatter instead, because small filters vary by chance. Seeds are fixed, so that
//! a gate always gives the same verdict. BLOOMERY_SCALE=10 runs ten times as many tests.

mod quotients;

use crate::support::env;
use crate::support::keys::{Keys, Writer, split_mix};
use bloomery::{
    Bloom, Cell, Family, HashKind, ItemHash, Layer, Layout, Overflow, Seed, Shape, Spec, Tightening,
};

const RATES: [f64; 4] = [0.1, 0.01, 0.001, 1e-4];

const LAYOUTS: [Option<Layout>; 3] =
    [Some(Layout::Classic), Some(Layout::Blocked), Some(Layout::Partitioned)];

/// A number of tests large enough to determine a rate to within a few percent or better (4.5% at 1e-4).
fn questions(rate: f64) -> u64 {
    let usual = match rate {
        r if r >= 0.1 => 250_000,
        r if r >= 0.01 => 1_000_000,
        r if r >= 0.001 => 2_500_000,
        _ => 5_000_000,
    };
    usual * env("BLOOMERY_SCALE", 1)
}

/// The results of testing several filters.
#[derive(Default)]
struct Measured {
    asked: u64,
    hits: Vec<u64>,
    /// Mean of the model's predictions for all filters.
    predicted: f64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.hits.iter().sum::<u64>() as f64 / self.asked as f64
    }

    /// Standard deviation of the number of hits, at the rate `p`.
    fn sigma(&self, p: f64) -> f64 {
        let binomial = self.asked as f64 * p * (1.0 - p);
        let filters = self.hits.len() as f64;
        if filters < 16.0 {
            return binomial.sqrt();
        }
        let mean = self.hits.iter().sum::<u64>() as f64 / filters;
        let scatter =
            self.hits.iter().map(|hits| (*hits as f64 - mean).powi(2)).sum::<f64>() / (filters - 1.0);
        binomial.max(scatter * filters).sqrt()
    }

    /// Prints the result, and returns whether it is neither too high nor too low.
    fn gate(&self, name: &str, promise: f64) -> bool {
        let hits = self.hits.iter().sum::<u64>() as f64;
        let asked = self.asked as f64;
        let over = (hits - asked * promise) / self.sigma(promise);
        // The minimum of 1 is for filters that are much too large for their items, for example with 512 bits for one
        // item: they have hardly any hits.
        let under = (hits - asked * self.predicted) / self.sigma(self.predicted).max(1.0);
        let passed = over <= 5.0 && under >= -5.0;
        println!(
            "{} {name}: {:.4} of the promise {promise} ({over:+.1} σ), {:.4} of the model ({under:+.1} σ), {hits} hits",
            if passed { "  " } else { "✗ " },
            self.rate() / promise,
            self.rate() / self.predicted,
        );
        passed
    }
}

/// Collects the gates that fail, so that a failing test still prints all of its numbers.
#[derive(Default)]
struct Gates {
    failed: Vec<String>,
}

impl Gates {
    fn check(&mut self, name: &str, promise: f64, measured: &Measured) {
        if !measured.gate(name, promise) {
            self.failed.push(name.to_owned());
        }
    }

    fn verdict(self) {
        assert!(self.failed.is_empty(), "outside the gates: {:#?}", self.failed);
    }
}

/// The shape of each layer, and how many different items were added to it. A layer's own count excludes items that
/// tested positive when they were added, so it is used only if nothing else is known.
fn loads(filter: &Bloom, added: u64) -> Vec<(Shape, u64)> {
    let items = |layer: &Layer| match filter.spec().family {
        Family::Fixed(_) => added,
        Family::Window { generations, .. } => added / u64::from(generations),
        Family::Scaling { .. } => layer.items(),
    };
    filter.layers().iter().map(|layer| (layer.shape(), items(layer))).collect()
}

/// The rate that the model predicts.
fn predicted(loads: &[(Shape, u64)]) -> f64 {
    1.0 - loads.iter().map(|(shape, items)| 1.0 - shape.rate_at(*items as f64)).product::<f64>()
}

/// Tests several filters of one spec with different seeds. `fill` adds keys, numbered from 0, and returns how many.
/// Keys with higher numbers are absent.
fn measure(
    spec: Spec,
    keys: Keys,
    filters: u64,
    questions: u64,
    fill: impl Fn(&mut Bloom, &mut Writer) -> u64,
) -> Measured {
    let mut measured = Measured::default();
    let mut writer = Writer::new(keys);
    // The last result is kept, because most filters of one spec have the same loads, and the model is slow.
    let (mut model, mut rate) = (Vec::new(), 0.0);
    for number in 0..filters {
        let seed = Seed { low: split_mix(number), high: split_mix(!number) };
        let mut filter = Bloom::new(Spec { seed, ..spec }).unwrap();
        let first = fill(&mut filter, &mut writer);
        let last = if keys == Keys::Byte { 256 } else { first + questions / filters };
        let hits = (first..last).filter(|i| filter.contains(filter.hash(writer.key(*i)))).count();
        measured.hits.push(hits as u64);
        measured.asked += last - first;
        let loads = loads(&filter, first);
        if loads != model {
            rate = predicted(&loads);
            model = loads;
        }
        measured.predicted += rate / filters as f64;
    }
    measured
}

fn add(filter: &mut Bloom, writer: &mut Writer, key: u64) {
    filter.add(filter.hash(writer.key(key))).unwrap();
}

/// Adds `capacity` different keys.
fn to_capacity(filter: &mut Bloom, writer: &mut Writer) -> u64 {
    let capacity = filter.spec().capacity;
    (0..capacity).for_each(|i| add(filter, writer, i));
    capacity
}

fn fixed(capacity: u64, rate: f64, layout: Option<Layout>) -> Spec {
    Spec { layout, family: Family::Fixed(Overflow::Saturate), ..Spec::fixed(capacity, rate) }
}

fn large_filters(keys: Keys) {
    let mut gates = Gates::default();
    for layout in LAYOUTS {
        for rate in RATES {
            let spec = fixed(1_000_000, rate, layout);
            let measured = measure(spec, keys, 1, questions(rate), to_capacity);
            gates.check(&format!("{layout:?} 1e6 {keys:?}"), rate, &measured);
        }
    }
    gates.verdict();
}

#[test]
fn large_filters_of_sequential_integers() {
    large_filters(Keys::Sequential);
}

#[test]
fn large_filters_of_uuids() {
    large_filters(Keys::Uuid);
}

#[test]
fn large_filters_of_urls_with_a_long_common_prefix() {
    large_filters(Keys::Url);
}

#[test]
fn filters_of_single_bytes_and_of_huge_items() {
    let mut gates = Gates::default();
    for layout in LAYOUTS {
        for rate in [0.1, 0.01] {
            let bytes = measure(fixed(128, rate, layout), Keys::Byte, questions(rate) / 500, 0, to_capacity);
            gates.check(&format!("{layout:?} 128 single bytes"), rate, &bytes);
            let huge = measure(fixed(200, rate, layout), Keys::Huge, 50, questions(rate) / 40, to_capacity);
            gates.check(&format!("{layout:?} 200 items of 64 KiB"), rate, &huge);
        }
    }
    gates.verdict();
}

/// Small filters, for which rounding to whole words, blocks and probes matters most.
#[test]
fn small_filters() {
    let mut gates = Gates::default();
    for layout in LAYOUTS {
        for rate in RATES {
            for capacity in [1, 10, 100, 1000] {
                let filters = 2500;
                let measured = measure(
                    fixed(capacity, rate, layout),
                    Keys::Sequential,
                    filters,
                    questions(rate) / 4,
                    to_capacity,
                );
                gates.check(&format!("{layout:?} {capacity}"), rate, &measured);
            }
        }
    }
    gates.verdict();
}

/// Shards, counters of every width, and the other hash.
#[test]
fn the_other_kinds() {
    let mut gates = Gates::default();
    let sharded = |shards| move |spec: Spec| Spec { shards, ..spec };
    let counting = |cell| move |spec: Spec| Spec { cell, ..spec };
    let kinds: [(&str, &dyn Fn(Spec) -> Spec); 7] = [
        ("8 shards", &sharded(8)),
        ("256 shards", &sharded(256)),
        ("4-bit counters", &counting(Cell::Counter4)),
        ("8-bit counters", &counting(Cell::Counter8)),
        ("16-bit counters", &counting(Cell::Counter16)),
        ("4-bit counters in 16 shards", &|spec| Spec { shards: 16, ..counting(Cell::Counter4)(spec) }),
        ("SipHash", &|spec| Spec { hash: HashKind::SipHash, ..spec }),
    ];
    for (name, kind) in kinds {
        for layout in LAYOUTS {
            for rate in RATES {
                let spec = kind(fixed(20_000, rate, layout));
                // Blocks of 32 counters can't reach low rates at a sensible size.
                if spec.cell == Cell::Counter16 && layout == Some(Layout::Blocked) && rate < 0.001 {
                    continue;
                }
                let measured = measure(spec, Keys::Sequential, 32, questions(rate) / 4, to_capacity);
                gates.check(&format!("{layout:?} 20000 {name}"), rate, &measured);
            }
        }
    }
    gates.verdict();
}

/// Filters with half, twice and four times as many items as their capacity: the model must predict their rates, because
/// BF.INFO reports them.
#[test]
fn the_model_holds_at_every_fill() {
    let mut gates = Gates::default();
    for layout in LAYOUTS {
        for rate in [0.1, 0.01, 0.001] {
            for percent in [50, 200, 400] {
                let fill = |filter: &mut Bloom, writer: &mut Writer| {
                    let items = filter.spec().capacity * percent / 100;
                    (0..items).for_each(|i| add(filter, writer, i));
                    items
                };
                // Many filters, each small enough that every term of the model matters.
                let measured =
                    measure(fixed(2000, rate, layout), Keys::Sequential, 300, questions(rate), fill);
                // Here the prediction plus 1% is used as the promise, so that a rate that is too high fails, too.
                gates.check(&format!("{layout:?} at {percent} %"), measured.predicted * 1.01, &measured);
            }
        }
    }
    gates.verdict();
}

/// Returns a function that fills a chain until it has grown `growths` times and its newest layer is full.
fn to_growth(growths: usize) -> impl Fn(&mut Bloom, &mut Writer) -> u64 {
    move |filter, writer| {
        let mut i = 0;
        loop {
            let newest = filter.layers().last().unwrap();
            if filter.layers().len() > growths && newest.is_full() {
                return i;
            }
            add(filter, writer, i);
            i += 1;
        }
    }
}

/// Measures the rate of the whole filter after growth, not only the rate of its last layer.
#[test]
fn chains_after_ten_growths() {
    let mut gates = Gates::default();
    let halving = Tightening::geometric(0.5).unwrap();
    let chains = [
        (100, 2, Tightening::INVERSE_SQUARE, 10, 16),
        (100, 1, Tightening::INVERSE_SQUARE, 10, 64),
        (50, 4, Tightening::INVERSE_SQUARE, 7, 1),
        (50_000, 2, Tightening::INVERSE_SQUARE, 4, 1),
        (100, 2, halving, 10, 16),
    ];
    for (capacity, expansion, tightening, growths, filters) in chains {
        for rate in [0.1, 0.01, 0.001] {
            let family = Family::Scaling { expansion, tightening };
            // With AUTO and inverse squares, the second layer is a table.
            let layout = tightening.ratio().is_none().then_some(Layout::Classic);
            let spec = Spec { family, layout, ..Spec::fixed(capacity, rate) };
            let measured = measure(spec, Keys::Sequential, filters, questions(rate) / 4, to_growth(growths));
            gates.check(
                &format!("chain from {capacity} by {expansion}, {growths} growths, {tightening:?}"),
                rate,
                &measured,
            );
        }
    }
    gates.verdict();
}

/// Every generation is full, and no item is in two of them.
#[test]
fn windows_with_all_generations_full() {
    let mut gates = Gates::default();
    for layout in LAYOUTS {
        for (generations, capacity, filters) in
            [(2, 500, 200), (4, 1000, 100), (64, 1000, 8), (8, 100_000, 1)]
        {
            for rate in [0.1, 0.01, 0.001] {
                let fill = |filter: &mut Bloom, writer: &mut Writer| {
                    let mut next = 0;
                    for number in 0..u64::from(generations) {
                        filter.advance(number).unwrap();
                        (next..next + capacity).for_each(|i| add(filter, writer, i));
                        next += capacity;
                    }
                    next
                };
                let spec = Spec { layout, ..Spec::window(capacity, rate, generations) };
                let measured = measure(spec, Keys::Sequential, filters, questions(rate) / 8, fill);
                gates.check(&format!("{layout:?} window of {generations} × {capacity}"), rate, &measured);
            }
        }
    }
    gates.verdict();
}

/// A filter that refuses items when it is full counts only items that were new. So it accepts a few more items than its
/// capacity: those that tested positive when they were added. At 1% and below the difference isn't measurable. At 10%
/// it accepts 3% more items than its capacity, which raises its rate to 6–8% above the promise. So at 10%, the gate
/// uses the model's rate for the items that it accepted.
#[test]
fn filters_that_refuse_when_full() {
    let mut gates = Gates::default();
    let until_full = |filter: &mut Bloom, writer: &mut Writer| {
        (0..).find(|i| filter.add(filter.hash(writer.key(*i))).is_err()).unwrap()
    };
    for layout in LAYOUTS {
        for rate in RATES {
            let spec = Spec { family: Family::Fixed(Overflow::Error), ..fixed(50_000, rate, layout) };
            let measured = measure(spec, Keys::Sequential, 4, questions(rate) / 4, until_full);
            let allowed = if rate < 0.1 { rate } else { measured.predicted };
            gates.check(&format!("{layout:?} 50000 until full"), allowed, &measured);
        }
    }
    gates.verdict();
}

/// Two numbers that BF.INFO computes from the fill alone: the current error rate and the number of distinct items.
#[test]
fn the_rate_now_and_the_estimate_agree_with_the_truth() {
    for layout in LAYOUTS {
        for shards in [1, 8] {
            for (rate, percent) in [(0.1, 100), (0.01, 30), (0.01, 100), (0.001, 100), (0.001, 200)] {
                let spec = Spec { shards, ..fixed(200_000, rate, layout) };
                let mut filter = Bloom::new(spec).unwrap();
                let mut writer = Writer::new(Keys::Uuid);
                let items = spec.capacity * percent / 100;
                (0..items).for_each(|i| add(&mut filter, &mut writer, i));

                // The fill after 200,000 items varies by well under 0.2%, and so do numbers computed from it.
                let estimate = filter.estimate() as f64 / items as f64;
                assert!(
                    (estimate - 1.0).abs() < 0.01,
                    "{spec:?} at {percent} %: estimate {estimate} of the truth"
                );

                let asked = questions(rate) / 4;
                let hits =
                    (items..items + asked).filter(|i| filter.contains(filter.hash(writer.key(*i)))).count();
                let expected = filter.rate_now() * asked as f64;
                let slack = 5.0 * expected.sqrt() + 0.01 * expected;
                assert!(
                    (hits as f64 - expected).abs() < slack,
                    "{spec:?} at {percent} %: {hits} hits, and the rate now says {expected}"
                );
            }
        }
    }
}

// ---- spread: do hashes fall evenly? ---------------------------------------------------------------------------------

/// How far chi-square over equally likely cells deviates from its expected value, in standard deviations.
fn chi_square(counts: &[u32]) -> f64 {
    let total: u64 = counts.iter().map(|count| u64::from(*count)).sum();
    let expected = total as f64 / counts.len() as f64;
    let chi: f64 = counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
    let freedom = counts.len() as f64 - 1.0;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

/// Checks that `place` spreads hashes of 2^20 keys evenly over `cells` cells.
fn spreads(name: &str, cells: usize, place: impl Fn(ItemHash) -> Option<usize>) {
    for hash in [HashKind::Xxh3, HashKind::SipHash] {
        for keys in [Keys::Sequential, Keys::Uuid, Keys::Url] {
            let hasher = hash.hasher(Seed::from(42));
            let mut writer = Writer::new(keys);
            let mut counts = vec![0; cells];
            for i in 0..1 << 20 {
                if let Some(cell) = place(hasher.hash(writer.key(i))) {
                    counts[cell] += 1;
                }
            }
            let deviations = chi_square(&counts);
            assert!(
                deviations.abs() < 5.0,
                "{name}, {keys:?}, {hash:?}: chi-square off by {deviations:+.1} σ"
            );
        }
    }
}

#[test]
fn blocks_and_shards_are_hit_evenly() {
    use bloomery::filter::layout::probes::schedule::block;
    spreads("blocks", 4096, |item| Some(block(item, 4096)));
    spreads("an odd number of blocks", 3001, |item| Some(block(item, 3001)));
    spreads("shards", 1024, |item| Some(item.shard(1024) as usize));
    // Both together: a shard that used only a part of its cells would be noticed here.
    spreads("shards × blocks", 64 * 63, |item| Some(item.shard(64) as usize * 63 + block(item, 63)));
    spreads("blocks of shard 5 of 8", 512, |item| (item.shard(8) == 5).then(|| block(item, 512)));
    spreads("blocks of shard 1023", 16, |item| (item.shard(1024) == 1023).then(|| block(item, 16)));
}

#[test]
fn probes_are_spread_evenly() {
    use bloomery::filter::layout::probes::schedule::{Slices, block, in_block, spread};
    let classic = |item, cells, probes| spread(item, Slices::whole(cells), probes);
    for probe in [0, 1, 5, 9, 17] {
        let name = |what: &str| format!("probe {probe} {what}");
        spreads(&name("in a block"), 512, |item| in_block(item, 1, 18).nth(probe));
        spreads(&name("in a block of 16-bit counters"), 32, |item| in_block(item, 16, 18).nth(probe));
        spreads(&name("all over"), 4096, |item| classic(item, 4096, 18).nth(probe));
        spreads(&name("all over an odd size"), 3008, |item| classic(item, 3008, 18).nth(probe));
        spreads(&name("all over shard 5 of 8"), 512, |item| {
            (item.shard(8) == 5).then(|| classic(item, 512, 18).nth(probe)).flatten()
        });
        let slices = Slices::apart(18 * 1024, 18);
        spreads(&name("in its slice"), 1024, |item| Some(spread(item, slices, 18).nth(probe)? % 1024));
    }
    // Pairs: successive probes, and the block together with the first probe inside it.
    let pair = |mut cells: Box<dyn Iterator<Item = usize>>| Some(cells.next()? / 8 * 64 + cells.next()? / 8);
    spreads("two probes in a block", 4096, |item| pair(Box::new(in_block(item, 1, 2))));
    spreads("two probes all over", 4096, |item| pair(Box::new(classic(item, 512, 2))));
    spreads("two slices", 4096, |item| {
        let mut cells = spread(item, Slices::apart(128, 2), 2);
        Some(cells.next()? * 64 + cells.next()? % 64)
    });
    spreads("across a mix", 4096, |item| pair(Box::new(in_block(item, 1, 8).skip(6))));
    spreads("block × probe", 64 * 64, |item| Some(block(item, 64) * 64 + in_block(item, 1, 1).next()? / 8));
}
