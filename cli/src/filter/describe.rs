//! Describes a filter in memory as a server would describe it in BF.INFO FULL or CF.INFO.

use super::info::{FilterInfo, LayerInfo, Rebuild, cuckoo_rate};
use bloomery::filter::foreign::Link;
use bloomery::filter::{Foreign, Origin};
use bloomery::{Bloom, Cuckoo, Family, Filter, Layer};

/// Describes the filter. `size` counts the bytes of the cells.
pub(crate) fn describe(filter: &Filter) -> FilterInfo {
    match filter {
        Filter::Bloom(filter) => bloom(filter),
        Filter::Cuckoo(filter) => cuckoo(filter),
        Filter::Foreign(filter) => foreign(filter),
        Filter::Rebuild(both) => FilterInfo {
            rebuild: Some(rebuild(both.shadow(), both.deletes_missed())),
            ..describe(both.live())
        },
    }
}

fn bloom(filter: &Bloom) -> FilterInfo {
    let spec = filter.spec();
    FilterInfo {
        kind: spec.kind().into(),
        origin: "bloomery".into(),
        layout: Some(spec.layout.as_str().into()),
        hash: Some(spec.hash.as_str().into()),
        shards: Some(spec.shards.into()),
        bits_per_cell: Some(spec.cell.bits().into()),
        on_full: Some(on_full(spec.family).into()),
        error_rate: Some(spec.error_rate),
        error_rate_now: Some(filter.rate_now()),
        capacity: Some(filter.capacity()),
        items: filter.items(),
        approximate_items: Some(filter.estimate()),
        filters: filter.layers().len() as u64,
        cells: Some(filter.cells()),
        cells_set: Some(filter.ones()),
        fill: Some(filter.fill()),
        size: filter.bytes(),
        layers: filter.layers().iter().map(|layer| self::layer(layer)).collect(),
        ..FilterInfo::default()
    }
}

fn on_full(family: Family) -> &'static str {
    match family {
        Family::Scaling { .. } => "SCALE",
        Family::Fixed(overflow) | Family::Window { overflow, .. } => overflow.as_str(),
    }
}

fn layer(layer: &Layer) -> LayerInfo {
    LayerInfo {
        age: None,
        layout: Some(layer.shape().layout.as_str().into()),
        capacity: Some(layer.capacity()),
        items: layer.items(),
        error_rate: Some(layer.error_rate()),
        error_rate_now: Some(layer.rate_now()),
        cells: Some(layer.cells()),
        probes: Some(layer.probes().into()),
        fill: Some(layer.fill()),
    }
}

fn cuckoo(filter: &Cuckoo) -> FilterInfo {
    let spec = filter.spec();
    let slots = filter.tables().iter().map(|table| spec.slots_of(table.buckets())).sum::<u64>();
    let fill = filter.items() as f64 / (slots as f64).max(1.0);
    let tables = filter.tables().len() as u64;
    let rate = |fill| cuckoo_rate(spec.bucket_size.into(), tables, fill);
    let is_ours = spec.origin == Origin::Bloomery;
    FilterInfo {
        kind: "cuckoo".into(),
        origin: if is_ours { "bloomery" } else { "redisbloom" }.into(),
        hash: is_ours.then(|| spec.hash.as_str().into()),
        error_rate: Some(rate(1.0)),
        error_rate_now: Some(rate(fill)),
        capacity: Some(slots),
        items: filter.items(),
        filters: tables,
        cells: Some(slots),
        cells_set: Some(filter.items()),
        fill: Some(fill),
        size: filter.bytes(),
        expansion_rate: Some(spec.expansion.into()),
        ..FilterInfo::default()
    }
}

fn foreign(filter: &Foreign) -> FilterInfo {
    FilterInfo {
        kind: if matches!(filter.next_link(), Ok(None)) { "fixed" } else { "scaling" }.into(),
        origin: filter.origin().into(),
        error_rate_now: Some(filter.rate_now()),
        capacity: Some(filter.capacity()),
        items: filter.items(),
        approximate_items: Some(filter.estimate()),
        filters: filter.links().len() as u64,
        cells: Some(filter.cells()),
        cells_set: Some(filter.ones()),
        fill: Some(filter.fill()),
        size: filter.bytes(),
        layers: filter.links().iter().map(link).collect(),
        ..FilterInfo::default()
    }
}

fn link(link: &Link) -> LayerInfo {
    LayerInfo {
        capacity: Some(link.spec().capacity),
        items: link.items(),
        error_rate: Some(link.spec().error_rate),
        error_rate_now: Some(link.rate_now()),
        cells: Some(link.spec().modulus),
        probes: Some(link.spec().probes.into()),
        fill: Some(link.fill()),
        ..LayerInfo::default()
    }
}

fn rebuild(shadow: &Bloom, deletes_missed: u64) -> Rebuild {
    Rebuild {
        status: "running".into(),
        kind: Some(shadow.spec().kind().into()),
        capacity: Some(shadow.capacity()),
        error_rate: Some(shadow.spec().error_rate),
        items: Some(shadow.items()),
        fill: Some(shadow.fill()),
        size: Some(shadow.bytes()),
        error_rate_now: Some(shadow.rate_now()),
        deletes_missed: Some(deletes_missed),
    }
}
