//! Filters that are being loaded in chunks. An unfinished upload isn't in a key: it waits here, where no query sees it,
//! until its last chunk has arrived. It occupies memory in proportion to the bytes that have arrived, and is dropped if
//! that memory is needed for something else.
//!
//! Replicas and the AOF get each piece when it arrives, so the last piece costs no more than the others. A replica or
//! AOF that begins with a snapshot also needs the earlier pieces, so RDB files contain the uploads in addition to the
//! keys. On servers where that isn't possible, replicas and the AOF get the whole filter after its last piece; see
//! [`Sent`].
//!
//! A large filter that this server has in full, but replicas and the AOF don't have at all, is also
//! [sent](Uploads::send) as an upload. On this server, it isn't in a key until its last piece is sent.

use super::chunked::Chunked;
use super::error::CommandError;
use super::partial::{Body, Partial, load_command};
use crate::metrics::{self, Hold};
use bloomery::filter::{Filter, Garbage};
use bloomery::wire::redisbloom::{Destination, Placed};
use bloomery::wire::{DecodeError, Decoder, Encoder, Sink, Source};
use std::collections::HashMap;
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// Maximum number of uploads that wait at once. Together they may hold no more memory than one filter may.
pub const MAX_UPLOADS: usize = 64;

/// If an upload has made no progress for this long, its client is assumed to be gone, and the upload is dropped.
pub const ABANDONED: Duration = Duration::from_secs(300);

/// Loads that together need less than this many bytes stay when memory is short. Otherwise, no small filter could be
/// loaded while keys are evicted all the time. A MiB is as much as one chunk or the arguments of one command may need.
const SMALL: u64 = 1 << 20;

/// Filters that are being loaded, by database and key.
#[derive(Default)]
pub struct Uploads {
    waiting: HashMap<(i32, Vec<u8>), Upload>,
    /// Filters that are being sent, and are uploads only on other servers.
    outgoing: HashMap<(i32, Vec<u8>), Outgoing>,
    /// Whether RDB files contain the uploads and the filters that are being sent.
    pub are_saved: bool,
}

/// A filter that is sent to replicas and the AOF piece by piece. With the last piece, it is put into its key.
struct Outgoing {
    filter: Filter,
    /// The command that loads its pieces.
    command: &'static str,
    /// Where the next chunk begins; `None` if the head hasn't been sent.
    next: Option<u64>,
    event: &'static CStr,
    _counted: Hold,
}

impl Outgoing {
    /// Hands pieces to `sink` until it returns false or only the last piece is left. Returns whether only the last
    /// piece is left.
    fn send(&mut self, mut sink: impl FnMut(&'static str, u64, &[u8]) -> bool) -> bool {
        let (command, encoder) = (self.command, Encoder::native(&self.filter));
        if self.next.is_none() {
            self.next = Some(0);
            if !sink(command, 1, encoder.head()) {
                return false;
            }
        }
        let (next, end, mut is_last) = (self.next.get_or_insert(0), encoder.body_len(), false);
        encoder.chunks_from(*next, |after, piece| {
            is_last = after == end;
            if is_last {
                return false;
            }
            *next = after;
            sink(command, after.saturating_add(1), piece)
        });
        is_last
    }

    /// Writes the pieces sent so far into a snapshot. A server that reads the snapshot gets the remaining pieces later.
    fn save(&self, sent: u64, sink: &mut impl Sink) {
        let encoder = Encoder::native(&self.filter);
        sink.string(encoder.head());
        sink.unsigned(1);
        sink.unsigned(sent);
        if sent > 0 {
            encoder.chunks_from(0, |after, piece| {
                sink.string(piece);
                after < sent
            });
        }
    }
}

/// What replicas and the AOF have received of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Every piece that has arrived.
    Partial,
    /// Not every piece, because a replica or AOF began with a snapshot that lacks the upload. Replicas and the AOF get
    /// the whole filter after its last piece. Until then, some have a part of the upload.
    Missed,
    /// Nothing. Replicas and the AOF get the whole filter after its last piece, and RDB files don't contain the upload.
    Nothing,
}

/// Loads that have ended without becoming a filter.
#[derive(Default)]
pub struct Ended {
    uploads: Vec<Upload>,
    /// The ended uploads of which replicas or the AOF may have pieces, each with the command that loads its pieces. An
    /// [`END`] must be sent for each.
    pub elsewhere: Vec<(i32, Vec<u8>, &'static str)>,
}

/// The arguments after the key in a command that ends an upload. They are BF.SCANDUMP's reply at the end of a filter.
pub const END: [&[u8]; 2] = [b"0", b""];

impl Ended {
    fn add(&mut self, (database, key): (i32, Vec<u8>), upload: Upload) {
        if upload.sent != Sent::Nothing {
            self.elsewhere.push((database, key, upload.pieces.command));
        }
        self.uploads.push(upload);
    }

    /// Whether there are no uploads.
    pub fn is_empty(&self) -> bool {
        self.uploads.is_empty()
    }

    /// The memory of these uploads, to be freed.
    pub fn garbage(self) -> Garbage {
        if self.uploads.is_empty() {
            return Garbage::Layers(Vec::new());
        }
        let bytes = self.uploads.iter().fold(0u64, |sum, upload| sum.saturating_add(upload.pieces.held()));
        Garbage::Other(Box::new(self.uploads), bytes)
    }
}

struct Upload {
    pieces: Partial,
    sent: Sent,
    /// Whether the most recent piece came from a slot's source node, or from a primary or a file that this server still
    /// obeys. Such an upload isn't dropped when memory is short.
    is_obeyed: bool,
    /// When the most recent piece arrived. The process's own clock is enough, because no other server uses this time.
    moved: Instant,
    _counted: [Hold; 2],
    held: Hold,
}

impl Upload {
    fn new(pieces: Partial, sent: Sent, is_obeyed: bool) -> Upload {
        let _counted = [metrics::UPLOADS.hold(1), metrics::UPLOAD_BYTES.hold(pieces.body_len())];
        let held = metrics::UPLOAD_HELD_BYTES.hold(pieces.held());
        Upload { pieces, sent, is_obeyed, moved: Instant::now(), _counted, held }
    }

    /// Records that a chunk has arrived.
    fn has_moved(&mut self, is_obeyed: bool) {
        self.is_obeyed = is_obeyed;
        self.moved = Instant::now();
        self.held = metrics::UPLOAD_HELD_BYTES.hold(self.pieces.held());
    }

    /// Whether the upload's client is assumed to be gone. A slot's source node normally ends its uploads itself, so it
    /// has twice as much time.
    fn is_abandoned(&self, now: Instant) -> bool {
        let most = if self.is_obeyed { ABANDONED.saturating_mul(2) } else { ABANDONED };
        now.saturating_duration_since(self.moved) >= most
    }
}

impl Uploads {
    /// Begins an upload, and ends an earlier upload of the same key. Returns what replicas and the AOF get of the
    /// upload from now on.
    ///
    /// Replicas and the AOF get no pieces in RedisBloom's format, because on servers that obey this one, the head alone
    /// would create a key.
    pub(super) fn begin(&mut self, key: (i32, Vec<u8>), pieces: Partial, is_obeyed: bool) -> (Sent, Ended) {
        let are_sent = self.are_saved && !pieces.are_redisblooms();
        let sent = if are_sent { Sent::Partial } else { Sent::Nothing };
        let ended = self.forget(&key);
        self.waiting.insert(key, Upload::new(pieces, sent, is_obeyed));
        (sent, ended)
    }

    /// Ends the upload of a key if this command uploads its pieces.
    pub(super) fn abort(&mut self, key: &(i32, Vec<u8>), command: &'static str) -> Ended {
        let is_meant = self.waiting.get(key).is_some_and(|upload| upload.pieces.command == command);
        if is_meant { self.forget(key) } else { Ended::default() }
    }

    /// Ends the upload of a key, for example because something else has appeared in the key.
    pub fn forget(&mut self, key: &(i32, Vec<u8>)) -> Ended {
        let mut ended = Ended::default();
        if let Some((key, upload)) = self.waiting.remove_entry(key) {
            ended.add(key, upload);
        }
        ended
    }

    /// Begins to send a filter. Ends any upload of the same key.
    pub fn send<T: Chunked>(&mut self, key: (i32, Vec<u8>), filter: T, event: &'static CStr) -> Ended {
        let ended = self.forget(&key);
        let _counted = metrics::FILTERS_SENDING.hold(1);
        let (filter, command) = (filter.into(), T::LOAD);
        self.outgoing.insert(key, Outgoing { filter, command, next: None, event, _counted });
        ended
    }

    /// Calls `sink` with the next pieces of a filter that is being sent, each with its command and its iterator. Stops
    /// when `sink` returns false or only the last piece is left. Returns whether only the last piece is left.
    pub fn send_more(
        &mut self,
        key: &(i32, Vec<u8>),
        sink: impl FnMut(&'static str, u64, &[u8]) -> bool,
    ) -> bool {
        self.outgoing.get_mut(key).is_none_or(|outgoing| outgoing.send(sink))
    }

    /// Finishes sending a filter: hands the rest to `sink`. The rest is the last piece, or all pieces if a replica or
    /// AOF has just begun with a snapshot that lacks them. Returns the filter, and the event for its key.
    pub(super) fn take_sent(
        &mut self,
        key: &(i32, Vec<u8>),
        mut sink: impl FnMut(&'static str, u64, &[u8]),
    ) -> Option<(Filter, &'static CStr)> {
        let outgoing = self.outgoing.remove(key)?;
        let (command, encoder) = (outgoing.command, Encoder::native(&outgoing.filter));
        let next = outgoing.next.unwrap_or_else(|| {
            sink(command, 1, encoder.head());
            0
        });
        encoder.chunks_from(next, |after, piece| {
            sink(command, after.saturating_add(1), piece);
            true
        });
        Some((outgoing.filter, outgoing.event))
    }

    /// The command that loads the pieces of the filter that is being sent for a key.
    pub(super) fn command_of_sent(&self, key: &(i32, Vec<u8>)) -> Option<&'static str> {
        self.outgoing.get(key).map(|outgoing| outgoing.command)
    }

    /// Gives up sending a filter, if it isn't in its key yet. Returns it, and the command with which the caller can
    /// send [`END`] to servers that have its pieces.
    pub fn stop_sending(&mut self, key: &(i32, Vec<u8>)) -> Option<(Filter, &'static str)> {
        self.outgoing.remove(key).map(|outgoing| (outgoing.filter, outgoing.command))
    }

    /// Records that a replica or AOF begins with a snapshot that lacks the uploads.
    pub fn are_missed(&mut self) {
        self.outgoing.values_mut().for_each(|outgoing| outgoing.next = None);
        let sent = self.waiting.values_mut().map(|upload| &mut upload.sent);
        sent.filter(|sent| **sent == Sent::Partial).for_each(|sent| *sent = Sent::Missed);
    }

    /// Size in bytes of the array that this chunk would cause to be allocated; 0 if none. All other memory replaces the
    /// chunk itself, which is freed after the command.
    pub(super) fn would_allocate(&self, key: &(i32, Vec<u8>), iterator: i64, chunk: &[u8]) -> u64 {
        self.waiting.get(key).map_or(0, |upload| upload.pieces.would_allocate(iterator, chunk))
    }

    /// The position at which another thread is to place an upload's next chunk. [`proceed`](Uploads::proceed) must be
    /// called afterwards. `None` if `proceed` itself reads the chunk.
    pub(super) fn destination<T: Chunked>(
        &mut self,
        key: &(i32, Vec<u8>),
        (iterator, chunk): (i64, &[u8]),
    ) -> Result<Option<Destination>, CommandError> {
        let upload = self.waiting.get_mut(key).filter(|upload| upload.pieces.command == T::LOAD);
        let upload = upload.ok_or(CommandError::NotFound)?;
        let to = upload.pieces.destination(iterator, chunk).map_err(T::bad_chunk)?;
        upload.has_moved(false);
        Ok(to)
    }

    /// Reads the next chunk of an upload, unless another thread has placed it. Returns what replicas and the AOF get of
    /// the upload, and after the last chunk also the filter's pieces. If an error ends the upload, the upload is
    /// returned with the error.
    pub(super) fn proceed<T: Chunked>(
        &mut self,
        key: &(i32, Vec<u8>),
        (iterator, chunk, placed): (i64, &[u8], Option<Placed>),
        is_obeyed: bool,
    ) -> Result<(Sent, Option<Partial>), (CommandError, Ended)> {
        let upload = self.waiting.get_mut(key).filter(|upload| upload.pieces.command == T::LOAD);
        // While the other thread worked, this upload may have ended and another have begun.
        let upload = upload.filter(|upload| placed.as_ref().is_none_or(|placed| upload.pieces.have(placed)));
        let upload = upload.ok_or((CommandError::NotFound, Ended::default()))?;
        let pushed = match placed {
            None => upload.pieces.push(iterator, chunk, is_obeyed),
            Some(placed) => upload.pieces.note(placed).map_err(|why| (why, false)),
        };
        if let Err((why, is_over)) = pushed {
            let ended = if is_over { self.forget(key) } else { Ended::default() };
            return Err((T::bad_chunk(why), ended));
        }
        upload.has_moved(is_obeyed);
        let sent = upload.sent;
        let complete = upload.pieces.is_complete();
        Ok((sent, if complete { self.waiting.remove(key).map(|upload| upload.pieces) } else { None }))
    }

    /// Loads of keys other than `key`: their number, the bytes of their cells when complete, and the bytes of memory
    /// that they may still need.
    pub(super) fn others(&self, key: &(i32, Vec<u8>)) -> (usize, u64, u64) {
        let others = self.waiting.iter().filter(|(other, _)| *other != key);
        others.fold((0, 0, 0), |(count, bytes, missing), (_, upload)| {
            let Upload { pieces, .. } = upload;
            (
                count.saturating_add(1),
                pieces.body_len().saturating_add(bytes),
                pieces.most_held().saturating_sub(pieces.held()).saturating_add(missing),
            )
        })
    }

    /// Records that no more pieces come from the server or file that the uploads came from. From now on, the uploads
    /// are treated like uploads of clients.
    pub fn are_own(&mut self) {
        self.waiting.values_mut().for_each(|upload| upload.is_obeyed = false);
    }

    /// Drops the uploads whose clients are assumed to be gone.
    pub fn drop_abandoned(&mut self, now: Instant) -> Ended {
        self.drop_unasked(|upload| upload.is_abandoned(now))
    }

    /// Drops the uploads that no other server has. This server is a replica now, on which no client can continue them.
    pub fn drop_unsent(&mut self) -> Ended {
        self.drop_unasked(|upload| upload.sent == Sent::Nothing)
    }

    /// Drops the uploads of clients because memory is short, unless they are [small](SMALL). Their memory isn't in a
    /// key, so evicting keys or refusing writes can't free it.
    pub fn drop_for_memory(&mut self) -> Ended {
        if self.are_small_with(0) {
            return Ended::default();
        }
        self.drop_unasked(|upload| !upload.is_obeyed)
    }

    /// Whether the uploads of clients, with another `more` bytes, are [small](SMALL).
    pub(super) fn are_small_with(&self, more: u64) -> bool {
        let of_clients = self.waiting.values().filter(|upload| !upload.is_obeyed);
        of_clients.fold(more, |sum, upload| upload.pieces.held().saturating_add(sum)) < SMALL
    }

    /// Drops the uploads for which `is_meant` returns true, and counts them in the metrics.
    fn drop_unasked(&mut self, is_meant: impl Fn(&Upload) -> bool) -> Ended {
        let dropped = self.take(|_, upload| is_meant(upload));
        metrics::UPLOADS_DROPPED.add(dropped.uploads.len() as u64);
        dropped
    }

    /// Drops the uploads of this database, or all uploads, after a flush. Servers that have their pieces do the same. A
    /// filter that is being sent isn't in a key yet, so it stays, and is sent again from the beginning.
    pub fn flush(&mut self, database: Option<i32>) -> Garbage {
        let is_meant = |own: &i32| database.is_none_or(|database| *own == database);
        let flushed = self.outgoing.iter_mut().filter(|((own, _), _)| is_meant(own));
        flushed.for_each(|(_, outgoing)| outgoing.next = None);
        self.take(|own, _| is_meant(&own)).garbage()
    }

    fn take(&mut self, is_meant: impl Fn(i32, &Upload) -> bool) -> Ended {
        let mut ended = Ended::default();
        for (key, upload) in self.waiting.extract_if(|(database, _), upload| is_meant(*database, upload)) {
            ended.add(key, upload);
        }
        ended
    }

    /// Whether a snapshot has nothing to save.
    pub fn is_empty(&self) -> bool {
        self.saved().next().is_none() && self.sent().next().is_none()
    }

    /// The filters of which pieces have been sent, each with its key and the offset of its next chunk.
    fn sent(&self) -> impl Iterator<Item = (&(i32, Vec<u8>), &Outgoing, u64)> {
        self.outgoing.iter().filter_map(|(key, outgoing)| Some((key, outgoing, outgoing.next?)))
    }

    fn saved(&self) -> impl Iterator<Item = (&(i32, Vec<u8>), &Upload, &Decoder)> {
        self.waiting.iter().filter(|(_, upload)| upload.sent != Sent::Nothing).filter_map(|(key, upload)| {
            match &upload.pieces.body {
                Body::Native(decoder) => Some((key, upload, decoder)),
                Body::RedisBloom(_) => None,
            }
        })
    }

    /// Writes the uploads in our format. [Missed](Sent::Missed) uploads are included: if this server is a replica, a
    /// server that begins with this snapshot still gets the remaining pieces, which come from the primary. Each upload
    /// has a flag that says whether this server sends the remaining pieces. This server needs the flag when it reads
    /// its own snapshot.
    pub fn save(&self, sink: &mut impl Sink) {
        sink.unsigned(self.saved().count().saturating_add(self.sent().count()) as u64);
        let begin = |sink: &mut dyn Sink, (database, key): &(i32, Vec<u8>)| {
            sink.unsigned(u64::from(database.unsigned_abs()));
            sink.string(key);
        };
        for (key, outgoing, sent) in self.sent() {
            begin(sink, key);
            outgoing.save(sent, sink);
        }
        for (key, upload, decoder) in self.saved() {
            begin(sink, key);
            sink.string(&upload.pieces.head);
            sink.unsigned(u64::from(upload.sent == Sent::Partial));
            sink.unsigned(decoder.offset());
            decoder.chunks(|chunk| sink.string(chunk));
        }
    }

    /// Reads what [`save`](Uploads::save) has written. `None` if the bytes end early.
    pub fn load(&mut self, source: &mut impl Source) -> Option<Result<(), DecodeError>> {
        for _ in 0..source.unsigned()? {
            let database = i32::try_from(source.unsigned()?).unwrap_or(0);
            let key = source.string(<[u8]>::to_vec)?;
            let head = source.string(<[u8]>::to_vec)?;
            let are_sent = source.unsigned()? == 1;
            let mut decoder = match Decoder::new(&head) {
                Ok(decoder) => decoder.in_proportion(),
                Err(why) => return Some(Err(why)),
            };
            let end = source.unsigned()?;
            while decoder.offset() < end {
                if let Err(why) = source.string(|chunk| decoder.push(chunk))? {
                    return Some(Err(why));
                }
            }
            let command = load_command(&decoder);
            let pieces = Partial { name_len: key.len(), command, head, body: Body::Native(decoder) };
            let sent = if are_sent { Sent::Partial } else { Sent::Missed };
            self.waiting.insert((database, key), Upload::new(pieces, sent, true));
        }
        Some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloomery::filter::Bloom;
    use bloomery::params::Spec;
    use bloomery::wire::Encoder;

    /// Loads of the keys 0, 1 and so on. `chunks[n]` chunks of upload n have arrived. A chunk is 1 MiB long. None of
    /// its pages is all zeros, because such a page would occupy no memory.
    fn uploads(chunks: &[usize], is_obeyed: bool) -> Uploads {
        let mut filter = Bloom::new(Spec::fixed(8_000_000, 0.01)).unwrap();
        for item in 0..50_000u32 {
            filter.add(filter.hash(item.to_le_bytes())).unwrap();
        }
        let encoder = Encoder::new(&filter);
        let mut uploads = Uploads { are_saved: true, ..Uploads::default() };
        for (number, chunks) in chunks.iter().enumerate() {
            let name = vec![number as u8];
            let mut pieces = Partial::begin::<Filter>(&name, encoder.head()).unwrap();
            let (mut offset, mut chunk) = (0, Vec::new());
            for _ in 0..*chunks {
                offset = encoder.chunk(offset, &mut chunk).unwrap();
                pieces.push(offset as i64 + 1, &chunk, is_obeyed).unwrap();
            }
            let (sent, ended) = uploads.begin((0, name), pieces, is_obeyed);
            assert!(sent == Sent::Partial && ended.is_empty());
        }
        uploads
    }

    #[test]
    fn a_load_that_does_not_move_is_dropped_after_five_minutes() {
        let mut uploads = uploads(&[0, 1], false);
        let begun = Instant::now();
        assert!(uploads.drop_abandoned(begun + ABANDONED - Duration::from_secs(5)).is_empty());
        uploads.waiting.get_mut(&(0, vec![1])).unwrap().moved = begun + Duration::from_secs(9);
        let dropped = uploads.drop_abandoned(begun + ABANDONED);
        assert_eq!(dropped.elsewhere, [(0, vec![0], "bf.loadchunk")], "it ends on replicas also");
        assert_eq!(uploads.waiting.keys().collect::<Vec<_>>(), [&(0, vec![1])]);
        assert!(!uploads.drop_abandoned(begun + ABANDONED + Duration::from_secs(9)).is_empty());
        assert!(uploads.waiting.is_empty());
    }

    /// A slot's new node waits for the old one to end an upload, which may happen late.
    #[test]
    fn a_load_of_a_slots_source_node_is_dropped_after_ten_minutes() {
        let mut uploads = uploads(&[1], true);
        let late = Instant::now() + ABANDONED * 2;
        assert!(uploads.drop_abandoned(late - Duration::from_secs(9)).is_empty());
        assert!(!uploads.drop_abandoned(late).is_empty());
    }

    #[test]
    fn all_but_small_loads_make_room() {
        let mut small = uploads(&[0; 60], false);
        assert!(small.drop_for_memory().is_empty() && small.waiting.len() == 60);
        assert!(small.are_small_with(1000) && !small.are_small_with(SMALL));
        let mut large = uploads(&[0, 0, 1], false);
        let dropped = large.drop_for_memory();
        assert_eq!(dropped.elsewhere.len(), 3);
        assert!(dropped.garbage().bytes() >= 1 << 20 && large.waiting.is_empty());
        // A name needs memory as well.
        let mut named = uploads(&[0], false);
        let pieces = Partial::begin::<Filter>(&[b'n'; SMALL as usize], &[]);
        assert!(pieces.is_err(), "a head is read first");
        let long = vec![b'n'; SMALL as usize];
        let head = Encoder::new(&Bloom::new(Spec::fixed(100, 0.01)).unwrap()).head().to_vec();
        let pieces = Partial::begin::<Filter>(&long, &head).unwrap();
        assert!(pieces.most_held() > SMALL);
        _ = named.begin((0, long), pieces, false);
        assert!(!named.are_small_with(0) && named.drop_for_memory().elsewhere.len() == 2);
        // Loads from a slot's source node aren't dropped: that node has the filter in a key, and goes on sending it.
        let mut obeyed = uploads(&[2, 3], true);
        assert!(obeyed.drop_for_memory().is_empty() && obeyed.waiting.len() == 2);
        // After a failover or a restart, only the client can send the rest.
        obeyed.are_own();
        assert!(obeyed.drop_for_memory().elsewhere.len() == 2 && obeyed.waiting.is_empty());
    }
}
