//! Filters in pieces: BF.SCANDUMP and BF.LOADCHUNK, in the wire format. AOF rewrite writes the same LOADCHUNKs.
//!
//! Iterators are RedisBloom's: 0 asks for the head, which comes with 1; 1 + n asks for the chunk at byte n of the body,
//! which comes with 1 + the offset behind it; the end is 0 and an empty string. Each piece is loaded with the iterator
//! that came with it.
//!
//! A filter that is being loaded is no key: it waits in [`Loads`], where no query sees it and no snapshot saves it, and
//! becomes a key, and an effect for the replicas, with its last chunk.

use super::error::CommandError;
use super::options::integer;
use super::reply::Reply;
use super::{Access, Call, Effect, Key};
use crate::wire::{DecodeError, Decoder, Encoder, MAGIC};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Loads that may wait at once. Each may hold a filter's memory.
const MAX_LOADS: usize = 64;

/// A load that has not moved for this long is dropped when another begins: its client has gone.
const ABANDONED: Duration = Duration::from_secs(300);

/// Filters that are being loaded, by database and key.
#[derive(Default)]
pub struct Loads {
    waiting: HashMap<(i32, Vec<u8>), Load>,
}

struct Load {
    decoder: Decoder,
    /// The process's own clock: nothing that is replicated depends on it.
    moved: Instant,
}

impl Loads {
    /// Begins a load; one of the same key that had begun before is dropped. False if too many wait.
    fn begin(&mut self, key: (i32, Vec<u8>), decoder: Decoder) -> bool {
        self.waiting.remove(&key);
        self.waiting.retain(|_, load| load.moved.elapsed() < ABANDONED);
        let room = self.waiting.len() < MAX_LOADS;
        if room {
            self.waiting.insert(key, Load { decoder, moved: Instant::now() });
        }
        room
    }
}

/// `BF.SCANDUMP key iterator`.
pub(super) fn scan_dump<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let key = call.open(1, Access::Read);
    let filter = key.filter()?.ok_or(CommandError::NotFound)?;
    let iterator = integer(call.arg(2)).ok_or(CommandError::BadIterator { prefixed: false })?;
    let encoder = Encoder::new(filter);
    let (next, piece) = match iterator {
        0 => (1, encoder.head().to_vec()),
        _ => {
            let mut piece = Vec::new();
            let offset = iterator.checked_sub(1).and_then(|offset| u64::try_from(offset).ok());
            match offset.and_then(|offset| encoder.chunk(offset, &mut piece)) {
                Some(end) => (end.saturating_add(1), piece),
                None => (0, Vec::new()),
            }
        }
    };
    Ok(Reply::Array(vec![next.into(), Reply::Bulk(piece)]))
}

/// `BF.LOADCHUNK key iterator data`.
pub(super) fn load_chunk<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(CommandError::BadIterator { prefixed: true })?;
    let mut key = call.open(1, Access::Write);
    if let Some(filter) = key.filter()? {
        let end = filter.bytes().saturating_add(1);
        let behind = iterator > 1 && u64::try_from(iterator).is_ok_and(|iterator| iterator > end);
        return Err(if behind { CommandError::NoLink } else { CommandError::BadData(None) });
    }
    let data = call.arg(3);
    let complete = if iterator == 1 { begin(call, data)? } else { proceed(call, iterator, data)? };
    if let Some(decoder) = complete {
        let filter = decoder.finish().map_err(|why| CommandError::BadData(Some(why)))?;
        replicate_pieces(call, &Encoder::new(&filter));
        key.create(filter);
        call.changed(c"bf.load");
    }
    Ok(Reply::Ok)
}

/// Takes the head. No filter is complete without a chunk.
fn begin<'a, C: Call<'a>>(call: &C, head: &[u8]) -> Result<Option<Decoder>, CommandError> {
    // RedisBloom's words alone for what is no head at all.
    let why = |error| CommandError::BadData(head.starts_with(&MAGIC).then_some(error));
    let decoder = Decoder::new(head).map_err(why)?;
    if !call.obeys() {
        call.admit(decoder.body_len(), decoder.body_len())?;
    }
    let key = call.arg(1).to_vec();
    if call.with_loads(|loads, database| loads.begin((database, key), decoder)) {
        Ok(None)
    } else {
        Err(CommandError::Exclusive("too many filters are being loaded; finish those or wait five minutes"))
    }
}

/// Takes a chunk of a load that has begun; gives the decoder when it was the last.
fn proceed<'a, C: Call<'a>>(call: &C, iterator: i64, chunk: &[u8]) -> Result<Option<Decoder>, CommandError> {
    call.with_loads(|loads, database| {
        let key = (database, call.arg(1).to_vec());
        let load = loads.waiting.get_mut(&key).ok_or(CommandError::NotFound)?;
        load.decoder.push(chunk).map_err(|why| CommandError::BadData(Some(why)))?;
        load.moved = Instant::now();
        let end = load.decoder.offset().saturating_add(1);
        if u64::try_from(iterator) != Ok(end) {
            // The data has proved to be the next chunk; a wrong iterator means that the client mixes things up.
            loads.waiting.remove(&key);
            let found = u64::try_from(iterator).unwrap_or(0);
            return Err(CommandError::BadData(Some(DecodeError::Order { expected: end, found })));
        }
        let complete = load.decoder.is_complete();
        Ok(if complete { loads.waiting.remove(&key).map(|load| load.decoder) } else { None })
    })
}

/// Sends the whole filter to the replicas at once, so that one that joins in the middle of a load misses nothing.
fn replicate_pieces<'a, C: Call<'a>>(call: &C, encoder: &Encoder<'_>) {
    each_piece(encoder, |iterator, piece| {
        let iterator = iterator.to_string().into_bytes();
        call.replicate(Effect::Arguments("LOADCHUNK", vec![iterator, piece.to_vec()]));
    });
}

/// Every piece with the iterator that BF.LOADCHUNK takes it with.
pub fn each_piece(encoder: &Encoder<'_>, mut visit: impl FnMut(u64, &[u8])) {
    visit(1, encoder.head());
    let (mut offset, mut piece) = (0, Vec::new());
    while let Some(end) = encoder.chunk(offset, &mut piece) {
        visit(end.saturating_add(1), &piece);
        offset = end;
    }
}
