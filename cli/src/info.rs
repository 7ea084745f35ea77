//! What a server says of one filter: `BF.INFO key FULL` and `CF.INFO key`, as one structure.
//!
//! A field that the server did not give is `None`, or 0, or empty: filters of other systems have fewer, and older
//! modules had fewer. Replies of RESP2, where maps are flat arrays and doubles are text, and of RESP3 read alike.

use crate::scan::{FilterKey, KeyType};
use redis::{Cmd, ConnectionLike, Pipeline, RedisResult, Value};
use serde::Serialize;

/// All that is known about a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct FilterInfo {
    /// `fixed`, `counting`, `scaling`, `window`, or `cuckoo`.
    pub(crate) kind: String,
    /// Whose filter it is: `bloomery`, `redisbloom`, ….
    pub(crate) origin: String,
    /// `AUTO`, `BLOCKED`, `CLASSIC`.
    pub(crate) layout: Option<String>,
    /// `XXH3`, `SIPHASH`.
    pub(crate) hash: Option<String>,
    /// Independent arrays per layer.
    pub(crate) shards: Option<u64>,
    /// 1, or the width of counters.
    pub(crate) bits_per_cell: Option<u64>,
    /// `ERROR`, `SATURATE`, `SCALE`.
    pub(crate) on_full: Option<String>,
    /// The promise. Of a cuckoo filter: what it has when it is full.
    pub(crate) error_rate: Option<f64>,
    /// What it is at the present fill.
    pub(crate) error_rate_now: Option<f64>,
    /// Items that it is sized for. Of a cuckoo filter: its slots.
    pub(crate) capacity: Option<u64>,
    /// Items added that were absent, less those deleted.
    pub(crate) items: u64,
    /// Distinct items, estimated from the fill.
    pub(crate) approximate_items: Option<u64>,
    /// Layers, generations, sub-filters.
    pub(crate) filters: u64,
    /// Cells.
    pub(crate) cells: Option<u64>,
    /// Those that are not 0.
    pub(crate) cells_set: Option<u64>,
    /// Their fraction. Of a cuckoo filter: items per slot.
    pub(crate) fill: Option<f64>,
    /// Bytes of memory, without the key.
    pub(crate) size: u64,
    /// Bytes, as MEMORY USAGE counts them.
    pub(crate) memory: Option<u64>,
    /// Growth per layer.
    pub(crate) expansion_rate: Option<u64>,
    /// Null for inverse-square shares.
    pub(crate) tightening_ratio: Option<f64>,
    /// Of a window: how many are alive at once.
    pub(crate) generations: Option<u64>,
    /// Number of the current one.
    pub(crate) generation: Option<u64>,
    /// Milliseconds; none without a schedule.
    pub(crate) rotates_every_ms: Option<u64>,
    /// Milliseconds; none without a schedule.
    pub(crate) next_rotation_ms: Option<u64>,
    /// Counters that stay at their largest value.
    pub(crate) saturated_counters: Option<u64>,
    /// Tests that this server answered with yes since it has the filter in memory.
    pub(crate) tests_yes: Option<u64>,
    /// And with no.
    pub(crate) tests_no: Option<u64>,
    /// Items added, of the same time.
    pub(crate) adds: Option<u64>,
    /// Items deleted.
    pub(crate) deletes: Option<u64>,
    /// What BF.FEEDBACK reported.
    pub(crate) feedback: Option<Feedback>,
    /// A rebuild that is under way.
    pub(crate) rebuild: Option<Rebuild>,
    /// What should be done about it, in words.
    pub(crate) advice: Vec<String>,
    /// Its layers.
    pub(crate) layers: Vec<LayerInfo>,
}

/// What BF.FEEDBACK reported over three spans of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Feedback {
    /// The last 60 seconds.
    pub(crate) minute: Observed,
    /// The last 60 minutes.
    pub(crate) hour: Observed,
    /// Since the server has the filter in memory.
    pub(crate) life: Observed,
}

/// Of the answers "yes" that were checked against the truth, those that were wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Observed {
    /// Answers that were checked.
    pub(crate) checked: u64,
    /// Those that were wrong.
    pub(crate) r#false: u64,
    /// Wrong ones among those checked.
    pub(crate) share_false: Option<f64>,
    /// Wrong ones among all tests of absent items: what the error rate promises.
    pub(crate) observed_error_rate: Option<f64>,
}

/// A rebuild that is under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rebuild {
    /// `running`.
    pub(crate) status: String,
    /// Of the new filter.
    pub(crate) kind: Option<String>,
    /// Items that the new filter is sized for.
    pub(crate) capacity: Option<u64>,
    /// Its promise.
    pub(crate) error_rate: Option<f64>,
    /// Items in it.
    pub(crate) items: Option<u64>,
    /// Fraction of its cells that are set.
    pub(crate) fill: Option<f64>,
    /// Bytes.
    pub(crate) size: Option<u64>,
    /// Its error rate at the present fill.
    pub(crate) error_rate_now: Option<f64>,
    /// Deletes that it could not follow.
    pub(crate) deletes_missed: Option<u64>,
}

/// A layer of a chain, a generation of a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LayerInfo {
    /// Of a window: 0 is the current generation.
    pub(crate) age: Option<u64>,
    /// `BLOCKED`, `CLASSIC`.
    pub(crate) layout: Option<String>,
    /// Items that it is sized for.
    pub(crate) capacity: Option<u64>,
    /// Items in it.
    pub(crate) items: u64,
    /// The error rate that it is sized for.
    pub(crate) error_rate: Option<f64>,
    /// What it is at the present fill.
    pub(crate) error_rate_now: Option<f64>,
    /// Cells.
    pub(crate) cells: Option<u64>,
    /// Probes of an item.
    pub(crate) probes: Option<u64>,
    /// Fraction of cells that are set.
    pub(crate) fill: Option<f64>,
}

/// Asks for each of the keys, in one round trip per [`BATCH`]. A key that is gone, or that the user may not read, has
/// its error.
pub(crate) fn fetch(
    server: &mut impl ConnectionLike,
    keys: &[FilterKey],
) -> RedisResult<Vec<RedisResult<FilterInfo>>> {
    let mut all = Vec::with_capacity(keys.len());
    for keys in keys.chunks(BATCH) {
        let mut replies = ask(server, keys.iter().map(|key| (key, command(key))))?;
        // A key of Bloomery's type may hold a cuckoo filter, which only CF.INFO describes.
        let is_other = |reply: &RedisResult<FilterInfo>| {
            reply.as_ref().is_err_and(|error| error.code() == Some("WRONGTYPE"))
        };
        let other: Vec<usize> = (0..keys.len()).filter(|&index| is_other(&replies[index])).collect();
        let cuckoo =
            ask(server, other.iter().map(|&index| (&keys[index], named("CF.INFO", &keys[index].name))))?;
        for (index, reply) in other.into_iter().zip(cuckoo) {
            replies[index] = reply;
        }
        all.extend(replies);
    }
    Ok(all)
}

/// Asks for one key, of whatever kind; `None` if there is no such key.
pub(crate) fn describe(server: &mut impl ConnectionLike, key: &[u8]) -> RedisResult<Option<FilterInfo>> {
    let mut bloom = named("BF.INFO", key);
    bloom.arg("FULL");
    let refused = match bloom.query::<Value>(server) {
        Ok(reply) => return Ok(Some(FilterInfo::from_reply(&reply))),
        Err(error) if error.is_io_error() => return Err(error),
        Err(error) => error,
    };
    match named("CF.INFO", key).query::<Value>(server) {
        Ok(reply) => Ok(Some(FilterInfo::from_reply(&reply))),
        Err(error) if error.is_io_error() => Err(error),
        Err(_) if refused.to_string().contains("not found") => Ok(None),
        Err(_) => Err(refused),
    }
}

/// Keys that are asked for in one round trip.
const BATCH: usize = 256;

fn ask<'k>(
    server: &mut impl ConnectionLike,
    commands: impl Iterator<Item = (&'k FilterKey, Cmd)>,
) -> RedisResult<Vec<RedisResult<FilterInfo>>> {
    let mut pipeline = Pipeline::new();
    for (_, command) in commands {
        pipeline.add_command(command);
    }
    if pipeline.is_empty() {
        return Ok(Vec::new());
    }
    let replies: Vec<RedisResult<Value>> = pipeline.ignore_errors().query(server)?;
    Ok(replies.into_iter().map(|reply| reply.map(|value| FilterInfo::from_reply(&value))).collect())
}

fn command(key: &FilterKey) -> Cmd {
    match key.key_type {
        KeyType::RedisBloomCuckoo => named("CF.INFO", &key.name),
        _ => {
            let mut command = named("BF.INFO", &key.name);
            command.arg("FULL");
            command
        }
    }
}

fn named(command: &str, key: &[u8]) -> Cmd {
    let mut command = redis::cmd(command);
    command.arg(key);
    command
}

impl FilterInfo {
    /// Reads the reply of either command.
    pub(crate) fn from_reply(reply: &Value) -> FilterInfo {
        let fields = Fields(reply);
        if fields.number("Number of buckets").is_some() { cuckoo(fields) } else { bloom(fields) }
    }

    /// Tests in all.
    pub(crate) fn tests(&self) -> Option<u64> {
        Some(self.tests_yes?.saturating_add(self.tests_no?))
    }

    /// Bytes as the server counts them, or without the key if it does not say.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.unwrap_or(self.size)
    }
}

fn bloom(fields: Fields<'_>) -> FilterInfo {
    FilterInfo {
        kind: fields.text("Kind").unwrap_or_default(),
        origin: fields.text("Origin").unwrap_or_default(),
        layout: fields.text("Layout"),
        hash: fields.text("Hash"),
        shards: fields.number("Shards"),
        bits_per_cell: fields.number("Bits per cell"),
        on_full: fields.text("On full"),
        error_rate: fields.double("Error rate"),
        error_rate_now: fields.double("Error rate now"),
        capacity: fields.number("Capacity"),
        items: fields.number("Number of items inserted").unwrap_or_default(),
        approximate_items: fields.number("Approximate number of items"),
        filters: fields.number("Number of filters").unwrap_or_default(),
        cells: fields.number("Cells"),
        cells_set: fields.number("Cells set"),
        fill: fields.double("Fill"),
        size: fields.number("Size").unwrap_or_default(),
        memory: fields.number("Memory"),
        expansion_rate: fields.number("Expansion rate"),
        tightening_ratio: fields.double("Tightening ratio"),
        generations: fields.number("Generations"),
        generation: fields.number("Generation"),
        rotates_every_ms: fields.number("Rotates every ms"),
        next_rotation_ms: fields.number("Next rotation in ms"),
        saturated_counters: fields.number("Saturated counters"),
        tests_yes: fields.number("Tests answered yes"),
        tests_no: fields.number("Tests answered no"),
        adds: fields.number("Adds"),
        deletes: fields.number("Deletes"),
        feedback: fields.map("Feedback").map(|spans| Feedback {
            minute: observed(spans, "Minute"),
            hour: observed(spans, "Hour"),
            life: observed(spans, "Life"),
        }),
        rebuild: fields.map("Rebuild").map(rebuild).filter(|rebuild| rebuild.status != "none"),
        advice: fields.list("Advice").iter().filter_map(text).collect(),
        layers: fields.list("Layers").iter().map(|layer| self::layer(Fields(layer))).collect(),
    }
}

fn observed(spans: Fields<'_>, name: &str) -> Observed {
    let Some(fields) = spans.map(name) else { return Observed::default() };
    Observed {
        checked: fields.number("Checked").unwrap_or_default(),
        r#false: fields.number("False").unwrap_or_default(),
        share_false: fields.double("Share false"),
        observed_error_rate: fields.double("Observed error rate"),
    }
}

/// Of `BF.REBUILD key STATUS`.
fn rebuild(fields: Fields<'_>) -> Rebuild {
    Rebuild {
        status: fields.text("Status").unwrap_or_default(),
        kind: fields.text("Kind"),
        capacity: fields.number("Capacity"),
        error_rate: fields.double("Error rate"),
        items: fields.number("Number of items inserted"),
        fill: fields.double("Fill"),
        size: fields.number("Size"),
        error_rate_now: fields.double("Error rate now"),
        deletes_missed: fields.number("Deletes missed"),
    }
}

fn layer(fields: Fields<'_>) -> LayerInfo {
    LayerInfo {
        age: fields.number("Age"),
        layout: fields.text("Layout"),
        capacity: fields.number("Capacity"),
        items: fields.number("Number of items inserted").unwrap_or_default(),
        error_rate: fields.double("Error rate"),
        error_rate_now: fields.double("Error rate now"),
        cells: fields.number("Cells"),
        probes: fields.number("Probes"),
        fill: fields.double("Fill"),
    }
}

/// Error rate of a cuckoo filter: an absent item matches each of the fingerprints in two buckets of every sub-filter
/// with a chance of 1/255.
pub(crate) fn cuckoo_rate(bucket_size: u64, sub_filters: u64, fill: f64) -> f64 {
    let seen = 2.0 * bucket_size as f64 * sub_filters as f64 * fill;
    1.0 - (1.0 - 1.0 / 255.0f64).powf(seen)
}

/// CF.INFO gives the number of buckets of the first sub-filter; sub-filter i has expansion^i times as many.
fn cuckoo(fields: Fields<'_>) -> FilterInfo {
    let filters = fields.number("Number of filters").unwrap_or(1);
    let buckets = fields.number("Number of buckets").unwrap_or_default();
    let bucket_size = fields.number("Bucket size").unwrap_or_default();
    let expansion = fields.number("Expansion rate").unwrap_or_default();
    let items = fields.number("Number of items inserted").unwrap_or_default();
    let mut slots = 0u64;
    let mut next = buckets.saturating_mul(bucket_size);
    for _ in 0..filters {
        slots = slots.saturating_add(next);
        next = next.saturating_mul(expansion.max(1));
    }
    let fill = items as f64 / (slots as f64).max(1.0);
    FilterInfo {
        kind: "cuckoo".into(),
        origin: fields.text("Origin").unwrap_or_default(),
        error_rate: Some(cuckoo_rate(bucket_size, filters, 1.0)),
        error_rate_now: Some(cuckoo_rate(bucket_size, filters, fill)),
        capacity: Some(slots),
        items,
        filters,
        cells: Some(slots),
        cells_set: Some(items),
        fill: Some(fill),
        size: fields.number("Size").unwrap_or_default(),
        memory: fields.number("Memory"),
        expansion_rate: Some(expansion),
        tests_yes: fields.number("Tests answered yes"),
        tests_no: fields.number("Tests answered no"),
        adds: fields.number("Adds"),
        deletes: fields.number("Deletes"),
        advice: fields.list("Advice").iter().filter_map(text).collect(),
        ..FilterInfo::default()
    }
}

/// A map of a reply, read by the names of its fields.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'r>(pub(crate) &'r Value);

impl<'r> Fields<'r> {
    fn get(self, name: &str) -> Option<&'r Value> {
        let is = |key: &Value| text(key).is_some_and(|key| key == name);
        match self.0 {
            Value::Map(pairs) => pairs.iter().find(|(key, _)| is(key)).map(|(_, value)| value),
            Value::Array(flat) => flat.chunks_exact(2).find_map(|pair| is(&pair[0]).then_some(&pair[1])),
            _ => None,
        }
    }

    /// A number of things.
    pub(crate) fn number(self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            other => text(other)?.parse().ok(),
        }
    }

    /// A figure.
    pub(crate) fn double(self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Double(number) => Some(*number),
            Value::Int(number) => Some(*number as f64),
            other => text(other)?.parse().ok(),
        }
    }

    /// A word.
    pub(crate) fn text(self, name: &str) -> Option<String> {
        text(self.get(name)?)
    }

    /// A map in the map.
    pub(crate) fn map(self, name: &str) -> Option<Fields<'r>> {
        self.get(name).filter(|value| matches!(value, Value::Map(_) | Value::Array(_))).map(Fields)
    }

    /// A list; empty if there is none.
    pub(crate) fn list(self, name: &str) -> &'r [Value] {
        self.get(name).and_then(Value::as_sequence).unwrap_or_default()
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    /// The same reply as RESP3 gives it and as RESP2 does.
    fn both(fields: &[(&str, Value)]) -> [Value; 2] {
        let flat = |value: &Value| match value {
            Value::Map(pairs) => {
                Value::Array(pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect())
            }
            Value::Double(number) => bulk(&number.to_string()),
            other => other.clone(),
        };
        let pairs: Vec<(Value, Value)> =
            fields.iter().map(|(name, value)| (bulk(name), value.clone())).collect();
        let flattened = pairs.iter().flat_map(|(key, value)| [key.clone(), flat(value)]).collect();
        [Value::Map(pairs), Value::Array(flattened)]
    }

    #[test]
    fn both_protocols_read_alike() {
        let minute = Value::Map(vec![
            (bulk("Checked"), Value::Int(200)),
            (bulk("False"), Value::Int(3)),
            (bulk("Share false"), bulk("0.015")),
            (bulk("Observed error rate"), Value::Nil),
        ]);
        for reply in both(&[
            ("Kind", bulk("window")),
            ("Error rate", Value::Double(0.01)),
            ("Capacity", Value::Int(1000)),
            ("Number of items inserted", Value::Int(7)),
            ("Fill", Value::Double(0.25)),
            ("Generation", Value::Int(4)),
            ("Rotates every ms", Value::Nil),
            ("Tests answered yes", Value::Int(2)),
            ("Tests answered no", Value::Int(3)),
            ("Feedback", Value::Map(vec![(bulk("Minute"), minute)])),
            ("Rebuild", Value::Nil),
            ("Advice", Value::Array(vec![bulk("over capacity")])),
        ]) {
            let info = FilterInfo::from_reply(&reply);
            assert_eq!(info.kind, "window");
            assert_eq!(info.error_rate, Some(0.01));
            assert_eq!((info.capacity, info.items, info.fill), (Some(1000), 7, Some(0.25)));
            assert_eq!((info.generation, info.rotates_every_ms), (Some(4), None));
            assert_eq!(info.tests(), Some(5));
            let minute = info.feedback.unwrap().minute;
            assert_eq!((minute.checked, minute.r#false, minute.share_false), (200, 3, Some(0.015)));
            assert_eq!((minute.observed_error_rate, info.rebuild), (None, None));
            assert_eq!(info.advice, ["over capacity"]);
        }
    }

    #[test]
    fn what_is_missing_is_none() {
        let info = FilterInfo::from_reply(&Value::Array(vec![bulk("Kind"), bulk("fixed"), bulk("stray")]));
        assert_eq!(FilterInfo { kind: "fixed".into(), ..FilterInfo::default() }, info);
        assert_eq!(FilterInfo::from_reply(&Value::Nil), FilterInfo::default());
    }

    #[test]
    fn the_slots_of_a_cuckoo_filter_grow_with_its_sub_filters() {
        let [map, _] = both(&[
            ("Number of buckets", Value::Int(512)),
            ("Number of filters", Value::Int(3)),
            ("Number of items inserted", Value::Int(3584)),
            ("Bucket size", Value::Int(2)),
            ("Expansion rate", Value::Int(2)),
        ]);
        let info = FilterInfo::from_reply(&map);
        assert_eq!((info.kind.as_str(), info.capacity, info.fill), ("cuckoo", Some(1024 * 7), Some(0.5)));
        // Two buckets of two slots in three sub-filters, half full: six fingerprints.
        assert!((info.error_rate_now.unwrap() - 6.0 / 255.0).abs() < 0.001);
    }
}
