//! Commands that describe a Bloom filter as a whole: BF.CARD, INFO, STATS, DEBUG.

use super::valkey_bloom;
use crate::advice;
use crate::call::{Access, BloomKey, Call, Key};
use crate::error::CommandError;
use crate::number::general;
use crate::reply::{Numbers, Reply, fields};
use crate::table::{Entry, Timing, bloom::INFO, command};
use bloomery::filter::foreign::Growth;
use bloomery::filter::foreign::redisbloom::FORCE_64;
use bloomery::filter::record::Replies;
use bloomery::filter::{Filter, LiveRef};
use std::ffi::CStr;
use std::fmt::{self, Write};

/// Maximum number of layers that BF.STATS describes individually. These are the newest layers, which contain most
/// items. A native filter has more layers only if it was loaded with them, was merged from many filters, or has grown
/// to millions of times its first capacity with expansion 1.
const MOST_LAYERS: usize = 128;

command!(
    Card,
    |call| card(call),
    Entry {
        name: "bf.card",
        categories: "fast",
        summary: "Returns the number of items added to a Bloom filter",
        since: "2.4.4",
        timing: Timing::Never,
        ..Entry::PLAIN
    }
);

/// `BF.CARD key`.
fn card<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open::<Filter>(1, Access::Read);
    Ok(key.bloom()?.map_or(Reply::Integer(0), |filter| filter.items().into()))
}

command!(
    Info,
    |call| info(call),
    Entry {
        name: "bf.info",
        arity: -2,
        summary: "Returns information about a Bloom filter",
        since: "1.0.0",
        arguments: INFO,
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
);

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

command!(
    Stats,
    |call| stats(call),
    Entry {
        name: "bf.stats",
        summary: "Returns all that is known about a Bloom filter, with advice",
        complexity: "O(l), where l is the number of layers",
        ..Entry::PLAIN
    }
);

/// `BF.STATS key`: replies with all fields. By default, BF.INFO replies with only RedisBloom's five, because clients'
/// parsers fail if there are more.
fn stats<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    // There may be many layers.
    call.may_be_long();
    let key = call.open::<Filter>(1, Access::Read);
    let live = key.bloom()?.ok_or(CommandError::NotFound)?;
    let filter = key.value()?.ok_or(CommandError::NotFound)?;
    let mut summary = filter.summary(call.now_ms());
    summary.memory = Some(filter.allocated() as u64);
    live.add_usage(&mut summary, call.now_ms());
    summary.advice = advice::on(call.arg(1), &summary).into_iter().map(|line| call.renamed(line)).collect();
    // A window's generations are listed from newest to oldest, other layers from oldest to newest.
    if summary.generations.is_none() {
        summary.layers.drain(..summary.layers.len().saturating_sub(MOST_LAYERS));
    }
    summary.layers.truncate(MOST_LAYERS);
    Ok(Reply::Map(fields(&summary, Replies::Bloom)))
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

command!(
    Debug,
    |call| debug(call),
    Entry {
        name: "bf.debug",
        summary: "Returns a line about each layer of a Bloom filter",
        complexity: "O(n), where n is the number of layers",
        since: "1.0.0",
        ..Entry::PLAIN
    }
);

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
