//! What is known about a filter, whether it is on a server or in a file.

use serde::Serialize;

/// All that is known about a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct FilterInfo {
    /// `fixed`, `counting`, `scaling`, `window`, `static` or `cuckoo`.
    pub(crate) kind: String,
    /// The system that created the filter: `bloomery`, `redisbloom`, ….
    pub(crate) origin: String,
    /// The requested layout: `AUTO`, `BLOCKED`, ….
    pub(crate) layout: Option<String>,
    /// `XXH3` or `SIPHASH`.
    pub(crate) hash: Option<String>,
    /// Number of independent arrays per layer.
    pub(crate) shards: Option<u64>,
    /// 1 for bits, more for counters and fingerprints.
    pub(crate) bits_per_cell: Option<u64>,
    /// `ERROR`, `SATURATE`, `SCALE` or `ROTATE`.
    pub(crate) on_full: Option<String>,
    /// The promised error rate. For cuckoo filters: the rate when full.
    pub(crate) error_rate: Option<f64>,
    /// The error rate at the present fill.
    pub(crate) error_rate_now: Option<f64>,
    /// Number of items that the filter is sized for. For cuckoo filters: number of slots.
    pub(crate) capacity: Option<u64>,
    /// Items added that were absent, minus items deleted.
    pub(crate) items: u64,
    /// Distinct items, estimated from the fill.
    pub(crate) approximate_items: Option<u64>,
    /// Number of layers, generations or sub-filters.
    pub(crate) filters: u64,
    /// Number of cells.
    pub(crate) cells: Option<u64>,
    /// Number of cells that aren't 0.
    pub(crate) cells_set: Option<u64>,
    /// Fraction of cells that aren't 0. For cuckoo filters: items per slot.
    pub(crate) fill: Option<f64>,
    /// Fill at which a cuckoo filter starts to refuse adds, or grows.
    pub(crate) fill_when_full: Option<f64>,
    /// Bytes of memory without the key, the usage counters and a rebuild. For a filter in a file: bytes of its cells.
    pub(crate) size: u64,
    /// Bytes of memory as MEMORY USAGE reports them, without the key.
    pub(crate) memory: Option<u64>,
    /// Capacity of a new layer relative to the previous one.
    pub(crate) expansion_rate: Option<u64>,
    /// Error rate of a new layer relative to the previous one; `None` if error rates fall roughly as the inverse square
    /// of the layer's number.
    pub(crate) tightening_ratio: Option<f64>,
    /// Number of generations that a window keeps.
    pub(crate) generations: Option<u64>,
    /// Number of the current generation.
    pub(crate) generation: Option<u64>,
    /// Milliseconds between rotations; `None` without a schedule.
    pub(crate) rotates_every_ms: Option<u64>,
    /// Milliseconds until the next rotation; `None` without a schedule.
    pub(crate) next_rotation_ms: Option<u64>,
    /// Number of times that the window made room by dropping its oldest items; `None` if it never does that.
    pub(crate) early_rotations: Option<u64>,
    /// Counters stuck at their maximum.
    pub(crate) saturated_counters: Option<u64>,
    /// Tests that the server answered with yes since it loaded the filter.
    pub(crate) tests_yes: Option<u64>,
    /// Tests that the server answered with no since it loaded the filter.
    pub(crate) tests_no: Option<u64>,
    /// Items added since the server loaded the filter.
    pub(crate) adds: Option<u64>,
    /// Items deleted since the server loaded the filter.
    pub(crate) deletes: Option<u64>,
    /// What the application reported with BF.FEEDBACK.
    pub(crate) feedback: Option<Feedback>,
    /// A rebuild in progress.
    pub(crate) rebuild: Option<Rebuild>,
    /// Distinguishes the filter from all others; `None` for filters of other systems.
    pub(crate) identity: Option<String>,
    /// What the user should do about the filter, in words.
    pub(crate) advice: Vec<String>,
    /// The layers of a chain, or the generations of a window.
    pub(crate) layers: Vec<LayerInfo>,
}

/// What the application reported with BF.FEEDBACK, over three spans of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Feedback {
    /// The last 60 seconds.
    pub(crate) minute: Observed,
    /// The last 60 minutes.
    pub(crate) hour: Observed,
    /// Since the server loaded the filter.
    pub(crate) life: Observed,
}

/// How many of the positive answers that the application checked were false.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Observed {
    /// Answers that were checked.
    pub(crate) checked: u64,
    /// Answers that were false.
    pub(crate) r#false: u64,
    /// False answers divided by checked answers.
    pub(crate) share_false: Option<f64>,
    /// False answers divided by tests of absent items: the observed false-positive rate.
    pub(crate) observed_error_rate: Option<f64>,
}

/// A rebuild in progress. All fields but `status` describe the new filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rebuild {
    /// `running`.
    pub(crate) status: String,
    /// Kind of the new filter.
    pub(crate) kind: Option<String>,
    /// Number of items that the new filter is sized for.
    pub(crate) capacity: Option<u64>,
    /// Promised error rate of the new filter.
    pub(crate) error_rate: Option<f64>,
    /// Number of items in the new filter.
    pub(crate) items: Option<u64>,
    /// Fraction of the new filter's cells that are set.
    pub(crate) fill: Option<f64>,
    /// Size of the new filter in bytes.
    pub(crate) size: Option<u64>,
    /// The new filter's error rate at its present fill.
    pub(crate) error_rate_now: Option<f64>,
    /// Number of deletes that the new filter could not apply.
    pub(crate) deletes_missed: Option<u64>,
    /// Distinguishes the new filter from all others.
    pub(crate) identity: Option<String>,
}

/// A layer of a chain, or a generation of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LayerInfo {
    /// Age of a window's generation; 0 is the current one.
    pub(crate) age: Option<u64>,
    /// `BLOCKED`, `CLASSIC`, `FINGERPRINT`, ….
    pub(crate) layout: Option<String>,
    /// Number of items that the layer is sized for.
    pub(crate) capacity: Option<u64>,
    /// Number of items in the layer.
    pub(crate) items: u64,
    /// The error rate that the layer is sized for.
    pub(crate) error_rate: Option<f64>,
    /// The error rate at the present fill.
    pub(crate) error_rate_now: Option<f64>,
    /// Number of cells.
    pub(crate) cells: Option<u64>,
    /// Probes per item.
    pub(crate) probes: Option<u64>,
    /// Fraction of cells that are set.
    pub(crate) fill: Option<f64>,
}

impl FilterInfo {
    /// Items divided by capacity.
    pub(crate) fn full(&self) -> f64 {
        self.items as f64 / self.capacity.unwrap_or(0).max(1) as f64
    }

    /// Total number of tests.
    pub(crate) fn tests(&self) -> Option<u64> {
        Some(self.tests_yes?.saturating_add(self.tests_no?))
    }

    /// Bytes of memory: [`memory`](FilterInfo::memory) if known, else [`size`](FilterInfo::size).
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.unwrap_or(self.size)
    }
}
