//! `bloomery top`: shows the filters and sketches of a server in a terminal, live.
//!
//! A separate thread queries the server, and the terminal shows the latest reply. So even if the server is slow, the
//! program reacts to a key press at once.

mod collect;
mod frame;
mod snapshot;
mod text;

use crate::arguments::parse_seconds;
use crate::error::{self, Outcome, fail};
use crate::output;
use crate::printable::printable;
use crate::server::connection::Server;
use anyhow::Context;
use collect::Collector;
use frame::View;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use snapshot::{Order, Snapshot, Sort};
use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

/// Watch the filters of a server: fill, error rates, and operations per second.
///
/// Keys: q quits, arrows and Page Up/Down move, s sorts by the next column, r reverses the order, / finds keys, Enter
/// shows the details of a filter, ? lists the keys. Filters in trouble come first, marked by !. A narrow terminal has
/// fewer columns. Rates are averages over the interval. Of sketches, only the memory is shown. The user needs
/// permission for SCAN, BF.STATS and CF.STATS (for sketches, also MEMORY USAGE; in a cluster, also CLUSTER SLOTS).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery top
  bloomery top --keys 'session:*' --sort tests
  bloomery top --once                       # one snapshot, as plain text
  bloomery top --once --json | jq '.filters[] | select(.info.advice != []) | .key'")]
pub(crate) struct Options {
    /// Show filters whose keys match this glob-style pattern, as in KEYS
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    keys: String,

    /// Time between refreshes: seconds, or with a unit as in 500ms
    #[arg(short, long, value_name = "TIME", default_value_t = 2.0, value_parser = parse_seconds)]
    interval: f64,

    /// Time between searches of the keyspace for new filters
    #[arg(long, value_name = "TIME", default_value_t = 30.0, value_parser = parse_seconds)]
    scan_interval: f64,

    /// Sort order
    #[arg(short, long, default_value = "memory")]
    sort: Sort,

    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,

    /// Print one snapshot, and exit
    #[arg(long)]
    once: bool,

    /// Print JSON
    #[arg(long, requires = "once")]
    json: bool,

    #[command(flatten)]
    server: Server,
}

impl Options {
    fn order(&self) -> Order {
        Order { by: self.sort, reversed: self.reverse }
    }
}

/// Shows the filters until the user quits or, with `--once`, prints one snapshot.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let interval = Duration::from_secs_f64(options.interval);
    let scan_interval = Duration::from_secs_f64(options.scan_interval);
    let mut collector = Collector::new(options.server.clone(), &options.keys, scan_interval);
    if options.once {
        return once(options, &mut collector, interval);
    }
    if !std::io::stdout().is_terminal() {
        fail!(Usage, "stdout is not a terminal; use --once to print one snapshot");
    }
    // The servers are queried before the terminal changes, so that a wrong address or password is reported normally.
    let first = collector.look()?;
    let (to_show, looks) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(interval);
            if to_show
                .send(collector.look().map_err(|error| printable(&error::text(&error)).into_owned()))
                .is_err()
            {
                return;
            }
        }
    });
    let mut view = View::new(options.order(), first);
    let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let result = show(&mut terminal, &mut view, &looks);
    ratatui::restore();
    result.map(|()| Outcome::Done)
}

/// How often the loop checks for a new snapshot while no key is pressed.
const TICK: Duration = Duration::from_millis(100);

type Look = Result<Snapshot, String>;

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
    looks: &mpsc::Receiver<Look>,
) -> anyhow::Result<()> {
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        // Wait until something happens: a key press, a change of the terminal's size, or a new snapshot.
        loop {
            match looks.try_recv() {
                Ok(Ok(snapshot)) => {
                    view.update(snapshot);
                    break;
                }
                Ok(Err(error)) => {
                    view.failed(error);
                    break;
                }
                Err(TryRecvError::Disconnected) => return Ok(()),
                Err(TryRecvError::Empty) => {}
            }
            if event::poll(TICK)? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        let is_interrupt =
                            key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                        if is_interrupt || !view.press(key.code) {
                            return Ok(());
                        }
                    }
                    _ => {}
                }
                break;
            }
        }
    }
}

fn once(options: &Options, collector: &mut Collector, interval: Duration) -> anyhow::Result<Outcome> {
    // Rates need two snapshots.
    collector.look()?;
    std::thread::sleep(interval);
    let mut snapshot = collector.look()?;
    snapshot.sort(options.order());
    if options.json {
        output::json(&snapshot)?;
    } else {
        std::io::stdout().lock().write_all(text::plain(&snapshot).as_bytes())?;
    }
    Ok(Outcome::Done)
}
