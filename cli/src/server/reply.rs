//! Parses the replies of `BF.STATS key` and `CF.STATS key` into a [`FilterInfo`].
//!
//! Filters of other systems have fewer fields. A field that is missing becomes `None`, 0 or empty. RESP2 (where maps
//! are flat arrays and doubles are text) and RESP3 give the same result.

use crate::filter::info::{Feedback, FilterInfo, LayerInfo, Observed, Rebuild};
use crate::printable::printable;
use bloomery_plan::cuckoo_rate;
use redis::{RedisError, RedisResult, Value};
use std::io;

/// Parses the reply of BF.STATS or CF.STATS.
pub(super) fn filter_info(reply: &Value) -> RedisResult<FilterInfo> {
    if !matches!(reply, Value::Map(_) | Value::Array(_)) {
        return Err(unexpected("BF.STATS or CF.STATS", reply));
    }
    let fields = Fields(reply);
    Ok(if fields.number("Number of buckets").is_some() { cuckoo(fields) } else { bloom(fields) })
}

/// The error for a reply of an unexpected type.
pub(crate) fn unexpected(command: &str, reply: &Value) -> RedisError {
    let kind = match reply {
        Value::Nil => "nil",
        Value::Int(_) => "a number",
        Value::BulkString(_) => "a string",
        Value::Array(_) => "an array",
        Value::SimpleString(_) | Value::Okay => "a status",
        Value::ServerError(_) => "an error",
        _ => "a value of another type",
    };
    let text = format!("unexpected reply to {command}: {kind}");
    io::Error::new(io::ErrorKind::InvalidData, text).into()
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
        fill_when_full: None,
        size: fields.number("Size").unwrap_or_default(),
        memory: fields.number("Memory"),
        expansion_rate: fields.number("Expansion rate"),
        tightening_ratio: fields.double("Tightening ratio"),
        generations: fields.number("Generations"),
        generation: fields.number("Generation"),
        rotates_every_ms: fields.number("Rotates every ms"),
        next_rotation_ms: fields.number("Next rotation in ms"),
        early_rotations: fields.number("Early rotations"),
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
        identity: fields.text("Identity"),
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

/// Parses the field `Rebuild`, which has the fields of `BF.REBUILD key STATUS`.
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
        identity: fields.text("Identity"),
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

/// Parses the reply of CF.STATS. The field `Number of buckets` describes sub-filter 0. Sub-filter i has expansion^i
/// times as many buckets.
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
        fill_when_full: fields.double("Fill when full"),
        size: fields.number("Size").unwrap_or_default(),
        memory: fields.number("Memory"),
        expansion_rate: Some(expansion),
        identity: fields.text("Identity"),
        tests_yes: fields.number("Tests answered yes"),
        tests_no: fields.number("Tests answered no"),
        adds: fields.number("Adds"),
        deletes: fields.number("Deletes"),
        advice: fields.list("Advice").iter().filter_map(text).collect(),
        ..FilterInfo::default()
    }
}

/// A map in a reply, read by field name.
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

    /// The value of a field, as a whole number.
    pub(crate) fn number(self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Value::Int(number) => u64::try_from(*number).ok(),
            other => text(other)?.parse().ok(),
        }
    }

    /// The value of a field, as a real number.
    pub(crate) fn double(self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Value::Double(number) => Some(*number),
            Value::Int(number) => Some(*number as f64),
            other => text(other)?.parse().ok(),
        }
    }

    /// The value of a field, as text.
    pub(crate) fn text(self, name: &str) -> Option<String> {
        text(self.get(name)?)
    }

    /// The value of a field, as a nested map.
    pub(crate) fn map(self, name: &str) -> Option<Fields<'r>> {
        self.get(name).filter(|value| matches!(value, Value::Map(_) | Value::Array(_))).map(Fields)
    }

    /// The value of a field, as a list; empty if there is none.
    pub(crate) fn list(self, name: &str) -> &'r [Value] {
        self.get(name).and_then(Value::as_sequence).unwrap_or_default()
    }
}

/// The text in a value, made safe to print; `None` if the value isn't text.
fn text(value: &Value) -> Option<String> {
    let text = match value {
        Value::BulkString(bytes) => &String::from_utf8_lossy(bytes),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.as_str(),
        _ => return None,
    };
    Some(printable(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    /// The same reply in RESP3 and in RESP2.
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
            let info = filter_info(&reply).unwrap();
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
        let info = filter_info(&Value::Array(vec![bulk("Kind"), bulk("fixed"), bulk("stray")])).unwrap();
        assert_eq!(FilterInfo { kind: "fixed".into(), ..FilterInfo::default() }, info);
        assert_eq!(filter_info(&Value::Array(vec![])).unwrap(), FilterInfo::default());
        for reply in [Value::Nil, Value::Okay, Value::Int(1), bulk("x")] {
            assert!(filter_info(&reply).is_err(), "{reply:?}");
        }
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
        let info = filter_info(&map).unwrap();
        assert_eq!((info.kind.as_str(), info.capacity, info.fill), ("cuckoo", Some(1024 * 7), Some(0.5)));
        // A test compares six fingerprints: those in two buckets of two slots in three sub-filters, half full.
        assert!((info.error_rate_now.unwrap() - 6.0 / 255.0).abs() < 0.001);
    }
}
