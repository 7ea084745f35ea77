//! The charts of the calculator: what is drawn, and where. The page draws them.

use crate::cost::{Cost, bloom, like};
use crate::growth::Growth;
use crate::numbers::{bytes, count, percent};
use crate::redisbloom;
use crate::wanted::Wanted;
use bloomery::{Layout, Spec};
use serde::Serialize;

/// A line or a few individual points, with a name.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    /// What the line or the points show.
    pub(crate) name: String,
    /// The points from left to right: x, and bytes.
    pub(crate) points: Vec<(f64, f64)>,
}

/// A chart of bytes by some other quantity, x.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    /// What the chart shows.
    pub(crate) title: String,
    /// Name of the quantity on the x axis.
    pub(crate) x_name: &'static str,
    /// The first and the last x.
    pub(crate) x: (f64, f64),
    /// The highest y.
    pub(crate) top: f64,
    /// Positions and labels of the ticks on the x axis.
    pub(crate) x_ticks: Vec<(f64, String)>,
    /// Positions and labels of the ticks on the y axis.
    pub(crate) y_ticks: Vec<(f64, String)>,
    /// Lines.
    pub(crate) lines: Vec<Line>,
    /// Individual points.
    pub(crate) points: Vec<Line>,
}

impl Chart {
    fn new(
        title: String,
        x_name: &'static str,
        x: (f64, f64),
        label: impl Fn(f64) -> String,
        (lines, points): (Vec<Line>, Vec<Line>),
    ) -> Chart {
        let all = lines.iter().chain(&points).flat_map(|line| &line.points);
        let tallest = all.map(|point| point.1).fold(0.0, f64::max) * 1.02;
        let step = ticks(tallest);
        let steps = (tallest / step).ceil();
        let x_at = |part: u32| x.0 + (x.1 - x.0) * f64::from(part) / 5.0;
        Chart {
            title,
            x_name,
            x,
            top: steps * step,
            x_ticks: (0..=5).map(|part| (x_at(part), label(x_at(part)))).collect(),
            y_ticks: (0..=steps as u32)
                .map(f64::from)
                .map(|y| (y * step, bytes((y * step) as u64)))
                .collect(),
            lines,
            points,
        }
    }
}

/// A chart of memory by error rate: lines for filters of this filter's kind and for RedisBloom's fixed filters, and a
/// point for this filter.
pub(crate) fn rival_chart(wanted: &Wanted, filter: &Cost) -> Chart {
    let (items, _) = like(wanted);
    let mut lines = vec![by_rate("RedisBloom, fixed", |rate| redisbloom::fixed_bytes(items, rate))];
    match wanted {
        Wanted::Bloom(spec) if spec.is_static() => lines.extend(static_lines(items)),
        Wanted::Bloom(spec) => {
            lines.push(by_rate(&filter.kind, |rate| memory(&Spec { error_rate: rate, ..*spec })));
        }
        Wanted::Cuckoo(_) => {}
    }
    rates_chart(items, lines, vec![point("this filter".into(), filter)])
}

/// A line for each layout of static filters.
fn static_lines(items: u64) -> impl Iterator<Item = Line> {
    [Layout::Fuse, Layout::Ribbon].into_iter().map(move |layout| {
        let name = format!("static, {}", layout.as_str());
        by_rate(&name, |rate| memory(&Spec { layout: Some(layout), ..Spec::fixed(items, rate) }))
    })
}

fn memory(spec: &Spec) -> Option<u64> {
    bloom(spec).ok().map(|cost| cost.memory_bytes)
}

/// The x of an error rate: 1 for 10%, 2 for 1%, and so on.
fn zeros(rate: f64) -> f64 {
    -rate.log10()
}

/// The first and the last x of a chart by error rate: from 10% to 0.0001%.
const ZEROS: (f64, f64) = (1.0, 6.0);

/// A line with eight points per power of ten.
fn by_rate(name: &str, memory: impl Fn(f64) -> Option<u64>) -> Line {
    let rates = (8..=48).map(|step| 10f64.powf(-f64::from(step) / 8.0));
    let points = rates.filter_map(|rate| Some((zeros(rate), memory(rate)? as f64)));
    Line { name: name.into(), points: points.collect() }
}

/// A filter as a point in a chart by error rate. A point outside the chart is left out.
fn point(name: String, cost: &Cost) -> Line {
    let place = (zeros(cost.error_rate), cost.memory_bytes as f64);
    let is_inside = (ZEROS.0..=ZEROS.1).contains(&place.0);
    Line { name, points: is_inside.then_some(place).into_iter().collect() }
}

fn rates_chart(items: u64, lines: Vec<Line>, points: Vec<Line>) -> Chart {
    let title = format!("Memory of a filter for {} items", count(items));
    Chart::new(title, "error rate", ZEROS, |x| percent(10f64.powf(-x)), (lines, points))
}

/// A chart of the memory of a scaling filter as it grows, of RedisBloom's filter as it grows, and of fixed filters.
/// `None` if the filter doesn't grow.
pub(crate) fn growth_chart(wanted: &Wanted, steps: &[Growth]) -> Option<Chart> {
    let Wanted::Bloom(spec) = wanted else { return None };
    let last = steps.last()?.capacity;
    let fixed = (1..=40u32).filter_map(|part| {
        let items = (last as f64 * f64::from(part) / 40.0).max(1.0);
        let cost = bloom(&Spec { layout: spec.layout, ..Spec::fixed(items as u64, spec.error_rate) }).ok()?;
        Some((items, cost.memory_bytes as f64))
    });
    let ours = steps.iter().map(|step| (step.capacity, step.memory_bytes));
    let lines = vec![
        Line { name: "fixed".into(), points: fixed.collect() },
        Line { name: "scaling".into(), points: staircase(ours, last) },
        Line { name: "RedisBloom".into(), points: staircase(redisbloom::growth(spec), last) },
    ];
    Some(Chart::new(
        format!(
            "Memory of a filter for {} items as it grows, at {}",
            count(spec.capacity),
            percent(spec.error_rate)
        ),
        "items",
        (0.0, last as f64),
        short,
        (lines, Vec::new()),
    ))
}

/// The points of a line in steps. A step `(items, bytes)` means that the filter occupies `bytes` bytes until it
/// contains `items` items. The line ends at `last` items.
fn staircase(steps: impl Iterator<Item = (u64, u64)>, last: u64) -> Vec<(f64, f64)> {
    let (mut points, mut from) = (Vec::new(), 0);
    for (items, bytes) in steps {
        points.extend([from, items.min(last)].map(|x| (x as f64, bytes as f64)));
        if items >= last {
            break;
        }
        from = items;
    }
    points
}

/// A number of items, abbreviated.
fn short(number: f64) -> String {
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if number >= unit {
            let text = format!("{:.1}", number / unit);
            return format!("{}{name}", text.trim_end_matches(".0"));
        }
    }
    format!("{number:.0}")
}

/// Distance between the ticks on an axis of bytes: a round multiple of a binary unit, such that at most seven intervals
/// cover the axis.
fn ticks(most: f64) -> f64 {
    let unit = 1024f64.powi((most.max(1.0).log2() / 10.0).floor() as i32);
    let parts = most / unit;
    let steps = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0, 200.0, 250.0];
    unit * steps.into_iter().find(|step| parts / step <= 7.0).unwrap_or(250.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for (most, step) in [(900.0, 200.0), (3.0 * 1024.0, 512.0), (60.0 * 1048576.0, 10.0 * 1048576.0)] {
            assert_eq!(ticks(most), step, "{most}");
        }
        for power in 0..50 {
            let most = 1.7 * 2f64.powi(power);
            assert!((1.0..=8.0).contains(&(most / ticks(most))), "{most} {}", ticks(most));
        }
    }

    #[test]
    fn numbers_of_items_are_short() {
        for (number, text) in [(0.0, "0"), (950.0, "950"), (1e4, "10k"), (2.5e6, "2.5M"), (1e9, "1G")] {
            assert_eq!(short(number), text);
        }
    }
}
