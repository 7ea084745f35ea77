//! The family of Bloom filters: the values in keys, and their data types.
//!
//! Filters from RedisBloom or valkey-bloom keep the type and the encoding that they had there, so that they can be
//! moved back. A filter that is being rebuilt is ours, wherever it came from: no other system's encoding can contain a
//! shadow.

use crate::chunked::Chunked;
use crate::error::CommandError;
use crate::metrics::FILTERS;
use crate::stored::{DataType, Handle, Stored};
use crate::transfer::rewrite;
use bloomery::Error;
use bloomery::filter::foreign::Scheme;
use bloomery::filter::{Contents, Filter, FilterRef, LiveRef};
use bloomery::metrics::Sum;
use bloomery::parallel::ParallelFor;
use bloomery::params::{Family, Spec};
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Sink, Source, VERSION, import, value};
use std::ffi::CStr;

static HANDLES: [Handle; 3] = [const { Handle::new() }; 3];

impl Stored for Filter {
    const REWRITTEN_AS: Option<&'static str> = Some(<Filter as Chunked>::LOAD);

    #[inline(always)]
    fn handles() -> &'static [Handle] {
        &HANDLES
    }

    fn data_type(&self) -> usize {
        match self {
            Filter::Foreign(filter) => match filter.scheme() {
                Scheme::RedisBloom(_) => 1,
                Scheme::ValkeyBloom { .. } => 2,
                _ => 0,
            },
            _ => 0,
        }
    }

    fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Filter, Error> {
        Filter::copy(self, parallel)
    }

    fn bytes(&self) -> u64 {
        Filter::bytes(self)
    }

    fn reserved_bytes(&self) -> u64 {
        Filter::reserved_bytes(self)
    }

    fn allocated(&self) -> usize {
        Filter::allocated(self)
    }

    fn rewrite(&self, emit: &mut dyn FnMut(&'static str, &[&[u8]])) {
        rewrite(self, emit);
    }

    /// A filter that is being rebuilt counts as its live filter.
    fn gauge(&self) -> Option<&'static Sum> {
        Some(match self.live()? {
            LiveRef::Foreign(_) => &FILTERS.foreign,
            LiveRef::Bloom(filter) => match filter.spec() {
                Spec { cell, .. } if cell.counts() => &FILTERS.counting,
                Spec { family: Family::Fixed(_), .. } => &FILTERS.fixed,
                Spec { family: Family::Scaling { .. }, .. } => &FILTERS.scaling,
                Spec { family: Family::Window { .. }, .. } => &FILTERS.window,
            },
        })
    }

    /// A filter that is being rebuilt counts as its live filter.
    #[inline]
    fn contents(&self) -> Contents {
        self.live().map_or_else(Contents::default, LiveRef::contents)
    }

    /// True only for a native filter that isn't being rebuilt and is neither a window, in which an add may drop other
    /// items, nor has a table, which an add may make larger.
    #[inline]
    fn is_plain(&self) -> bool {
        matches!(self, Filter::Bloom(filter) if filter.window().is_none() && !filter.has_table())
    }
}

/// Refuses a cuckoo filter, which has a data type of its own.
fn bloom(filter: Filter) -> Result<Filter, DecodeError> {
    if filter.cuckoo().is_none() { Ok(filter) } else { Err(DecodeError::OtherKind) }
}

/// Our own type. It contains all filters whose own system's type another module has registered.
pub(super) struct Native;

impl DataType for Native {
    type Value = Filter;
    const NAME: &'static CStr = c"bloomery1";
    const ENCODING: i32 = VERSION as i32;

    fn load(source: &mut impl Source, encoding: u32) -> Result<Filter, String> {
        value::decode(source, encoding).and_then(bloom).map_err(|why| why.to_string())
    }

    fn save(filter: &Filter, sink: &mut impl Sink) {
        value::save(sink, filter);
    }
}

/// RedisBloom's type.
pub(super) struct RedisBloom;

impl DataType for RedisBloom {
    type Value = Filter;
    const NAME: &'static CStr = c"MBbloom--";
    const ENCODING: i32 = redisbloom::ENCODING as i32;

    fn load(source: &mut impl Source, encoding: u32) -> Result<Filter, String> {
        redisbloom::load_bloom(source, encoding).map_err(|why| why.to_string())
    }

    fn save(filter: &Filter, sink: &mut impl Sink) {
        if let Filter::Foreign(filter) = filter {
            redisbloom::save_bloom(sink, filter);
        }
    }
}

/// valkey-bloom's type.
pub(super) struct ValkeyBloom;

impl DataType for ValkeyBloom {
    type Value = Filter;
    const NAME: &'static CStr = c"bloomfltr";
    const ENCODING: i32 = 1;

    fn load(source: &mut impl Source, encoding: u32) -> Result<Filter, String> {
        let filter = import::load_valkey_bloom(source, encoding);
        filter.map(Filter::from).map_err(|why| why.to_string())
    }

    fn save(filter: &Filter, sink: &mut impl Sink) {
        if let Filter::Foreign(filter) = filter {
            import::save_valkey_bloom(sink, filter);
        }
    }
}

impl Chunked for Filter {
    const LOAD: &'static str = "bf.loadchunk";
    const LOADED: &'static CStr = c"bf.load";
    const ITERATOR_FIRST: bool = false;

    fn dumped(&self) -> FilterRef<'_> {
        self.live().map_or_else(|| self.into(), FilterRef::from)
    }

    fn whole(&self) -> FilterRef<'_> {
        self.into()
    }

    fn redisblooms(head: &[u8]) -> Result<Loader, DecodeError> {
        Loader::bloom(head)
    }

    fn overwrite(&mut self, end: u64, chunk: &[u8]) -> Result<(), DecodeError> {
        redisbloom::overwrite(self, end, chunk)
    }

    fn is_head(iterator: i64, piece: &[u8]) -> bool {
        iterator == 1 || iterator == 0 && Loader::bloom(piece).is_ok()
    }

    fn bad_iterator(loading: bool) -> CommandError {
        CommandError::BadIterator { prefixed: loading }
    }

    fn bad_head(why: Option<DecodeError>) -> CommandError {
        CommandError::BadData(why)
    }

    fn bad_chunk(why: DecodeError) -> CommandError {
        CommandError::BadData(Some(why))
    }

    fn complete_already(iterator: i64, bytes: u64) -> CommandError {
        if u64::try_from(iterator).is_ok_and(|iterator| iterator > bytes.saturating_add(1)) {
            CommandError::NoLink
        } else {
            CommandError::BadData(None)
        }
    }
}
