//! A filter of which a part has arrived, in our format or RedisBloom's.

use super::chunked::Chunked;
use super::error::CommandError;
use bloomery::filter::{Cuckoo, Filter};
use bloomery::wire::redisbloom::{Destination, Loader, Placed};
use bloomery::wire::{DecodeError, Decoder, LONGEST, MAGIC};

/// Maximum bytes of memory for each byte of a head. The head is kept, and so are its decoded fields, which are larger.
const HEAD_FACTOR: u64 = 4;

/// A partly loaded filter.
pub(super) struct Partial {
    /// Length of the key's name in bytes. It counts towards the upload's memory, because a name can be as long as a
    /// head.
    pub(super) name_len: usize,
    /// The command that loads the pieces.
    pub(super) command: &'static str,
    pub(super) head: Vec<u8>,
    pub(super) body: Body,
}

/// The chunks that have arrived, in the format that the head announced.
pub(super) enum Body {
    /// Our own format.
    Native(Decoder),
    /// RedisBloom's format.
    RedisBloom(Loader),
}

impl Partial {
    /// Reads the head of a filter that will be in the key `name`.
    pub(super) fn begin<T: Chunked>(name: &[u8], head: &[u8]) -> Result<Partial, CommandError> {
        let body = Body::begin::<T>(head)?;
        Ok(Partial { name_len: name.len(), command: T::LOAD, head: head.to_vec(), body })
    }

    /// Maximum number of bytes of memory for the key's name, the head, and the head's decoded fields.
    pub(super) fn head_bytes(&self) -> u64 {
        HEAD_FACTOR.saturating_mul(self.head.len() as u64).saturating_add(self.name_len as u64)
    }

    /// Bytes of the filter's cells.
    pub(super) fn body_len(&self) -> u64 {
        match &self.body {
            Body::Native(decoder) => decoder.body_len(),
            Body::RedisBloom(loader) => loader.body_len(),
        }
    }

    /// Bytes of the filter's cells, including those that tables may still need for items up to their capacity.
    pub(super) fn reserved_bytes(&self) -> u64 {
        match &self.body {
            Body::Native(decoder) => decoder.reserved_bytes(),
            Body::RedisBloom(loader) => loader.body_len(),
        }
    }

    /// Maximum number of bytes of memory that loading the filter needs.
    pub(super) fn most_held(&self) -> u64 {
        self.head_bytes().saturating_add(match &self.body {
            Body::Native(decoder) => decoder.most_held(),
            Body::RedisBloom(loader) => loader.most_held(),
        })
    }

    /// Bytes of memory that the upload occupies now.
    pub(super) fn held(&self) -> u64 {
        self.head_bytes().saturating_add(match &self.body {
            Body::Native(decoder) => decoder.held(),
            Body::RedisBloom(loader) => loader.held(),
        })
    }

    /// Size in bytes of the array that this chunk would cause to be allocated; 0 if none.
    pub(super) fn would_allocate(&self, iterator: i64, chunk: &[u8]) -> u64 {
        let len = chunk.len() as u64;
        match &self.body {
            Body::Native(decoder) => decoder.would_allocate(len),
            Body::RedisBloom(loader) => loader.would_allocate(end(iterator).unwrap_or(0), len),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        match &self.body {
            Body::Native(decoder) => decoder.is_complete(),
            Body::RedisBloom(loader) => loader.is_complete(),
        }
    }

    /// Reads the chunk that came with an iterator. The error also says whether the upload is over.
    ///
    /// Chunks in our format are copied into the upload on the main thread. For 16 MiB, the longest chunk that a reader
    /// accepts, that takes up to 50 ms. No writer writes chunks longer than [`LONGEST`], so longer ones are refused if
    /// they come from clients. If they come from a server that has already accepted them, they are accepted.
    pub(super) fn push(
        &mut self,
        iterator: i64,
        chunk: &[u8],
        is_obeyed: bool,
    ) -> Result<(), (DecodeError, bool)> {
        match &mut self.body {
            Body::Native(_) if !is_obeyed && chunk.len() > LONGEST => Err((DecodeError::LongChunk, false)),
            Body::Native(decoder) => {
                decoder.push(chunk).map_err(|why| (why, false))?;
                let found = u64::try_from(iterator).unwrap_or(0);
                let expected = decoder.offset().saturating_add(1);
                if found == expected {
                    Ok(())
                } else {
                    // The data is the next chunk, but the iterator is wrong: the client is confused.
                    Err((DecodeError::Order { expected, found }, true))
                }
            }
            Body::RedisBloom(loader) => {
                let pushed = end(iterator).and_then(|end| loader.push(end, chunk));
                pushed.map_err(|why| (why, false))
            }
        }
    }

    /// The position of a chunk in RedisBloom's format. Such a chunk may be long, so another thread may place it. `None`
    /// for our format, whose chunks are [short](LONGEST).
    pub(super) fn destination(
        &mut self,
        iterator: i64,
        chunk: &[u8],
    ) -> Result<Option<Destination>, DecodeError> {
        match &mut self.body {
            Body::Native(_) => Ok(None),
            Body::RedisBloom(loader) => loader.destination(end(iterator)?, chunk).map(Some),
        }
    }

    /// Whether the chunk was placed in this upload, rather than in another one of the same key.
    pub(super) fn have(&self, placed: &Placed) -> bool {
        matches!(&self.body, Body::RedisBloom(loader) if loader.has(placed))
    }

    pub(super) fn note(&mut self, placed: Placed) -> Result<(), DecodeError> {
        match &mut self.body {
            Body::Native(_) => Ok(()),
            Body::RedisBloom(loader) => loader.note(placed),
        }
    }

    pub(super) fn finish<T: Chunked>(self) -> Result<T, DecodeError> {
        of_family(match self.body {
            Body::Native(decoder) => decoder.finish(),
            Body::RedisBloom(loader) => loader.finish(),
        })
    }

    /// Whether the head is RedisBloom's.
    pub(super) fn are_redisblooms(&self) -> bool {
        matches!(self.body, Body::RedisBloom(_))
    }

    /// The filter that RedisBloom creates from its head alone: all cells are 0.
    pub(super) fn without_chunks<T: Chunked>(self) -> Result<T, DecodeError> {
        of_family(match self.body {
            Body::RedisBloom(loader) => loader.without_chunks(),
            Body::Native(decoder) => decoder.finish(),
        })
    }
}

/// The command that loads the pieces of a filter, under the prefix `bf`.
pub(super) fn load_command(decoder: &Decoder) -> &'static str {
    if decoder.is_cuckoo() { Cuckoo::LOAD } else { Filter::LOAD }
}

/// The filter that was loaded, as a value of the family whose commands loaded it.
pub(super) fn of_family<T: Chunked>(filter: Result<Filter, DecodeError>) -> Result<T, DecodeError> {
    T::try_from(filter?).map_err(|_| DecodeError::OtherKind)
}

impl Body {
    pub(super) fn begin<T: Chunked>(head: &[u8]) -> Result<Body, CommandError> {
        let theirs = T::redisblooms(head);
        // RedisBloom's head begins with a number of items, which may look like our magic. The length tells the two
        // apart. Let n be the u32 at byte 8. Our head is 24 + n bytes long. RedisBloom's is 38 or 46 bytes long for a
        // cuckoo filter, and 16 + 49 n, 20 + 49 n or 20 + 53 n bytes long for a Bloom filter.
        if theirs.is_err() && head.starts_with(&MAGIC) {
            let decoder = Decoder::new(head).map_err(|why| T::bad_head(Some(why)))?;
            if load_command(&decoder) != T::LOAD {
                return Err(T::bad_head(Some(DecodeError::OtherKind)));
            }
            return Ok(Body::Native(decoder.in_proportion()));
        }
        // If the bytes aren't a head at all, the error has RedisBloom's words alone.
        theirs
            .map(Body::RedisBloom)
            .map_err(|why| T::bad_head(if why == DecodeError::Length("header") { None } else { Some(why) }))
    }
}

/// The offset in the body at which the piece with this iterator ends, in RedisBloom's format.
pub(super) fn end(iterator: i64) -> Result<u64, DecodeError> {
    let end = u64::try_from(iterator).ok().and_then(|iterator| iterator.checked_sub(1));
    end.ok_or(DecodeError::Field("iterator"))
}
