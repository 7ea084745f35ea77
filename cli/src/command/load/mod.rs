//! `bloomery load`: adds items from a file to a filter on a server, in bulk commands.
//!
//! One thread reads batches, others send them, and the main thread keeps the account: if the load ends early, the
//! account says up to which byte of the input every item is in the filter.

mod account;
mod send;
mod state;

use crate::error::{Failure, Outcome};
use crate::filter::options::Reserve;
use crate::input::{Batch, Input, Items, Limits};
use crate::interrupt::{self, Interrupted};
use crate::output::progress::{Pace, Progress};
use crate::output::{self, count, key};
use crate::server::connection::Server;
use crate::server::info;
use account::{Account, Answer};
use anyhow::Context;
use send::{How, Sender};
use serde::Serialize;
use state::State;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Add items from a file, stdin or a CSV column to a filter on a server.
///
/// If the filter doesn't exist, --capacity and --error-rate create it. Each line is an item, without its line end (LF
/// or CR LF). Empty lines are skipped and counted.
///
/// Sending an item to a Bloom filter twice does no harm. Counting and cuckoo filters count every add. For these,
/// --resume keeps its account in a key next to the filter, and updates it atomically with the items; when the load is
/// complete, the account moves to the file. No item is added twice or missed, wherever the load is interrupted.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery load users ids.txt -n 10M -e 1%            # creates the filter and fills it
  zcat urls.gz | bloomery load urls                   # into an existing filter
  bloomery load emails users.csv --column email --resume emails.state
  bloomery load users ids.txt --rebuild               # backfills the rebuild started by BF.REBUILD users BEGIN")]
pub(crate) struct Options {
    /// The filter's key
    key: String,

    /// Keep the account of the load in this file, and continue from it if the file exists
    #[arg(long, value_name = "STATE")]
    resume: Option<PathBuf>,

    /// Number of connections that send in parallel
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    connections: u8,

    /// Maximum number of items per command
    #[arg(long, value_name = "ITEMS", default_value_t = 32_768, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    batch: u64,

    /// Backfill the rebuild of this filter that is in progress (BF.REBUILD key ADD)
    #[arg(long)]
    rebuild: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    reserve: Reserve,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    server: Server,
}

/// Maximum bytes per command: a server handles this many in a few milliseconds.
const BATCH_BYTES: usize = 1 << 20;

/// How often a connection that waits for items checks for an interruption.
const LISTEN_EVERY: Duration = Duration::from_millis(100);

/// How often the account is saved.
const SAVE_EVERY: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Report {
    key: String,
    items_read: u64,
    /// Items that were absent before; `None` for a backfill, where the server doesn't report them.
    items_new: Option<u64>,
    blank_lines: u64,
    input_bytes: u64,
    resumed_from: u64,
    seconds: f64,
}

/// Loads the items, and reports how many. After an error or an interruption, says how to continue.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let interrupted = interrupt::listen()?;
    let sender = prepare(options)?;
    let state = begin(options, &sender)?;
    let from = state.offset;
    let items = options.input.open(from)?;
    let progress = Progress::new(&options.pace, options.input.len(), from);
    let mut load = Load {
        account: Account::new(state),
        progress,
        save_to: options.resume.as_deref().filter(|_| !sender.is_exact()),
        saved: Instant::now(),
    };
    let stopped = load.run(options, &sender, items, &interrupted);
    load.progress.finish();
    load.save()?;
    let state = load.account.into_state();
    match stopped {
        Err(error) => Err(error.context(how_to_go_on(options, &state))),
        Ok(()) if interrupted.is_set() => {
            eprintln!("bloomery: interrupted: {}", how_to_go_on(options, &state));
            Ok(Outcome::Interrupted)
        }
        Ok(()) => {
            if let (Some(path), true) = (&options.resume, sender.is_exact()) {
                // The file first, so that at any time one of the two says that all items are in.
                state.write(path)?;
                sender.forget()?;
            }
            report(options, &state, from, started.elapsed())
        }
    }
}

/// Connects, creates the filter if requested, and chooses the command to send items with.
fn prepare(options: &Options) -> anyhow::Result<Sender> {
    // Mistakes in the options show before anything is sent.
    let wanted = options.reserve.is_given().then(|| options.reserve.wanted()).transpose()?;
    let mut connection = options.server.connect()?;
    let key = options.key.as_bytes();
    let mut filter = info::describe(&mut connection, key)?;
    if let Some(wanted) = wanted {
        if filter.is_some() {
            eprintln!("bloomery: {} exists already; its options stay as they are", output::key(key));
        } else {
            let words = options.reserve.command(&wanted, &options.key);
            let mut command = redis::cmd(&words[0]);
            command.arg(&words[1..]);
            command.query::<()>(&mut connection).context("cannot create the filter")?;
            filter = info::describe(&mut connection, key)?;
        }
    }
    let Some(filter) = filter else {
        let text =
            format!("there is no filter {}; use --capacity and --error-rate to create it", output::key(key));
        return Err(Failure::Usage(text).into());
    };
    let how = match (filter.kind.as_str(), options.rebuild) {
        ("cuckoo", true) => {
            return Err(
                Failure::Usage("--rebuild is for Bloom filters, but this is a cuckoo filter".into()).into()
            );
        }
        ("cuckoo", false) => How::Cuckoo,
        (_, true) => How::Rebuild,
        (_, false) => How::Bulk,
    };
    // Filters that count adds must not see one twice.
    let filled = match (&filter.rebuild, options.rebuild) {
        (Some(rebuild), true) => rebuild.kind.as_deref().unwrap_or(&filter.kind),
        _ => &filter.kind,
    };
    let exact = options.resume.is_some() && matches!(filled, "counting" | "cuckoo");
    if exact && options.connections > 1 {
        let text =
            "--resume of a counting or cuckoo filter requires --connections 1: batches must arrive in order";
        return Err(Failure::Usage(text.into()).into());
    }
    Ok(Sender::new(options.server.clone(), key, how, exact))
}

/// Where to start: at the account of an earlier run, or at the beginning.
fn begin(options: &Options, sender: &Sender) -> anyhow::Result<State> {
    let fresh = State::new(key(options.key.as_bytes()), options.input.name(), options.input.form());
    let Some(path) = &options.resume else { return Ok(fresh) };
    let on_server = if sender.is_exact() { sender.account()? } else { None };
    let found = on_server.map_or_else(|| State::read(path), |state| Ok(Some(state)))?;
    let Some(found) = found else { return Ok(fresh) };
    found.is_of(&fresh)?;
    eprintln!("bloomery: continuing after byte {}, {} items are in", found.offset, count(found.items));
    Ok(found)
}

/// Says how far the load got, and how to continue it.
fn how_to_go_on(options: &Options, state: &State) -> String {
    let State { offset, skip, items, .. } = state;
    let name = options.input.name();
    let mut so_far = format!("{} items are in: all before byte {offset} of {name}", count(*items));
    if *skip > 0 {
        so_far.push_str(&format!(", and {} after it", count(*skip)));
    }
    match options.resume {
        Some(_) => format!("{so_far}; run the same command to continue"),
        None => format!("{so_far}; with --resume STATE, a load can continue where it stopped"),
    }
}

fn report(options: &Options, state: &State, from: u64, took: Duration) -> anyhow::Result<Outcome> {
    let report = Report {
        key: key(options.key.as_bytes()),
        items_read: state.items,
        items_new: (!options.rebuild).then_some(state.new),
        blank_lines: state.blank,
        input_bytes: state.offset,
        resumed_from: from,
        seconds: took.as_secs_f64(),
    };
    if options.json {
        output::json(&report)?;
        return Ok(Outcome::Done);
    }
    let mut text = format!("{}: {} items in", report.key, count(report.items_read));
    if let Some(new) = report.items_new {
        text.push_str(&format!(", {} of them new", count(new)));
    }
    if report.blank_lines > 0 {
        text.push_str(&format!(", {} empty lines skipped", count(report.blank_lines)));
    }
    writeln!(std::io::stdout(), "{text}, in {:.1} s", report.seconds)?;
    Ok(Outcome::Done)
}

/// A load in progress.
struct Load<'o> {
    account: Account,
    progress: Progress,
    /// The file to save the account to.
    save_to: Option<&'o Path>,
    saved: Instant,
}

impl Load<'_> {
    /// Sends batches until the end, an error, or an interruption.
    fn run(
        &mut self,
        options: &Options,
        sender: &Sender,
        items: Items,
        interrupted: &Interrupted,
    ) -> anyhow::Result<()> {
        let limits = Limits { items: sender.most_items(options.batch), bytes: BATCH_BYTES };
        let workers = usize::from(options.connections);
        // One batch may wait per connection, so that reading and sending overlap and memory stays bounded.
        let (to_send, batches) = mpsc::sync_channel(workers);
        let (to_account, answers) = mpsc::channel();
        let batches = Arc::new(Mutex::new(batches));
        let skip = self.account.state().skip;
        let stop = interrupted.clone();
        // Not joined: it may be blocked on a pipe that never delivers.
        std::thread::spawn(move || read(items, limits, skip, &to_send, &stop));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (batches, to_account) = (Arc::clone(&batches), to_account.clone());
                let before = self.account.state().clone();
                scope.spawn(move || {
                    let result = work(sender, &batches, before, &to_account, interrupted);
                    if let Err(error) = result {
                        let _ = to_account.send(Err(error));
                    }
                });
            }
            // Only the threads hold senders now: when they end, so does `answers`.
            drop(to_account);
            let mut result = Ok(());
            for answer in answers {
                match answer {
                    Ok(answer) => {
                        if let Some(refused) = self.account.add(&answer) {
                            result = result.and(Err(refused));
                        }
                        self.progress.at(self.account.state().offset, self.account.state().items);
                        if self.saved.elapsed() >= SAVE_EVERY {
                            result = result.and(self.save());
                        }
                    }
                    Err(error) => result = result.and(Err(error)),
                }
                if result.is_err() {
                    interrupted.set();
                }
            }
            result
        })
    }

    fn save(&mut self) -> anyhow::Result<()> {
        self.saved = Instant::now();
        self.save_to.map_or(Ok(()), |path| self.account.state().write(path))
    }
}

/// A batch, or the error that ended reading.
type Read = anyhow::Result<Batch>;

/// Reads batches until the end, or until nobody receives them.
fn read(mut items: Items, limits: Limits, mut skip: u64, to_send: &SyncSender<Read>, stop: &Interrupted) {
    while let Some(read) = items.next_batch(limits).transpose() {
        let failed = read.is_err();
        let read = read.map(|mut batch| {
            // An earlier run may have added the first items.
            batch.drop_first(skip);
            skip -= batch.dropped;
            batch
        });
        if stop.is_set() || to_send.send(read).is_err() || failed {
            return;
        }
    }
}

/// Sends batches over one connection until there are no more, the server refuses one, or the user interrupts.
fn work(
    sender: &Sender,
    batches: &Mutex<Receiver<Read>>,
    before: State,
    to_account: &mpsc::Sender<anyhow::Result<Answer>>,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut connection = sender.connect()?;
    let mut exact = Account::new(before);
    while !interrupted.is_set() {
        let next = batches.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LISTEN_EVERY);
        let batch = match next {
            Ok(batch) => batch?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let answer = sender.send(&mut connection, batch, &mut exact)?;
        let refused = answer.refused.is_some();
        if to_account.send(Ok(answer)).is_err() || refused {
            break;
        }
    }
    Ok(())
}
