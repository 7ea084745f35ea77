//! `bloomery top`: the filters of a server, live, in a terminal.
//!
//! A thread asks the server, and the terminal shows what came last: a slow server never makes a key press wait.

mod collect;
mod frame;
mod picture;

use crate::connect::Server;
use crate::error::{Failure, Outcome};
use crate::output;
use anyhow::Context;
use clap::ValueEnum;
use collect::{Collector, Snapshot};
use frame::View;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

/// Watch the filters of a server: how full they are, their error rates, what they are asked.
///
/// Keys: q quits, arrows and Page Up/Down move, s sorts by the next column, Enter shows all about one filter. Rates are
/// of the time between two looks. A user who may run SCAN, BF.INFO and CF.INFO is enough (and CLUSTER SLOTS in a
/// cluster).
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery top
  bloomery top --keys 'session:*' --sort tests
  bloomery top --once                       # one look, as plain text
  bloomery top --once --json | jq '.filters[] | select(.info.advice != []) | .key'")]
pub(crate) struct Options {
    /// Keys to look at, a glob-style pattern as in KEYS
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    keys: String,

    /// Seconds between looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2.0, value_parser = parse_seconds)]
    interval: f64,

    /// Seconds between walks over all keys, to find new filters
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = parse_seconds)]
    scan_interval: f64,

    /// What comes first
    #[arg(short, long, default_value = "memory")]
    sort: Sort,

    /// Look once, and print it
    #[arg(long)]
    once: bool,

    /// Print JSON
    #[arg(long, requires = "once")]
    json: bool,

    /// Draw what the terminal would show into this SVG file
    #[arg(long, value_name = "FILE", requires = "once", conflicts_with = "json")]
    svg: Option<PathBuf>,

    #[command(flatten)]
    server: Server,
}

/// The order of the filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Most memory first
    Memory,
    /// The fullest first
    Full,
    /// The error rate that is furthest above its promise first
    Error,
    /// The most tested first
    Tests,
    /// The most added to first
    Adds,
    /// By name
    Key,
}

impl Sort {
    fn next(self) -> Sort {
        let all = Sort::value_variants();
        let index = all.iter().position(|sort| *sort == self).unwrap_or(0);
        all[(index + 1) % all.len()]
    }

    fn name(self) -> &'static str {
        match self {
            Sort::Memory => "memory",
            Sort::Full => "full",
            Sort::Error => "error",
            Sort::Tests => "tests",
            Sort::Adds => "adds",
            Sort::Key => "key",
        }
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .ok_or("it takes 0.1 to 86400 seconds".into())
}

/// Shows.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let interval = Duration::from_secs_f64(options.interval);
    let scan_interval = Duration::from_secs_f64(options.scan_interval);
    let mut collector = Collector::new(options.server.clone(), &options.keys, scan_interval);
    if options.once {
        return once(options, &mut collector, interval);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::Usage("stdout is no terminal: --once prints one look".into()).into());
    }
    // The first look before the terminal changes, so that a wrong address or password is said in plain words.
    let first = collector.look()?;
    let (to_show, looks) = mpsc::channel();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(interval);
            if to_show.send(collector.look().map_err(|error| format!("{error:#}"))).is_err() {
                return;
            }
        }
    });
    let mut view = View::new(options.sort, first);
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let result = show(&mut terminal, &mut view, &looks);
    ratatui::restore();
    result.map(|()| Outcome::Done)
}

/// How long a key press may wait for a new look to be shown.
const TICK: Duration = Duration::from_millis(100);

type Look = Result<Snapshot, String>;

fn show(
    terminal: &mut ratatui::DefaultTerminal,
    view: &mut View,
    looks: &mpsc::Receiver<Look>,
) -> anyhow::Result<()> {
    loop {
        terminal.draw(|frame| view.draw(frame))?;
        // Until something changes: a key, the size of the terminal, a new look.
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
    // Rates are of the time between two looks.
    collector.look()?;
    std::thread::sleep(interval);
    let mut snapshot = collector.look()?;
    snapshot.sort(options.sort);
    if options.json {
        output::json(&snapshot)?;
    } else if let Some(path) = &options.svg {
        let svg = picture::svg(&mut View::new(options.sort, snapshot))?;
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    } else {
        std::io::stdout().lock().write_all(frame::plain(&snapshot).as_bytes())?;
    }
    Ok(Outcome::Done)
}
