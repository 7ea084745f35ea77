//! Computes the summary of each kind of filter.

use super::{Feedback, LayerSummary, NATIVE, Observed, RebuildSummary, Summary};
use crate::filter::bloom::{Bloom, Generation};
use crate::filter::cuckoo::{Cuckoo, Origin};
use crate::filter::foreign::{Foreign, Link};
use crate::filter::layout::Layer;
use crate::filter::rebuild::Rebuild;
use crate::filter::record::Word;
use crate::filter::usage::{self, Span, Usage};
use crate::filter::{Filter, FilterRef, LiveRef};
use crate::hash::Seed;
use crate::params::{Family, Overflow};

/// An identity that distinguishes a filter from others, even after it is renamed, copied or loaded. It is derived from
/// the seed, so filters with the same seed have the same identity.
fn identity(seed: Seed) -> Word {
    format!("{:016x}", seed.identity()).into()
}

impl Filter {
    /// The filter's summary at Unix time `now_ms` in milliseconds. The time determines which generations of a window
    /// are alive.
    pub fn summary(&self, now_ms: u64) -> Summary {
        FilterRef::from(self).summary(now_ms)
    }
}

impl FilterRef<'_> {
    /// The filter's summary at Unix time `now_ms` in milliseconds, without what only a server knows.
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

impl LiveRef<'_> {
    /// Adds to the filter's summary how this server has used it.
    #[doc(hidden)]
    pub fn add_usage(self, summary: &mut Summary, now_ms: u64) {
        let usage = self.usage_so_far();
        let tests = usage.tests();
        summary.tests_yes = Some(tests.yes);
        summary.tests_no = Some(tests.no);
        summary.adds = Some(self.adds());
        summary.deletes = Some(usage.deletes());
        summary.refused = Some(usage.refused());
        summary.feedback = Some(feedback(usage, now_ms));
        let forgets = summary.on_full.as_deref() == Some(Overflow::Forget.as_str());
        summary.forgotten = forgets.then(|| usage.forgotten());
    }
}

fn feedback(usage: &Usage, now_ms: u64) -> Feedback {
    let over = |span| {
        let observed: usage::Observed = usage.observed(now_ms, span);
        Observed {
            checked: observed.checked,
            r#false: observed.wrong,
            share_false: observed.share_wrong(),
            observed_error_rate: observed.error_rate(),
        }
    };
    Feedback { minute: over(Span::Minute), hour: over(Span::Hour), life: over(Span::Life) }
}

fn bloom(filter: &Bloom, now_ms: u64) -> Summary {
    let spec = filter.spec();
    let window = filter.window();
    let layers = match window {
        None => filter.layers().iter().map(|one| layer(one, filter.grows())).collect(),
        Some(window) => window.alive(window.number_at(now_ms)).map(generation).collect(),
    };
    let bits = filter.layers().iter().find(|layer| !layer.has_table()).unwrap_or(filter.newest_layer());
    Summary {
        kind: spec.kind().into(),
        origin: NATIVE.into(),
        layout: Some(spec.layout_word().into()),
        hash: Some(spec.hash.as_str().into()),
        shards: Some(spec.shards.into()),
        bits_per_cell: Some(bits.shape().cell_bits().into()),
        on_full: (!spec.is_static()).then(|| spec.on_full().into()),
        error_rate: Some(spec.error_rate),
        error_rate_now: filter.rate_now(),
        capacity: filter.capacity(),
        items: filter.items(),
        approximate_items: Some(filter.estimate()),
        filters: filter.layers().len() as u64,
        cells: filter.cells(),
        cells_set: filter.ones(),
        fill: filter.fill(),
        size: filter.allocated() as u64,
        expansion_rate: spec.expansion().map(u64::from),
        reserved: spec.expansion().map(|_| spec.capacity),
        tightening_ratio: match spec.family {
            Family::Scaling { tightening, .. } => tightening.ratio(),
            _ => None,
        },
        generations: window.map(|window| window.span()),
        generation: window.map(|window| window.number_at(now_ms)),
        rotates_every_ms: window.map(|window| window.schedule().every_ms).filter(|every_ms| *every_ms > 0),
        next_rotation_ms: window.and_then(|window| window.standing().next_in(now_ms)),
        saturated_counters: spec.cell.counts().then(|| filter.saturated()),
        layers,
        identity: Some(identity(spec.seed)),
        ..Summary::default()
    }
}

fn layer(layer: &Layer, grows: bool) -> LayerSummary {
    LayerSummary {
        age: None,
        layout: Some(layer.shape().layout.as_str().into()),
        capacity: layer.room(grows),
        items: layer.items(),
        error_rate: layer.error_rate(),
        error_rate_now: layer.rate_now(),
        cells: layer.cells(),
        probes: layer.probes().into(),
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
        ..layer(generation.layer, false)
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
        probes: link.spec().probes.into(),
        fill: link.fill(),
    };
    Summary {
        kind: if filter.expansion().is_some() { "scaling" } else { "fixed" }.into(),
        origin: filter.origin().into(),
        items_are: Some(filter.encoding().as_str().into()),
        error_rate: filter.error_rate(),
        error_rate_now: filter.rate_now(),
        capacity: filter.capacity(),
        items: filter.items(),
        approximate_items: Some(filter.estimate()),
        filters: filter.links().len() as u64,
        cells: filter.cells(),
        cells_set: filter.ones(),
        fill: filter.fill(),
        size: filter.allocated() as u64,
        expansion_rate: filter.expansion().map(u64::from),
        reserved: filter.expansion().and_then(|_| Some(filter.links().first()?.spec().capacity)),
        layers: filter.links().iter().map(link).collect(),
        ..Summary::default()
    }
}

fn cuckoo(filter: &Cuckoo) -> Summary {
    let spec = filter.spec();
    let is_ours = spec.origin == Origin::Bloomery;
    Summary {
        kind: "cuckoo".into(),
        origin: if is_ours { NATIVE } else { "redisbloom" }.into(),
        hash: is_ours.then(|| spec.hash.as_str().into()),
        error_rate: Some(filter.rate_at(1.0)),
        error_rate_now: filter.rate_at(filter.fill()),
        capacity: filter.slots(),
        items: filter.items(),
        filters: filter.tables().len() as u64,
        buckets: Some(spec.first_buckets()),
        items_deleted: Some(filter.deletes()),
        bucket_size: Some(spec.bucket_size.into()),
        max_iterations: Some(spec.max_iterations.into()),
        cells: filter.slots(),
        cells_set: filter.items(),
        fill: filter.fill(),
        size: filter.allocated() as u64,
        expansion_rate: Some(spec.expansion.into()),
        reserved: (spec.expansion > 0).then_some(spec.capacity),
        identity: is_ours.then(|| identity(spec.seed)),
        ..Summary::default()
    }
}

impl Rebuild {
    /// The shadow's summary.
    pub fn summary(&self) -> RebuildSummary {
        let shadow = self.shadow();
        RebuildSummary {
            status: "running".into(),
            kind: shadow.spec().kind().into(),
            capacity: shadow.capacity(),
            error_rate: shadow.spec().error_rate,
            error_rate_now: shadow.rate_now(),
            items: shadow.items(),
            approximate_items: shadow.estimate(),
            filters: shadow.layers().len() as u64,
            fill: shadow.fill(),
            size: shadow.allocated() as u64,
            deletes_missed: self.deletes_missed(),
            identity: identity(shadow.spec().seed),
        }
    }
}
