//! A frame as an SVG picture: what the terminal shows, cell by cell.

use super::frame::View;
use anyhow::anyhow;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};
use std::fmt::Write;

/// Width and height of a cell, in pixels.
const CELL: (f32, f32) = (8.4, 18.0);

const BACKGROUND: &str = "#1c1f26";
const FOREGROUND: &str = "#d8dee9";

/// Draws the view as SVG, as a terminal with this number of columns and lines would show it.
pub(super) fn svg(view: &mut View, (columns, lines): (u16, u16)) -> anyhow::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines))?;
    terminal.draw(|frame| view.draw(frame)).map_err(|error| anyhow!("cannot draw: {error}"))?;
    let buffer = terminal.backend().buffer();
    let (width, height) = (f32::from(columns) * CELL.0 + 16.0, f32::from(lines) * CELL.1 + 16.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"{BACKGROUND}\"/>\n"
    );
    for line in 0..lines {
        let mut column = 0;
        while column < columns {
            // Adjacent cells of the same style form one text.
            let style = look(&buffer[(column, line)]);
            let end = (column..columns).find(|at| look(&buffer[(*at, line)]) != style).unwrap_or(columns);
            let text: String = (column..end).map(|at| buffer[(at, line)].symbol()).collect();
            draw(&mut svg, &text, (column, line), style)?;
            column = end;
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The style of a cell: foreground, background, bold, underlined.
type Look = (&'static str, &'static str, bool, bool);

fn look(cell: &Cell) -> Look {
    let (foreground, background) = (colour(cell.fg, FOREGROUND), colour(cell.bg, BACKGROUND));
    let has = |modifier| cell.modifier.contains(modifier);
    let (foreground, background) =
        if has(Modifier::REVERSED) { (background, foreground) } else { (foreground, background) };
    (foreground, background, has(Modifier::BOLD), has(Modifier::UNDERLINED))
}

fn colour(colour: Color, otherwise: &'static str) -> &'static str {
    match colour {
        Color::Red => "#f0717a",
        Color::Green => "#8fbf6f",
        Color::Yellow => "#ebcb6b",
        Color::Cyan => "#7fc8d8",
        Color::DarkGray => "#6b7380",
        super::frame::SELECTED => "#3b4252",
        _ => otherwise,
    }
}

fn draw(svg: &mut String, text: &str, (column, line): (u16, u16), look: Look) -> std::fmt::Result {
    let (foreground, background, bold, underlined) = look;
    let (x, y) = (8.0 + f32::from(column) * CELL.0, 8.0 + f32::from(line) * CELL.1);
    let width = text.chars().count() as f32 * CELL.0;
    if background != BACKGROUND {
        writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{}\" fill=\"{background}\"/>",
            CELL.1
        )?;
    }
    if underlined {
        let below = y + CELL.1 - 2.0;
        writeln!(svg, "<path d=\"M{x} {below}h{width}\" stroke=\"#6b7380\"/>")?;
    }
    if text.trim().is_empty() {
        return Ok(());
    }
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let weight = if bold { " font-weight=\"bold\"" } else { "" };
    writeln!(
        svg,
        "<text x=\"{x}\" y=\"{}\" fill=\"{foreground}\"{weight} textLength=\"{width}\" xml:space=\"preserve\">{escaped}</text>",
        y + 13.5
    )
}
