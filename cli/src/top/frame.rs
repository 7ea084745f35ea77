//! One frame: a table of filters, and what is to be said of the selected one.

use super::Sort;
use super::collect::{Row, Snapshot};
use crate::output::{self, bytes, count, percent};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};

/// Cells of the bar that shows how full a filter is.
const BAR: usize = 8;

/// Where the bar begins to warn: from here on a fixed filter is soon full, and another grows or errs.
const NEARLY_FULL: f64 = 0.9;

/// Behind the selected filter: a dark grey of the 256 colours, on which all others can be read.
pub(super) const SELECTED: Color = Color::Indexed(238);

/// What is shown, and how.
pub(super) struct View {
    snapshot: Snapshot,
    sort: Sort,
    table: TableState,
    /// All about the selected filter, in place of the table.
    detail: bool,
    scroll: u16,
    /// Why the last look failed.
    error: Option<String>,
}

impl View {
    pub(super) fn new(sort: Sort, mut snapshot: Snapshot) -> View {
        snapshot.sort(sort);
        let mut table = TableState::default();
        table.select((!snapshot.filters.is_empty()).then_some(0));
        View { snapshot, sort, table, detail: false, scroll: 0, error: None }
    }

    /// Shows a new look; the selection stays with its filter.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        self.error = None;
        let of = |row: &Row| (row.server.clone(), row.key.clone());
        let selected = self.selected().map(of);
        self.snapshot = snapshot;
        self.snapshot.sort(self.sort);
        let filters = &self.snapshot.filters;
        let index = selected.and_then(|selected| filters.iter().position(|row| of(row) == selected));
        let last = filters.len().checked_sub(1);
        let index = index.or(self.table.selected()).or(Some(0));
        self.table.select(index.and_then(|index| last.map(|last| index.min(last))));
    }

    /// Says that a look failed; the last one stays.
    pub(super) fn failed(&mut self, error: String) {
        self.error = Some(error);
    }

    /// Takes a key; false ends the program.
    pub(super) fn press(&mut self, key: KeyCode) -> bool {
        match key {
            KeyCode::Char('q') => return false,
            KeyCode::Esc if !self.detail => return false,
            KeyCode::Esc => self.detail = false,
            KeyCode::Enter => {
                self.detail = !self.detail && self.selected().is_some();
                self.scroll = 0;
            }
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.update(self.snapshot.clone());
            }
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-20),
            KeyCode::PageDown => self.go(20),
            KeyCode::Home => self.go(isize::MIN / 2),
            KeyCode::End => self.go(isize::MAX / 2),
            _ => {}
        }
        true
    }

    fn go(&mut self, by: isize) {
        if self.detail {
            self.scroll = self.scroll.saturating_add_signed(by.clamp(-1000, 1000) as i16);
            return;
        }
        let Some(last) = self.snapshot.filters.len().checked_sub(1) else { return };
        let index = self.table.selected().unwrap_or(0).saturating_add_signed(by).min(last);
        self.table.select(Some(index));
    }

    fn selected(&self) -> Option<&Row> {
        self.snapshot.filters.get(self.table.selected()?)
    }

    /// Draws it.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let advice = advice(self.selected());
        let below = if self.detail { 0 } else { (advice.len() as u16).clamp(1, 4) + 2 };
        let [head, middle, foot, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(below),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.head(), head);
        if self.detail {
            self.draw_detail(frame, middle);
        } else {
            self.draw_table(frame, middle);
            let title = self.selected().map_or(" no filter ".into(), |row| format!(" {} ", row.key));
            let block = Block::bordered().title(title.bold()).border_style(Style::new().dark_gray());
            let lines: Vec<Line<'_>> = advice.into_iter().map(Line::from).collect();
            frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: true }).block(block), foot);
        }
        let help = if self.detail {
            "Enter back   ↑↓ scroll   q quit"
        } else {
            "Enter details   ↑↓ move   s sort   q quit"
        };
        frame.render_widget(Line::from(help).dark_gray(), keys);
    }

    fn head(&self) -> Line<'_> {
        let Snapshot { servers, filters, hidden, hidden_by } = &self.snapshot;
        if let Some(error) = &self.error {
            return Line::from(format!("{error} (what you see is old; trying again)")).red().bold();
        }
        let memory = filters.iter().map(|row| row.info.bytes()).sum();
        let server = match servers.as_slice() {
            [one] => one.clone(),
            many => format!("{} nodes", many.len()),
        };
        let mut spans = vec![
            Span::from("bloomery ").bold(),
            Span::from(format!("{server}   {} filters   {}   ", count(filters.len() as u64), bytes(memory))),
            Span::from(format!("sorted by {}", self.sort.name())).cyan(),
        ];
        if *hidden > 0 {
            let why = hidden_by.as_deref().unwrap_or_default();
            spans.push(Span::from(format!("   {hidden} hidden: {why}")).yellow());
        }
        Line::from(spans)
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let right = |text: String| Cell::from(Line::from(text).alignment(Alignment::Right));
        let header = TableRow::new(COLUMNS.iter().map(|(name, _, is_right)| {
            let line = Line::from(*name).bold();
            Cell::from(if *is_right { line.alignment(Alignment::Right) } else { line })
        }))
        .style(Style::new().add_modifier(Modifier::UNDERLINED));
        let rows = self.snapshot.filters.iter().map(|row| {
            let [key, kind, items, capacity, full, promised, now, observed, tests, adds, memory] = cells(row);
            let over = row.error_ratio() > 1.0;
            let seen_over =
                row.observed().zip(row.info.error_rate).is_some_and(|(seen, promised)| seen > promised);
            let colour = |bad: bool| if bad { Style::new().fg(Color::Red).bold() } else { Style::new() };
            let mark =
                if row.info.advice.is_empty() { Span::from("  ") } else { Span::from("! ").yellow().bold() };
            TableRow::new([
                Cell::from(Line::from(vec![mark, Span::from(key)])),
                Cell::from(kind),
                right(items),
                right(capacity),
                Cell::from(bar(row.full(), &full)),
                right(promised),
                right(now).style(colour(over)),
                right(observed).style(colour(seen_over)),
                right(tests),
                right(adds),
                right(memory),
            ])
        });
        let widths = COLUMNS.iter().map(|(_, width, _)| *width);
        let table = Table::new(rows, widths)
            .header(header)
            .column_spacing(2)
            .row_highlight_style(Style::new().bg(SELECTED).add_modifier(Modifier::BOLD));
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn draw_detail(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let Some(row) = self.selected() else { return };
        let title = format!(" {} ", row.key);
        let lines = detail(row);
        let most = (lines.len() as u16).saturating_sub(area.height.saturating_sub(2));
        let scroll = self.scroll.min(most);
        let block = Block::bordered().title(title.bold()).border_style(Style::new().dark_gray());
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)).block(block), area);
        self.scroll = scroll;
    }
}

/// Name, width, and whether the cells stand to the right.
const COLUMNS: [(&str, Constraint, bool); 11] = [
    ("  KEY", Constraint::Min(16), false),
    ("KIND", Constraint::Length(8), false),
    ("ITEMS", Constraint::Length(11), true),
    ("CAPACITY", Constraint::Length(11), true),
    ("FULL", Constraint::Length(BAR as u16 + 6), false),
    ("PROMISED", Constraint::Length(9), true),
    ("NOW", Constraint::Length(9), true),
    ("OBSERVED", Constraint::Length(9), true),
    ("TESTS/S", Constraint::Length(9), true),
    ("ADDS/S", Constraint::Length(9), true),
    ("MEMORY", Constraint::Length(9), true),
];

/// What stands in the columns.
fn cells(row: &Row) -> [String; COLUMNS.len()] {
    let rate = |rate: Option<f64>| rate.map_or("-".into(), percent);
    let per_second = |rate: Option<f64>| rate.map_or("-".into(), |rate| count(rate.round() as u64));
    let info = &row.info;
    [
        row.key.clone(),
        info.kind.clone(),
        count(info.items),
        info.capacity.map_or("-".into(), count),
        if info.capacity.is_some() { format!("{:.0} %", row.full() * 100.0) } else { "-".into() },
        rate(info.error_rate),
        rate(info.error_rate_now),
        rate(row.observed()),
        per_second(row.tests_per_second),
        per_second(row.adds_per_second),
        bytes(info.bytes()),
    ]
}

fn bar(full: f64, text: &str) -> Line<'static> {
    let filled = ((full * BAR as f64).round() as usize).min(BAR);
    let colour = match full {
        _ if full > 1.0 => Color::Red,
        _ if full >= NEARLY_FULL => Color::Yellow,
        _ => Color::Green,
    };
    Line::from(vec![
        Span::from("█".repeat(filled)).fg(colour),
        Span::from("░".repeat(BAR - filled)).dark_gray(),
        Span::from(format!(" {text:>5}")),
    ])
}

fn advice(row: Option<&Row>) -> Vec<String> {
    match row {
        None => vec!["nothing that this user may see, or no filter matches the pattern".into()],
        Some(row) if row.info.advice.is_empty() => vec!["all is well".into()],
        Some(row) => row.info.advice.clone(),
    }
}

/// All that is known about a filter, a line for each.
fn detail(row: &Row) -> Vec<String> {
    let info = &row.info;
    let mut lines: Vec<String> = info.advice.iter().map(|advice| format!("! {advice}")).collect();
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            lines.push(format!("{name:<22}{value}"));
        }
    };
    let rate = |rate: Option<f64>| rate.map(percent);
    line("server", Some(row.server.clone()));
    line("kind", Some(format!("{} ({})", info.kind, info.origin).replace(" ()", "")));
    line("items", Some(count(info.items)));
    line("by the fill", info.approximate_items.map(count));
    line(
        "capacity",
        info.capacity.map(|capacity| format!("{} ({:.0} % full)", count(capacity), row.full() * 100.0)),
    );
    line("error rate, promised", rate(info.error_rate));
    line("error rate, now", rate(info.error_rate_now));
    if let Some(feedback) = &info.feedback {
        for (name, span) in [("minute", &feedback.minute), ("hour", &feedback.hour), ("life", &feedback.life)]
        {
            let observed = rate(span.observed_error_rate).unwrap_or("-".into());
            let text =
                format!("{observed} ({} of {} checked were false)", count(span.r#false), count(span.checked));
            line(&format!("error rate, {name}"), Some(text));
        }
    }
    line("fill", rate(info.fill));
    line("tests: yes", info.tests_yes.map(count));
    line("tests: no", info.tests_no.map(count));
    line("adds", info.adds.map(count));
    line("deletes", info.deletes.map(count));
    line("memory", Some(bytes(info.bytes())));
    line("layout", info.layout.clone());
    line("hash", info.hash.clone());
    line("shards", info.shards.map(count));
    line("bits per cell", info.bits_per_cell.map(count));
    line("when full", info.on_full.clone());
    line("generation", info.generation.map(count));
    line("next rotation", info.next_rotation_ms.map(|ms| format!("in {} s", count(ms / 1000))));
    line("saturated counters", info.saturated_counters.map(count));
    if let Some(rebuild) = &info.rebuild {
        let items = rebuild.items.map_or("-".into(), count);
        let capacity = rebuild.capacity.map_or("-".into(), count);
        line("rebuild", Some(format!("{}: {items} of {capacity} items", rebuild.status)));
    }
    lines.push(String::new());
    let mut table = output::Table::new(&[
        "layer",
        ">items",
        ">capacity",
        ">fill",
        ">error rate",
        ">now",
        ">cells",
        ">probes",
        "layout",
    ]);
    for (index, layer) in info.layers.iter().enumerate() {
        let number = layer.age.map_or(index.to_string(), |age| format!("age {age}"));
        let dash = || "-".to_owned();
        table.row([
            number,
            count(layer.items),
            layer.capacity.map_or_else(dash, count),
            rate(layer.fill).unwrap_or_else(dash),
            rate(layer.error_rate).unwrap_or_else(dash),
            rate(layer.error_rate_now).unwrap_or_else(dash),
            layer.cells.map_or_else(dash, count),
            layer.probes.map_or_else(dash, count),
            layer.layout.clone().unwrap_or_else(dash),
        ]);
    }
    if !info.layers.is_empty() {
        lines.extend(table.render().lines().map(str::to_owned));
    }
    lines
}

/// The same as plain text.
pub(super) fn plain(snapshot: &Snapshot) -> String {
    let names: Vec<String> = COLUMNS
        .iter()
        .map(|(name, _, is_right)| {
            let name = name.trim().to_lowercase();
            if *is_right || name == "full" { format!(">{name}") } else { name }
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = output::Table::new(&names);
    snapshot.filters.iter().for_each(|row| table.row(cells(row)));
    let mut text = table.render();
    for row in &snapshot.filters {
        for advice in &row.info.advice {
            text.push_str(&format!("! {}: {advice}\n", row.key));
        }
    }
    if snapshot.hidden > 0 {
        let why = snapshot.hidden_by.as_deref().unwrap_or_default();
        text.push_str(&format!("{} filters are hidden: {why}\n", snapshot.hidden));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::info::FilterInfo;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn row(key: &str, items: u64, capacity: u64) -> Row {
        let info = FilterInfo {
            kind: "fixed".into(),
            items,
            capacity: Some(capacity),
            error_rate: Some(0.01),
            error_rate_now: Some(0.01 * items as f64 / capacity as f64),
            size: capacity,
            ..FilterInfo::default()
        };
        Row { server: "here:1".into(), key: key.into(), info, ..Row::default() }
    }

    fn view() -> View {
        let mut over = row("over", 300, 100);
        over.info.advice = vec!["over capacity".into()];
        let filters = vec![over, row("small", 1, 10), row("large", 10, 1000)];
        View::new(Sort::Memory, Snapshot { servers: vec!["here:1".into()], filters, ..Snapshot::default() })
    }

    fn screen(view: &mut View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(140, 14)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_frame_has_the_filters_in_order_and_the_advice_of_the_selected_one() {
        let mut view = view();
        let text = screen(&mut view);
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("no {word} in\n{text}"));
        assert!(place("large") < place("! over") && place("! over") < place("small"));
        assert!(text.contains("all is well") && text.contains("sorted by memory"), "{text}");
        view.press(KeyCode::Down);
        let text = screen(&mut view);
        assert!(text.contains("over capacity") && text.contains("300 %"), "{text}");
    }

    #[test]
    fn the_selection_stays_with_its_filter() {
        let mut view = view();
        view.press(KeyCode::Down);
        assert_eq!(view.selected().unwrap().key, "over");
        view.press(KeyCode::Char('s'));
        assert_eq!((view.sort, view.selected().unwrap().key.as_str()), (Sort::Full, "over"));
        assert_eq!(view.table.selected(), Some(0));
        let gone = Snapshot { filters: vec![row("small", 1, 10)], ..Snapshot::default() };
        view.update(gone);
        assert_eq!(view.selected().unwrap().key, "small");
        view.update(Snapshot::default());
        assert_eq!(view.selected(), None);
        assert!(screen(&mut view).contains("no filter"));
    }

    #[test]
    fn enter_shows_all_and_q_ends_it() {
        let mut view = view();
        view.press(KeyCode::Enter);
        assert!(screen(&mut view).contains("error rate, promised"));
        assert!(view.press(KeyCode::Esc));
        assert!(view.press(KeyCode::End));
        assert_eq!(view.selected().unwrap().key, "small");
        view.failed("connection refused".into());
        assert!(screen(&mut view).contains("connection refused"));
        assert!(!view.press(KeyCode::Char('q')));
    }
}
