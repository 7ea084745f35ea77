//! Commands that describe a Bloom filter as a whole: BF.CARD, INFO, STATS, DEBUG.

mod advice;
pub(super) mod cuckoo;
mod number;
mod usage;
mod valkey_bloom;

pub(super) use usage::Feedback;

use super::call::{Access, BloomKey, Call, Key};
use super::error::CommandError;
use super::reply::{Numbers, Reply};
use crate::command::table::{Command, Entry, KeyUse, Timing, bloom::INFO};
use crate::filter::foreign::Growth;
use crate::filter::foreign::redisbloom::FORCE_64;
use crate::filter::{Filter, LayerSummary, LiveRef, RebuildSummary, Summary};
use crate::params::Overflow;
use number::general;
use std::ffi::CStr;
use std::fmt::{self, Write};

/// Maximum number of layers that BF.STATS describes individually. These are the newest layers, which contain most
/// items. A native filter has more layers only if it was loaded with them, was merged from many filters, or has grown
/// to millions of times its first capacity with expansion 1.
const MOST_LAYERS: usize = 128;

/// Fields of a map, in order.
type Fields = Vec<(&'static str, Reply)>;

/// BF.CARD.
pub(super) struct Card;

impl Command for Card {
    const ENTRY: Entry = Entry {
        name: "bf.card",
        arity: 2,
        key: KeyUse::Read,
        categories: "fast",
        summary: "Returns the number of items added to a Bloom filter",
        complexity: "O(1)",
        since: "2.4.4",
        timing: Timing::Never,
        ..Entry::PLAIN
    };

    fn run<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
        card(call)
    }
}

/// `BF.CARD key`.
fn card<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Read);
    Ok(key.bloom()?.map_or(Reply::Integer(0), |filter| filter.items().into()))
}

/// BF.INFO.
pub(super) struct Info;

impl Command for Info {
    const ENTRY: Entry = Entry {
        name: "bf.info",
        arity: -2,
        key: KeyUse::Read,
        summary: "Returns information about a Bloom filter",
        complexity: "O(1)",
        since: "1.0.0",
        arguments: INFO,
        timing: Timing::IfLong,
        ..Entry::PLAIN
    };

    fn run<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
        info(call)
    }
}

/// `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | ERROR | TIGHTENING | MAXSCALEDCAPACITY]`.
fn info<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    if call.argc() > 3 {
        return Err(CommandError::Arity);
    }
    let word = (call.argc() == 3).then(|| call.arg(2));
    let key = call.open::<Filter>(1, Access::Read);
    let live = key.bloom()?.ok_or(CommandError::NotFound)?;
    let Some(word) = word else {
        return Ok(Reply::Numbers(Numbers::new(&NAMES, VALUES.map(|value| value(live)))));
    };
    let mut fields = WORDS.iter().zip(NAMES).zip(VALUES);
    match fields.find(|((known, _), _)| word.eq_ignore_ascii_case(known.as_bytes())) {
        Some(((_, name), value)) => Ok(Reply::Entry(name, value(live))),
        None => valkey_bloom::field(call, word, live),
    }
}

/// BF.STATS.
pub(super) struct Stats;

impl Command for Stats {
    const ENTRY: Entry = Entry {
        name: "bf.stats",
        arity: 2,
        key: KeyUse::Read,
        summary: "Returns all that is known about a Bloom filter, with advice",
        complexity: "O(l), where l is the number of layers",
        since: "0.1.0",
        ..Entry::PLAIN
    };

    fn run<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
        stats(call)
    }
}

/// `BF.STATS key`: replies with all fields. By default, BF.INFO replies with only RedisBloom's five, because clients'
/// parsers fail if there are more.
fn stats<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    // There may be many layers.
    call.may_be_long();
    let key = call.open::<Filter>(1, Access::Read);
    let live = key.bloom()?.ok_or(CommandError::NotFound)?;
    let filter = key.value()?.ok_or(CommandError::NotFound)?;
    let summary = filter.summary(call.now_ms());
    Ok(Reply::Map(full(call.arg(1), &summary, live, filter.allocated() as u64, call.now_ms())))
}

/// Names of the five fields that BF.INFO has in RedisBloom. [`WORDS`] are the arguments that select them, and
/// [`VALUES`] compute their values.
const NAMES: [&CStr; 5] =
    [c"Capacity", c"Size", c"Number of filters", c"Number of items inserted", c"Expansion rate"];
const WORDS: [&str; 5] = ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "EXPANSION"];
const VALUES: [fn(LiveRef<'_>) -> Option<u64>; 5] = [
    |filter| Some(filter.capacity()),
    |filter| Some(filter.allocated() as u64),
    |filter| Some(filter.arrays() as u64),
    |filter| Some(filter.items()),
    |filter| filter.expansion().map(u64::from),
];

fn or_null(number: Option<impl Into<u64>>) -> Reply {
    number.map_or(Reply::Null, |number| Reply::from(number.into()))
}

/// All fields of BF.STATS.
fn full(key: &[u8], summary: &Summary, live: LiveRef<'_>, memory: u64, now_ms: u64) -> Fields {
    let mut fields = vec![("Kind", summary.kind.into()), ("Origin", summary.origin.into())];
    let words = [
        ("Items are", summary.encoding.map(|encoding| encoding.as_str())),
        ("Layout", summary.layout),
        ("Hash", summary.hash.map(|hash| hash.as_str())),
    ];
    fields.extend(words.into_iter().filter_map(|(name, word)| Some((name, Reply::from(word?)))));
    let numbers = [("Shards", summary.shards), ("Bits per cell", summary.bits_per_cell)];
    fields.extend(numbers.into_iter().filter_map(|(name, number)| Some((name, u64::from(number?).into()))));
    fields.extend(summary.on_full.map(|on_full| ("On full", on_full.into())));
    fields.extend([
        ("Error rate", summary.error_rate.map_or(Reply::Null, Reply::Double)),
        ("Error rate now", Reply::Double(summary.error_rate_now)),
        ("Capacity", summary.capacity.into()),
        ("Number of items inserted", summary.items.into()),
        ("Approximate number of items", or_null(summary.estimate)),
        ("Number of filters", summary.arrays.into()),
        ("Cells", summary.cells.into()),
        ("Cells set", summary.cells_set.into()),
        ("Fill", Reply::Double(summary.fill)),
        ("Size", summary.allocated.into()),
        ("Memory", memory.into()),
    ]);
    match live {
        LiveRef::Foreign(_) => fields.push(("Expansion rate", or_null(summary.expansion))),
        LiveRef::Bloom(_) if summary.expansion.is_some() => fields.extend([
            ("Expansion rate", or_null(summary.expansion)),
            ("Tightening ratio", summary.tightening.map_or(Reply::Null, Reply::Double)),
        ]),
        LiveRef::Bloom(_) => {}
    }
    if let Some(window) = &summary.window {
        fields.extend([
            ("Generations", u64::from(window.generations).into()),
            ("Generation", window.current.into()),
            ("Rotates every ms", or_null((window.every_ms > 0).then_some(window.every_ms))),
            ("Next rotation in ms", or_null(window.next_rotation_ms)),
        ]);
        let rotates = summary.on_full == Some(Overflow::Rotate.as_str());
        fields.extend(rotates.then(|| ("Early rotations", live.usage_so_far().early_rotations().into())));
    }
    fields.extend(summary.saturated.map(|counters| ("Saturated counters", counters.into())));
    fields.extend(usage::fields(live, now_ms));
    let observed = live.usage_so_far().observed(now_ms, advice::SPAN);
    fields.push(("Advice", advice::lines(&advice::on(key, summary, observed))));
    let unlisted = summary.layers.len().saturating_sub(MOST_LAYERS);
    // A window's generations are listed from newest to oldest, other layers from oldest to newest.
    let (before, after) = if summary.window.is_some() { (0, unlisted) } else { (unlisted, 0) };
    let listed = summary.layers.get(before..summary.layers.len().saturating_sub(after)).unwrap_or_default();
    fields.push(("Layers", Reply::Array(listed.iter().map(layer).collect())));
    let rebuild = summary.rebuild.as_ref().map(|rebuild| Reply::Map(rebuild_fields(rebuild)));
    fields.push(("Rebuild", rebuild.unwrap_or(Reply::Null)));
    fields.push(("Identity", identity(summary.identity)));
    fields
}

fn layer(layer: &LayerSummary) -> Reply {
    let mut fields = Vec::new();
    fields.extend(layer.age.map(|age| ("Age", age.into())));
    fields.extend(layer.layout.map(|layout| ("Layout", layout.as_str().into())));
    fields.extend([
        ("Capacity", layer.capacity.into()),
        ("Number of items inserted", layer.items.into()),
        ("Error rate", Reply::Double(layer.error_rate)),
        ("Error rate now", Reply::Double(layer.error_rate_now)),
        ("Cells", layer.cells.into()),
        ("Probes", u64::from(layer.probes).into()),
        ("Fill", Reply::Double(layer.fill)),
    ]);
    Reply::Map(fields)
}

/// The fields about a running rebuild.
pub(super) fn rebuild_fields(rebuild: &RebuildSummary) -> Fields {
    vec![
        ("Status", "running".into()),
        ("Kind", rebuild.kind.into()),
        ("Capacity", rebuild.capacity.into()),
        ("Error rate", Reply::Double(rebuild.error_rate)),
        ("Error rate now", Reply::Double(rebuild.error_rate_now)),
        ("Number of items inserted", rebuild.items.into()),
        ("Approximate number of items", rebuild.estimate.into()),
        ("Number of filters", rebuild.layers.into()),
        ("Fill", Reply::Double(rebuild.fill)),
        ("Size", rebuild.allocated.into()),
        ("Deletes missed", rebuild.deletes_missed.into()),
        ("Identity", identity(Some(rebuild.identity))),
    ]
}

/// An identity that distinguishes a filter from others: 16 hexadecimal digits, or null.
pub(super) fn identity(identity: Option<u64>) -> Reply {
    identity.map_or(Reply::Null, |identity| Reply::from(format!("{identity:016x}").as_str()))
}

/// BF.DEBUG.
pub(super) struct Debug;

impl Command for Debug {
    const ENTRY: Entry = Entry {
        name: "bf.debug",
        arity: 2,
        key: KeyUse::Read,
        summary: "Returns a line about each layer of a Bloom filter",
        complexity: "O(n), where n is the number of layers",
        since: "1.0.0",
        ..Entry::PLAIN
    };

    fn run<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
        debug(call)
    }
}

/// `BF.DEBUG key`: lines in RedisBloom's format.
fn debug<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Read);
    let live = key.bloom()?.ok_or(CommandError::NotFound)?;
    let text = |parts: fmt::Arguments<'_>| {
        // Most lines fit into this capacity, so writing them needs no reallocation.
        let mut text = String::with_capacity(128);
        let _ = text.write_fmt(parts);
        Reply::Bulk(text.into_bytes())
    };
    let line = |bytes: u64, bits: u64, hashes: u32, width: u32, capacity: u64, size: u64, ratio: f64| {
        let ratio = general(ratio);
        text(format_args!(
            "bytes:{bytes} bits:{bits} hashes:{hashes} hashwidth:{width} capacity:{capacity} size:{size} ratio:{ratio}"
        ))
    };
    let mut lines = vec![text(format_args!("size:{}", live.items()))];
    match live {
        LiveRef::Bloom(filter) => lines.extend(filter.layers().iter().map(|one| {
            let bits = one.bytes().saturating_mul(8);
            line(one.bytes(), bits, one.probes(), 64, one.capacity(), one.items(), one.error_rate())
        })),
        LiveRef::Foreign(filter) => {
            let width = match filter.growth() {
                Growth::RedisBloom { options, .. } if options & FORCE_64 == 0 => 32,
                _ => 64,
            };
            lines.extend(filter.links().iter().map(|link| {
                let spec = link.spec();
                line(spec.bytes, spec.bits, spec.probes, width, spec.capacity, link.items(), spec.error_rate)
            }));
        }
    }
    Ok(Reply::Array(lines))
}
