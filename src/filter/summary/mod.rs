//! The statistics of a filter: the table of them. BF.STATS, CF.STATS, the program, the
//! exporter, the Python client and the documents follow the table.

mod compute;

use super::record::{Field, Record, Replies, Row, Unit, Value, Word, counter, gauge, record};
use super::usage::Refusal;
use crate::params::Layout;
use alloc::{string::String, vec::Vec};

record!(
/// Everything that is known about a filter. Computing it is cheap: large layers keep their counts up to date as cells
/// change, and only the cells of small layers (8 KiB or less) are counted.
///
/// `None` means that filters of this kind don't have the property, or that only a server knows it.
pub struct Summary {
    /// `fixed`, `counting`, `scaling`, `window`, `static`
    kind: Word = "Kind" { replies: Replies::Bloom, line: Some("kind") },
    /// The system that created the filter: `bloomery`, `redisbloom`, `valkey-bloom`, `go-zero`, `redisson`,
    /// `bits-and-blooms`, `guava`, `parquet`
    origin: Word = "Origin",
    /// Other systems' filters only: the encoding in which the original hashes an item: `BYTES`, `UTF16`, `LONG`, `INT`,
    /// `JSON`, `KRYO5`; see [BF.IMPORT](bf.import.md)
    items_are: Option<Word> = "Items are" { replies: Replies::Bloom },
    /// The layout that was requested; the field Layers has the actual layout of each layer
    layout: Option<Word> = "Layout" { replies: Replies::Bloom, line: Some("layout") },
    /// `XXH3`, `SIPHASH`; missing for other systems' filters
    hash: Option<Word> = "Hash" { line: Some("hash") },
    /// Number of independent arrays per layer
    shards: Option<u64> = "Shards" { replies: Replies::Bloom, line: Some("shards") },
    /// 1, or the width of the counters; with LAYOUT QUOTIENT, of a cell at the capacity
    bits_per_cell: Option<u64> = "Bits per cell" { replies: Replies::Bloom, line: Some("bits per cell") },
    /// `ERROR`, `SATURATE`, `SCALE`, `ROTATE`
    on_full: Option<Word> = "On full" { replies: Replies::Bloom, line: Some("when full") },
    /// The promised error rate: of a cuckoo filter, when all slots are in use; of another system's filter, of all
    /// layers together, or null if the system promises none
    error_rate: Option<f64> = "Error rate" {
        null: |_| true,
        line: Some("error rate, promised"),
        metrics: &[gauge(
            "bloomery_promised_error_ratio",
            "False-positive rate at capacity, as requested. For cuckoo filters: when full.",
        )],
    },
    /// The error rate at the current fill
    error_rate_now: f64 = "Error rate now" {
        line: Some("error rate, now"),
        metrics: &[gauge("bloomery_error_ratio", "False-positive rate at the present fill, computed.")],
    },
    /// Number of items that all layers together are sized for, tables for now; of a cuckoo filter, number of
    /// slots; of a filter from [BF.IMPORT](bf.import.md), which has no capacity, the number at which half of the bits
    /// are set
    capacity: u64 = "Capacity" {
        line: Some("capacity"),
        metrics: &[gauge(
            "bloomery_capacity_items",
            "Items that all layers of the filter are sized for. For cuckoo filters: number of slots.",
        )],
    },
    /// Filters that grow only: the capacity with which the filter was created
    reserved: Option<u64> = "Capacity reserved" {
        metrics: &[gauge("bloomery_reserved_items", "Capacity with which a filter that grows was created.")],
    },
    /// Items added that were absent at the time, minus those deleted; of another system's filter, the original's count,
    /// or an estimate at the import if there is none
    items: u64 = "Number of items inserted" {
        line: Some("items"),
        metrics: &[gauge("bloomery_items", "Items added that were absent before, minus items deleted.")],
    },
    /// Number of distinct items, estimated from the fill, including items that `Number of items inserted` missed
    approximate_items: Option<u64> = "Approximate number of items" {
        replies: Replies::Bloom,
        line: Some("estimated"),
        metrics: &[gauge("bloomery_estimated_items", "Distinct items in the filter, estimated from its fill.")],
    },
    /// Number of layers, generations or sub-filters
    filters: u64 = "Number of filters" {
        metrics: &[gauge(
            "bloomery_layers",
            "Layers, generations or sub-filters: the number of parts that one test queries.",
        )],
    },
    /// Number of buckets in the first sub-filter
    buckets: Option<u64> = "Number of buckets" { replies: Replies::Cuckoo },
    /// Number of items deleted since the last compaction
    items_deleted: Option<u64> = "Number of items deleted" { replies: Replies::Cuckoo },
    /// Number of slots in a bucket
    bucket_size: Option<u64> = "Bucket size" { replies: Replies::Cuckoo },
    /// Number of fingerprints that an add may move to make room
    max_iterations: Option<u64> = "Max iterations" { replies: Replies::Cuckoo },
    /// Number of cells: bits, counters, slots
    cells: u64 = "Cells" {
        replies: Replies::Bloom,
        metrics: &[gauge("bloomery_cell_bytes", "Bytes of all cells of the filter.")
            .of(|summary| vec![(None, Some(summary.cell_bytes()))])],
    },
    /// Number of cells that are not 0. For a static filter, its number of items
    cells_set: u64 = "Cells set" { replies: Replies::Bloom },
    /// Share of the cells that are not 0; of a cuckoo filter, share of the slots that are in use
    fill: f64 = "Fill" {
        line: Some("fill"),
        metrics: &[gauge(
            "bloomery_fill_ratio",
            "Fraction of cells that are set, about 0.5 at capacity. For cuckoo filters: of slots in use.",
        )],
    },
    /// Share of slots in use at which the filter begins to refuse adds, or grows: 0.39 with one slot per bucket, 0.88
    /// with two, 0.945 with three, 0.97 with more
    fill_when_full: Option<f64> = "Fill when full" {
        replies: Replies::Cuckoo,
        metrics: &[gauge("bloomery_full_fill_ratio", "Fill at which a cuckoo filter grows or refuses adds.")],
    },
    /// Bytes of memory, including all overhead, but not the usage counters or a rebuild
    size: u64 = "Size" { unit: Unit::Bytes },
    /// What MEMORY USAGE returns, without the key: Size, the usage counters, and the shadow of a rebuild
    memory: Option<u64> = "Memory" {
        replies: Replies::Bloom,
        unit: Unit::Bytes,
        line: Some("memory"),
        metrics: &[gauge("bloomery_memory_bytes", "Memory of the filter, without its key.")
            .of(|summary| vec![(None, Some(summary.bytes() as f64))])],
    },
    /// EXPANSION, of filters that grow. Null for another system's filter that doesn't grow, and 0 for such a cuckoo
    /// filter
    expansion_rate: Option<u64> = "Expansion rate" {
        null: |summary| !summary.is_native(),
        metrics: &[gauge(
            "bloomery_expansion_ratio",
            "EXPANSION of the filter. Absent if the filter does not grow.",
        )
        .of(|summary| vec![(None, summary.expansion_rate.filter(|rate| *rate > 0).map(|rate| rate as f64))])],
    },
    /// Scaling filters only: error rate of each layer relative to the previous one; null if the filter was created
    /// without TIGHTENING
    tightening_ratio: Option<f64> = "Tightening ratio" {
        replies: Replies::Bloom,
        null: |summary| summary.is_native() && summary.expansion_rate.is_some(),
    },
    /// Windows only: number of generations that are alive at once
    generations: Option<u64> = "Generations" {
        replies: Replies::Bloom,
        metrics: &[gauge("bloomery_generations", "Generations that a window keeps.")],
    },
    /// Windows only: number of the current generation, which a merge can raise
    generation: Option<u64> = "Generation" {
        replies: Replies::Bloom,
        line: Some("generation"),
        metrics: &[counter(
            "bloomery_rotations",
            "Number of the current generation of a window: rotations since its creation.",
        )],
    },
    /// Windows only: the period of the schedule; null without a schedule
    rotates_every_ms: Option<u64> = "Rotates every ms" {
        replies: Replies::Bloom,
        unit: Unit::Milliseconds,
        null: |summary| summary.generations.is_some(),
    },
    /// Windows only: the time until the next scheduled rotation; null without a schedule
    next_rotation_ms: Option<u64> = "Next rotation in ms" {
        replies: Replies::Bloom,
        unit: Unit::Milliseconds,
        null: |summary| summary.generations.is_some(),
        line: Some("next rotation"),
        metrics: &[gauge("bloomery_next_rotation_seconds", "Time until a window with a schedule rotates.")],
    },
    /// Windows with ONFULL FORGET only: items that this server forgot early, to make room
    forgotten: Option<u64> = "Items forgotten early" {
        replies: Replies::Bloom,
        metrics: &[counter("bloomery_items_forgotten_early", "Items that a full window forgot early, to make room.")],
    },
    /// Counting filters only: counters that have reached their maximum, and stay there
    saturated_counters: Option<u64> = "Saturated counters" {
        replies: Replies::Bloom,
        line: Some("saturated counters"),
        metrics: &[gauge(
            "bloomery_saturated_counters",
            "Counters stuck at their maximum: items that use them can no longer be deleted.",
        )],
    },
    /// Answers that this server has given since it loaded the filter, in commands that test items
    tests_yes: Option<u64> = "Tests answered yes" {
        replies: Replies::Bloom,
        line: Some("tests: yes"),
        metrics: &[counter("bloomery_tests", "Items tested, by answer.").of(|summary| {
            let count = |tests: Option<u64>| tests.map(|tests| tests as f64);
            vec![
                (Some(("result", "yes")), count(summary.tests_yes)),
                (Some(("result", "no")), count(summary.tests_no)),
            ]
        })],
    },
    /// Answers that this server has given since it loaded the filter, in commands that test items
    tests_no: Option<u64> = "Tests answered no" { replies: Replies::Bloom, line: Some("tests: no") },
    /// Items that this server added, including those already present
    adds: Option<u64> = "Adds" {
        replies: Replies::Bloom,
        line: Some("adds"),
        metrics: &[counter("bloomery_adds", "Items added, including those already present.")],
    },
    /// Items that this server deleted
    deletes: Option<u64> = "Deletes" {
        replies: Replies::Bloom,
        line: Some("deletes"),
        metrics: &[counter("bloomery_deletes", "Items deleted.")],
    },
    /// Items that this server did not add, and why
    refused: Option<Refused> = "Adds refused" {
        line: Some("adds refused"),
        metrics: &[counter("bloomery_adds_refused", "Items that the filter refused, by reason.").of(|summary| {
            let counts = summary.refused.iter().flat_map(Refused::by_reason);
            counts.map(|(why, count)| (Some(("reason", why)), Some(count as f64))).collect()
        })],
    },
    /// Sums of the reports by [BF.FEEDBACK](bf.feedback.md) in the last minute, in the last hour, and in total
    feedback: Option<Feedback> = "Feedback" {
        replies: Replies::Bloom,
        line: Some("error rate"),
        metrics: &[
            gauge(
                "bloomery_observed_error_ratio",
                "False-positive rate according to what the application reported (BF.FEEDBACK).",
            )
            .of(|summary| {
                let spans = summary.feedback.iter().flat_map(Feedback::spans);
                spans.map(|(name, span)| (Some(("window", name)), span.observed_error_rate)).collect()
            }),
            counter(
                "bloomery_feedback_checked",
                "Positive answers that the application has checked (BF.FEEDBACK).",
            )
            .of(|summary| vec![(None, summary.feedback.as_ref().map(|feedback| feedback.life.checked as f64))]),
            counter(
                "bloomery_feedback_false",
                "Positive answers that the application found to be false (BF.FEEDBACK).",
            )
            .of(|summary| vec![(None, summary.feedback.as_ref().map(|feedback| feedback.life.r#false as f64))]),
        ],
    },
    /// Messages that say what is wrong and what to do about it; empty if nothing is wrong
    advice: Vec<String> = "Advice" {
        metrics: &[gauge("bloomery_advice_lines", "Number of entries under Advice in BF.STATS key: 0 if all is well.")],
    },
    /// One map for each of the newest 128 layers, oldest first; for a window, for each of the newest 128 living
    /// generations, with its Age, newest first
    layers: Vec<LayerSummary> = "Layers" { replies: Replies::Bloom },
    /// During a rebuild, the reply of [BF.REBUILD](bf.rebuild.md) STATUS; otherwise null
    rebuild: Option<RebuildSummary> = "Rebuild" {
        replies: Replies::Bloom,
        null: |_| true,
        line: Some("rebuild"),
        metrics: &[
            gauge("bloomery_rebuild_running", "1 while a BF.REBUILD of the filter is in progress.").of(|summary| {
                let can_be_rebuilt = summary.feedback.is_some();
                vec![(None, can_be_rebuilt.then_some(f64::from(u8::from(summary.rebuild.is_some()))))]
            }),
            gauge("bloomery_rebuild_items", "Items in the new filter of a rebuild in progress.")
                .of(|summary| vec![(None, summary.rebuild.as_ref().map(|rebuild| rebuild.items as f64))]),
        ],
    },
    /// 16 hexadecimal digits, derived from the seed, that a filter keeps when it is renamed, copied, dumped or loaded.
    /// Filters with the same SEED, or created LIKE each other, have the same. Null for another system's filter
    identity: Option<Word> = "Identity" { null: |_| true },
});

record!(
    /// How many items a filter refused, by reason.
    pub struct Refused {
    /// The filter had no room, and does not grow
    full: u64 = "Full",
    /// The filter has as many layers or sub-filters as it may have
    limit: u64 = "Limit",
    /// Growing needed more memory than `max-filter-bytes`, `maxmemory` or the machine allowed
    memory: u64 = "Memory",
}
);

record!(
    /// What clients reported with BF.FEEDBACK, over three spans of time.
    pub struct Feedback {
    /// The last 60 seconds
    minute: Observed = "Minute",
    /// The last 60 minutes
    hour: Observed = "Hour",
    /// Since the server loaded the filter
    life: Observed = "Life",
}
);

record!(
/// How many of the positive answers that a client checked were false.
pub struct Observed {
    /// Answers that were checked
    checked: u64 = "Checked",
    /// Answers that were false
    r#false: u64 = "False",
    /// False answers divided by checked answers
    share_false: Option<f64> = "Share false" { null: |_| true },
    /// False answers divided by tests of absent items: the observed false-positive rate
    observed_error_rate: Option<f64> = "Observed error rate" { null: |_| true },
});

record!(
    /// A layer of a chain, a generation of a window, or a link of another system's filter.
    pub struct LayerSummary {
    /// Age of a window's generation: 0 for the current one
    age: Option<u64> = "Age",
    /// How an item's probes are placed; missing for other systems' filters
    layout: Option<Word> = "Layout",
    /// Number of items that the layer is sized for
    capacity: u64 = "Capacity",
    /// Number of items in the layer
    items: u64 = "Number of items inserted",
    /// The error rate that the layer is sized for
    error_rate: f64 = "Error rate",
    /// The error rate at the current fill
    error_rate_now: f64 = "Error rate now",
    /// Number of cells
    cells: u64 = "Cells",
    /// Probes per item
    probes: u64 = "Probes",
    /// Fraction of the cells that the layer's items have set
    fill: f64 = "Fill",
}
);

record!(
/// A running rebuild. All fields but `status` describe the shadow.
pub struct RebuildSummary {
    /// `running`
    status: Word = "Status",
    /// Kind of the shadow
    kind: Word = "Kind",
    /// Number of items that the shadow is sized for
    capacity: u64 = "Capacity",
    /// The shadow's promised error rate
    error_rate: f64 = "Error rate",
    /// The shadow's error rate at its current fill
    error_rate_now: f64 = "Error rate now",
    /// Number of items in the shadow
    items: u64 = "Number of items inserted",
    /// Number of distinct items in the shadow, estimated from its fill
    approximate_items: u64 = "Approximate number of items",
    /// Number of layers in the shadow
    filters: u64 = "Number of filters",
    /// Fraction of the shadow's cells that are not 0
    fill: f64 = "Fill",
    /// Bytes of the shadow's memory, including all overhead
    size: u64 = "Size" { unit: Unit::Bytes },
    /// Number of deletes that the shadow missed
    deletes_missed: u64 = "Deletes missed",
    /// The shadow's identity
    identity: Word = "Identity",
});

impl Summary {
    /// Items divided by capacity.
    pub fn full(&self) -> f64 {
        self.items as f64 / self.capacity.max(1) as f64
    }

    /// Total number of tests.
    pub fn tests(&self) -> Option<u64> {
        Some(self.tests_yes?.saturating_add(self.tests_no?))
    }

    /// Bytes of memory: [`memory`](Summary::memory) if known, else [`size`](Summary::size).
    pub fn bytes(&self) -> u64 {
        self.memory.unwrap_or(self.size)
    }

    /// Bytes of all cells. A cuckoo filter's cells are its slots, of one byte each. Other systems' Bloom filters have
    /// cells of one bit.
    fn cell_bytes(&self) -> f64 {
        match self.buckets {
            Some(_) => self.capacity as f64,
            None => {
                let is_table =
                    |layer: &&LayerSummary| layer.layout.as_deref() == Some(Layout::Quotient.as_str());
                // `bits_per_cell` is for the other layers, unless the table is the only one.
                let tables = self.layers.iter().filter(|layer| self.filters > 1 && is_table(layer));
                let own = |bits, layer: &LayerSummary| {
                    bits + layer.cells as f64 * -libm::floor(libm::log2(layer.error_rate))
                };
                let (cells, bits) = tables.fold((self.cells, 0.0), |(cells, bits), layer| {
                    (cells.saturating_sub(layer.cells), own(bits, layer))
                });
                (cells.saturating_mul(self.bits_per_cell.unwrap_or(1)) as f64 + bits) / 8.0
            }
        }
    }

    fn is_native(&self) -> bool {
        self.origin == NATIVE
    }
}

impl Refused {
    /// The counts and their reasons.
    pub fn by_reason(&self) -> [(&'static str, u64); 3] {
        [("full", self.full), ("limit", self.limit), ("memory", self.memory)]
    }

    /// Counts an item.
    pub(super) fn count(&mut self, why: Refusal) {
        let count = match why {
            Refusal::Full => &mut self.full,
            Refusal::Limit => &mut self.limit,
            Refusal::Memory => &mut self.memory,
        };
        *count = count.saturating_add(1);
    }
}

impl Feedback {
    /// The spans and their names, from the shortest to the longest.
    pub fn spans(&self) -> [(&'static str, &Observed); 3] {
        [("minute", &self.minute), ("hour", &self.hour), ("life", &self.life)]
    }
}

/// The origin of native filters.
const NATIVE: &str = "bloomery";
