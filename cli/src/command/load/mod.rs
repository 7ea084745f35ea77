//! `bloomery load`: adds items from a file to a filter on a server, in bulk commands.
//!
//! One thread reads batches, others send them, and the main thread puts the acks in order. So if the load ends
//! early, the program can say up to which byte of the input every item is in the filter. With --resume, a key on the
//! server says it too, and the next load continues there.

mod acks;
mod bookmark;
mod options;
mod pipeline;
mod report;
mod send;
mod spread;

use crate::error::{self, Aftermath, Failure, Outcome, fail};
use crate::input::Items;
use crate::interrupt::{self, Interrupted};
use crate::output::progress::Pace;
use crate::output::{self, Name, count};
use crate::server::connection::{Connection, Server};
use crate::server::family::{Adding, Family, REBUILD};
use crate::server::info;
use acks::Position;
use anyhow::Context;
use bloomery::Summary;
use bloomery_plan::Wanted;
use bookmark::{Bookmark, Saved};
use options::BATCH;
pub(crate) use options::Options;
use pipeline::Pipeline;
use report::Report;
use send::senders;
use std::time::Instant;

/// Loads the items, and reports their number. After an error or an interruption, says how to continue.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    if let Some(parts) = options.spread {
        return spread::run(options, parts);
    }
    let started = Instant::now();
    let interrupted = interrupt::listen()?;
    // A file that can't be read is refused before a filter is created.
    let mut items = options.input.open()?;
    let mut connection = options.server.connect()?;
    let mut bookmark = options.resume.then(|| Bookmark::new(options));
    let saved = bookmark.as_mut().map_or(Ok(None), |bookmark| bookmark.read(&mut connection))?;
    let target = prepare(options, &mut connection, saved.is_none())?;
    let from = match (saved, &bookmark) {
        (Some(saved), Some(bookmark)) => take_up(options, &target, bookmark, saved, &mut items)?,
        _ => Position { others: target.items.unwrap_or(0), ..Position::default() },
    };
    // Skipping may take so long that the server closes the connection, so it isn't used any more.
    drop(connection);
    let connect = || options.server.connect();
    let rebuild = options.rebuild.then_some(&*target.identity);
    let senders =
        senders(&options.server, options.key.as_bytes(), target.adding, rebuild, options.connections)?;
    let bookmark = match bookmark {
        Some(bookmark) => Some((bookmark, target.identity.clone(), connect()?)),
        None => None,
    };
    let mut load = Pipeline::new(&options.pace, &mut items, from, bookmark);
    let stopped = load.run(senders, options.limits(target.adding.most_items), items, &interrupted);
    let stopped = stopped.and_then(|()| {
        if interrupted.is_set() {
            return Ok(());
        }
        let kept = target.check(options, &mut connect()?, load.acks.position().known());
        // Also if items were lost: the filter that took its place may look like it by now, so the next load must begin
        // again.
        if let Some((bookmark, _, connection)) = &mut load.bookmark {
            bookmark.remove(connection)?;
        }
        kept
    });
    let then = match options.resume {
        true => "run the same command to continue",
        false if target.counts => target.adding.start_again,
        false => "with --resume, a load can continue where it stopped",
    };
    end(options, &load, stopped, &interrupted, started, then)
}

/// Reports what was loaded. After an error or an interruption, says how far the load got, and what to do then.
fn end(
    options: &Options,
    load: &Pipeline,
    stopped: anyhow::Result<()>,
    interrupted: &Interrupted,
    started: Instant,
    then: &str,
) -> anyhow::Result<Outcome> {
    let Position { offset, items, new, blank, .. } = *load.acks.position();
    let so_far = format!(
        "{} items are in: all before byte {offset} of {}, and perhaps some after it; {then}",
        count(items),
        options.input.name()
    );
    match stopped {
        Err(error) if matches!(error.downcast_ref(), Some(Failure::Lost(_))) => return Err(error),
        Err(error) => return Err(error.context(Aftermath(so_far))),
        Ok(()) if interrupted.is_set() => {
            error::note(&format!("interrupted: {so_far}"));
            return Ok(Outcome::Interrupted);
        }
        Ok(()) => {}
    }
    let report = Report {
        key: Name::new(options.key.as_bytes()),
        items_read: items,
        items_new: (!options.rebuild).then_some(new),
        blank_lines: blank,
        input_bytes: offset,
        resumed_from: load.from,
        seconds: started.elapsed().as_secs_f64(),
    };
    report.print(options.json).map(|()| Outcome::Done)
}

/// Skips what an earlier run has loaded. Returns the position that it has reached.
fn take_up(
    options: &Options,
    target: &LoadTarget,
    bookmark: &Bookmark,
    saved: Saved,
    items: &mut Items,
) -> anyhow::Result<Position> {
    if !target.has_kept(&saved.identity, saved.position.known()) {
        let key = output::key(options.key.as_bytes());
        let text =
            format!("{key} is not the filter that this load has begun to fill, or has lost items since");
        return Err(anyhow::Error::new(Failure::Lost(text)).context(bookmark.way_out()));
    }
    // A run that was killed may have added more than the bookmark says.
    let others = target.items.unwrap_or(0).saturating_sub(saved.position.new);
    let from = Position { others, ..saved.position };
    items.skip_to(from.offset, from.digest).map_err(|error| error.context(bookmark.way_out()))?;
    error::note(&format!("continuing after byte {}, {} items are in", from.offset, count(from.items)));
    Ok(from)
}

/// The filter that the load fills, as it was when the load began.
struct LoadTarget {
    adding: &'static Adding,
    /// Whether the filter counts every add, so that no add may be repeated.
    counts: bool,
    /// Distinguishes the filter from one that replaces it; empty for a filter of another system.
    identity: String,
    /// Number of items in the filter; `None` if this number may fall without a loss.
    items: Option<u64>,
}

impl LoadTarget {
    fn new(options: &Options, filter: &Summary) -> LoadTarget {
        let family = Family::of(filter);
        let rebuild = family.rebuild.filter(|_| options.rebuild);
        let (filled, identity) = match (&filter.rebuild, rebuild) {
            (Some(shadow), Some(_)) => (&shadow.kind, Some(&shadow.identity)),
            _ => (&filter.kind, filter.identity.as_ref()),
        };
        let counts = family.counts(filled);
        let may_fall = counts || rebuild.is_some() || filled == "window";
        LoadTarget {
            adding: rebuild.unwrap_or(family.add),
            counts,
            identity: identity.map(|identity| identity.to_string()).unwrap_or_default(),
            items: (!may_fall).then_some(filter.items),
        }
    }

    /// Whether this is the filter with that identity, and may still have the `known` items that were in it.
    fn has_kept(&self, identity: &str, known: u64) -> bool {
        self.identity == identity && self.items.is_none_or(|items| known <= items)
    }

    /// Fails if the filter was replaced, emptied or deleted during the load, because the items sent before that are
    /// lost.
    fn check(&self, options: &Options, connection: &mut Connection, known: u64) -> anyhow::Result<()> {
        let key = options.key.as_bytes();
        let now = info::describe(connection, key)?.map(|filter| LoadTarget::new(options, &filter));
        if now.is_some_and(|now| now.has_kept(&self.identity, known)) {
            return Ok(());
        }
        fail!(Lost, "{} was replaced, emptied or deleted during the load", output::key(key))
    }
}

/// Finds the filter to fill. Creates it if it doesn't exist and the options say what to create.
fn prepare(options: &Options, connection: &mut Connection, may_create: bool) -> anyhow::Result<LoadTarget> {
    // Mistakes in the options are reported before anything is sent.
    let wanted = options.reserve.is_given().then(|| options.reserve.wanted()).transpose()?;
    let key = options.key.as_bytes();
    let mut filter = info::describe(connection, key)?;
    if filter.is_none() && !may_create {
        let text = format!("{} is gone, and with it the items that this load has added", output::key(key));
        return Err(anyhow::Error::new(Failure::Lost(text)).context(Bookmark::new(options).way_out()));
    }
    if let Some(wanted) = wanted {
        if filter.is_some() {
            error::note(&format!("{} exists already; its options stay as they are", output::key(key)));
        } else {
            create(options, &wanted, &options.key, connection).context("cannot create the filter")?;
            filter = info::describe(connection, key)?;
        }
    }
    let Some(filter) = filter else {
        fail!(Usage, "there is no filter {}; use --capacity and --error-rate to create it", output::key(key));
    };
    let target = LoadTarget::new(options, &filter);
    let family = Family::of(&filter);
    if options.rebuild && family.rebuild.is_none() {
        fail!(Usage, "--rebuild is for Bloom filters, but this is a {} filter", family.title);
    }
    if options.resume && target.counts {
        fail!(
            Usage,
            "{} counts its items, so --resume could count some of them twice. Load without --resume; if the load stops, {}",
            output::key(key),
            target.adding.start_again
        );
    }
    Ok(target)
}

/// Creates a filter with the given options.
fn create(
    options: &Options,
    wanted: &Wanted,
    key: &str,
    connection: &mut Connection,
) -> redis::RedisResult<()> {
    let words = options.reserve.command(wanted, key);
    redis::cmd(&words[0]).arg(&words[1..]).query(connection)
}

/// Adds the items of an input to the new filter of the rebuild with this identity, until an interruption. Returns the
/// number of items, and the number of empty lines.
pub(super) fn backfill(
    server: &Server,
    key: &[u8],
    identity: &str,
    mut items: Items,
    pace: &Pace,
    interrupted: &Interrupted,
) -> anyhow::Result<(u64, u64)> {
    let senders = senders(server, key, &REBUILD, Some(identity), 1)?;
    let mut load = Pipeline::new(pace, &mut items, Position::default(), None);
    load.run(senders, BATCH, items, interrupted)?;
    let Position { items, blank, .. } = *load.acks.position();
    Ok((items, blank))
}
