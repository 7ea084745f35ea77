//! Count-min sketches as values of keys. They have RedisBloom's type and encoding.

use super::sketch::Sketch;
use crate::metrics::SKETCHES;
use crate::rows::Rows;
use crate::stored::{DataType, Handle, Stored};
use bloomery::Error;
use bloomery::metrics::Sum;
use bloomery::parallel::ParallelFor;
use bloomery::wire::{Sink, Source};
use std::ffi::CStr;

static HANDLES: [Handle; 1] = [const { Handle::new() }];

/// Bytes of a sketch besides its counters, as RedisBloom counts them.
const HEAD: u64 = 32;

impl Stored for Sketch {
    #[inline(always)]
    fn handles() -> &'static [Handle] {
        &HANDLES
    }

    fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Sketch, Error> {
        Sketch::copy(self, parallel)
    }

    fn bytes(&self) -> u64 {
        Sketch::bytes(self)
    }

    fn allocated(&self) -> usize {
        usize::try_from(self.bytes().saturating_add(HEAD)).unwrap_or(usize::MAX)
    }

    fn gauge(&self) -> Option<&'static Sum> {
        Some(&SKETCHES.cms)
    }
}

/// RedisBloom's type.
pub(super) struct RedisBloom;

impl DataType for RedisBloom {
    type Value = Sketch;
    const NAME: &'static CStr = c"CMSk-TYPE";
    const ENCODING: i32 = 0;

    fn load(source: &mut impl Source, encoding: u32) -> Result<Sketch, String> {
        let mut number = || source.unsigned().ok_or("the payload ends early");
        let [width, depth, count] = [number()?, number()?, number()?];
        if encoding != 0 {
            return Err(format!("unknown encoding {encoding}"));
        }
        let rows = Rows::new(width, depth).ok_or("bad width or depth")?;
        let sketch = source.string(|bytes| Sketch::with_counters(rows, count, bytes));
        let sketch = sketch.ok_or("the payload ends early")?.ok_or("the counters have another length")?;
        sketch.map_err(|why| why.to_string())
    }

    fn save(sketch: &Sketch, sink: &mut impl Sink) {
        let rows = sketch.rows();
        for number in [rows.width.get(), rows.depth.get(), sketch.count()] {
            sink.unsigned(number);
        }
        sink.words(sketch.counters(), sketch.bytes());
    }
}
