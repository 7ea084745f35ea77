//! Everything that is known about a filter, as plain data. It is used by BF.STATS, by CF.STATS, and by the command-line
//! program's `inspect`.

use super::bloom::{Bloom, Generation};
use super::cuckoo::{Cuckoo, Origin};
use super::foreign::{Encoding, Foreign, Link};
use super::layout::Layer;
use super::rebuild::Rebuild;
use super::{Filter, FilterRef};
use crate::hash::HashKind;
use crate::params::{Family, Layout};

/// Everything that is known about a filter. Computing it is cheap: large layers keep their counts up to date as cells
/// change, and only the cells of small layers (8 KiB or less) are counted.
///
/// `None` means that filters of this kind don't have the property.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// `fixed`, `counting`, `scaling`, `window`, `static` or `cuckoo`.
    pub kind: &'static str,
    /// The system that created the filter: `bloomery`, `redisbloom`, `go-zero`, …
    pub origin: &'static str,
    /// The requested layout: `AUTO`, `BLOCKED`, ….
    pub layout: Option<&'static str>,
    /// Hash function.
    pub hash: Option<HashKind>,
    /// How another system turns an item into the bytes that it hashes.
    pub encoding: Option<Encoding>,
    /// Number of shards (independent arrays of cells) per layer.
    pub shards: Option<u32>,
    /// Bits per cell: 1 in a filter of bits, more with counters or fingerprints.
    pub bits_per_cell: Option<u32>,
    /// `ERROR`, `SATURATE`, `ROTATE` or `SCALE`.
    pub on_full: Option<&'static str>,
    /// The promised error rate. For a cuckoo filter, the rate when every slot is in use.
    pub error_rate: Option<f64>,
    /// The error rate at the current fill.
    pub error_rate_now: f64,
    /// Number of items that the filter is sized for. For a cuckoo filter, its number of slots.
    pub capacity: u64,
    /// Number of items added that were absent at the time, minus those deleted. For a cuckoo filter, its number of
    /// fingerprints.
    pub items: u64,
    /// Number of distinct items, estimated from the fill.
    pub estimate: Option<u64>,
    /// Number of cells: bits, counters or slots.
    pub cells: u64,
    /// Number of cells that are not 0. For a static filter, its number of items.
    pub cells_set: u64,
    /// `cells_set` as a fraction of `cells`.
    pub fill: f64,
    /// Bytes of the cells.
    pub bytes: u64,
    /// Bytes of memory, including all overhead, but not a shadow or usage counters.
    /// So equal filters have equal sizes.
    pub allocated: u64,
    /// Factor by which the capacity grows from one layer, link or sub-filter to the next.
    pub expansion: Option<u32>,
    /// Ratio of the error rates of consecutive layers. Also `None` if the error rates fall with the square of the
    /// layer's number.
    pub tightening: Option<f64>,
    /// The generations of a window.
    pub window: Option<WindowSummary>,
    /// Number of counters that have reached their maximum and no longer count.
    pub saturated: Option<u64>,
    /// Number of layers, links or sub-filters.
    pub arrays: u64,
    /// The layers or links, from oldest to newest. For a window, the generations that are alive, from newest to oldest.
    /// Empty for a cuckoo filter.
    pub layers: Vec<LayerSummary>,
    /// An identity that distinguishes the filter from others, even after it is renamed, copied or loaded. It is derived
    /// from the seed, so filters with the same seed have the same identity. `None` for filters from other systems.
    pub identity: Option<u64>,
    /// The rebuild, if one is running.
    pub rebuild: Option<RebuildSummary>,
}

/// The generations of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSummary {
    /// Number of generations that are alive at once.
    pub generations: u32,
    /// Number of the current generation.
    pub current: u64,
    /// Milliseconds between rotations by the clock; 0 if the window is only rotated manually.
    pub every_ms: u64,
    /// Milliseconds until the next rotation by the clock.
    pub next_rotation_ms: Option<u64>,
}

/// A layer of a chain, a generation of a window, or a link of another system's filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerSummary {
    /// Age of a window's generation: 0 for the current one. `None` for a layer of a chain and for a link.
    pub age: Option<u64>,
    /// How an item's probes are placed; `None` for a link.
    pub layout: Option<Layout>,
    /// Number of items that the layer is sized for.
    pub capacity: u64,
    /// Number of items in the layer.
    pub items: u64,
    /// The error rate that the layer is sized for.
    pub error_rate: f64,
    /// The error rate at the current fill.
    pub error_rate_now: f64,
    /// Number of cells.
    pub cells: u64,
    /// Probes per item.
    pub probes: u32,
    /// Fraction of the cells that the layer's items have set.
    pub fill: f64,
}

/// A running rebuild.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RebuildSummary {
    /// Kind of the shadow.
    pub kind: &'static str,
    /// Number of items that the shadow is sized for.
    pub capacity: u64,
    /// The shadow's promised error rate.
    pub error_rate: f64,
    /// The shadow's error rate at its current fill.
    pub error_rate_now: f64,
    /// Number of items in the shadow.
    pub items: u64,
    /// Number of distinct items in the shadow, estimated from its fill.
    pub estimate: u64,
    /// Number of layers in the shadow.
    pub layers: u64,
    /// Fraction of the shadow's cells that are not 0.
    pub fill: f64,
    /// Bytes of the shadow's cells.
    pub bytes: u64,
    /// Bytes of the shadow's memory, including all overhead.
    pub allocated: u64,
    /// Number of deletes that the shadow missed.
    pub deletes_missed: u64,
    /// The shadow's identity, like [`Summary::identity`].
    pub identity: u64,
}

impl Filter {
    /// The filter's summary at Unix time `now_ms` in milliseconds. The time determines which generations of a window
    /// are alive.
    pub fn summary(&self, now_ms: u64) -> Summary {
        FilterRef::from(self).summary(now_ms)
    }
}

impl FilterRef<'_> {
    /// The filter's summary at Unix time `now_ms` in milliseconds.
    pub fn summary(self, now_ms: u64) -> Summary {
        match self {
            FilterRef::Bloom(filter) => bloom(filter, now_ms),
            FilterRef::Foreign(filter) => foreign(filter),
            FilterRef::Cuckoo(filter) => cuckoo(filter),
            FilterRef::Rebuild(running) => Summary {
                rebuild: Some(running.summary()),
                ..FilterRef::from(running.live()).summary(now_ms)
            },
        }
    }
}

fn bloom(filter: &Bloom, now_ms: u64) -> Summary {
    let spec = filter.spec();
    let window = filter.window().map(|window| WindowSummary {
        generations: window.span() as u32,
        current: window.number_at(now_ms),
        every_ms: window.schedule().every_ms,
        next_rotation_ms: window.standing().next_in(now_ms),
    });
    let layers = match filter.window() {
        None => filter.layers().iter().map(layer).collect(),
        Some(window) => window.alive(window.number_at(now_ms)).map(generation).collect(),
    };
    Summary {
        kind: spec.kind(),
        origin: "bloomery",
        layout: Some(spec.layout_word()),
        hash: Some(spec.hash),
        encoding: None,
        shards: Some(spec.shards),
        bits_per_cell: Some(filter.newest_layer().shape().cell_bits()),
        on_full: (!spec.is_static()).then(|| spec.on_full()),
        error_rate: Some(spec.error_rate),
        error_rate_now: filter.rate_now(),
        capacity: filter.capacity(),
        items: filter.items(),
        estimate: Some(filter.estimate()),
        cells: filter.cells(),
        cells_set: filter.ones(),
        fill: filter.fill(),
        bytes: filter.bytes(),
        allocated: filter.allocated() as u64,
        expansion: spec.expansion(),
        tightening: match spec.family {
            Family::Scaling { tightening, .. } => tightening.ratio(),
            _ => None,
        },
        window,
        saturated: spec.cell.counts().then(|| filter.saturated()),
        arrays: filter.layers().len() as u64,
        layers,
        identity: Some(spec.seed.identity()),
        rebuild: None,
    }
}

fn layer(layer: &Layer) -> LayerSummary {
    LayerSummary {
        age: None,
        layout: Some(layer.shape().layout),
        capacity: layer.capacity(),
        items: layer.items(),
        error_rate: layer.error_rate(),
        error_rate_now: layer.rate_now(),
        cells: layer.cells(),
        probes: layer.probes(),
        fill: layer.fill(),
    }
}

fn generation(generation: Generation<'_>) -> LayerSummary {
    LayerSummary {
        age: Some(generation.age),
        capacity: generation.capacity(),
        items: generation.items,
        error_rate: generation.error_rate(),
        error_rate_now: generation.rate_now(),
        fill: generation.fill(),
        ..layer(generation.layer)
    }
}

fn foreign(filter: &Foreign) -> Summary {
    let link = |link: &Link| LayerSummary {
        age: None,
        layout: None,
        capacity: link.spec().capacity,
        items: link.items(),
        error_rate: link.spec().error_rate,
        error_rate_now: link.rate_now(),
        cells: link.spec().modulus,
        probes: link.spec().probes,
        fill: link.fill(),
    };
    Summary {
        kind: if filter.expansion().is_some() { "scaling" } else { "fixed" },
        origin: filter.origin(),
        layout: None,
        hash: None,
        encoding: Some(filter.encoding()),
        shards: None,
        bits_per_cell: None,
        on_full: None,
        error_rate: filter.error_rate(),
        error_rate_now: filter.rate_now(),
        capacity: filter.capacity(),
        items: filter.items(),
        estimate: Some(filter.estimate()),
        cells: filter.cells(),
        cells_set: filter.ones(),
        fill: filter.fill(),
        bytes: filter.bytes(),
        allocated: filter.allocated() as u64,
        expansion: filter.expansion(),
        tightening: None,
        window: None,
        saturated: None,
        arrays: filter.links().len() as u64,
        layers: filter.links().iter().map(link).collect(),
        identity: None,
        rebuild: None,
    }
}

fn cuckoo(filter: &Cuckoo) -> Summary {
    let spec = filter.spec();
    let is_ours = spec.origin == Origin::Bloomery;
    Summary {
        kind: "cuckoo",
        origin: if is_ours { "bloomery" } else { "redisbloom" },
        layout: None,
        hash: is_ours.then_some(spec.hash),
        encoding: None,
        shards: None,
        bits_per_cell: None,
        on_full: None,
        error_rate: Some(filter.rate_at(1.0)),
        error_rate_now: filter.rate_at(filter.fill()),
        capacity: filter.slots(),
        items: filter.items(),
        estimate: None,
        cells: filter.slots(),
        cells_set: filter.items(),
        fill: filter.fill(),
        bytes: filter.bytes(),
        allocated: filter.allocated() as u64,
        expansion: Some(spec.expansion.into()),
        tightening: None,
        window: None,
        saturated: None,
        arrays: filter.tables().len() as u64,
        layers: Vec::new(),
        identity: is_ours.then(|| spec.seed.identity()),
        rebuild: None,
    }
}

impl Rebuild {
    /// The shadow's summary.
    pub fn summary(&self) -> RebuildSummary {
        let shadow = self.shadow();
        RebuildSummary {
            kind: shadow.spec().kind(),
            capacity: shadow.capacity(),
            error_rate: shadow.spec().error_rate,
            error_rate_now: shadow.rate_now(),
            items: shadow.items(),
            estimate: shadow.estimate(),
            layers: shadow.layers().len() as u64,
            fill: shadow.fill(),
            bytes: shadow.bytes(),
            allocated: shadow.allocated() as u64,
            deletes_missed: self.deletes_missed(),
            identity: shadow.spec().seed.identity(),
        }
    }
}
