//! A load into one filter that is spread over the nodes of a cluster. It keeps no account, because adding an item again
//! to a Bloom filter without counters changes nothing. So a load that was interrupted is run again from its beginning.

use super::acks::Position;
use super::options::Options;
use super::pipeline::Pipeline;
use super::{create, end, send::add};
use crate::error::{self, Aftermath, Outcome, fail};
use crate::filter::parts::part_wanted;
use crate::input::{Batch, BatchLimits};
use crate::interrupt;
use crate::output::key;
use crate::server::family::{FAMILIES, Family};
use crate::server::info;
use crate::server::spread::{Share, Spread};
use anyhow::Context;
use std::time::Instant;

/// Number of bytes that each part adds to the size of a batch.
const PART_BYTES: usize = 1 << 16;

/// Maximum number of parts that add [`PART_BYTES`] to the size of a batch.
const MOST_FULL: usize = 64;

/// Loads the items into the parts, and reports their number.
pub(super) fn run(options: &Options, parts: u16) -> anyhow::Result<Outcome> {
    let started = Instant::now();
    let interrupted = interrupt::listen()?;
    // A file that can't be read is refused before a filter is created.
    let mut items = options.input.open()?;
    let mut spread = Spread::connect(&options.server, &options.key, parts)?;
    prepare(options, &mut spread).map_err(|why| match error::code(&why) {
        3 => why.context(Aftermath("Nothing was added yet".into())),
        _ => why,
    })?;
    let limits = BatchLimits {
        items: options.limits(u64::MAX).items.saturating_mul(spread.len() as u64),
        bytes: PART_BYTES * spread.len().min(MOST_FULL),
    };
    let send = |batch: &Batch| {
        let shares = spread.shares(&batch.blob);
        let new = spread.each(|part, key, connection| {
            let Share { places, blob } = &shares[part];
            add(FAMILIES[0].add, connection, key.as_bytes(), blob, places.len() as u64)
        })?;
        Ok(new.iter().sum())
    };
    let mut load = Pipeline::new(&options.pace, &mut items, Position::default(), None);
    let stopped = load.run(vec![send], limits, items, &interrupted);
    let then = "run the same command again: adding an item twice changes nothing";
    end(options, &load, stopped, &interrupted, started, then)
}

/// Creates the missing parts. Fails if the options to create them weren't given, or if a part has counters or is a
/// cuckoo filter.
fn prepare(options: &Options, spread: &mut Spread) -> anyhow::Result<()> {
    let wanted = options.reserve.is_given().then(|| options.reserve.wanted()).transpose()?;
    let wanted = wanted.map(|whole| part_wanted(whole, spread.len())).transpose()?;
    let found = spread.each(|_, part, connection| {
        let Some(filter) = info::describe(connection, part.as_bytes())? else { return Ok(false) };
        if Family::of(&filter).counts(&filter.kind) {
            fail!(Usage, "a {} filter; --spread is for Bloom filters without counters", filter.kind);
        }
        Ok(true)
    })?;
    let (missing, all) = (found.iter().filter(|found| !**found).count(), spread.len());
    let name = key(options.key.as_bytes());
    let Some(wanted) = wanted else {
        if missing > 0 {
            fail!(
                Usage,
                "{missing} of the {all} parts of {name} are missing; use --capacity and --error-rate to create them"
            );
        }
        return Ok(());
    };
    if missing == 0 {
        error::note(&format!("{name} exists already; its options stay as they are"));
    } else if missing < all {
        error::note(&format!(
            "{missing} of the {all} parts of {name} are missing, with the items that they had. They are created \
             empty, so load all items again"
        ));
    }
    spread.each(|index, part, connection| match found[index] {
        true => Ok(()),
        false => create(options, &wanted, part, connection).context("cannot create it"),
    })?;
    Ok(())
}
