//! How far a long task is: a bar on a terminal, a line now and then elsewhere, both on stderr.

use crate::error::Outcome;
use crate::output::{bytes, count};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::sys::signal::{SigSet, Signal};
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Whether and how often.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Progress")]
pub(crate) struct Pace {
    /// Say nothing on the way
    #[arg(short, long)]
    quiet: bool,

    /// Seconds between lines of progress where stderr is no terminal
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_interval)]
    interval: f64,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds))
        .ok_or("it takes 0.1 to 86400 seconds".into())
}

/// A task under way.
pub(crate) struct Progress {
    how: How,
    /// Bytes of the whole task, if they are known.
    length: Option<u64>,
    /// Bytes that were done before.
    from: u64,
    started: Instant,
    position: u64,
    items: u64,
}

enum How {
    Bar(ProgressBar),
    Lines { every: Duration, next: Instant },
    Silent,
}

impl Progress {
    /// A task of so many bytes, of which `from` were done before.
    pub(crate) fn new(pace: &Pace, length: Option<u64>, from: u64) -> Progress {
        let started = Instant::now();
        let how = if pace.quiet {
            How::Silent
        } else if std::io::stderr().is_terminal() {
            How::Bar(bar(length, from))
        } else {
            let every = Duration::from_secs_f64(pace.interval);
            How::Lines { every, next: started + every }
        };
        Progress { how, length, from, started, position: from, items: 0 }
    }

    /// Bytes that are done, and items.
    pub(crate) fn at(&mut self, position: u64, items: u64) {
        (self.position, self.items) = (position, items);
        let now = Instant::now();
        match &mut self.how {
            How::Silent => {}
            How::Bar(bar) => {
                let rate = items as f64 / self.started.elapsed().as_secs_f64().max(0.001);
                if items > 0 {
                    bar.set_message(format!("{} items, {}/s", count(items), count(rate as u64)));
                }
                bar.set_position(position);
            }
            How::Lines { every, next } => {
                if now >= *next {
                    *next = now + *every;
                    eprintln!("bloomery: {}", self.line());
                }
            }
        }
    }

    /// `1,234,567 items, 12 %, 456,789/s, 20 s left`
    fn line(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let (mut text, rate) = match self.items {
            // A transfer knows bytes alone.
            0 => (
                bytes(self.position),
                bytes((self.position.saturating_sub(self.from) as f64 / seconds) as u64),
            ),
            items => (format!("{} items", count(items)), count((items as f64 / seconds) as u64)),
        };
        match self.length {
            Some(length) if length > 0 => {
                let done = self.position as f64 / length as f64;
                let speed = self.position.saturating_sub(self.from) as f64 / seconds;
                let left = length.saturating_sub(self.position) as f64 / speed.max(1.0);
                text.push_str(&format!(", {:.0} %, {rate}/s, {left:.0} s left", done * 100.0));
            }
            _ => text.push_str(&format!(", {rate}/s")),
        }
        text
    }

    /// The end, of whatever kind.
    pub(crate) fn finish(&self) {
        if let How::Bar(bar) = &self.how {
            bar.finish_and_clear();
        }
    }
}

fn bar(length: Option<u64>, from: u64) -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::with_draw_target(Some(length), target),
            "{bar:30} {percent:>3} %  {msg}  {bytes_per_sec}  {eta} left",
        ),
        None => (ProgressBar::with_draw_target(None, target), "{spinner} {bytes}  {msg}  {elapsed}"),
    };
    // The templates are ours, and good.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_position(from);
    bar.reset_eta();
    bar
}

/// Set when the user asks to stop (SIGINT, SIGTERM): what is under way is brought to an end first.
#[derive(Clone)]
pub(crate) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// Whether they did.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Stops all that listens, as the user would.
    pub(crate) fn set(&self) {
        self.0.store(true, Relaxed);
    }
}

/// Begins to listen for it. Who asks a second time does not want to wait: the process ends there and then.
///
/// The signals are blocked in this thread and in those that it starts, and another waits for them. A handler would break
/// off reads that have a timeout, even one with SA_RESTART (signal(7)), and so the reply to a command under way.
pub(crate) fn interrupted() -> io::Result<Interrupted> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block()?;
    let interrupted = Interrupted(Arc::new(AtomicBool::new(false)));
    let listening = interrupted.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.wait().is_ok() {
            listening.set();
            if signals.wait().is_ok() {
                std::process::exit(Outcome::Interrupted.code().into());
            }
        }
    })?;
    Ok(interrupted)
}
