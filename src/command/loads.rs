//! Filters that are being loaded in chunks. An unfinished load isn't in a key: it waits here, where no query sees
//! it and no snapshot saves it, until its last chunk has arrived.

use super::error::CommandError;
use super::table::Namespace;
use crate::filter::{Filter, Garbage};
use crate::metrics::{self, Hold};
use crate::wire::redisbloom::Loader;
use crate::wire::{DecodeError, Decoder, MAGIC};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Maximum number of loads that wait at once. Together they may hold no more memory than one filter may.
pub(super) const MAX_LOADS: usize = 64;

/// If a load has made no progress for this long, its client is gone. It is dropped when another load begins.
const ABANDONED: Duration = Duration::from_secs(300);

/// Filters that are being loaded, by database and key.
#[derive(Default)]
pub struct Loads {
    waiting: HashMap<(i32, Vec<u8>), Load>,
}

struct Load {
    pieces: Pieces,
    /// Uses the process's own clock, since nothing that is replicated depends on it.
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

/// A partly loaded filter, in the format that its head announced.
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
        // RedisBloom's head begins with a number of items, which may look like our magic. The lengths tell them
        // apart: with n the u32 at byte 8, ours has 24 + n bytes; RedisBloom's has 38, or 46, or 16 or 20 plus 49
        // or 53 for each of n.
        if theirs.is_err() && head.starts_with(&MAGIC) {
            let decoder = Decoder::new(head).map_err(|why| namespace.bad_head(Some(why)))?;
            if decoder.is_cuckoo() != (namespace == Namespace::Cuckoo) {
                return Err(namespace.bad_head(Some(DecodeError::OtherKind)));
            }
            return Ok(Pieces::Native(decoder));
        }
        // If this isn't a head at all, the error has RedisBloom's words alone.
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

    /// Reads the chunk that came with an iterator. The error also says whether the load is over.
    pub(super) fn push(&mut self, iterator: i64, chunk: &[u8]) -> Result<(), (DecodeError, bool)> {
        let found = u64::try_from(iterator).unwrap_or(0);
        match self {
            Pieces::Native(decoder) => {
                decoder.push(chunk).map_err(|why| (why, false))?;
                let expected = decoder.offset().saturating_add(1);
                if found == expected {
                    Ok(())
                } else {
                    // The data is the next chunk, but the iterator is wrong: the client mixes things up.
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
    /// Begins a load. Returns an earlier unfinished load of the same key, to be freed.
    pub(super) fn begin(&mut self, key: (i32, Vec<u8>), pieces: Pieces) -> Garbage {
        garbage(self.waiting.insert(key, Load::new(pieces)).into_iter())
    }

    /// Reads the next chunk of a load. Returns the filter's pieces if it was the last chunk.
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

    /// Loads of other keys than `key`: their number, the bytes of their cells when complete, and the part of these
    /// bytes that isn't allocated yet.
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

    /// Drops the loads of this database, or all.
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

/// Refusals in each namespace: RedisBloom's words, then the reason.
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
