//! Filters in pieces: SCANDUMP and LOADCHUNK, in the wire format. AOF rewrite writes the same LOADCHUNKs.
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
use super::{Access, Call, Command, Effect, Key, Namespace};
use crate::filter::{Filter, FilterRef, Retired};
use crate::metrics::{self, Hold};
use crate::wire::redisbloom::Loader;
use crate::wire::{DecodeError, Decoder, Encoder, MAGIC};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Loads that may wait at once. Each may hold a filter's memory; all together are allowed no more than one filter.
const MAX_LOADS: usize = 64;

/// A load that has not moved for this long is dropped when another begins: its client has gone.
const ABANDONED: Duration = Duration::from_secs(300);

/// Filters that are being loaded, by database and key.
#[derive(Default)]
pub struct Loads {
    waiting: HashMap<(i32, Vec<u8>), Load>,
}

struct Load {
    pieces: Pieces,
    /// The process's own clock: nothing that is replicated depends on it.
    moved: Instant,
    _counted: [Hold; 2],
}

impl Load {
    fn new(pieces: Pieces) -> Load {
        let counted = [metrics::LOADS.hold(1), metrics::LOAD_BYTES.hold(pieces.body_len())];
        Load { pieces, moved: Instant::now(), _counted: counted }
    }

    fn is_abandoned(&self) -> bool {
        self.moved.elapsed() >= ABANDONED
    }
}

/// Pieces in the format that their head has.
enum Pieces {
    /// Ours.
    Native(Decoder),
    /// RedisBloom's.
    RedisBloom(Loader),
}

impl Pieces {
    /// Reads a head.
    fn begin(family: Namespace, head: &[u8]) -> Result<Pieces, CommandError> {
        let theirs = match family {
            Namespace::Bloom => Loader::bloom(head),
            Namespace::Cuckoo => Loader::cuckoo(head),
        };
        // RedisBloom's begins with a number of items, which may be our magic. No head has the length of both: ours has 24
        // bytes and as many as the u32 at byte 8 says; RedisBloom's has 38, or 46, or 16 or 20 and 49 or 53 times as
        // many as that number.
        if theirs.is_err() && head.starts_with(&MAGIC) {
            let decoder = Decoder::new(head).map_err(|why| family.bad_head(Some(why)))?;
            if decoder.is_cuckoo() != (family == Namespace::Cuckoo) {
                return Err(family.bad_head(Some(DecodeError::OtherKind)));
            }
            return Ok(Pieces::Native(decoder));
        }
        // RedisBloom's words alone for what is no head at all.
        theirs.map(Pieces::RedisBloom).map_err(|why| {
            family.bad_head(if why == DecodeError::Length("header") { None } else { Some(why) })
        })
    }

    fn family(&self) -> Namespace {
        let is_cuckoo = match self {
            Pieces::Native(decoder) => decoder.is_cuckoo(),
            Pieces::RedisBloom(loader) => loader.is_cuckoo(),
        };
        if is_cuckoo { Namespace::Cuckoo } else { Namespace::Bloom }
    }

    fn body_len(&self) -> u64 {
        match self {
            Pieces::Native(decoder) => decoder.body_len(),
            Pieces::RedisBloom(loader) => loader.body_len(),
        }
    }

    fn unallocated(&self) -> u64 {
        match self {
            Pieces::Native(decoder) => decoder.unallocated(),
            Pieces::RedisBloom(loader) => loader.unallocated(),
        }
    }

    fn is_complete(&self) -> bool {
        match self {
            Pieces::Native(decoder) => decoder.is_complete(),
            Pieces::RedisBloom(loader) => loader.is_complete(),
        }
    }

    /// Takes the chunk that came with an iterator. The error says whether the load is over.
    fn push(&mut self, iterator: i64, chunk: &[u8]) -> Result<(), (DecodeError, bool)> {
        let found = u64::try_from(iterator).unwrap_or(0);
        match self {
            Pieces::Native(decoder) => {
                decoder.push(chunk).map_err(|why| (why, false))?;
                let expected = decoder.offset().saturating_add(1);
                if found == expected {
                    Ok(())
                } else {
                    // The data has proved to be the next chunk; a wrong iterator means that the client mixes things up.
                    Err((DecodeError::Order { expected, found }, true))
                }
            }
            Pieces::RedisBloom(loader) => {
                let end = found.checked_sub(1).ok_or((DecodeError::Field("iterator"), false))?;
                loader.push(end, chunk).map_err(|why| (why, false))
            }
        }
    }

    fn finish(self) -> Result<Filter, DecodeError> {
        match self {
            Pieces::Native(decoder) => decoder.finish(),
            Pieces::RedisBloom(loader) => loader.finish(),
        }
    }
}

impl Loads {
    /// Begins a load, and gives back one of the same key that had begun before.
    fn begin(&mut self, key: (i32, Vec<u8>), pieces: Pieces) -> Option<Load> {
        self.waiting.insert(key, Load::new(pieces))
    }

    /// Number of loads beside that of `key`, bytes of cells that they will have, and bytes that they have yet to take.
    fn others(&self, key: &(i32, Vec<u8>)) -> (usize, u64, u64) {
        let others = self.waiting.iter().filter(|(other, _)| *other != key);
        others.fold((0, 0, 0), |(count, bytes, missing), (_, load)| {
            let Load { pieces, .. } = load;
            (
                count.saturating_add(1),
                pieces.body_len().saturating_add(bytes),
                pieces.unallocated().saturating_add(missing),
            )
        })
    }

    fn drop_abandoned(&mut self) -> Retired {
        retired(self.waiting.extract_if(|_, load| load.is_abandoned()))
    }

    /// Gives up the loads into this database, or into all.
    pub fn flush(&mut self, database: Option<i32>) -> Retired {
        retired(self.waiting.extract_if(|(own, _), _| database.is_none_or(|database| *own == database)))
    }
}

fn retired(loads: impl Iterator<Item = ((i32, Vec<u8>), Load)>) -> Retired {
    let loads: Vec<Load> = loads.map(|(_, load)| load).collect();
    let bytes = loads.iter().fold(0u64, |sum, load| sum.saturating_add(load.pieces.body_len()));
    Retired::Other(Box::new(loads), bytes)
}

/// Refusals of the two families: RedisBloom's words, and why.
impl Namespace {
    fn bad_iterator(self, loading: bool) -> CommandError {
        match self {
            Namespace::Bloom => CommandError::BadIterator { prefixed: loading },
            Namespace::Cuckoo => CommandError::Worded("Invalid position"),
        }
    }

    fn bad_head(self, why: Option<DecodeError>) -> CommandError {
        match self {
            Namespace::Bloom => CommandError::BadData(why),
            Namespace::Cuckoo => CommandError::BadHeader(why),
        }
    }

    fn bad_chunk(self, why: DecodeError) -> CommandError {
        match self {
            Namespace::Bloom => CommandError::BadData(Some(why)),
            Namespace::Cuckoo => CommandError::BadChunk(why),
        }
    }

    /// The filter in a key, if it is of this family; of one that is being rebuilt, the live one.
    fn filter<K: Key>(self, key: &K) -> Result<Option<FilterRef<'_>>, CommandError> {
        let value = key.value()?.map(Filter::live).map(FilterRef::from);
        match (self, &value) {
            (_, None)
            | (Namespace::Bloom, Some(FilterRef::Bloom(_) | FilterRef::Foreign(_)))
            | (Namespace::Cuckoo, Some(FilterRef::Cuckoo(_))) => Ok(value),
            _ => Err(CommandError::WrongType),
        }
    }
}

/// `BF.SCANDUMP key iterator`, `CF.SCANDUMP key iterator`.
pub(super) fn scan_dump<'a, C: Call<'a>>(call: &C, family: Namespace) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(family.bad_iterator(false));
    let key = call.open(1, Access::Read);
    // RedisBloom looks at the iterator first for one family, and at the key for the other.
    if family == Namespace::Cuckoo && !iterator.as_ref().is_ok_and(|iterator| *iterator >= 0) {
        return Err(family.bad_iterator(false));
    }
    let encoder = Encoder::new(family.filter(&key)?.ok_or(CommandError::NotFound)?);
    let iterator = iterator?;
    if iterator == 0 {
        return Ok(Reply::Array(vec![1u64.into(), Reply::Bulk(encoder.head().to_vec())]));
    }
    let mut piece = Vec::new();
    let offset = iterator.checked_sub(1).and_then(|offset| u64::try_from(offset).ok());
    Ok(Reply::Array(match (offset.and_then(|offset| encoder.chunk(offset, &mut piece)), family) {
        (Some(end), _) => vec![end.saturating_add(1).into(), Reply::Bulk(piece)],
        (None, Namespace::Bloom) => vec![0u64.into(), Reply::Bulk(Vec::new())],
        (None, Namespace::Cuckoo) => vec![0u64.into(), Reply::Null],
    }))
}

/// `BF.LOADCHUNK key iterator data`, `CF.LOADCHUNK key iterator data`.
pub(super) fn load_chunk<'a, C: Call<'a>>(call: &C, family: Namespace) -> Result<Reply, CommandError> {
    let iterator = integer(call.arg(2)).ok_or(family.bad_iterator(true))?;
    if family == Namespace::Cuckoo && iterator <= 0 {
        return Err(family.bad_iterator(true));
    }
    let mut key = call.open(1, Access::Write);
    if let Some(filter) = family.filter(&key)? {
        return Err(complete_already(family, iterator, filter.bytes()));
    }
    let data = call.arg(3);
    // Versions of RedisBloom up to 2.2.6 wrote heads with iterator 0 into their append-only files.
    let is_old_head = || iterator == 0 && family == Namespace::Bloom && Loader::bloom(data).is_ok();
    let is_head = iterator == 1 || is_old_head();
    let complete = if is_head { begin(call, family, data)? } else { proceed(call, family, iterator, data)? };
    if let Some(pieces) = complete {
        let value = pieces.finish().map_err(|why| family.bad_chunk(why))?;
        replicate_pieces(call, family, &Encoder::new(&value));
        key.create(value);
        call.changed(match family {
            Namespace::Bloom => c"bf.load",
            Namespace::Cuckoo => c"cf.load",
        });
    }
    Ok(Reply::Ok)
}

/// Why a key that holds a filter takes no pieces.
fn complete_already(family: Namespace, iterator: i64, bytes: u64) -> CommandError {
    let end = bytes.saturating_add(1);
    match family {
        Namespace::Cuckoo if iterator == 1 => CommandError::Exists,
        Namespace::Cuckoo => CommandError::BadChunk(DecodeError::Complete),
        Namespace::Bloom if u64::try_from(iterator).is_ok_and(|iterator| iterator > end) => {
            CommandError::NoLink
        }
        Namespace::Bloom => CommandError::BadData(None),
    }
}

/// Takes the head. No filter is complete without a chunk.
fn begin<'a, C: Call<'a>>(call: &C, family: Namespace, head: &[u8]) -> Result<Option<Pieces>, CommandError> {
    const TOO_MANY: CommandError =
        CommandError::Exclusive("too many filters are being loaded; finish those or wait five minutes");
    let pieces = Pieces::begin(family, head)?;
    call.retire(call.with_loads(|loads, _| loads.drop_abandoned()));
    // From a primary, from an AOF and from the node that a slot comes from, all pieces of a filter come at once; what
    // clients began here is no reason to refuse them.
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
    let replaced = call.with_loads(|loads, database| loads.begin((database, call.arg(1).to_vec()), pieces));
    call.retire(retired(replaced.map(|load| ((0, Vec::new()), load)).into_iter()));
    Ok(None)
}

/// Takes a chunk of a load that has begun; gives the pieces when it was the last.
fn proceed<'a, C: Call<'a>>(
    call: &C,
    family: Namespace,
    iterator: i64,
    chunk: &[u8],
) -> Result<Option<Pieces>, CommandError> {
    call.with_loads(|loads, database| {
        let key = (database, call.arg(1).to_vec());
        let load = loads.waiting.get_mut(&key).filter(|load| load.pieces.family() == family);
        let load = load.ok_or(CommandError::NotFound)?;
        if let Err((why, is_over)) = load.pieces.push(iterator, chunk) {
            if is_over {
                loads.waiting.remove(&key);
            }
            return Err(family.bad_chunk(why));
        }
        load.moved = Instant::now();
        let complete = load.pieces.is_complete();
        Ok(if complete { loads.waiting.remove(&key).map(|load| load.pieces) } else { None })
    })
}

/// Sends the whole filter to the replicas at once, so that one that joins in the middle of a load misses nothing.
pub(super) fn replicate_pieces<'a, C: Call<'a>>(call: &C, family: Namespace, encoder: &Encoder<'_>) {
    let command = load_command(family);
    each_piece(encoder, |iterator, piece| {
        let iterator = iterator.to_string().into_bytes();
        call.replicate(Effect::Arguments(command, vec![iterator, piece.to_vec()]));
    });
}

/// The command that takes the pieces of a filter.
pub fn load_command(family: Namespace) -> Command {
    match family {
        Namespace::Bloom => Command::Loadchunk,
        Namespace::Cuckoo => Command::CfLoadchunk,
    }
}

/// Every piece with the iterator that LOADCHUNK takes it with.
pub fn each_piece(encoder: &Encoder<'_>, mut visit: impl FnMut(u64, &[u8])) {
    visit(1, encoder.head());
    encoder.chunks(|end, piece| visit(end.saturating_add(1), piece));
}
