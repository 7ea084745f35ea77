//! The charts of `bloomery plan`, as SVG.

use anyhow::anyhow;
use bloomery_plan::{Chart, Line};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Size of a chart in pixels.
const SIZE: (u32, u32) = (860, 500);

/// Colours that differ in hue and in lightness (Okabe and Ito).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(86, 86, 86),
    RGBColor(150, 110, 0),
    RGBColor(110, 64, 170),
];

const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// Draws a chart.
pub(super) fn draw(chart: &Chart) -> anyhow::Result<String> {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
    draw_on(&area, chart).map_err(|error| anyhow!("cannot draw: {error}"))?;
    drop(area);
    Ok(svg)
}

fn draw_on(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    chart: &Chart,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    area.draw_text(&chart.title, &text(20), (20, 16))?;
    let (left, right, above, below) = (90, 150, 56, 60);
    let (width, height) = (SIZE.0 as i32 - left - right, SIZE.1 as i32 - above - below);
    let at = |(x, y): (f64, f64)| {
        let across = (x - chart.x.0) / (chart.x.1 - chart.x.0) * f64::from(width);
        let up = y / chart.top * f64::from(height);
        (left + across.round() as i32, above + height - up.round() as i32)
    };
    let centred = |size, across, down| text(size).pos(Pos::new(across, down));
    for (y, label) in &chart.y_ticks {
        let (x0, y0) = at((chart.x.0, *y));
        area.draw(&PathElement::new([(x0, y0), (x0 + width, y0)], GRID))?;
        area.draw_text(label, &centred(13, HPos::Right, VPos::Center), (x0 - 8, y0))?;
    }
    for (x, label) in &chart.x_ticks {
        let (x0, y0) = at((*x, 0.0));
        area.draw(&PathElement::new([(x0, y0), (x0, y0 + 5)], INK))?;
        area.draw_text(label, &centred(13, HPos::Center, VPos::Top), (x0, y0 + 9))?;
    }
    let base = above + height;
    area.draw(&PathElement::new([(left, base), (left + width, base)], INK))?;
    area.draw_text(chart.x_name, &centred(14, HPos::Center, VPos::Top), (left + width / 2, base + 32))?;
    for (line, colour) in chart.lines.iter().zip(COLOURS) {
        let path: Vec<(i32, i32)> = line.points.iter().map(|&point| at(point)).collect();
        area.draw(&PathElement::new(path, colour.stroke_width(3)))?;
    }
    // Names next to the ends of lines, moved apart where they would overlap.
    let mut ends: Vec<(i32, &Line, RGBColor)> = chart
        .lines
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
    for ((line, colour), side) in chart.points.iter().zip(COLOURS.iter().skip(chart.lines.len())).zip(sides) {
        for &point in &line.points {
            let (x, y) = at(point);
            area.draw(&Circle::new((x, y), 5, colour.filled()))?;
            let style = ("sans-serif", 14).into_font().color(colour).pos(Pos::new(side, VPos::Bottom));
            // The lines rise to the right, so a name to the right of its point is drawn higher, clear of the line.
            let (across, up) = if matches!(side, HPos::Left) { (2, 20) } else { (-6, 6) };
            area.draw_text(&line.name, &style, (x + across, y - up))?;
        }
    }
    area.present()?;
    Ok(())
}
