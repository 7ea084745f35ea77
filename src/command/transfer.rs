//! Filters in chunks: SCANDUMP and LOADCHUNK, in the wire format. An AOF rewrite writes the same LOADCHUNK commands.
//!
//! Iterators have the same meaning as in RedisBloom. 0 asks for the head, which comes with iterator 1. 1 + n asks for
//! the chunk at byte n of the body, which comes with 1 + the offset after the chunk. At the end, the reply has iterator
//! 0 and an empty string, or null for a cuckoo filter. Each piece is loaded with the iterator that came with it.
//!
//! A filter that is being loaded appears in its key when its last chunk arrives. Pieces in our format are replicated
//! when they arrive. If the pieces are in RedisBloom's format, the whole filter is replicated after the last one. Only
//! if this server follows a server with RedisBloom does the head alone create the key, as in RedisBloom.
//!
//! If replicas and the AOF have no part of a large filter yet, the filter is sent to them in pieces before it appears
//! in its key. So they have the whole filter or nothing, and no command of the stream is longer than a piece.

use super::call::{Access, Admitted, Background, Call, Data, Effect, Key, TwoStep};
use super::error::CommandError;
use super::options::integer;
use super::reply::Reply;
use super::table::{Command, Namespace};
use super::uploads::{END, Ended, MAX_UPLOADS, Pieces, Sent, end, upload_command};
use crate::filter::{Filter, FilterRef};
use crate::parallel::ParallelFor;
use crate::wire::redisbloom::{self, Destination, Loader, Placed};
use crate::wire::{DecodeError, Encoder};
use std::ffi::CStr;
use std::sync::Arc;

/// The index of the argument that contains the piece.
const DATA: usize = 3;

/// Copying a byte of a piece in RedisBloom's format into an upload takes as long as processing this many bytes of
/// cells: the cells are counted before and after, and waiting bytes are moved as well. A piece of 16 MiB takes up to 74
/// ms.
const PLACED: u64 = 4;

/// The filter in a key, which must belong to this namespace. During a rebuild, this is the live filter.
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
    let filter = filter(namespace, &key)?.ok_or(CommandError::NotFound)?;
    let iterator = iterator?;
    if iterator != 0 || filter.arrays().nth(1).is_some() {
        call.may_be_long();
    }
    let encoder = Encoder::dump(filter);
    if iterator == 0 {
        return Ok(Reply::Piece(1, Some(encoder.into_head())));
    }
    let mut piece = Vec::new();
    let offset = iterator.checked_sub(1).and_then(|offset| u64::try_from(offset).ok());
    Ok(match offset.and_then(|offset| encoder.chunk(offset, &mut piece)) {
        Some(end) => Reply::Piece(end.saturating_add(1), Some(piece)),
        None => Reply::Piece(0, (namespace == Namespace::Bloom).then(Vec::new)),
    })
}

/// `BF.LOADCHUNK key iterator data`, `CF.LOADCHUNK key iterator data`.
pub(super) fn load_chunk<'a, C: Call<'a>>(call: &C, namespace: Namespace) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(namespace.bad_iterator(true))?;
    let data = call.arg(DATA);
    // Iterator 0 without data, which is BF.SCANDUMP's reply at the end of a filter, ends the upload, even if it is
    // incomplete. If this server follows another one, the upload may have ended already.
    if iterator == 0 && data.is_empty() && (abort(call, namespace) || call.is_from_primary()) {
        return Ok(Reply::Ok);
    }
    if namespace == Namespace::Cuckoo && iterator <= 0 {
        return Err(namespace.bad_iterator(true));
    }
    if !call.is_from_primary() && call.is_out_of_memory() {
        go_on_without_memory(call, data.len().saturating_add(call.arg(1).len()))?;
    }
    let mut key = call.open(1, Access::Write);
    if let Some(filter) = filter(namespace, &key)? {
        if call.is_from_primary() && iterator > 1 {
            return overwrite(call, namespace, &mut key, iterator, data);
        }
        return Err(complete_already(namespace, iterator, filter.bytes()));
    }
    // RedisBloom up to 2.2.6 wrote heads with iterator 0 into its append-only files.
    let is_old_head = || iterator == 0 && namespace == Namespace::Bloom && Loader::bloom(data).is_ok();
    let is_head = iterator == 1 || is_old_head();
    if is_head {
        // The filter can't be complete yet, because every filter has at least one chunk.
        begin(call, namespace, &mut key, data)?;
        return Ok(Reply::Ok);
    }
    if !call.is_from_primary() {
        let key = |database| (database, call.arg(1).to_vec());
        let more =
            call.with_uploads(|uploads, database| uploads.would_allocate(&key(database), iterator, data));
        let memory = Admitted::beside_keys(call, more, more)?;
        let to = if call.goes_to_background(PLACED.saturating_mul(data.len() as u64)) {
            call.with_uploads(|uploads, database| {
                uploads.destination(&key(database), namespace, (iterator, data))
            })?
        } else {
            None
        };
        if to.is_some() {
            let data = Data::Arguments(DATA..DATA + 1);
            let job = Background { keys: 1..2, inputs: Arc::new([]), data, memory };
            return call.in_background(job, Placement { namespace, iterator, to });
        }
    }
    proceed(call, namespace, &mut key, (iterator, data, None))
}

/// A piece in RedisBloom's format, which a worker copies into its upload.
struct Placement {
    namespace: Namespace,
    iterator: i64,
    /// `None` once the piece is in its place.
    to: Option<Destination>,
}

impl TwoStep for Placement {
    type Prepared = Option<Placed>;

    fn prepare(&mut self, data: &[&[u8]], _: &ParallelFor<'_>) -> Option<Placed> {
        self.to.take().map(|to| to.take(data.first().copied().unwrap_or_default()))
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        placed: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let (Placement { namespace, iterator, .. }, mut key) = (self, call.open(1, Access::Write));
        if let Some(filter) = filter(namespace, &key)? {
            return Err(complete_already(namespace, iterator, filter.bytes()));
        }
        proceed(call, namespace, &mut key, (iterator, call.arg(DATA), placed()))
    }
}

/// Continues an upload with its next piece, unless a worker has placed it. After the last piece, puts the filter into
/// its key.
fn proceed<'a, C: Call<'a>>(
    call: &C,
    namespace: Namespace,
    key: &mut C::Key,
    piece: (i64, &[u8], Option<Placed>),
) -> Result<Reply, CommandError> {
    let proceeded = call.with_uploads(|uploads, database| {
        uploads.proceed(&(database, call.arg(1).to_vec()), namespace, piece, call.is_from_primary())
    });
    let (sent, complete) = match proceeded {
        Ok(proceeded) => proceeded,
        Err((why, ended)) => {
            end_replicated(call, ended);
            return Err(why);
        }
    };
    let filter = complete.map(Pieces::finish).transpose();
    if sent != Sent::Nothing && filter.is_err() {
        call.replicate(end_elsewhere(namespace));
    }
    let filter = filter.map_err(|why| namespace.bad_chunk(why))?;
    if sent == Sent::Pieces {
        call.replicate(Effect::Verbatim);
    }
    match filter {
        None => {}
        Some(filter) if sent != Sent::Pieces => return Ok(put(call, key, filter, loaded(namespace))),
        Some(filter) => {
            key.create(filter);
            call.changed(loaded(namespace));
        }
    }
    Ok(Reply::Ok)
}

/// The keyspace event for a filter that has been loaded.
fn loaded(namespace: Namespace) -> &'static CStr {
    match namespace {
        Namespace::Bloom => c"bf.load",
        Namespace::Cuckoo => c"cf.load",
    }
}

/// Refuses a piece while the server is above its memory limit, unless the server evicts keys and the uploads are small.
/// `len` is the length of the piece and of its key's name. LOADCHUNK isn't flagged `deny-oom`, because it can also end
/// an upload, which frees memory. So the server itself doesn't refuse pieces. A server that evicts keys exceeds its
/// limit now and then. While it does, small uploads continue like other writes, and large ones are dropped.
///
/// # Errors
/// [`CommandError::OutOfMemory`].
#[cold]
fn go_on_without_memory<'a, C: Call<'a>>(call: &C, len: usize) -> Result<(), CommandError> {
    let is_small = call.with_uploads(|uploads, _| uploads.are_small_with(len as u64));
    if is_small && call.evicts() { Ok(()) } else { Err(CommandError::OutOfMemory) }
}

/// Ends the upload of the key. Returns whether there was one.
fn abort<'a, C: Call<'a>>(call: &C, namespace: Namespace) -> bool {
    let ended =
        call.with_uploads(|uploads, database| uploads.abort(&(database, call.arg(1).to_vec()), namespace));
    let is_one = !ended.is_empty();
    end_replicated(call, ended);
    is_one
}

/// The command that ends an upload on replicas and in the AOF.
fn end_elsewhere(namespace: Namespace) -> Effect<'static> {
    Effect::Arguments(upload_command(namespace), END.map(<[u8]>::to_vec).to_vec())
}

/// Frees uploads of this command's key that have ended here, and ends them on the other servers that have their pieces.
fn end_replicated<'a, C: Call<'a>>(call: &C, ended: Ended) {
    for (_, _, namespace) in &ended.elsewhere {
        call.replicate(end_elsewhere(*namespace));
    }
    call.discard(ended.garbage());
}

/// Writes a piece into the existing filter, as RedisBloom does. Only called for a command from a primary or a file.
fn overwrite<'a, C: Call<'a>>(
    call: &C,
    namespace: Namespace,
    key: &mut C::Key,
    iterator: i64,
    data: &[u8],
) -> Result<Reply, CommandError> {
    let filter = key.filter_mut()?.ok_or(CommandError::NotFound)?;
    let written = end(iterator).and_then(|end| redisbloom::overwrite(filter, end, data));
    written.map_err(|why| namespace.bad_chunk(why))?;
    call.replicate(Effect::Verbatim);
    call.changed(loaded(namespace));
    Ok(Reply::Ok)
}

/// The error for a piece that is sent to a key that already holds a filter.
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

/// Begins an upload with the head of a filter.
fn begin<'a, C: Call<'a>>(
    call: &C,
    namespace: Namespace,
    key: &mut C::Key,
    head: &[u8],
) -> Result<(), CommandError> {
    const TOO_MANY: CommandError =
        CommandError::Exclusive("too many filters are being loaded; finish those or wait five minutes");
    let pieces = Pieces::begin(namespace, call.arg(1), head)?;
    // In RedisBloom, the filter exists as soon as its first piece has arrived. Its items can be tested and added, and a
    // full sync may send the partial filter before the other pieces arrive. So a server that follows RedisBloom also
    // needs the filter immediately.
    if call.is_from_primary() && pieces.are_redisblooms() {
        key.create(pieces.without_chunks().map_err(|why| namespace.bad_head(Some(why)))?);
        call.replicate(Effect::Verbatim);
        call.changed(loaded(namespace));
        return Ok(());
    }
    // What comes from a primary, an AOF or a slot's source node was already accepted when it was first sent. So it is
    // accepted no matter how many uploads clients have begun here.
    if !call.is_from_primary() {
        let (bytes, most) = (pieces.body_len(), pieces.most_held());
        call.admit_outside_keys(bytes, most)?;
        let (count, total, missing) =
            call.with_uploads(|uploads, database| uploads.others(&(database, call.arg(1).to_vec())));
        let together = call.admit_outside_keys(total.saturating_add(bytes), missing.saturating_add(most));
        if count >= MAX_UPLOADS || together.is_err() {
            return Err(TOO_MANY);
        }
    }
    let (sent, ended) = call.with_uploads(|uploads, database| {
        uploads.begin((database, call.arg(1).to_vec()), pieces, call.is_from_primary())
    });
    end_replicated(call, ended);
    if sent == Sent::Pieces {
        call.replicate(Effect::Verbatim);
    }
    Ok(())
}

/// Puts a filter that replicas and the AOF don't have into its empty key. If the filter is sent in pieces, it isn't in
/// the key until the last piece is sent.
pub(super) fn put<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    filter: Filter,
    event: &'static CStr,
) -> Reply {
    let filter = match call.send(filter, event) {
        Ok(later) => return later,
        Err(filter) => filter,
    };
    let (command, encoder) = (upload_command(Namespace::of(&filter)), Encoder::new(&filter));
    if call.has_replication_sinks() {
        each_piece(&encoder, |iterator, piece| call.replicate(piece_of(command, iterator, piece)));
    } else {
        // Nobody receives this, but the server counts it as a change for its next snapshot.
        call.replicate(piece_of(command, 1, encoder.head()));
    }
    key.create(filter);
    call.changed(event);
    Reply::Ok
}

/// Sends the last piece of a filter that was [sent](Call::send), and puts the filter into its key, which must still be
/// empty.
///
/// # Errors
/// Why that is impossible. The caller must then [stop sending](super::Uploads::stop_sending) the filter.
pub fn put_sent<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    if key.filter()?.is_some() {
        return Err(CommandError::Exists);
    }
    let name = call.arg(1).to_vec();
    let sent = call.with_uploads(|uploads, database| {
        uploads.take_sent(&(database, name), |command, iterator, piece| {
            call.replicate(piece_of(command, iterator, piece));
        })
    });
    let (filter, event) = sent.ok_or(CommandError::Internal)?;
    key.create(filter);
    call.changed(event);
    Ok(Reply::Ok)
}

/// The command that uploads a piece.
fn piece_of(command: Command, iterator: u64, piece: &[u8]) -> Effect<'static> {
    Effect::Arguments(command, vec![iterator.to_string().into_bytes(), piece.to_vec()])
}

/// Visits every piece, with the iterator for its LOADCHUNK.
pub fn each_piece(encoder: &Encoder<'_>, mut visit: impl FnMut(u64, &[u8])) {
    visit(1, encoder.head());
    encoder.chunks(|end, piece| visit(end.saturating_add(1), piece));
}
