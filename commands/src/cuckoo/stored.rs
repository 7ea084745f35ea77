//! The family of cuckoo filters: the values in keys, and their data types. RedisBloom's keep the type and the encoding
//! that they had there, so that they can be moved back.

use crate::chunked::Chunked;
use crate::error::CommandError;
use crate::metrics::FILTERS;
use crate::stored::{DataType, Handle, Stored};
use crate::transfer::rewrite;
use bloomery::Error;
use bloomery::filter::{Cuckoo, Filter, FilterRef, Origin};
use bloomery::metrics::Sum;
use bloomery::parallel::ParallelFor;
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Sink, Source, VERSION, value};
use std::ffi::CStr;

static HANDLES: [Handle; 2] = [const { Handle::new() }; 2];

impl Stored for Cuckoo {
    const REWRITTEN_AS: Option<&'static str> = Some(<Cuckoo as Chunked>::LOAD);

    #[inline(always)]
    fn handles() -> &'static [Handle] {
        &HANDLES
    }

    fn data_type(&self) -> usize {
        if self.spec().origin == Origin::Bloomery { 0 } else { 1 }
    }

    fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Cuckoo, Error> {
        Cuckoo::copy(self, parallel)
    }

    fn bytes(&self) -> u64 {
        FilterRef::from(self).bytes()
    }

    fn allocated(&self) -> usize {
        Cuckoo::allocated(self)
    }

    fn rewrite(&self, emit: &mut dyn FnMut(&'static str, &[&[u8]])) {
        rewrite(self, emit);
    }

    fn gauge(&self) -> Option<&'static Sum> {
        Some(&FILTERS.cuckoo)
    }
}

/// The cuckoo filter that was read.
fn cuckoo(filter: Filter) -> Result<Cuckoo, DecodeError> {
    filter.into_cuckoo().ok_or(DecodeError::OtherKind)
}

/// Our own type.
pub(super) struct Native;

impl DataType for Native {
    type Value = Cuckoo;
    const NAME: &'static CStr = c"bloomeryC";
    const ENCODING: i32 = VERSION as i32;

    fn load(source: &mut impl Source, encoding: u32) -> Result<Cuckoo, String> {
        value::decode(source, encoding).and_then(cuckoo).map_err(|why| why.to_string())
    }

    fn save(filter: &Cuckoo, sink: &mut impl Sink) {
        value::save(sink, filter);
    }
}

/// RedisBloom's type.
pub(super) struct RedisBloom;

impl DataType for RedisBloom {
    type Value = Cuckoo;
    const NAME: &'static CStr = c"MBbloomCF";
    const ENCODING: i32 = redisbloom::ENCODING as i32;

    fn load(source: &mut impl Source, encoding: u32) -> Result<Cuckoo, String> {
        redisbloom::load_cuckoo(source, encoding).and_then(cuckoo).map_err(|why| why.to_string())
    }

    fn save(filter: &Cuckoo, sink: &mut impl Sink) {
        redisbloom::save_cuckoo(sink, filter);
    }
}

impl Chunked for Cuckoo {
    const LOAD: &'static str = "cf.loadchunk";
    const LOADED: &'static CStr = c"cf.load";
    const ITERATOR_FIRST: bool = true;

    fn dumped(&self) -> FilterRef<'_> {
        self.into()
    }

    fn whole(&self) -> FilterRef<'_> {
        self.into()
    }

    fn redisblooms(head: &[u8]) -> Result<Loader, DecodeError> {
        Loader::cuckoo(head)
    }

    fn overwrite(&mut self, end: u64, chunk: &[u8]) -> Result<(), DecodeError> {
        let start = end.checked_sub(chunk.len() as u64).ok_or(DecodeError::Field("iterator"))?;
        match self.spec().origin {
            Origin::Bloomery => Err(DecodeError::Complete),
            _ => Ok(Cuckoo::overwrite(self, start, chunk)?),
        }
    }

    fn bad_iterator(_loading: bool) -> CommandError {
        CommandError::RedisBloom("Invalid position")
    }

    fn bad_head(why: Option<DecodeError>) -> CommandError {
        CommandError::BadHeader(why)
    }

    fn bad_chunk(why: DecodeError) -> CommandError {
        CommandError::BadChunk(why)
    }

    fn complete_already(iterator: i64, _bytes: u64) -> CommandError {
        if iterator == 1 { CommandError::Exists } else { CommandError::BadChunk(DecodeError::Complete) }
    }
}
