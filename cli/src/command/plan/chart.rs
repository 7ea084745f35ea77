//! The charts of `bloomery plan`, as SVG.

use super::cost::{CUCKOO_LOADS, GENERATIONS, Growth, bloom, cuckoo, roomy_cuckoo};
use crate::output::{bytes, count, percent};
use anyhow::anyhow;
use bloomery::{LayoutChoice, Spec};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size in pixels.
const SIZE: (u32, u32) = (860, 500);

/// Colours that differ in hue and in lightness (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(86, 86, 86),
    RGBColor(150, 110, 0),
];

const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// A line, and the name next to its end.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws the memory of each kind by error rate, for the items of this filter.
pub(super) fn memory(base: &Spec) -> anyhow::Result<String> {
    let items = base.capacity;
    // Error rates from 10% to 0.0001%, eight per power of ten.
    let rates: Vec<f64> = (8..=48).map(|step| 10f64.powf(-f64::from(step) / 8.0)).collect();
    let like = |spec: Spec| Spec { layout: base.layout, shards: base.shards, ..spec };
    let line = |name: &str, spec: &dyn Fn(f64) -> Spec| Line {
        name: name.into(),
        points: rates
            .iter()
            .filter_map(|&rate| {
                let cost = bloom(&spec(rate)).ok()?;
                Some((-rate.log10(), cost.memory_bytes as f64))
            })
            .collect(),
    };
    let window = format!("window of {GENERATIONS}");
    let lines = [
        line("fixed", &|rate| like(Spec::fixed(items, rate))),
        line("scaling", &|rate| like(Spec::scaling(items, rate))),
        line(&window, &|rate| like(Spec::window(items.div_ceil(GENERATIONS.into()), rate, GENERATIONS))),
        line("counting, 4 bits", &|rate| like(Spec::counting(items, rate))),
        line("static", &|rate| Spec { layout: LayoutChoice::Fuse, ..Spec::fixed(items, rate) }),
    ];
    let points: Vec<Line> = CUCKOO_LOADS
        .iter()
        .map(|&(slots, load)| {
            let cost = cuckoo(&roomy_cuckoo(items, slots, load, base), items);
            let point = (-cost.error_rate.log10(), cost.memory_bytes as f64);
            Line { name: format!("cuckoo, {slots} slots"), points: vec![point] }
        })
        .collect();
    draw(
        &format!("Memory of a filter for {} items", count(items)),
        "error rate",
        (1.0, 6.0),
        &|x| percent(10f64.powf(-x)),
        &lines,
        &points,
    )
}

/// Draws the memory of a scaling filter as it grows, and of fixed filters of the same capacity.
pub(super) fn growth(spec: &Spec, steps: &[Growth]) -> anyhow::Result<String> {
    let last = steps.last().ok_or_else(|| anyhow!("the filter does not grow"))?.capacity as f64;
    let mut grown = Vec::new();
    let mut from = 0.0;
    for step in steps {
        grown.extend([(from, step.memory_bytes as f64), (step.capacity as f64, step.memory_bytes as f64)]);
        from = step.capacity as f64;
    }
    let fixed = (1..=40u32).filter_map(|part| {
        let items = (last * f64::from(part) / 40.0).max(1.0);
        let cost = bloom(&Spec { layout: spec.layout, ..Spec::fixed(items as u64, spec.error_rate) }).ok()?;
        Some((items, cost.memory_bytes as f64))
    });
    let lines = [
        Line { name: "fixed".into(), points: fixed.collect() },
        Line { name: format!("from {}", count(spec.capacity)), points: grown },
    ];
    draw(
        &format!("Memory of a scaling filter at an error rate of {}", percent(spec.error_rate)),
        "items",
        (0.0, last),
        &|x| short(x),
        &lines,
        &[],
    )
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

/// Distance of the ticks on an axis of bytes: a round number of a binary unit, so that there are at most seven ticks.
fn ticks(most: f64) -> f64 {
    let unit = 1024f64.powi((most.max(1.0).log2() / 10.0).floor() as i32);
    let parts = most / unit;
    let steps = [0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 10.0, 20.0, 25.0, 50.0, 100.0, 200.0, 250.0];
    unit * steps.into_iter().find(|step| parts / step <= 7.0).unwrap_or(250.0)
}

fn draw(
    title: &str,
    x_name: &str,
    (low, high): (f64, f64),
    x_label: &dyn Fn(f64) -> String,
    lines: &[Line],
    points: &[Line],
) -> anyhow::Result<String> {
    let tallest =
        lines.iter().chain(points).flat_map(|line| &line.points).map(|point| point.1).fold(0.0, f64::max);
    let step = ticks(tallest * 1.02);
    let top = (tallest * 1.02 / step).ceil() * step;
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw_on(&area, title, x_name, (low, high), (step, top), x_label, lines, points)
            .map_err(|error| anyhow!("cannot draw: {error}"))?;
    }
    Ok(svg)
}

#[allow(clippy::too_many_arguments)]
fn draw_on(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    x_name: &str,
    (low, high): (f64, f64),
    (step, top): (f64, f64),
    x_label: &dyn Fn(f64) -> String,
    lines: &[Line],
    points: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    area.draw_text(title, &text(20), (20, 16))?;
    let (left, right, above, below) = (90, 150, 56, 60);
    let (width, height) = (SIZE.0 as i32 - left - right, SIZE.1 as i32 - above - below);
    let at = |(x, y): (f64, f64)| {
        let across = (x - low) / (high - low) * f64::from(width);
        let up = y / top * f64::from(height);
        (left + across.round() as i32, above + height - up.round() as i32)
    };
    let centred = |size, across, down| text(size).pos(Pos::new(across, down));
    let mut y = 0.0;
    while y <= top * 1.0001 {
        let (x0, y0) = at((low, y));
        area.draw(&PathElement::new([(x0, y0), (x0 + width, y0)], GRID))?;
        area.draw_text(&bytes(y as u64), &centred(13, HPos::Right, VPos::Center), (x0 - 8, y0))?;
        y += step;
    }
    for part in 0..=5 {
        let x = low + (high - low) * f64::from(part) / 5.0;
        let (x0, y0) = at((x, 0.0));
        area.draw(&PathElement::new([(x0, y0), (x0, y0 + 5)], INK))?;
        area.draw_text(&x_label(x), &centred(13, HPos::Center, VPos::Top), (x0, y0 + 9))?;
    }
    let base = above + height;
    area.draw(&PathElement::new([(left, base), (left + width, base)], INK))?;
    area.draw_text(x_name, &centred(14, HPos::Center, VPos::Top), (left + width / 2, base + 32))?;
    for (line, colour) in lines.iter().zip(COLOURS) {
        let path: Vec<(i32, i32)> = line.points.iter().map(|&point| at(point)).collect();
        area.draw(&PathElement::new(path, colour.stroke_width(3)))?;
    }
    // Names next to the ends of lines, moved apart where they would overlap.
    let mut ends: Vec<(i32, &Line, RGBColor)> = lines
        .iter()
        .zip(COLOURS)
        .filter_map(|(line, colour)| Some((at(*line.points.last()?).1, line, colour)))
        .collect();
    ends.sort_by_key(|end| end.0);
    let mut lowest = i32::MIN;
    for (y, line, colour) in ends {
        let y = y.max(lowest.saturating_add(18));
        let style = ("sans-serif", 14).into_font().color(&colour).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(&line.name, &style, (left + width + 8, y))?;
        lowest = y;
    }
    // Names of points on alternate sides, because the points are close together.
    let sides = [HPos::Left, HPos::Right].into_iter().cycle();
    for ((line, colour), side) in points.iter().zip(COLOURS.iter().skip(lines.len())).zip(sides) {
        for &point in &line.points {
            let (x, y) = at(point);
            area.draw(&Circle::new((x, y), 5, colour.filled()))?;
            let style = ("sans-serif", 14).into_font().color(colour).pos(Pos::new(side, VPos::Bottom));
            // The lines rise to the right, so names there are higher.
            let (across, up) = if matches!(side, HPos::Left) { (2, 20) } else { (-6, 6) };
            area.draw_text(&line.name, &style, (x + across, y - up))?;
        }
    }
    area.present()?;
    Ok(())
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
