//! One frame: a table of filters, and the advice or the details for the selected one.

use super::snapshot::{Row, Snapshot, Sort};
use super::text::{COLUMNS, cells, detail, name};
use crate::output::{bytes, count};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};

/// Width of the bar that shows how full a filter is, in cells.
const BAR: usize = 8;

/// From this fill on, the bar is yellow: a fixed filter is nearly full, and others will grow or exceed their error
/// rate.
const NEARLY_FULL: f64 = 0.9;

/// Background of the selected row: a dark grey of the 256 colours, on which all others are legible.
pub(super) const SELECTED: Color = Color::Indexed(238);

/// The state of the screen.
pub(super) struct View {
    snapshot: Snapshot,
    sort: Sort,
    table: TableState,
    /// Whether to show the details of the selected filter instead of the table.
    detail: bool,
    scroll: u16,
    /// The error of the last look.
    error: Option<String>,
}

impl View {
    pub(super) fn new(sort: Sort, mut snapshot: Snapshot) -> View {
        snapshot.sort(sort);
        let mut table = TableState::default();
        table.select((!snapshot.filters.is_empty()).then_some(0));
        View { snapshot, sort, table, detail: false, scroll: 0, error: None }
    }

    /// Takes a new look; the selection stays with its filter.
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

    /// Takes the error of a look; the previous one stays on the screen.
    pub(super) fn failed(&mut self, error: String) {
        self.error = Some(error);
    }

    /// Handles a key; `false` ends the program.
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

    /// Draws the screen.
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
            let title = self.selected().map_or(" no filter ".into(), |row| format!(" {} ", name(row)));
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
            return Line::from(format!("{error} (showing old data; retrying)")).red().bold();
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
        let header = TableRow::new(COLUMNS.iter().enumerate().map(|(index, (name, is_right))| {
            // Keys are indented by the mark of their row.
            let name = if index == 0 { format!("  {name}") } else { (*name).to_owned() };
            let line = Line::from(name).bold();
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
        let table = Table::new(rows, WIDTHS)
            .header(header)
            .column_spacing(2)
            .row_highlight_style(Style::new().bg(SELECTED).add_modifier(Modifier::BOLD));
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn draw_detail(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let Some(row) = self.selected() else { return };
        let title = format!(" {} ", name(row));
        let lines = detail(row);
        let most = (lines.len() as u16).saturating_sub(area.height.saturating_sub(2));
        let scroll = self.scroll.min(most);
        let block = Block::bordered().title(title.bold()).border_style(Style::new().dark_gray());
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)).block(block), area);
        self.scroll = scroll;
    }
}

/// Widths of the columns.
const WIDTHS: [Constraint; COLUMNS.len()] = [
    Constraint::Min(16),
    Constraint::Length(8),
    Constraint::Length(11),
    Constraint::Length(11),
    Constraint::Length(BAR as u16 + 6),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(9),
    Constraint::Length(9),
];

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
        None => vec!["no filter matches the pattern, or the user has no permission to see any".into()],
        Some(row) if row.info.advice.is_empty() => vec!["all is well".into()],
        Some(row) => row.info.advice.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::info::FilterInfo;
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
        assert!(text.contains("over capacity") && text.contains("300%"), "{text}");
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
