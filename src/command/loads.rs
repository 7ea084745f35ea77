//! Filters that are being loaded in pieces. A load is no key: it waits here, where no query sees it and no snapshot saves
//! it, until its last chunk has come.

use super::error::CommandError;
use super::table::Namespace;
use crate::filter::{Filter, Garbage};
use crate::metrics::{self, Hold};
use crate::wire::redisbloom::Loader;
use crate::wire::{DecodeError, Decoder, MAGIC};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Loads that may wait at once. Each may hold a filter's memory; all together are allowed no more than one filter.
pub(super) const MAX_LOADS: usize = 64;

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
pub(super) enum Pieces {
    /// Ours.
    Native(Decoder),
    /// RedisBloom's.
    RedisBloom(Loader),
}

impl Pieces {
    /// Reads a head.
    pub(super) fn begin(namespace: Namespace, head: &[u8]) -> Result<Pieces, CommandError> {
        let theirs = match namespace {
            Namespace::Bloom => Loader::bloom(head),
            Namespace::Cuckoo => Loader::cuckoo(head),
        };
        // RedisBloom's begins with a number of items, which may be our magic. No head has the length of both: ours has 24
        // bytes and as many as the u32 at byte 8 says; RedisBloom's has 38, or 46, or 16 or 20 and 49 or 53 times as
        // many as that number.
        if theirs.is_err() && head.starts_with(&MAGIC) {
            let decoder = Decoder::new(head).map_err(|why| namespace.bad_head(Some(why)))?;
            if decoder.is_cuckoo() != (namespace == Namespace::Cuckoo) {
                return Err(namespace.bad_head(Some(DecodeError::OtherKind)));
            }
            return Ok(Pieces::Native(decoder));
        }
        // RedisBloom's words alone for what is no head at all.
        theirs.map(Pieces::RedisBloom).map_err(|why| {
            namespace.bad_head(if why == DecodeError::Length("header") { None } else { Some(why) })
        })
    }

    pub(super) fn namespace(&self) -> Namespace {
        let is_cuckoo = match self {
            Pieces::Native(decoder) => decoder.is_cuckoo(),
            Pieces::RedisBloom(loader) => loader.is_cuckoo(),
        };
        if is_cuckoo { Namespace::Cuckoo } else { Namespace::Bloom }
    }

    pub(super) fn body_len(&self) -> u64 {
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

    pub(super) fn is_complete(&self) -> bool {
        match self {
            Pieces::Native(decoder) => decoder.is_complete(),
            Pieces::RedisBloom(loader) => loader.is_complete(),
        }
    }

    /// Takes the chunk that came with an iterator. The error says whether the load is over.
    pub(super) fn push(&mut self, iterator: i64, chunk: &[u8]) -> Result<(), (DecodeError, bool)> {
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

    pub(super) fn finish(self) -> Result<Filter, DecodeError> {
        match self {
            Pieces::Native(decoder) => decoder.finish(),
            Pieces::RedisBloom(loader) => loader.finish(),
        }
    }
}

impl Loads {
    /// Begins a load, and gives back one of the same key that had begun before.
    pub(super) fn begin(&mut self, key: (i32, Vec<u8>), pieces: Pieces) -> Garbage {
        garbage(self.waiting.insert(key, Load::new(pieces)).into_iter())
    }

    /// Takes a chunk of a load that has begun. Returns the pieces when it was the last.
    pub(super) fn proceed(
        &mut self,
        key: &(i32, Vec<u8>),
        namespace: Namespace,
        iterator: i64,
        chunk: &[u8],
    ) -> Result<Option<Pieces>, CommandError> {
        let load = self.waiting.get_mut(key).filter(|load| load.pieces.namespace() == namespace);
        let load = load.ok_or(CommandError::NotFound)?;
        if let Err((why, is_over)) = load.pieces.push(iterator, chunk) {
            if is_over {
                self.waiting.remove(key);
            }
            return Err(namespace.bad_chunk(why));
        }
        load.moved = Instant::now();
        let complete = load.pieces.is_complete();
        Ok(if complete { self.waiting.remove(key).map(|load| load.pieces) } else { None })
    }

    /// Number of loads except that of `key`, bytes of cells that they will have, and bytes that they have yet to take.
    pub(super) fn others(&self, key: &(i32, Vec<u8>)) -> (usize, u64, u64) {
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

    pub(super) fn drop_abandoned(&mut self) -> Garbage {
        garbage(self.waiting.extract_if(|_, load| load.is_abandoned()).map(|(_, load)| load))
    }

    /// Gives up the loads into this database, or into all.
    pub fn flush(&mut self, database: Option<i32>) -> Garbage {
        let of_database =
            |(own, _): &(i32, Vec<u8>), _: &mut Load| database.is_none_or(|database| *own == database);
        garbage(self.waiting.extract_if(of_database).map(|(_, load)| load))
    }
}

fn garbage(loads: impl Iterator<Item = Load>) -> Garbage {
    let loads: Vec<Load> = loads.collect();
    let bytes = loads.iter().fold(0u64, |sum, load| sum.saturating_add(load.pieces.body_len()));
    Garbage::Other(Box::new(loads), bytes)
}

/// Refusals of the two namespaces: RedisBloom's words, and why.
impl Namespace {
    pub(super) fn bad_iterator(self, loading: bool) -> CommandError {
        match self {
            Namespace::Bloom => CommandError::BadIterator { prefixed: loading },
            Namespace::Cuckoo => CommandError::RedisBloom("Invalid position"),
        }
    }

    pub(super) fn bad_head(self, why: Option<DecodeError>) -> CommandError {
        match self {
            Namespace::Bloom => CommandError::BadData(why),
            Namespace::Cuckoo => CommandError::BadHeader(why),
        }
    }

    pub(super) fn bad_chunk(self, why: DecodeError) -> CommandError {
        match self {
            Namespace::Bloom => CommandError::BadData(Some(why)),
            Namespace::Cuckoo => CommandError::BadChunk(why),
        }
    }
}
