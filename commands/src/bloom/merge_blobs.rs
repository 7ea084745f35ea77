//! BF.MERGE of filters that are given as files or DUMP payloads, perhaps from another server, instead of in keys.

use super::algebra::MERGE_MORE;
use super::generations::catch_up;
use super::unite::{Merged, Refused, clock, merged, put_merged, refuse_rebuild, union_work, unite, work};
use crate::call::{Access, Admitted, Background, BloomKey, Call, Data, TwoStep, still_in_keys};
use crate::error::CommandError;
use crate::grow::admit_reserved;
use crate::items::limit_sources;
use crate::reply::Reply;
use bloomery::Error;
use bloomery::filter::{Filter, Garbage, Live, LiveRef, Union};
use bloomery::parallel::ParallelFor;
use bloomery::wire::DecodeError;
use bloomery::wire::whole::{self, Declared};
use std::sync::Arc;

/// The index of the first blob.
pub(super) const FIRST: usize = 3;

/// Reading a byte of a blob takes as long as combining this many bytes of cells. Combining a MiB of bits takes 0.3 ms.
/// Reading a MiB takes 1.0 ms for a file, and 1.4 to 2.6 ms for a DUMP payload.
const READ: u64 = 4;

/// Reading the shortest blob takes as long as reading this many bytes of a long blob: 2 µs.
const LEAST_READ: u64 = 2048;

/// `BF.MERGE destination BLOB data [data…]`: merges filters that are given as files or DUMP payloads, perhaps from
/// another server, instead of in keys.
pub(super) fn merge_blobs<'a, C: Call<'a>>(call: &C, key: C::Key<Filter>) -> Result<Reply, CommandError> {
    let existing = key.bloom()?;
    let arguments = FIRST..call.argc();
    limit_sources(call, arguments.len(), MERGE_MORE)?;
    let blobs: Vec<&[u8]> = arguments.clone().map(|index| call.arg(index)).collect();
    let (mut cells, mut largest) = (0u64, existing.map_or(0, LiveRef::bytes));
    let mut effort = existing.map_or(0, work);
    for (number, blob) in blobs.iter().enumerate() {
        let Declared { cells: declared, is_cuckoo } =
            whole::declared(blob).map_err(|why| bad_source(number, why))?;
        if is_cuckoo {
            return Err(cuckoo_source(number));
        }
        cells = cells.saturating_add(declared);
        largest = largest.max(declared);
        let bytes = declared.max(blob.len() as u64).max(LEAST_READ);
        effort = effort.saturating_add(bytes.saturating_mul(READ));
    }
    if call.goes_to_background(effort) {
        let memory = Admitted::for_background_work(call, largest, cells)?;
        let (inputs, data) = (Arc::new([]), Data::Arguments(arguments));
        return call.in_background(Background { keys: vec![1], inputs, data, memory }, Reading);
    }
    if !call.is_from_primary() {
        // The temporary memory of the sources is freed when this command ends, before the server evicts any keys. So
        // only this check limits it.
        call.admit(largest, cells)?;
    }
    merge_read(call, key, &mut read_all(&blobs)?)
}

/// The first half of a BF.MERGE of blobs in the background. Only when they have been read is it known what the union
/// needs.
struct Reading;

impl TwoStep for Reading {
    type Prepared = Result<Vec<Filter>, CommandError>;

    fn prepare(&mut self, blobs: &[&[u8]], _: &ParallelFor<'_>) -> Self::Prepared {
        read_all(blobs)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        read: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = call.open::<Filter>(1, Access::Write);
        refuse_rebuild(&key)?;
        let mut sources = read()?;
        let merged = merge_read(call, key, &mut sources);
        let bytes = sources.iter().map(Filter::bytes).sum();
        call.discard(Garbage::Other(Box::new(sources), bytes));
        merged
    }
}

/// Merges filters that were in blobs. If it does so in the background, it takes them.
fn merge_read<'a, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    sources: &mut Vec<Filter>,
) -> Result<Reply, CommandError> {
    let (existing, now_ms) = (key.bloom()?, clock(call));
    let filters: Vec<LiveRef<'_>> = sources.iter().filter_map(Filter::live).collect();
    let union = Union::plan(existing, &filters, now_ms).map_err(|why| blob_refusal(why.into()))?;
    let Some(base) = existing.or(filters.first().copied()) else { return Err(CommandError::NotFound) };
    let inputs = existing.into_iter().chain(filters.iter().copied());
    if !call.goes_to_background(union_work(&union, inputs)) {
        return unite(call, key, &filters, union, blob_refusal);
    }
    let is_new = existing.is_none();
    if is_new {
        admit_reserved(call, base.reserved_bytes())?;
    }
    let memory = Admitted::for_background_work(call, base.bytes(), union.most_bytes(base))?;
    catch_up(call, &mut key)?;
    let inputs: Arc<[Live]> = key.bloom()?.into_iter().map(LiveRef::share).collect();
    let data = Data::Arguments(0..0);
    let job = Background { keys: vec![1], inputs: inputs.clone(), data, memory };
    call.in_background(job, MergeBlobs { inputs, sources: std::mem::take(sources), is_new, now_ms })
}

/// A BF.MERGE of blobs that have been read, in the background.
struct MergeBlobs {
    /// The destination, unless it `is_new`.
    inputs: Arc<[Live]>,
    sources: Vec<Filter>,
    is_new: bool,
    now_ms: Option<u64>,
}

impl TwoStep for MergeBlobs {
    type Prepared = Result<Merged, Refused>;

    fn prepare(&mut self, _: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        let sources = std::mem::take(&mut self.sources);
        let filters = self.inputs.iter().map(Live::as_ref).chain(sources.iter().filter_map(Filter::live));
        merged(&filters.collect::<Vec<_>>(), self.is_new, self.now_ms, parallel)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        merged: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = call.open::<Filter>(1, Access::Write);
        refuse_rebuild(&key)?;
        still_in_keys(&self.inputs, key.bloom()?.as_slice())?;
        put_merged(call, key, merged().map_err(blob_refusal)?)
    }
}

/// The error for blobs that can't be merged.
fn blob_refusal(why: Refused) -> CommandError {
    why.told(|source| format!("blob {}", source.saturating_add(1)))
}

/// Reads the Bloom filters in these blobs.
fn read_all(blobs: &[&[u8]]) -> Result<Vec<Filter>, CommandError> {
    let read = |(number, blob): (usize, &&[u8])| match whole::read(blob) {
        Ok(Filter::Cuckoo(_)) => Err(cuckoo_source(number)),
        read => read.map_err(|why| bad_source(number, why)),
    };
    blobs.iter().enumerate().map(read).collect()
}

/// The error for blob `number`, counted from 0.
fn bad_source(number: usize, why: DecodeError) -> CommandError {
    match why {
        DecodeError::OutOfMemory { bytes } => Error::OutOfMemory { bytes }.into(),
        why => CommandError::BadSource { blob: number.saturating_add(1), why },
    }
}

fn cuckoo_source(number: usize) -> CommandError {
    CommandError::CuckooSource { blob: number.saturating_add(1) }
}
