//! `bloomery load`: adds items from a file to a filter on a server, in bulk commands.
//!
//! One thread reads batches, others send them, and the main thread puts the answers in order. So if the load ends
//! early, the program can say up to which byte of the input every item is in the filter. A load with --resume keeps its
//! account on the server.

mod account;
mod on_server;
mod options;
mod report;
mod sample;
mod send;
mod spread;
mod state;
mod taken;

use crate::error::{self, Aftermath, Failure, Outcome};
use crate::filter::info::FilterInfo;
use crate::input::{Input, Items, Limits, Span};
use crate::interrupt::{self, Interrupted};
use crate::output::progress::{Pace, Progress};
use crate::output::{self, count};
use crate::server::connection::{Connection, Server};
use crate::server::info;
use account::{Account, Answer};
use anyhow::Context;
use bloomery::{HashKind, Seed};
use on_server::{Found, Kind, OnServer};
use options::BATCH;
pub(crate) use options::Options;
use report::Report;
use sample::Sample;
use send::{Part, Sender};
use state::{File, Stage, State};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use taken::Taken;

/// Maximum bytes per command: a server handles this many in a few milliseconds.
const BATCH_BYTES: usize = 1 << 20;

/// How often a connection that waits for items checks for an interruption.
const LISTEN_EVERY: Duration = Duration::from_millis(100);

/// Loads the items, and reports their number. After an error or an interruption, says how to continue.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    if let Some(parts) = options.spread {
        return spread::run(options, parts);
    }
    let started = Instant::now();
    let interrupted = interrupt::listen()?;
    let mut connection = options.server.connect()?;
    let mut resumable = Resumable::open(options)?;
    let may_create = resumable.as_ref().is_none_or(|resumable| resumable.file.stage == Stage::New);
    let target = prepare(options, &mut connection, may_create)?;
    let mut sender = Sender::new(options.server.clone(), options.key.as_bytes(), target.kind);
    let mut items = options.input.open()?;
    let (mut state, mut first, mut sample) = (State::default(), None, Sample::default());
    if let Some(resumable) = &mut resumable {
        resumable.find(&mut connection, &target)?;
        (first, sample) = resumable.take_up(&mut items)?;
        // Reading everything that an earlier run has read may take so long that the server closes the connection.
        sender = sender.with_account(resumable.begin(&mut options.server.connect()?, &sample)?);
        state.clone_from(&resumable.file.state);
    }
    drop(connection); // the server may close it while nothing is sent over it
    let from = state.offset;
    let progress = Progress::new(&options.pace, options.input.len(), from);
    let Options { connections, .. } = *options;
    let mut load = Load { account: Account::new(state), progress, connections, batch: options.batch() };
    let stopped = load.run(&sender, first, items, &sample, &interrupted);
    load.progress.finish();
    let state = load.account.into_state();
    let is_whole = stopped.is_ok() && !interrupted.is_set();
    let stopped = stopped.and_then(|()| match &mut resumable {
        Some(resumable) if is_whole => resumable.complete(&mut sender.connect()?, &target, &state),
        Some(resumable) => resumable.note(&state),
        None if is_whole => target.check(options, &mut sender.connect()?),
        None => Ok(()),
    });
    match stopped {
        Err(error) if matches!(error.downcast_ref(), Some(Failure::Lost(_))) => Err(error),
        Err(error) => {
            if let Some(resumable) = &mut resumable
                && !is_whole
            {
                resumable.note(&state)?;
            }
            Err(error.context(Aftermath(how_to_go_on(options, &state))))
        }
        Ok(()) if interrupted.is_set() => {
            error::note(&format!("interrupted: {}", how_to_go_on(options, &state)));
            Ok(Outcome::Interrupted)
        }
        Ok(()) => report(options, &state, from, started.elapsed()),
    }
}

/// The filter that the load fills, as it was when the load began.
struct Filling {
    kind: Kind,
    /// Whether the filter counts every add, so that no add may be repeated.
    counts: bool,
    /// Distinguishes the filter from one that replaces it; empty for a filter of another system.
    identity: String,
}

impl Filling {
    fn new(options: &Options, filter: &FilterInfo) -> Filling {
        let kind = match (filter.kind.as_str(), options.rebuild) {
            ("cuckoo", _) => Kind::Cuckoo,
            (_, true) => Kind::Rebuild,
            (_, false) => Kind::Bloom,
        };
        let (filled, identity) = match (&filter.rebuild, kind) {
            (Some(rebuild), Kind::Rebuild) => (rebuild.kind.as_deref(), &rebuild.identity),
            _ => (Some(filter.kind.as_str()), &filter.identity),
        };
        let counts = matches!(filled, Some("counting" | "cuckoo"));
        Filling { kind, counts, identity: identity.clone().unwrap_or_default() }
    }

    /// Fails if the filter was replaced or deleted during the load, because the items sent before that are lost.
    fn check(&self, options: &Options, connection: &mut Connection) -> anyhow::Result<()> {
        let key = options.key.as_bytes();
        let now = info::describe(connection, key)?.map(|filter| Filling::new(options, &filter));
        if now.is_some_and(|now| now.identity == self.identity) {
            return Ok(());
        }
        let text = format!("{} was replaced or deleted during the load", output::key(key));
        Err(Failure::Lost(text).into())
    }
}

/// Finds the filter to fill. Creates it if it doesn't exist and the options say what to create.
fn prepare(options: &Options, connection: &mut Connection, may_create: bool) -> anyhow::Result<Filling> {
    // Mistakes in the options are reported before anything is sent.
    let wanted = options.reserve.is_given().then(|| options.reserve.wanted()).transpose()?;
    let key = options.key.as_bytes();
    let mut filter = info::describe(connection, key)?;
    if filter.is_none() && !may_create {
        let text = format!("{} is gone, and with it the items that this load has added", output::key(key));
        return Err(Failure::Lost(text).into());
    }
    if let Some(wanted) = wanted {
        if filter.is_some() {
            error::note(&format!("{} exists already; its options stay as they are", output::key(key)));
        } else {
            let words = options.reserve.command(&wanted, &options.key);
            let mut command = redis::cmd(&words[0]);
            command.arg(&words[1..]);
            command.query::<()>(connection).context("cannot create the filter")?;
            filter = info::describe(connection, key)?;
        }
    }
    let Some(filter) = filter else {
        let text =
            format!("there is no filter {}; use --capacity and --error-rate to create it", output::key(key));
        return Err(Failure::Usage(text).into());
    };
    let target = Filling::new(options, &filter);
    if target.kind == Kind::Cuckoo && options.rebuild {
        return Err(
            Failure::Usage("--rebuild is for Bloom filters, but this is a cuckoo filter".into()).into()
        );
    }
    if options.resume.is_some() && target.counts && options.connections > 1 {
        let text =
            "--resume of a counting or cuckoo filter requires --connections 1: batches must arrive in order";
        return Err(Failure::Usage(text.into()).into());
    }
    Ok(target)
}

/// A load that can be resumed: its file, and its account on the server.
struct Resumable<'o> {
    path: &'o Path,
    key: &'o [u8],
    file: File,
    account: Option<OnServer>,
    /// The account as it was found on the server.
    found: Option<Found>,
}

impl<'o> Resumable<'o> {
    /// If the load is to be resumable, reads its file, or creates one if there is none.
    fn open(options: &'o Options) -> anyhow::Result<Option<Resumable<'o>>> {
        let Some(path) = options.resume.as_deref() else { return Ok(None) };
        let key = options.key.as_bytes();
        let number = Seed::random(HashKind::SipHash).context("no randomness")?;
        let number = format!("{:032x}", u128::from(number));
        let fresh = File::new(number, output::key(key), options.input.form());
        let file = match File::read(path)? {
            Some(file) => file.is_of(&fresh).map(|()| file)?,
            None => {
                fresh.write(path)?;
                fresh
            }
        };
        Ok(Some(Resumable { path, key, file, account: None, found: None }))
    }

    /// Looks for the account on the server. If it is there, it replaces the state in the file. Fails if it should be
    /// there but isn't.
    fn find(&mut self, connection: &mut Connection, target: &Filling) -> anyhow::Result<()> {
        let account = OnServer::new(target.kind, self.key, &self.file.load, target.counts);
        self.found = account.find(connection)?;
        match (&self.found, self.file.stage) {
            (Some(found), _) => {
                self.file.state.clone_from(&found.state);
                self.file.filter.clone_from(&found.filter);
            }
            (None, Stage::New) => on_server::refuse_older(connection, self.key)?,
            (None, Stage::Begun) => return Err(account.gone().into()),
            (None, Stage::Complete) => {}
        }
        self.account = Some(account);
        Ok(())
    }

    /// Reads again what the earlier run has read. Returns the rest of that run's last batch, and a sample of the
    /// batch's items that are in the filter.
    fn take_up(&mut self, items: &mut Items) -> anyhow::Result<(Option<Part>, Sample)> {
        let state = &mut self.file.state;
        let batch = items.again(&state.last)?;
        let Span { start, end, open, .. } = state.last;
        // Number of the batch's items before the account's offset.
        let sure = match state.offset {
            offset if offset == start => 0,
            offset if offset == end => batch.items,
            _ => batch.before_last.items,
        };
        if open.is_some_and(|open| open != batch.digest_of_last()) {
            // The open item has grown, so it is a different item now.
            state.taken.truncate(batch.before_last.items.saturating_sub(sure));
        }
        let taken = [Taken::first(sure).flags(), state.taken.flags()].concat();
        let then = self.file.filter.then.clone();
        let sample = Sample::of(&batch.blob, if then.is_empty() { &[] } else { &taken }, then);
        let from = (state.offset, state.taken.clone());
        Ok(((state.offset < end).then(|| Part::left(batch, from, &taken)), sample))
    }

    /// Takes over the account or creates it, and then records in the file that the load has begun. So an account that
    /// has been lost can be distinguished from one that never existed.
    fn begin(&mut self, connection: &mut Connection, sample: &Sample) -> anyhow::Result<OnServer> {
        let account = self.account.clone().context("the account was not looked for")?;
        let goes_on = self.file.stage != Stage::New;
        let noted = (goes_on || self.found.is_some()).then_some(&self.file.filter);
        account.write(connection, &self.file.state, self.found.as_ref(), noted, sample)?;
        if goes_on {
            let State { offset, items, .. } = self.file.state;
            error::note(&format!("continuing after byte {offset}, {} items are in", count(items)));
        }
        self.file.stage = Stage::Begun;
        self.file.write(self.path)?;
        Ok(account)
    }

    /// Moves the account from the server to the file. The file is written first, so at any time one of the two says
    /// that all items are in.
    fn complete(
        &mut self,
        connection: &mut Connection,
        target: &Filling,
        state: &State,
    ) -> anyhow::Result<()> {
        let Some(account) = self.account.clone() else { return Ok(()) };
        let Some(found) = account.find(connection)? else { return Err(account.gone().into()) };
        self.file.filter = found.filter;
        if target.counts {
            // A server's count of deletes starts again when it loads the filter. So after a restart, items that were
            // deleted earlier would look lost.
            self.file.filter.removed.clear();
            self.file.filter.then.clear();
        }
        self.file.stage = Stage::Complete;
        self.note(state)?;
        account.remove(connection)
    }

    /// Records in the file how far the load got. While the account is on the server, this is only for people to read.
    fn note(&mut self, state: &State) -> anyhow::Result<()> {
        self.file.state.clone_from(state);
        self.file.write(self.path)
    }
}

/// Says how far the load got, and how to continue it.
fn how_to_go_on(options: &Options, state: &State) -> String {
    let State { offset, taken, items, .. } = state;
    let skip = taken.count();
    let name = options.input.name();
    let mut so_far = format!("{} items are in: all before byte {offset} of {name}", count(*items));
    if skip > 0 {
        so_far.push_str(&format!(", and {} after it", count(skip)));
    }
    match options.resume {
        Some(_) => format!("{so_far}; run the same command to continue"),
        None => format!("{so_far}; with --resume STATE, a load can continue where it stopped"),
    }
}

fn report(options: &Options, state: &State, from: u64, took: Duration) -> anyhow::Result<Outcome> {
    let report = Report {
        items_read: state.items,
        items_new: (!options.rebuild).then_some(state.new),
        blank_lines: state.blank + state.open_blank,
        input_bytes: state.last.end,
        resumed_from: from,
        seconds: took.as_secs_f64(),
        ..Report::new(options)
    };
    report.print(options.json).map(|()| Outcome::Done)
}

/// Adds the items of an input to the new filter of a rebuild, until an interruption. Returns the number of items, and
/// the number of empty lines.
pub(super) fn backfill(
    server: &Server,
    key: &[u8],
    (input, items): (&Input, Items),
    pace: &Pace,
    interrupted: &Interrupted,
) -> anyhow::Result<(u64, u64)> {
    let sender = Sender::new(server.clone(), key, Kind::Rebuild);
    let progress = Progress::new(pace, input.len(), 0);
    let mut load = Load { account: Account::new(State::default()), progress, connections: 1, batch: BATCH };
    let stopped = load.run(&sender, None, items, &Sample::default(), interrupted);
    load.progress.finish();
    let State { items, blank, open_blank, .. } = load.account.into_state();
    stopped.map(|()| (items, blank + open_blank))
}

/// A load in progress.
struct Load {
    account: Account,
    progress: Progress,
    /// Number of connections.
    connections: u8,
    /// Maximum number of items per command.
    batch: u64,
}

impl Load {
    /// Sends batches until the end, an error, or an interruption.
    fn run(
        &mut self,
        sender: &Sender,
        first: Option<Part>,
        items: Items,
        sample: &Sample,
        interrupted: &Interrupted,
    ) -> anyhow::Result<()> {
        let limits = Limits { items: sender.most_items(self.batch), bytes: BATCH_BYTES };
        let workers = usize::from(self.connections);
        // One batch may wait per connection, so that reading and sending overlap and memory stays bounded.
        let (to_send, batches) = mpsc::sync_channel(workers);
        let (to_account, answers) = mpsc::channel();
        let batches = Arc::new(Mutex::new(batches));
        let stop = interrupted.clone();
        // This thread isn't joined, because it may be blocked on a pipe that never delivers.
        std::thread::spawn(move || read(first, items, limits, &to_send, &stop));
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (batches, to_account) = (Arc::clone(&batches), to_account.clone());
                scope.spawn(move || {
                    let result = work(sender, &batches, sample.clone(), &to_account, interrupted);
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
                        if let Some(refused) = self.account.add(answer) {
                            result = result.and(Err(refused));
                        }
                        self.progress.at(self.account.state().last.end, self.account.state().items);
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
}

/// A batch, or the error that ended reading.
type Read = anyhow::Result<Part>;

/// Reads batches until the input ends, reading fails, `stop` is set, or nobody receives them any more. `first` is the
/// rest of an earlier run's last batch.
fn read(
    first: Option<Part>,
    mut items: Items,
    limits: Limits,
    to_send: &SyncSender<Read>,
    stop: &Interrupted,
) {
    let mut first = first.map(Ok);
    let mut next = || first.take().or_else(|| Some(items.next_batch(limits).transpose()?.map(Part::whole)));
    while let Some(read) = next() {
        let failed = read.is_err();
        if stop.is_set() || to_send.send(read).is_err() || failed {
            return;
        }
    }
}

/// Sends batches over one connection until there are no more, the server refuses one, or the user interrupts.
fn work(
    sender: &Sender,
    batches: &Mutex<Receiver<Read>>,
    mut sample: Sample,
    to_account: &mpsc::Sender<anyhow::Result<Answer>>,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut connection = sender.connect()?;
    while !interrupted.is_set() {
        let next = batches.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LISTEN_EVERY);
        let part = match next {
            Ok(part) => part?,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let answer = sender.send(&mut connection, &part, &mut sample)?;
        let refused = answer.refused.is_some();
        if to_account.send(Ok(answer)).is_err() || refused {
            break;
        }
    }
    Ok(())
}
