//! Commands that look at a Bloom filter as a whole.

use super::error::CommandError;
use super::options::bloom::layout_name;
use super::options::hash_name;
use super::reply::Reply;
use super::{Access, Call, Key, advice, current_generation, feedback, foreign, rebuild};
use crate::filter::{Bloom, Filter, Layer};
use crate::params::{Family, Overflow};
use crate::sizing::Layout;

/// `BF.CARD key`.
pub(super) fn card<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    if let Some(filter) = key.foreign() {
        return Ok(filter.items().into());
    }
    Ok(key.filter()?.map_or(Reply::Integer(0), |filter| filter.items().into()))
}

/// `BF.INFO key [CAPACITY | SIZE | FILTERS | ITEMS | EXPANSION | FULL]`.
pub(super) fn info<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    if call.argc() > 3 {
        return Err(CommandError::Arity);
    }
    let key = call.open(1, Access::Read);
    let foreign = key.foreign();
    let native = if foreign.is_some() { None } else { key.filter()? };
    let value = |(word, _, value): &Field| match (native, foreign) {
        (Some(filter), _) => Ok(value(filter)),
        (None, Some(filter)) => Ok(foreign::field(filter, word)),
        (None, None) => Err(CommandError::NotFound),
    };
    if call.argc() == 2 {
        let fields = FIELDS.iter().map(|field| Ok((field.1, value(field)?)));
        return Ok(Reply::Map(fields.collect::<Result<_, CommandError>>()?));
    }
    let word = call.arg(2);
    if word.eq_ignore_ascii_case(b"FULL") {
        let memory = key.value()?.map_or(0, Filter::allocated) as u64;
        let mut fields = match (native, foreign) {
            (Some(filter), _) => full(call, filter, memory),
            (None, Some(filter)) => foreign::full(call, filter, memory),
            (None, None) => return Err(CommandError::NotFound),
        };
        let rebuild = key.rebuild().map(|rebuild| Reply::Map(rebuild::figures(rebuild)));
        fields.push(("Rebuild", rebuild.unwrap_or(Reply::Null)));
        return Ok(Reply::Map(fields));
    }
    let field = FIELDS.iter().find(|(known, ..)| word.eq_ignore_ascii_case(known.as_bytes()));
    if native.is_none() && foreign.is_none() {
        return Err(CommandError::NotFound);
    }
    let field = field.ok_or(CommandError::BadInfoField)?;
    Ok(Reply::Entry(field.1, Box::new(value(field)?)))
}

type Field = (&'static str, &'static str, fn(&Bloom) -> Reply);

/// RedisBloom's five: the word that asks for it, its name, its value.
const FIELDS: [Field; 5] = [
    ("CAPACITY", "Capacity", |filter| filter.capacity().into()),
    ("SIZE", "Size", |filter| (filter.allocated() as u64).into()),
    ("FILTERS", "Number of filters", |filter| (filter.layers().len() as u64).into()),
    ("ITEMS", "Number of items inserted", |filter| filter.items().into()),
    ("EXPANSION", "Expansion rate", |filter| match filter.spec().family {
        Family::Scaling { expansion, .. } => u64::from(expansion).into(),
        _ => Reply::Null,
    }),
];

/// Everything known. Nothing here depends on the size of the filter: all counts are kept as the cells change.
fn full<'a, C: Call<'a>>(call: &C, filter: &Bloom, memory: u64) -> Vec<(&'static str, Reply)> {
    let spec = filter.spec();
    let on_full = match spec.family {
        Family::Fixed(overflow) | Family::Window { overflow, .. } => on_full(overflow),
        Family::Scaling { .. } => "SCALE",
    };
    let mut fields = vec![
        ("Kind", Reply::from(spec.kind())),
        ("Origin", Reply::from("bloomery")),
        ("Layout", Reply::from(layout_name(spec.layout))),
        ("Hash", Reply::from(hash_name(spec.hash))),
        ("Shards", u64::from(spec.shards).into()),
        ("Bits per cell", u64::from(spec.cell.bits()).into()),
        ("On full", Reply::from(on_full)),
        ("Error rate", Reply::Double(spec.error_rate)),
        ("Error rate now", estimate(filter.rate_now())),
        ("Capacity", filter.capacity().into()),
        ("Number of items inserted", filter.items().into()),
        ("Approximate number of items", filter.estimate().into()),
        ("Number of filters", (filter.layers().len() as u64).into()),
        ("Cells", filter.cells().into()),
        ("Cells set", filter.ones().into()),
        ("Fill", estimate(filter.fill())),
        ("Size", (filter.allocated() as u64).into()),
        ("Memory", memory.into()),
    ];
    match spec.family {
        Family::Fixed(_) => {}
        Family::Scaling { expansion, tightening } => {
            fields.push(("Expansion rate", u64::from(expansion).into()));
            fields.push(("Tightening ratio", tightening.ratio().map_or(Reply::Null, Reply::Double)));
        }
        Family::Window { generations, every_ms, .. } => {
            fields.push(("Generations", u64::from(generations).into()));
            fields.push(("Generation", current_generation(call, filter).into()));
            fields.push(("Rotates every ms", if every_ms == 0 { Reply::Null } else { every_ms.into() }));
            let next = filter.window().and_then(|window| window.schedule().next_in(call.now_ms()));
            fields.push(("Next rotation in ms", next.map_or(Reply::Null, Reply::from)));
        }
    }
    if spec.cell.counts() {
        fields.push((
            "Saturated counters",
            filter.layers().iter().map(|layer| layer.saturated()).sum::<u64>().into(),
        ));
    }
    fields.extend(feedback::fields(filter.usage_so_far(), call.now_ms()));
    fields.push(("Advice", lines(advice::on_filter(filter, call.now_ms()))));
    fields.push(("Layers", Reply::Array(layers(call, filter))));
    fields
}

/// Lines of advice as a reply.
pub(super) fn lines(lines: Vec<String>) -> Reply {
    Reply::Array(lines.into_iter().map(|line| Reply::Bulk(line.into_bytes())).collect())
}

/// A computed figure, to the six digits that mean something.
pub(super) fn estimate(value: f64) -> Reply {
    Reply::Double(format!("{value:.5e}").parse().unwrap_or(value))
}

fn on_full(overflow: Overflow) -> &'static str {
    match overflow {
        Overflow::Error => "ERROR",
        Overflow::Saturate => "SATURATE",
    }
}

/// A map per layer: a chain's from oldest to newest, a window's living generations from newest to oldest.
fn layers<'a, C: Call<'a>>(call: &C, filter: &Bloom) -> Vec<Reply> {
    match filter.window() {
        None => filter.layers().iter().map(|layer| Reply::Map(describe(layer))).collect(),
        Some(window) => window
            .alive(current_generation(call, filter))
            .map(|(age, layer)| {
                let mut fields = vec![("Age", age.into())];
                fields.extend(describe(layer));
                Reply::Map(fields)
            })
            .collect(),
    }
}

fn describe(layer: &Layer) -> Vec<(&'static str, Reply)> {
    let layout = match layer.shape().layout {
        Layout::Classic => "CLASSIC",
        Layout::Blocked => "BLOCKED",
    };
    vec![
        ("Layout", Reply::from(layout)),
        ("Capacity", layer.capacity().into()),
        ("Number of items inserted", layer.items().into()),
        ("Error rate", Reply::Double(layer.error_rate())),
        ("Error rate now", estimate(layer.rate_now())),
        ("Cells", layer.cells().into()),
        ("Probes", u64::from(layer.probes()).into()),
        ("Fill", estimate(layer.fill())),
    ]
}

/// `BF.DEBUG key`: RedisBloom's lines.
pub(super) fn debug<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    if let Some(filter) = key.foreign() {
        return Ok(foreign::debug(filter));
    }
    let filter = key.filter()?.ok_or(CommandError::NotFound)?;
    let mut lines = vec![Reply::Bulk(format!("size:{}", filter.items()).into_bytes())];
    for layer in filter.layers() {
        let line = format!(
            "bytes:{} bits:{} hashes:{} hashwidth:64 capacity:{} size:{} ratio:{}",
            layer.bytes(),
            layer.bytes().saturating_mul(8),
            layer.probes(),
            layer.capacity(),
            layer.items(),
            general(layer.error_rate()),
        );
        lines.push(Reply::Bulk(line.into_bytes()));
    }
    Ok(Reply::Array(lines))
}

/// A number as C's `%g` writes it: six digits that mean something, no zeros behind them, and an exponent where the
/// number is very small or large.
pub(super) fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    let scientific = format!("{value:.5e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        let behind = usize::try_from(DIGITS.saturating_sub(1).saturating_sub(exponent)).unwrap_or(0);
        return trimmed(&format!("{value:.behind$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (value, text) in [
            (0.01, "0.01"),
            (0.000625, "0.000625"),
            (0.00005, "5e-05"),
            (0.000_123_456_789, "0.000123457"),
            (1.25e-5, "1.25e-05"),
            (6.1035e-105, "6.1035e-105"),
            (0.5, "0.5"),
            (1.0, "1"),
            (1_234_567.0, "1.23457e+06"),
            (123_456.0, "123456"),
        ] {
            assert_eq!(general(value), text);
        }
    }
}
