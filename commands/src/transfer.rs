//! Filters in chunks: SCANDUMP and LOADCHUNK, in the wire format. An AOF rewrite writes the same LOADCHUNK commands.
//!
//! Iterators have the same meaning as in RedisBloom. 0 asks for the head, which comes with iterator 1. 1 + n asks for
//! the chunk at byte n of the body, which comes with 1 + the offset after the chunk. At the end, the reply has iterator
//! 0 and an empty string, or null for a cuckoo filter. Each piece is loaded with the iterator that came with it.
//!
//! A filter that is being loaded appears in its key when its last chunk arrives. Partial in our format are replicated
//! when they arrive. If the pieces are in RedisBloom's format, the whole filter is replicated after the last one. Only
//! if this server follows a server with RedisBloom does the head alone create the key, as in RedisBloom.
//!
//! If replicas and the AOF have no part of a large filter yet, the filter is sent to them in pieces before it appears
//! in its key. So they have the whole filter or nothing, and no command of the stream is longer than a piece.

use super::call::{Access, Admitted, Background, Call, Data, Effect, Key, TwoStep};
use super::chunked::Chunked;
use super::error::CommandError;
use super::grow::admit_reserved;
use super::options::integer;
use super::partial::{Partial, end};
use super::reply::Reply;
use super::table::ArgumentKind::{Integer, Text};
use super::table::{Entry, KeyUse, Timing, required};
use super::uploads::{END, Ended, MAX_UPLOADS, Sent};
use bloomery::parallel::ParallelFor;
use bloomery::wire::Encoder;
use bloomery::wire::redisbloom::{Destination, Placed};
use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::Arc;

/// The index of the argument that contains the piece.
const DATA: usize = 3;

/// Copying a byte of a piece in RedisBloom's format into an upload takes as long as processing this many bytes of
/// cells: the cells are counted before and after, and waiting bytes are moved as well. A piece of 16 MiB takes up to 74
/// ms.
const PLACED: u64 = 4;

/// The entry of SCANDUMP in the table.
pub(super) const fn scan_dump_entry(name: &'static str, summary: &'static str) -> Entry {
    Entry {
        name,
        arity: 3,
        key: KeyUse::Read,
        summary,
        complexity: "O(n), where n is the length of the piece",
        since: "1.0.0",
        arguments: const { &[required("iterator", Integer)] },
        timing: Timing::IfLong,
        ..Entry::PLAIN
    }
}

/// The entry of LOADCHUNK in the table. It has no deny-oom, because the end of a load frees memory. For other pieces,
/// the command checks the limit itself.
pub(super) const fn load_chunk_entry(name: &'static str, summary: &'static str) -> Entry {
    Entry {
        name,
        arity: 4,
        key: KeyUse::Insert,
        summary,
        complexity: "O(n), where n is the length of the piece",
        since: "1.0.0",
        arguments: const { &[required("iterator", Integer), required("data", Text)] },
        ..Entry::PLAIN
    }
}

/// `BF.SCANDUMP key iterator`, `CF.SCANDUMP key iterator`.
pub(super) fn scan_dump<'a, T: Chunked, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(T::bad_iterator(false));
    let key = call.open::<T>(1, Access::Read);
    // RedisBloom checks the iterator first for CF, and the key first for BF.
    if T::ITERATOR_FIRST && !iterator.as_ref().is_ok_and(|iterator| *iterator >= 0) {
        return Err(T::bad_iterator(false));
    }
    let filter = key.value()?.ok_or(CommandError::NotFound)?.dumped();
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
        None => Reply::Piece(0, (!T::ITERATOR_FIRST).then(Vec::new)),
    })
}

/// `BF.LOADCHUNK key iterator data`, `CF.LOADCHUNK key iterator data`.
pub(super) fn load_chunk<'a, T: Chunked, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(T::bad_iterator(true))?;
    let data = call.arg(DATA);
    // Iterator 0 without data, which is BF.SCANDUMP's reply at the end of a filter, ends the upload, even if it is
    // incomplete. If this server follows another one, the upload may have ended already.
    if iterator == 0 && data.is_empty() && (abort::<T, C>(call) || call.is_from_primary()) {
        return Ok(Reply::Ok);
    }
    if T::ITERATOR_FIRST && iterator <= 0 {
        return Err(T::bad_iterator(true));
    }
    if !call.is_from_primary() && call.is_out_of_memory() {
        go_on_without_memory(call, data.len().saturating_add(call.arg(1).len()))?;
    }
    let mut key = call.open::<T>(1, Access::Write);
    if let Some(filter) = key.value()? {
        if call.is_from_primary() && iterator > 1 {
            return overwrite(call, &mut key, iterator, data);
        }
        return Err(T::complete_already(iterator, filter.dumped().bytes()));
    }
    if T::is_head(iterator, data) {
        // The filter can't be complete yet, because every filter has at least one chunk.
        begin(call, &mut key, data)?;
        return Ok(Reply::Ok);
    }
    if !call.is_from_primary() {
        let key = |database| (database, call.arg(1).to_vec());
        let more =
            call.with_uploads(|uploads, database| uploads.would_allocate(&key(database), iterator, data));
        let memory = Admitted::beside_keys(call, more, more)?;
        let to = if call.goes_to_background(PLACED.saturating_mul(data.len() as u64)) {
            call.with_uploads(|uploads, database| uploads.destination::<T>(&key(database), (iterator, data)))?
        } else {
            None
        };
        if to.is_some() {
            let data = Data::Arguments(DATA..DATA + 1);
            let job = Background { keys: vec![1], inputs: Arc::new([]), data, memory };
            return call.in_background(job, Placement::<T> { iterator, to, _value: PhantomData });
        }
    }
    proceed(call, &mut key, (iterator, data, None))
}

/// A piece in RedisBloom's format, which a worker copies into its upload.
struct Placement<T> {
    iterator: i64,
    /// `None` once the piece is in its place.
    to: Option<Destination>,
    _value: PhantomData<T>,
}

impl<T: Chunked> TwoStep for Placement<T> {
    type Prepared = Option<Placed>;

    fn prepare(&mut self, data: &[&[u8]], _: &ParallelFor<'_>) -> Option<Placed> {
        self.to.take().map(|to| to.take(data.first().copied().unwrap_or_default()))
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        placed: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let (iterator, mut key) = (self.iterator, call.open::<T>(1, Access::Write));
        if let Some(filter) = key.value()? {
            return Err(T::complete_already(iterator, filter.dumped().bytes()));
        }
        proceed(call, &mut key, (iterator, call.arg(DATA), placed()))
    }
}

/// Continues an upload with its next piece, unless a worker has placed it. After the last piece, puts the filter into
/// its key.
fn proceed<'a, T: Chunked, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<T>,
    piece: (i64, &[u8], Option<Placed>),
) -> Result<Reply, CommandError> {
    let proceeded = call.with_uploads(|uploads, database| {
        uploads.proceed::<T>(&(database, call.arg(1).to_vec()), piece, call.is_from_primary())
    });
    let (sent, complete) = match proceeded {
        Ok(proceeded) => proceeded,
        Err((why, ended)) => {
            end_replicated(call, ended);
            return Err(why);
        }
    };
    let filter = complete.map(Partial::finish::<T>).transpose();
    if sent != Sent::Nothing && filter.is_err() {
        call.replicate(end_elsewhere(T::LOAD));
    }
    let filter = filter.map_err(T::bad_chunk)?;
    if sent == Sent::Partial {
        call.replicate(Effect::Verbatim);
    }
    match filter {
        None => {}
        Some(filter) if sent != Sent::Partial => return Ok(put(call, key, filter, T::LOADED)),
        Some(filter) => {
            key.create(filter);
            call.changed(T::LOADED);
        }
    }
    Ok(Reply::Ok)
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
fn abort<'a, T: Chunked, C: Call<'a>>(call: &C) -> bool {
    let ended =
        call.with_uploads(|uploads, database| uploads.abort(&(database, call.arg(1).to_vec()), T::LOAD));
    let is_one = !ended.is_empty();
    end_replicated(call, ended);
    is_one
}

/// The command that ends an upload on replicas and in the AOF.
fn end_elsewhere(upload: &'static str) -> Effect<'static> {
    Effect::Arguments(upload, END.map(<[u8]>::to_vec).to_vec())
}

/// Frees uploads of this command's key that have ended here, and ends them on the other servers that have their pieces.
fn end_replicated<'a, C: Call<'a>>(call: &C, ended: Ended) {
    for (_, _, load) in &ended.elsewhere {
        call.replicate(end_elsewhere(load));
    }
    call.discard(ended.garbage());
}

/// Writes a piece into the existing filter, as RedisBloom does. Only called for a command from a primary or a file.
fn overwrite<'a, T: Chunked, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<T>,
    iterator: i64,
    data: &[u8],
) -> Result<Reply, CommandError> {
    let filter = key.value_mut()?.ok_or(CommandError::NotFound)?;
    end(iterator).and_then(|end| filter.overwrite(end, data)).map_err(T::bad_chunk)?;
    call.replicate(Effect::Verbatim);
    call.changed(T::LOADED);
    Ok(Reply::Ok)
}

/// Begins an upload with the head of a filter.
fn begin<'a, T: Chunked, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<T>,
    head: &[u8],
) -> Result<(), CommandError> {
    const TOO_MANY: CommandError =
        CommandError::Exclusive("too many filters are being loaded; finish those or wait five minutes");
    let pieces = Partial::begin::<T>(call.arg(1), head)?;
    // In RedisBloom, the filter exists as soon as its first piece has arrived. Its items can be tested and added, and a
    // full sync may send the partial filter before the other pieces arrive. So a server that follows RedisBloom also
    // needs the filter immediately.
    if call.is_from_primary() && pieces.are_redisblooms() {
        key.create(pieces.without_chunks().map_err(|why| T::bad_head(Some(why)))?);
        call.replicate(Effect::Verbatim);
        call.changed(T::LOADED);
        return Ok(());
    }
    // What comes from a primary, an AOF or a slot's source node was already accepted when it was first sent. So it is
    // accepted no matter how many uploads clients have begun here.
    if !call.is_from_primary() {
        let (bytes, most) = (pieces.body_len(), pieces.most_held());
        admit_reserved(call, pieces.reserved_bytes())?;
        Admitted::beside_keys(call, bytes, most)?;
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
    if sent == Sent::Partial {
        call.replicate(Effect::Verbatim);
    }
    Ok(())
}

/// Puts a filter that replicas and the AOF don't have into its empty key. If the filter is sent in pieces, it isn't in
/// the key until the last piece is sent.
pub(super) fn put<'a, T: Chunked, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<T>,
    filter: T,
    event: &'static CStr,
) -> Reply {
    let filter = match call.send(filter, event) {
        Ok(later) => return later,
        Err(filter) => filter,
    };
    let encoder = Encoder::new(filter.whole());
    if call.has_replication_sinks() {
        each_piece(&encoder, |iterator, piece| call.replicate(piece_of(T::LOAD, iterator, piece)));
    } else {
        // Nobody receives this, but the server counts it as a change for its next snapshot.
        call.replicate(piece_of(T::LOAD, 1, encoder.head()));
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
pub(super) fn put_sent<'a, T: Chunked, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let mut key = call.open::<T>(1, Access::Write);
    if key.value()?.is_some() {
        return Err(CommandError::Exists);
    }
    let name = call.arg(1).to_vec();
    let sent = call.with_uploads(|uploads, database| {
        uploads.take_sent(&(database, name), |command, iterator, piece| {
            call.replicate(piece_of(command, iterator, piece));
        })
    });
    let (filter, event) = sent.ok_or(CommandError::Internal)?;
    key.create(T::try_from(filter).map_err(|_| CommandError::Internal)?);
    call.changed(event);
    Ok(Reply::Ok)
}

/// The command that loads a piece.
fn piece_of(command: &'static str, iterator: u64, piece: &[u8]) -> Effect<'static> {
    Effect::Arguments(command, vec![iterator.to_string().into_bytes(), piece.to_vec()])
}

/// Visits every piece, with the iterator for its LOADCHUNK.
fn each_piece(encoder: &Encoder<'_>, mut visit: impl FnMut(u64, &[u8])) {
    visit(1, encoder.head());
    encoder.chunks(|end, piece| visit(end.saturating_add(1), piece));
}

/// Hands the commands that load a filter to `emit`.
pub(super) fn rewrite<T: Chunked>(filter: &T, emit: &mut dyn FnMut(&'static str, &[&[u8]])) {
    each_piece(&Encoder::new(filter.whole()), |iterator, piece| {
        emit(T::LOAD, &[iterator.to_string().as_bytes(), piece]);
    });
}
