//! Values that SCANDUMP and LOADCHUNK transfer in pieces, and the commands' dialect in each family.

use super::error::CommandError;
use super::stored::Stored;
use bloomery::filter::{Filter, FilterRef};
use bloomery::wire::DecodeError;
use bloomery::wire::redisbloom::Loader;
use std::ffi::CStr;

/// A filter that SCANDUMP and LOADCHUNK transfer in pieces.
pub trait Chunked: Stored + TryFrom<Filter> + Into<Filter> {
    /// The command that loads a piece, under the prefix `bf`.
    const LOAD: &'static str;
    /// The keyspace event for a filter that has been loaded.
    const LOADED: &'static CStr;
    /// Whether SCANDUMP checks its iterator before the key, and replies with null at the end, not with an empty string.
    const ITERATOR_FIRST: bool;

    /// The filter that SCANDUMP reads; during a rebuild, the live filter.
    fn dumped(&self) -> FilterRef<'_>;

    /// The whole filter.
    fn whole(&self) -> FilterRef<'_>;

    /// Reads a head in RedisBloom's format.
    fn redisblooms(head: &[u8]) -> Result<Loader, DecodeError>;

    /// Writes a chunk into a filter of RedisBloom's, as RedisBloom does.
    fn overwrite(&mut self, end: u64, chunk: &[u8]) -> Result<(), DecodeError>;

    /// Whether a piece with this iterator is a head. RedisBloom up to 2.2.6 wrote heads with iterator 0 into its
    /// append-only files.
    fn is_head(iterator: i64, _piece: &[u8]) -> bool {
        iterator == 1
    }

    // Refusals: RedisBloom's words, then the reason.

    /// Refuses an iterator.
    fn bad_iterator(loading: bool) -> CommandError;

    /// Refuses a head.
    fn bad_head(why: Option<DecodeError>) -> CommandError;

    /// Refuses a chunk.
    fn bad_chunk(why: DecodeError) -> CommandError;

    /// Refuses a piece of `bytes` bytes for a key that already holds a filter.
    fn complete_already(iterator: i64, bytes: u64) -> CommandError;
}
