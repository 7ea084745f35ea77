//! Filters in chunks: SCANDUMP and LOADCHUNK, in the wire format. An AOF rewrite writes the same LOADCHUNKs.
//!
//! Iterators are RedisBloom's. 0 asks for the head, which comes with iterator 1. 1 + n asks for the chunk at byte n
//! of the body, which comes with 1 + the offset after the chunk. The end is iterator 0 and an empty string. Each
//! piece is loaded with the iterator that came with it.
//!
//! A filter that is being loaded becomes a key, and is replicated, when its last chunk arrives.

use super::call::{Access, Call, Effect, Key};
use super::error::CommandError;
use super::loads::{MAX_LOADS, Pieces};
use super::options::integer;
use super::reply::Reply;
use super::table::{Command, Namespace};
use crate::filter::FilterRef;
use crate::wire::redisbloom::Loader;
use crate::wire::{DecodeError, Encoder};

/// The filter in a key, if it belongs to this namespace; during a rebuild the live one.
fn filter<K: Key>(namespace: Namespace, key: &K) -> Result<Option<FilterRef<'_>>, CommandError> {
    Ok(match namespace {
        Namespace::Bloom => key.bloom()?.map(FilterRef::from),
        Namespace::Cuckoo => key.cuckoo()?.map(FilterRef::from),
    })
}

/// `BF.SCANDUMP key iterator`, `CF.SCANDUMP key iterator`.
pub(super) fn scan_dump<'a, C: Call<'a>>(call: &C, namespace: Namespace) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(namespace.bad_iterator(false));
    let key = call.open(1, Access::Read);
    // RedisBloom checks the iterator first for CF, and the key first for BF.
    if namespace == Namespace::Cuckoo && !iterator.as_ref().is_ok_and(|iterator| *iterator >= 0) {
        return Err(namespace.bad_iterator(false));
    }
    let encoder = Encoder::new(filter(namespace, &key)?.ok_or(CommandError::NotFound)?);
    let iterator = iterator?;
    if iterator == 0 {
        return Ok(Reply::Array(vec![1u64.into(), Reply::Bulk(encoder.head().to_vec())]));
    }
    let mut piece = Vec::new();
    let offset = iterator.checked_sub(1).and_then(|offset| u64::try_from(offset).ok());
    Ok(Reply::Array(match (offset.and_then(|offset| encoder.chunk(offset, &mut piece)), namespace) {
        (Some(end), _) => vec![end.saturating_add(1).into(), Reply::Bulk(piece)],
        (None, Namespace::Bloom) => vec![0u64.into(), Reply::Bulk(Vec::new())],
        (None, Namespace::Cuckoo) => vec![0u64.into(), Reply::Null],
    }))
}

/// `BF.LOADCHUNK key iterator data`, `CF.LOADCHUNK key iterator data`.
pub(super) fn load_chunk<'a, C: Call<'a>>(call: &C, namespace: Namespace) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(namespace.bad_iterator(true))?;
    if namespace == Namespace::Cuckoo && iterator <= 0 {
        return Err(namespace.bad_iterator(true));
    }
    let mut key = call.open(1, Access::Write);
    if let Some(filter) = filter(namespace, &key)? {
        return Err(complete_already(namespace, iterator, filter.bytes()));
    }
    let data = call.arg(3);
    // RedisBloom up to 2.2.6 wrote heads with iterator 0 into its append-only files.
    let is_old_head = || iterator == 0 && namespace == Namespace::Bloom && Loader::bloom(data).is_ok();
    let is_head = iterator == 1 || is_old_head();
    if is_head {
        // No filter is complete without a chunk.
        begin(call, namespace, data)?;
        return Ok(Reply::Ok);
    }
    let complete = call.with_loads(|loads, database| {
        loads.proceed(&(database, call.arg(1).to_vec()), namespace, iterator, data)
    })?;
    if let Some(pieces) = complete {
        let filter = pieces.finish().map_err(|why| namespace.bad_chunk(why))?;
        replicate_pieces(call, namespace, &Encoder::new(&filter));
        key.create(filter);
        call.changed(match namespace {
            Namespace::Bloom => c"bf.load",
            Namespace::Cuckoo => c"cf.load",
        });
    }
    Ok(Reply::Ok)
}

/// The error for pieces that are sent to a key that already holds a filter.
fn complete_already(namespace: Namespace, iterator: i64, bytes: u64) -> CommandError {
    let end = bytes.saturating_add(1);
    match namespace {
        Namespace::Cuckoo if iterator == 1 => CommandError::Exists,
        Namespace::Cuckoo => CommandError::BadChunk(DecodeError::Complete),
        Namespace::Bloom if u64::try_from(iterator).is_ok_and(|iterator| iterator > end) => {
            CommandError::NoLink
        }
        Namespace::Bloom => CommandError::BadData(None),
    }
}

/// Reads the head.
fn begin<'a, C: Call<'a>>(call: &C, namespace: Namespace, head: &[u8]) -> Result<(), CommandError> {
    const TOO_MANY: CommandError =
        CommandError::Exclusive("too many filters are being loaded; finish those or wait five minutes");
    let pieces = Pieces::begin(namespace, head)?;
    call.discard(call.with_loads(|loads, _| loads.drop_abandoned()));
    // All pieces of a filter from a primary, an AOF or a slot's source node arrive together, so the loads that
    // clients have begun here are no reason to refuse them.
    if !call.obeys() {
        let bytes = pieces.body_len();
        call.admit(bytes, bytes)?;
        let (count, total, missing) =
            call.with_loads(|loads, database| loads.others(&(database, call.arg(1).to_vec())));
        let together = call.admit(total.saturating_add(bytes), missing.saturating_add(bytes));
        if count >= MAX_LOADS || together.is_err() {
            return Err(TOO_MANY);
        }
    }
    call.discard(call.with_loads(|loads, database| loads.begin((database, call.arg(1).to_vec()), pieces)));
    Ok(())
}

/// Sends the whole filter to the replicas at once, so that a replica that joins during a load misses nothing.
pub(super) fn replicate_pieces<'a, C: Call<'a>>(call: &C, namespace: Namespace, encoder: &Encoder<'_>) {
    let command = load_command(namespace);
    each_piece(encoder, |iterator, piece| {
        let iterator = iterator.to_string().into_bytes();
        call.replicate(Effect::Arguments(command, vec![iterator, piece.to_vec()]));
    });
}

/// The command that loads the pieces of a filter.
pub fn load_command(namespace: Namespace) -> Command {
    match namespace {
        Namespace::Bloom => Command::Loadchunk,
        Namespace::Cuckoo => Command::CfLoadchunk,
    }
}

/// Visits every piece, with the iterator for its LOADCHUNK.
pub fn each_piece(encoder: &Encoder<'_>, mut visit: impl FnMut(u64, &[u8])) {
    visit(1, encoder.head());
    encoder.chunks(|end, piece| visit(end.saturating_add(1), piece));
}
