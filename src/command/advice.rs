//! What is wrong with a filter, in words: each line begins with what it is, says the figures, and ends with what to do.

use super::info::general;
use crate::filter::usage::{Observed, Span};
use crate::filter::{Bloom, Foreign};
use crate::params::{Family, Overflow};

/// From so many layers on a chain is worth rebuilding: one of expansion 2 has then grown to 255 times its first
/// capacity, and a test of an absent item asks all of them.
const MANY_LAYERS: usize = 8;

/// An observed error rate this many times the promise is an incident: at 1 %, a filter has it at 1.5 times its capacity.
const FAR_ABOVE: f64 = 5.0;

/// False answers that a rate must rest on: with 20 it is uncertain by a fifth.
const ENOUGH_FALSE: u64 = 20;

/// Above this share of the counters in use, saturated ones are no accident any more.
const SATURATING: f64 = 0.01;

/// Fills vary: a filter at its capacity is a few percent above or below its promise.
const TOLERANCE: f64 = 1.5;

/// What advice on any filter rests on.
struct Facts {
    /// Error rate; `None` where the origin knows none.
    promise: Option<f64>,
    rate_now: f64,
    observed: Observed,
}

/// About one of our filters.
pub(super) fn on_filter(filter: &Bloom, now_ms: u64) -> Vec<String> {
    let spec = filter.spec();
    let facts = Facts {
        promise: Some(spec.error_rate),
        rate_now: filter.rate_now(),
        observed: filter.usage_so_far().observed(now_ms, Span::Hour),
    };
    let (items, capacity) = (filter.items(), filter.capacity());
    let room = rebuild(items.max(filter.estimate()));
    let newest = filter.newest_layer();
    let mut advice = Vec::new();
    let over_capacity = match spec.family {
        Family::Fixed(Overflow::Error) => (items >= capacity)
            .then(|| format!("full: it holds {items} items of {capacity} and refuses new ones; {room}")),
        Family::Fixed(Overflow::Saturate) => {
            (items > capacity).then(|| format!("over capacity: it holds {items} items of {capacity}; {room}"))
        }
        Family::Window { overflow: Overflow::Error, .. } => (newest.items() >= newest.capacity()).then(|| {
            format!("full: the current generation holds {} items and refuses new ones; rotate", newest.items())
        }),
        Family::Window { .. } => (newest.items() > newest.capacity()).then(|| {
            let (items, capacity) = (newest.items(), newest.capacity());
            format!(
                "over capacity: the current generation holds {items} items of {capacity}; rotate more often, or {}",
                rebuild(items)
            )
        }),
        Family::Scaling { .. } => None,
    };
    advice.extend(over_capacity);
    if let (Family::Scaling { .. }, layers @ MANY_LAYERS..) = (spec.family, filter.layers().len()) {
        advice.push(format!("many layers: a test of an absent item asks {layers} of them; {room}"));
    }
    let saturated = filter.layers().iter().map(|layer| layer.saturated()).sum::<u64>();
    if saturated as f64 > SATURATING * filter.ones() as f64 {
        advice.push(format!(
            "saturating: {saturated} of {} counters in use have stopped counting, and deletes do not reach them; \
             wider counters, or a larger capacity, keep them apart",
            filter.ones()
        ));
    }
    facts.advise(&mut advice, &room);
    advice
}

/// About another system's filter.
pub(super) fn on_foreign(filter: &Foreign, now_ms: u64) -> Vec<String> {
    let facts = Facts {
        promise: filter.error_rate(),
        rate_now: filter.rate_now(),
        observed: filter.usage().observed(now_ms, Span::Hour),
    };
    let (items, capacity) = (filter.items().max(filter.estimate()), filter.capacity());
    let room = rebuild(items);
    let mut advice = Vec::new();
    if items > capacity {
        advice.push(format!("over capacity: it holds about {items} items of {capacity}; {room}"));
    }
    if let layers @ MANY_LAYERS.. = filter.links().len() {
        advice.push(format!("many layers: a test of an absent item asks {layers} of them; {room}"));
    }
    facts.advise(&mut advice, &room);
    advice
}

impl Facts {
    /// Adds what follows from the rates.
    fn advise(&self, advice: &mut Vec<String>, room: &str) {
        let Some(promise) = self.promise else { return };
        let rate = self.rate_now;
        if advice.is_empty() && rate > TOLERANCE * promise {
            advice.push(format!(
                "fuller than promised: the error rate is {} now, and {} was promised; {room}",
                general(rate),
                general(promise)
            ));
        }
        let observed = self.observed;
        if let Some(rate) = observed.error_rate().filter(|rate| *rate > FAR_ABOVE * promise)
            && observed.wrong >= ENOUGH_FALSE
        {
            advice.push(format!(
                "observed error rate far above the promise: {} in the last hour, and {} was promised; if the fill \
                 does not explain it, the same false answers are asked for again and again, or somebody picks items: \
                 see HASH SIPHASH",
                general(rate),
                general(promise)
            ));
        }
    }
}

/// How to get a filter with room for what there is, and as much again.
fn rebuild(items: u64) -> String {
    format!("BF.REBUILD key BEGIN CAPACITY {} makes room", items.max(1).saturating_mul(2))
}
