//! Advice about a filter: each line says what is wrong, gives the numbers, and ends with what to do.

use crate::number::general;
use crate::options::printable;
use bloomery::filter::{CuckooSpec, Observed, Summary};
use bloomery::params::Layout;

/// Number of layers at which rebuilding a chain pays off. With expansion 2, a chain of 8 layers has 255 times its first
/// capacity. A test of an absent item looks at all layers.
const MANY_LAYERS: u64 = 8;

/// An observed error rate of more than this many times the promise is an incident. With a promise of 1%, a filter
/// reaches this rate at 1.5 times its capacity.
const FAR_ABOVE: f64 = 5.0;

/// An observed error rate of more than this many times the expected rate isn't chance if there are at least
/// [`ENOUGH_FALSE`] false answers. The expected rate follows from the cells.
const DRIFT: f64 = 2.0;

/// Minimum number of false answers for a rate to be trusted. With 20, the standard deviation is a fifth of the rate.
const ENOUGH_FALSE: u64 = 20;

/// Maximum share of saturated counters, among those in use, that can be put down to chance.
const SATURATING: f64 = 0.01;

/// There is advice only if the error rate exceeds this many times the promised rate. Fills vary, so even a filter at
/// its capacity is a few percent above or below its promised rate.
const TOLERANCE: f64 = 1.5;

/// The fill at which a cuckoo filter begins to refuse adds, by its number of slots per bucket. Measured with the
/// default of 20 moves and 1,000 to 1,000,000 items: the first refusal came at 0.39 to 0.60 with one slot, 0.883 to
/// 0.890 with two, 0.950 with three, 0.973 to 0.984 with four, and 0.996 to 0.999 with eight.
pub(super) fn first_refusal(bucket_size: u8) -> f64 {
    match bucket_size {
        0 | 1 => 0.39,
        2 => 0.88,
        3 => 0.945,
        _ => 0.97,
    }
}

/// Advice about a cuckoo filter.
pub(super) fn on_cuckoo(key: &[u8], summary: &Summary, spec: &CuckooSpec) -> Vec<String> {
    let full = spec.expansion == 0 && summary.fill >= first_refusal(spec.bucket_size);
    Vec::from_iter(full.then(|| {
        format!(
            "full: {} of {} slots are taken, so adds begin to be refused, and EXPANSION is 0; delete what is no longer needed, or \
             make a larger filter with CF.RESERVE, add the items to it, and RENAME it to {}",
            summary.items,
            summary.capacity,
            word(key)
        )
    }))
}

/// Advice about a Bloom filter, native or another system's.
pub(super) fn on(key: &[u8], summary: &Summary) -> Vec<String> {
    let room = room(key, summary);
    let full = fullness(key, summary, &room);
    let is_full = full.is_some();
    let mut advice = Vec::from_iter(full);
    let is_chain = summary.generations.is_none();
    if let (true, layers @ MANY_LAYERS..) = (is_chain, summary.filters) {
        advice.push(format!("many layers: a test of an absent item asks {layers} of them; {room}"));
    }
    if let (Some(every_ms), Some(next)) = (summary.rotates_every_ms, summary.next_rotation_ms)
        && next > every_ms.saturating_mul(2)
    {
        advice.push(format!(
            "clock behind: the next rotation is in {next} ms, and they are {every_ms} ms apart, so the clock was \
             ahead at the last one; the next add corrects that"
        ));
    }
    let (saturated, in_use) = (summary.saturated_counters.unwrap_or(0), summary.cells_set);
    if saturated as f64 > SATURATING * in_use as f64 {
        advice.push(format!(
            "saturating: {saturated} of {in_use} counters in use have stopped counting, and deletes do not reach them; \
             wider counters, or a larger capacity, keep them apart"
        ));
    }
    if let Some(promise) = summary.error_rate {
        // If the filter is full or over capacity, the first line says so already.
        if !is_full && summary.error_rate_now > TOLERANCE * promise {
            advice.push(format!(
                "fuller than promised: the error rate is {} now, and {} was promised; {room}",
                general(summary.error_rate_now),
                general(promise)
            ));
        }
        // Some of the answers in the last hour may have come from generations that have since left the window.
        let explained = if is_chain { summary.error_rate_now } else { summary.error_rate_now.max(promise) };
        advice
            .extend(summary.feedback.as_ref().and_then(|spans| on_observed(promise, explained, &spans.hour)));
    }
    advice
}

/// A command that makes room for twice this number of items.
fn rebuild(key: &[u8], items: u64) -> String {
    format!("BF.REBUILD {} BEGIN CAPACITY {} makes room", word(key), items.max(1).saturating_mul(2))
}

/// The number of items that there may be: another system's own number may only be an estimate.
fn most_items(summary: &Summary) -> u64 {
    summary.items.max(summary.approximate_items.unwrap_or(0))
}

/// A command that makes room for twice the items.
fn room(key: &[u8], summary: &Summary) -> String {
    rebuild(key, most_items(summary).div_ceil(summary.generations.unwrap_or(1)))
}

/// The advice for a filter that has as many items as it was made for, or more.
fn fullness(key: &[u8], summary: &Summary, room: &str) -> Option<String> {
    let (items, capacity, needed) = (summary.items, summary.capacity, most_items(summary));
    // In a window, it is the newest generation that gets full, unless all generations share a table.
    let is_table = summary.layout.as_deref() == Some(Layout::Quotient.as_str());
    let window = summary.generations.filter(|_| !is_table);
    match (window, summary.layers.first(), summary.on_full.as_deref()) {
        (Some(_), None, _) | (None, _, Some("FORGET")) => None,
        (Some(_), Some(newest), Some("ERROR")) => (newest.items >= newest.capacity).then(|| {
            format!("full: the current generation holds {} items and refuses new ones; rotate", newest.items)
        }),
        (Some(_), Some(newest), _) => (newest.items > newest.capacity).then(|| {
            format!(
                "over capacity: the current generation holds {} items of {}; rotate more often, or {}",
                newest.items,
                newest.capacity,
                rebuild(key, newest.items)
            )
        }),
        (None, _, Some("ERROR")) => (items >= capacity)
            .then(|| format!("full: it holds {items} items of {capacity} and refuses new ones; {room}")),
        (None, _, Some("SCALE")) => None,
        (None, _, Some(_)) => {
            (items > capacity).then(|| format!("over capacity: it holds {items} items of {capacity}; {room}"))
        }
        (None, _, None) => (needed > capacity)
            .then(|| format!("over capacity: it holds about {needed} items of {capacity}; {room}")),
    }
}

/// The advice that follows from the checked answers. `explained` is the error rate to be expected from the cells.
fn on_observed(promise: f64, explained: f64, observed: &Observed) -> Option<String> {
    let rate = observed.observed_error_rate.filter(|_| observed.r#false >= ENOUGH_FALSE)?;
    if rate > FAR_ABOVE * promise {
        return Some(format!(
            "observed error rate far above the promise: {} in the last hour, and {} was promised; if the fill \
             does not explain it, the same false answers are asked for again and again, or somebody picks items: \
             see HASH SIPHASH",
            general(rate),
            general(promise)
        ));
    }
    (rate > DRIFT * explained).then(|| {
        format!(
            "observed error rate above what the cells explain: {} in the last hour, and {} at this fill; items have \
             left the source and not the filter, the same false answers are asked for again and again, or somebody picks \
             items: see HASH SIPHASH",
            general(rate),
            general(explained)
        )
    })
}

/// A key as an argument of a command, quoted as in redis-cli.
fn word(key: &[u8]) -> String {
    let text = printable(key);
    if text.is_empty() || text.contains([' ', '\\']) { format!("\"{text}\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_words_of_a_command() {
        for (key, text) in
            [(&b"users:7"[..], "users:7"), (b"", "\"\""), (b"a b", "\"a b\""), (b"a\"\n", r#""a\"\n""#)]
        {
            assert_eq!(word(key), text);
        }
    }
}
