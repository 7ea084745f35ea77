//! One frame: a table of filters, and the advice or the details for the selected one.

use super::snapshot::{Order, Row, Snapshot};
use super::text::{COLUMNS, compact, detail};
use crate::output::{bytes, count, shorten};
use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Table, TableState, Wrap};

/// Width of the bar that shows how full a filter is, in columns of the terminal.
const BAR: usize = 8;

/// How full a filter is when its bar becomes yellow: a fixed filter is nearly full, and other filters will soon grow or
/// exceed their error rate.
const NEARLY_FULL: f64 = 0.9;

/// Background of the selected row: a dark grey from the palette of 256 colours, on which all text colours are legible.
pub(super) const SELECTED: Color = Color::Indexed(238);

/// The state of the screen.
pub(super) struct View {
    snapshot: Snapshot,
    order: Order,
    table: TableState,
    showing: Showing,
    scroll: u16,
    /// Only filters whose keys contain this text are shown.
    find: String,
    /// Whether key presses are appended to `find`.
    typing: bool,
    /// The error of the most recent query.
    error: Option<String>,
}

/// What is on the screen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Showing {
    Table,
    /// All that is known about the selected filter.
    Detail,
    /// The keys and what they do.
    Help,
}

impl View {
    pub(super) fn new(order: Order, mut snapshot: Snapshot) -> View {
        snapshot.sort(order);
        let mut table = TableState::default();
        table.select((!snapshot.filters.is_empty()).then_some(0));
        let (find, typing, error) = Default::default();
        View { snapshot, order, table, showing: Showing::Table, scroll: 0, find, typing, error }
    }

    /// The filters that are shown.
    fn shown(&self) -> impl Iterator<Item = &Row> {
        self.snapshot.filters.iter().filter(|row| row.key.contains(&self.find))
    }

    /// Shows new data; the selection stays on its filter.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        self.error = None;
        let of = |row: &Row| (row.server.clone(), row.key.clone());
        let selected = self.selected().map(of);
        self.snapshot = snapshot;
        self.snapshot.sort(self.order);
        let index = selected.and_then(|selected| self.shown().position(|row| of(row) == selected));
        let last = self.shown().count().checked_sub(1);
        let index = index.or(self.table.selected()).or(Some(0));
        self.table.select(index.and_then(|index| last.map(|last| index.min(last))));
    }

    /// Shows the error of a query; the last snapshot stays on the screen.
    pub(super) fn failed(&mut self, error: String) {
        self.error = Some(error);
    }

    /// Handles a key press; returns false if the program is to end.
    pub(super) fn press(&mut self, key: KeyCode) -> bool {
        if self.typing {
            self.type_key(key);
            return true;
        }
        match key {
            KeyCode::Char('q') => return false,
            _ if self.showing == Showing::Help => self.showing = Showing::Table,
            KeyCode::Esc if self.showing == Showing::Detail => self.showing = Showing::Table,
            KeyCode::Esc if !self.find.is_empty() => self.type_key(KeyCode::Esc),
            KeyCode::Esc => return false,
            KeyCode::Char('?') => self.showing = Showing::Help,
            KeyCode::Char('/') => {
                self.showing = Showing::Table;
                self.typing = true;
            }
            KeyCode::Enter => {
                let is_table = self.showing == Showing::Table && self.selected().is_some();
                self.showing = if is_table { Showing::Detail } else { Showing::Table };
                self.scroll = 0;
            }
            KeyCode::Char('s') => {
                self.order.by = self.order.by.next();
                self.update(self.snapshot.clone());
            }
            KeyCode::Char('r') => {
                self.order.reversed = !self.order.reversed;
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

    /// Handles a key press while the user types the text to find.
    fn type_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(character) => self.find.push(character),
            KeyCode::Backspace => drop(self.find.pop()),
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.find.clear();
            }
            _ => {}
        }
        self.update(self.snapshot.clone());
    }

    fn go(&mut self, by: isize) {
        if self.showing == Showing::Detail {
            self.scroll = self.scroll.saturating_add_signed(by.clamp(-1000, 1000) as i16);
            return;
        }
        let Some(last) = self.shown().count().checked_sub(1) else { return };
        let index = self.table.selected().unwrap_or(0).saturating_add_signed(by).min(last);
        self.table.select(Some(index));
    }

    fn selected(&self) -> Option<&Row> {
        self.shown().nth(self.table.selected()?)
    }

    /// Draws the screen.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let advice = advice(self.selected(), &self.find);
        let is_table = self.showing == Showing::Table;
        let below = if is_table { (advice.len() as u16).clamp(1, 4) + 2 } else { 0 };
        let [head, middle, foot, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(3),
            Constraint::Length(below),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.head(), head);
        match self.showing {
            Showing::Detail => self.draw_detail(frame, middle),
            Showing::Help => {
                let lines =
                    KEYS.map(|(key, does)| Line::from(vec![format!("{key:<12}").bold(), does.into()]));
                frame.render_widget(Paragraph::new(lines.to_vec()).block(block(" Keys ".into())), middle);
            }
            Showing::Table => {
                self.draw_table(frame, middle);
                let title = self.selected().map_or(" no filter ".into(), |row| format!(" {} ", row.key));
                let lines: Vec<Line<'_>> = advice.into_iter().map(Line::from).collect();
                let text = Paragraph::new(lines).wrap(Wrap { trim: true });
                frame.render_widget(text.block(block(title)), foot);
            }
        }
        let line = match self.showing {
            _ if self.typing => Line::from(format!("/{}▏  Enter keep   Esc show all", self.find)),
            Showing::Table => {
                Line::from("Enter details   s sort   r reverse   / find   ? keys   q quit").dark_gray()
            }
            Showing::Detail => Line::from("Enter back   ↑↓ scroll   ? keys   q quit").dark_gray(),
            Showing::Help => Line::from("any key: back   q quit").dark_gray(),
        };
        frame.render_widget(line, keys);
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
            Span::from(format!("{server}   {} filters   ", count(filters.len() as u64))),
            Span::from(match self.snapshot.in_trouble() {
                0 => String::new(),
                troubled => format!("! {} in trouble   ", count(troubled as u64)),
            })
            .yellow()
            .bold(),
            Span::from(format!("{}   ", bytes(memory))),
            Span::from(format!(
                "sorted by {}{}",
                self.order.by.name(),
                if self.order.reversed { ", reversed" } else { "" }
            ))
            .cyan(),
        ];
        if !self.find.is_empty() {
            spans.push(
                Span::from(format!("   {} with {:?}", count(self.shown().count() as u64), self.find)).cyan(),
            );
        }
        if *hidden > 0 {
            let why = hidden_by.as_deref().unwrap_or_default();
            spans.push(Span::from(format!("   {hidden} hidden: {why}")).yellow());
        }
        Line::from(spans)
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let columns = columns(area.width);
        let widths: Vec<u16> = columns.iter().map(|(_, width)| *width).collect();
        let key_width = usize::from(widths.first().copied().unwrap_or(0)).saturating_sub(MARK);
        let aligned = |index: usize, text: Line<'static>| {
            Cell::from(if COLUMNS[index].1 { text.alignment(Alignment::Right) } else { text })
        };
        let header = TableRow::new(columns.iter().map(|(index, _)| {
            // The heading is indented like the keys below it, which have a mark before them.
            let name = COLUMNS[*index].0;
            let name = if *index == 0 { format!("{:MARK$}{name}", "") } else { name.to_owned() };
            aligned(*index, Line::from(name).bold())
        }))
        .style(Style::new().add_modifier(Modifier::UNDERLINED));
        let rows: Vec<TableRow<'_>> = self
            .shown()
            .map(|row| {
                let texts = compact(row);
                let over = row.error_ratio() > 1.0;
                let seen_over =
                    row.observed().zip(row.info.error_rate).is_some_and(|(seen, promised)| seen > promised);
                let red = |bad: bool| if bad { Style::new().fg(Color::Red).bold() } else { Style::new() };
                let mark = if row.is_in_trouble() { "! ".yellow().bold() } else { "  ".into() };
                TableRow::new(columns.iter().map(|(index, width)| {
                    let text = &texts[*index];
                    match COLUMNS[*index].0 {
                        "KEY" => Cell::from(Line::from(vec![
                            mark.clone(),
                            shorten(text, key_width).into_owned().into(),
                        ])),
                        "FULL" => Cell::from(bar(row.full(), text, usize::from(*width) - PERCENT)),
                        "NOW" => aligned(*index, text.clone().into()).style(red(over)),
                        "OBSERVED" => aligned(*index, text.clone().into()).style(red(seen_over)),
                        _ => aligned(*index, text.clone().into()),
                    }
                }))
            })
            .collect();
        let table = Table::new(rows, widths.into_iter().map(Constraint::Length))
            .header(header)
            .column_spacing(SPACE)
            .row_highlight_style(Style::new().bg(SELECTED).add_modifier(Modifier::BOLD));
        frame.render_stateful_widget(table, area, &mut self.table);
    }

    fn draw_detail(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let Some(row) = self.selected() else { return };
        let title = format!(" {} ", row.key);
        let lines = detail(row);
        let most = (lines.len() as u16).saturating_sub(area.height.saturating_sub(2));
        let scroll = self.scroll.min(most);
        let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)).block(block(title)), area);
        self.scroll = scroll;
    }
}

/// A frame with a title around a text.
fn block(title: String) -> Block<'static> {
    Block::bordered().title(title.bold()).border_style(Style::new().dark_gray())
}

/// What the keys do.
const KEYS: [(&str, &str); 10] = [
    ("↑ ↓  k j", "move, or scroll the details"),
    ("PgUp PgDn", "move by 20"),
    ("Home End", "first, last"),
    ("Enter", "all that is known of the filter, and back"),
    ("s", "sort by the next of: memory, full, error, tests, adds, key"),
    ("r", "reverse the order"),
    ("/", "show the keys that contain a text; Esc shows all again"),
    ("?", "this list"),
    ("Esc", "back, or quit"),
    ("q, Ctrl-C", "quit"),
];

/// Width of the gap between two columns.
const SPACE: u16 = 2;

/// Width of the mark before the key of a filter for which there is advice.
const MARK: usize = 2;

/// Width of ` >9999%` after a bar.
const PERCENT: usize = 7;

/// Minimum width of a key.
const KEY: u16 = 16;

/// The columns by importance, with their widths: a narrow terminal shows the first ones.
const BY_IMPORTANCE: [(&str, u16); COLUMNS.len()] = [
    ("KEY", KEY),
    ("FULL", (BAR + PERCENT) as u16),
    ("NOW", 8),
    ("MEMORY", 8),
    ("ITEMS", 5),
    ("PROMISED", 8),
    ("TESTS/S", 7),
    ("ADDS/S", 6),
    ("KIND", 8),
    ("OBSERVED", 8),
    ("CAPACITY", 8),
];

/// The columns that fit, as indices into [`COLUMNS`] in ascending order, with their widths. The key gets the remaining
/// width.
fn columns(width: u16) -> Vec<(usize, u16)> {
    let mut left = width;
    let mut fit = Vec::new();
    for (name, wanted) in BY_IMPORTANCE {
        let with_space = if fit.is_empty() { wanted } else { wanted + SPACE };
        let Some(rest) = left.checked_sub(with_space) else { break };
        left = rest;
        fit.extend(COLUMNS.iter().position(|(known, _)| *known == name).map(|index| (index, wanted)));
    }
    fit.sort_unstable();
    if let Some((_, key)) = fit.first_mut() {
        *key += left;
    }
    fit
}

fn bar(full: f64, text: &str, columns: usize) -> Line<'static> {
    let filled = ((full * columns as f64).round() as usize).min(columns);
    let colour = match full {
        _ if full > 1.0 => Color::Red,
        _ if full >= NEARLY_FULL => Color::Yellow,
        _ => Color::Green,
    };
    Line::from(vec![
        Span::from("█".repeat(filled)).fg(colour),
        Span::from("░".repeat(columns - filled)).dark_gray(),
        Span::from(format!(" {text:>6}")),
    ])
}

fn advice(row: Option<&Row>, find: &str) -> Vec<String> {
    match row {
        None if !find.is_empty() => vec![format!("no key contains {find:?}; Esc shows all")],
        None => vec!["no filter matches the pattern, or the user has no permission to see any".into()],
        Some(row) if row.info.advice.is_empty() => vec!["all is well".into()],
        Some(row) => row.info.advice.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::top::snapshot::Sort;
    use crate::output::Name;
    use bloomery::Summary;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn row(key: &str, items: u64, capacity: u64) -> Row {
        let mut info = Summary::default();
        (info.kind, info.items, info.capacity, info.size) = ("fixed".into(), items, capacity, capacity);
        info.error_rate = Some(0.01);
        info.error_rate_now = 0.01 * items as f64 / capacity as f64;
        Row { server: "here:1".into(), key: Name::new(key.as_bytes()), info, ..Row::default() }
    }

    fn view() -> View {
        let mut over = row("over", 300, 100);
        over.info.advice = vec!["over capacity".into()];
        let filters = vec![over, row("small", 1, 10), row("large", 10, 1000)];
        let order = Order { by: Sort::Memory, reversed: false };
        View::new(order, Snapshot { servers: vec!["here:1".into()], filters, ..Snapshot::default() })
    }

    fn screen(view: &mut View) -> String {
        screen_of(view, 140)
    }

    fn screen_of(view: &mut View, width: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, 14)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_frame_has_the_filters_in_order_and_the_advice_of_the_selected_one() {
        let mut view = view();
        let text = screen(&mut view);
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("no {word} in\n{text}"));
        assert!(place("! over") < place("large") && place("large") < place("small"));
        assert!(
            text.contains("3 filters   ! 1 in trouble   ") && text.contains("sorted by memory"),
            "{text}"
        );
        assert!(text.contains("over capacity") && text.contains("300%"), "{text}");
        view.press(KeyCode::Down);
        assert!(screen(&mut view).contains("all is well"));
        let order = Order { by: Sort::Memory, reversed: false };
        let mut well =
            View::new(order, Snapshot { filters: vec![row("small", 1, 10)], ..Snapshot::default() });
        assert!(!screen(&mut well).contains("trouble"));
    }

    #[test]
    fn the_selection_stays_with_its_filter() {
        let mut view = view();
        view.press(KeyCode::End);
        assert_eq!(view.selected().unwrap().key.short(), "small");
        view.press(KeyCode::Char('s'));
        assert_eq!((view.order.by, view.selected().unwrap().key.short()), (Sort::Full, "small"));
        assert_eq!(view.table.selected(), Some(1));
        let gone = Snapshot { filters: vec![row("small", 1, 10)], ..Snapshot::default() };
        view.update(gone);
        assert_eq!(view.selected().unwrap().key.short(), "small");
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
        assert_eq!(view.selected().unwrap().key.short(), "small");
        view.failed("connection refused".into());
        assert!(screen(&mut view).contains("connection refused"));
        assert!(!view.press(KeyCode::Char('q')));
    }

    /// At any width, columns that fit are shown completely, and the others are left out.
    #[test]
    fn a_narrow_screen_has_fewer_columns_and_none_is_cut() {
        let mut widest =
            row("a key that is longer than any column of the table", 123_456_789_012, 999_999_999_999);
        widest.info.error_rate = Some(1.23e-12);
        widest.info.error_rate_now = 1.23e-12;
        widest.info.kind = "counting".into();
        widest.info.size = 1023 << 30;
        widest.tests_per_second = Some(999_400.0);
        widest.adds_per_second = Some(999_400.0);
        let cells = compact(&widest);
        let order = Order { by: Sort::Memory, reversed: false };
        let mut view = View::new(order, Snapshot { filters: vec![widest], ..Snapshot::default() });
        for width in 40..=200 {
            let text = screen_of(&mut view, width);
            let shown = columns(width);
            for (index, _) in &shown[1..] {
                assert!(text.contains(COLUMNS[*index].0), "{width}: no {} in\n{text}", COLUMNS[*index].0);
                assert!(text.contains(&cells[*index]), "{width}: no {} in\n{text}", cells[*index]);
            }
            assert!(width < 80 || shown.len() >= 7, "{width}");
            assert!(width < 120 || shown.len() == COLUMNS.len(), "{width}");
        }
    }

    #[test]
    fn keys_are_found_and_the_order_reversed() {
        let mut view = view();
        view.press(KeyCode::Char('r'));
        let order = |view: &View| view.shown().map(|row| row.key.to_string()).collect::<Vec<_>>();
        assert_eq!(order(&view), ["over", "small", "large"]);
        for key in "/l".chars() {
            view.press(KeyCode::Char(key));
        }
        assert_eq!(order(&view), ["small", "large"]);
        view.press(KeyCode::Char('q'));
        assert!(screen(&mut view).contains("no key contains"));
        view.press(KeyCode::Backspace);
        view.press(KeyCode::Enter);
        assert!(screen(&mut view).contains("2 with \"l\""));
        assert!(view.press(KeyCode::Esc), "it shows all again");
        assert_eq!(order(&view).len(), 3);
        view.press(KeyCode::Char('?'));
        assert!(screen(&mut view).contains("reverse the order"));
        assert!(view.press(KeyCode::Esc) && !view.press(KeyCode::Esc));
    }
}
