//! Plots as SVG files: lines over a logarithmic or linear axis, and groups of bars.

use crate::measure::Spread;
use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use std::path::Path;

const SIZE: (u32, u32) = (900, 560);
const FONT: &str = "sans-serif";

/// Colours that colour-blind readers can tell apart (Okabe, Ito, 2008), and that print well.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
];

/// Width of a line. The first line, with which the others are compared, is wide and lies below them.
fn width(index: usize) -> u32 {
    if index == 0 { 6 } else { 2 }
}

/// A line: a name, and points with a spread.
pub struct Line {
    /// For the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, Spread)>,
}

/// The texts of a plot, and the position of its legend.
pub struct Labels<'a> {
    /// Text above the plot.
    pub title: &'a str,
    /// Text below the horizontal axis, with the unit.
    pub x: &'a str,
    /// Text beside the vertical axis, with the unit.
    pub y: &'a str,
    /// The corner where the lines leave room for the legend.
    pub legend: Corner,
}

/// An upper corner of a plot.
#[derive(Clone, Copy)]
pub enum Corner {
    /// For lines that rise.
    Left,
    /// For lines that fall.
    Right,
}

/// The scale of the horizontal axis, and how its values are written.
pub enum Axis {
    /// Values are evenly spaced.
    Linear,
    /// Logarithmic to this base, with a mark at each power of the base. The function formats the marks.
    Log(f64, fn(f64) -> String),
}

fn canvas(path: &Path) -> Result<DrawingArea<SVGBackend<'_>, Shift>> {
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    Ok(area)
}

/// Draws lines, with a bar from the smallest to the largest value at each point. The vertical axis begins at 0 or, with
/// `log_y`, is logarithmic.
pub fn lines(path: &Path, labels: &Labels<'_>, axis: &Axis, log_y: bool, lines: &[Line]) -> Result<()> {
    // A logarithmic axis is drawn as a linear axis of exponents, so that the marks are at powers of the base.
    let place = |x: f64| match axis {
        Axis::Linear => x,
        Axis::Log(base, _) => x.log(*base),
    };
    let height = |y: f64| if log_y { y.max(1e-9).log10() } else { y };
    let points = || lines.iter().flat_map(|line| &line.points);
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::NEG_INFINITY, f64::max);
    let (left, right) = (least(&mut points().map(|p| place(p.0))), most(&mut points().map(|p| place(p.0))));
    let margin = (right - left) * 0.03;
    let bottom = if log_y { least(&mut points().map(|p| height(p.1.min))) - 0.1 } else { 0.0 };
    let top = most(&mut points().map(|p| height(p.1.max)));
    let top = top + (top - bottom) * 0.08;

    let area = canvas(path)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(labels.title, (FONT, 20))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(left - margin..right + margin, bottom..top)?;
    let write_x = |x: &f64| match axis {
        Axis::Linear => plain(*x),
        Axis::Log(base, write) if (x - x.round()).abs() < 1e-9 => write(base.powf(*x)),
        Axis::Log(..) => String::new(),
    };
    let write_y = |y: &f64| match log_y {
        true if (y - y.round()).abs() < 1e-9 => plain(10f64.powf(*y)),
        true => String::new(),
        false => plain(*y),
    };
    let marks = match axis {
        Axis::Linear => 12,
        Axis::Log(..) => (right - left) as usize + 2,
    };
    chart
        .configure_mesh()
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_labels(marks)
        .x_label_formatter(&write_x)
        .y_label_formatter(&write_y)
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (index, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let at = |(x, y): &(f64, Spread)| (place(*x), height(y.median));
        chart
            .draw_series(LineSeries::new(line.points.iter().map(at), colour.stroke_width(width(index))))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(width(index))));
        chart.draw_series(line.points.iter().filter(|(_, y)| y.max > y.min).map(|(x, y)| {
            ErrorBar::new_vertical(
                place(*x),
                height(y.min),
                height(y.median),
                height(y.max),
                colour.filled(),
                6,
            )
        }))?;
    }
    legend(&mut chart, labels.legend)?;
    Ok(area.present()?)
}

/// A group of bars: its name, and a bar for each series.
pub struct Group {
    /// Text below the bars.
    pub name: String,
    /// One bar for each series.
    pub bars: Vec<Spread>,
}

/// Draws groups of bars. Each group has one bar for each name in `series`.
pub fn bars(path: &Path, labels: &Labels<'_>, series: &[&str], groups: &[Group]) -> Result<()> {
    let top = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.max).fold(0.0, f64::max) * 1.25;
    let area = canvas(path)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(labels.title, (FONT, 20))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(-0.5..groups.len() as f64 - 0.5, 0.0..top)?;
    let name = |x: &f64| {
        let near = (x - x.round()).abs() < 1e-9 && *x >= 0.0;
        groups.get(x.round() as usize).filter(|_| near).map_or_else(String::new, |group| group.name.clone())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(labels.x)
        .y_desc(labels.y)
        .x_labels(groups.len() + 1)
        .x_label_formatter(&name)
        .y_label_formatter(&|y| plain(*y))
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let width = 0.8 / series.len() as f64;
    for (index, (name, colour)) in series.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let of = |group: usize, bar: &Spread| {
            let left = group as f64 - 0.4 + index as f64 * width;
            Rectangle::new([(left, 0.0), (left + width * 0.92, bar.median)], colour.filled())
        };
        let boxes: Vec<_> = groups.iter().enumerate().map(|(at, group)| of(at, &group.bars[index])).collect();
        chart
            .draw_series(boxes)?
            .label(*name)
            .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
    }
    legend(&mut chart, labels.legend)?;
    Ok(area.present()?)
}

fn legend<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    corner: Corner,
) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_series_labels()
        .position(match corner {
            Corner::Left => SeriesLabelPosition::UpperLeft,
            Corner::Right => SeriesLabelPosition::UpperRight,
        })
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

/// A number with up to three decimals, without trailing zeros.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
