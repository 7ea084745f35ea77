//! Describes a filter in memory as a server would describe it in BF.STATS or CF.STATS.

use super::info::{FilterInfo, LayerInfo, Rebuild};
use bloomery::Filter;
use bloomery::filter::{LayerSummary, RebuildSummary, Summary};

/// Describes the filter. A window is described as of its newest generation. `size` is the number of bytes of the cells.
pub(crate) fn describe(filter: &Filter) -> FilterInfo {
    let summary: Summary = filter.summary(0);
    let word = |word: &str| word.to_owned();
    FilterInfo {
        kind: summary.kind.into(),
        origin: summary.origin.into(),
        layout: summary.layout.map(word),
        hash: summary.hash.map(|hash| word(hash.as_str())),
        shards: summary.shards.map(u64::from),
        bits_per_cell: summary.bits_per_cell.map(u64::from),
        on_full: summary.on_full.map(word),
        error_rate: summary.error_rate,
        error_rate_now: Some(summary.error_rate_now),
        capacity: Some(summary.capacity),
        items: summary.items,
        approximate_items: summary.estimate,
        filters: summary.arrays,
        cells: Some(summary.cells),
        cells_set: Some(summary.cells_set),
        fill: Some(summary.fill),
        size: summary.bytes,
        expansion_rate: summary.expansion.map(u64::from),
        tightening_ratio: summary.tightening,
        generations: summary.window.map(|window| window.generations.into()),
        generation: summary.window.map(|window| window.current),
        rotates_every_ms: summary.window.map(|window| window.every_ms).filter(|every_ms| *every_ms > 0),
        saturated_counters: summary.saturated,
        layers: summary.layers.iter().map(layer).collect(),
        rebuild: summary.rebuild.as_ref().map(rebuild),
        identity: summary.identity.map(|identity| format!("{identity:016x}")),
        ..FilterInfo::default()
    }
}

fn layer(layer: &LayerSummary) -> LayerInfo {
    LayerInfo {
        age: layer.age,
        layout: layer.layout.map(|layout| layout.as_str().to_owned()),
        capacity: Some(layer.capacity),
        items: layer.items,
        error_rate: Some(layer.error_rate),
        error_rate_now: Some(layer.error_rate_now),
        cells: Some(layer.cells),
        probes: Some(layer.probes.into()),
        fill: Some(layer.fill),
    }
}

fn rebuild(shadow: &RebuildSummary) -> Rebuild {
    Rebuild {
        status: "running".into(),
        kind: Some(shadow.kind.into()),
        capacity: Some(shadow.capacity),
        error_rate: Some(shadow.error_rate),
        items: Some(shadow.items),
        fill: Some(shadow.fill),
        size: Some(shadow.bytes),
        error_rate_now: Some(shadow.error_rate_now),
        deletes_missed: Some(shadow.deletes_missed),
        identity: Some(format!("{:016x}", shadow.identity)),
    }
}
