//! Progress of a long task, on stderr: a bar on a terminal, a line every few seconds elsewhere.

use crate::arguments::parse_seconds;
use crate::error::note;
use bloomery_plan::{bytes, count};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Options that say whether, and how often, to report progress.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Progress")]
pub(crate) struct Pace {
    /// Don't report progress
    #[arg(short, long)]
    quiet: bool,

    /// Time between progress lines when stderr isn't a terminal: seconds, or with a unit as in 1m
    #[arg(long, value_name = "TIME", default_value_t = 10.0, value_parser = parse_seconds)]
    interval: f64,
}

impl Pace {
    /// Prints a message to stderr, unless `--quiet` was given.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }
}

/// A task in progress.
pub(crate) struct Progress {
    how: How,
    /// Length of the whole task in bytes, if known.
    length: Option<u64>,
    /// Number of bytes that an earlier run of the task processed.
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
    /// Starts to report on a task of `length` bytes, of which an earlier run processed `from`.
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

    /// Reports that `position` bytes and `items` items are done.
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
                    note(&self.line());
                }
            }
        }
    }

    /// Formats a line, such as `1,234,567 items, 12%, 456,789/s, 20 s left`.
    fn line(&self) -> String {
        let seconds = self.started.elapsed().as_secs_f64().max(0.001);
        let (mut text, rate) = match self.items {
            // Transfers report only bytes, no items.
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
                text.push_str(&format!(", {:.0}%, {rate}/s, {left:.0} s left", done * 100.0));
            }
            _ => text.push_str(&format!(", {rate}/s")),
        }
        text
    }

    /// Removes the bar. Called when the task has ended, successfully or not.
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
            "{bar:30} {percent:>3}%  {msg}  {bytes_per_sec}  {eta} left",
        ),
        None => (ProgressBar::with_draw_target(None, target), "{spinner} {bytes}  {msg}  {elapsed}"),
    };
    // The templates are constants: parsing them doesn't fail.
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_position(from);
    bar.reset_eta();
    bar
}
