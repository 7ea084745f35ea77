//! Top-K sketches as values of keys. They have RedisBloom's type and encoding.
//!
//! An entry of the heap has 24 bytes. 8 of them are a pointer in RedisBloom, which saves it, and ignores it when it
//! loads. Here, the first entry has the state of the dice there.

use super::decay::Dice;
use super::heap::{Counted, Heap};
use super::sketch::{Sketch, fingerprint};
use crate::metrics::SKETCHES;
use crate::rows::Rows;
use crate::stored::{DataType, Handle, Stored};
use bloomery::Error;
use bloomery::mem::Words;
use bloomery::metrics::Sum;
use bloomery::parallel::ParallelFor;
use bloomery::wire::{Sink, Source};
use std::ffi::CStr;

static HANDLES: [Handle; 1] = [const { Handle::new() }];

/// Bytes of a sketch besides its buckets and entries, as RedisBloom counts them: a structure, and 256 chances.
const HEAD: u64 = 40 + 2048;

/// Bytes of a bucket.
const BUCKET: u64 = 8;

/// Bytes of an entry of the heap.
const ENTRY: usize = 24;

/// Bytes of a sketch besides the items in its heap. `None` if there are 2^64 or more.
pub(super) fn bytes_of(k: u64, rows: Rows) -> Option<u64> {
    let buckets = rows.cells().checked_mul(BUCKET)?;
    buckets.checked_add(k.checked_mul(ENTRY as u64)?)?.checked_add(HEAD)
}

impl Stored for Sketch {
    #[inline(always)]
    fn handles() -> &'static [Handle] {
        &HANDLES
    }

    fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Sketch, Error> {
        Sketch::copy(self, parallel)
    }

    fn bytes(&self) -> u64 {
        let bytes = bytes_of(self.heap().len() as u64, self.rows()).unwrap_or(u64::MAX);
        bytes.saturating_add(self.heap().bytes() as u64)
    }

    fn allocated(&self) -> usize {
        usize::try_from(self.bytes()).unwrap_or(usize::MAX)
    }

    fn gauge(&self) -> Option<&'static Sum> {
        Some(&SKETCHES.topk)
    }
}

/// RedisBloom's type.
pub(super) struct RedisBloom;

impl DataType for RedisBloom {
    type Value = Sketch;
    const NAME: &'static CStr = c"TopK-TYPE";
    const ENCODING: i32 = 0;

    fn load(source: &mut impl Source, encoding: u32) -> Result<Sketch, String> {
        const CUT: &str = "the payload ends early";
        if encoding != 0 {
            return Err(format!("unknown encoding {encoding}"));
        }
        let mut number =
            || u32::try_from(source.unsigned().ok_or(CUT)?).map_err(|_| "k, width or depth is too large");
        let [k, width, depth] = [number()?, number()?, number()?];
        let decay = source.double().ok_or(CUT)?;
        let rows = Rows::new(width.into(), depth.into()).filter(|_| k > 0).ok_or("k, width or depth is 0")?;
        if !(decay > 0.0 && decay <= 1.0) {
            return Err("bad decay".to_owned());
        }
        let buckets = source.string(|bytes| {
            let is_whole = rows.cells().checked_mul(BUCKET) == Some(bytes.len() as u64);
            is_whole.then(|| Words::from_bytes(bytes))
        });
        let buckets = buckets.ok_or(CUT)?.ok_or("the buckets have another length")?;
        let heap = source.string(|bytes| {
            let (entries, rest) = bytes.as_chunks::<ENTRY>();
            (entries.len() as u64 == u64::from(k) && rest.is_empty()).then(|| read_entries(entries))
        });
        let heap = heap.ok_or(CUT)?.ok_or("the heap has another length")?;
        let (mut heap, dice) = heap.map_err(|why| why.to_string())?;
        let counted: Vec<Counted> = heap.entries().map(|(counted, _)| counted).collect();
        for (index, counted) in counted.into_iter().enumerate() {
            let item = source.string(|bytes| bytes.strip_suffix(&[0]).map(Box::<[u8]>::from)).ok_or(CUT)?;
            let item = item.ok_or("an item doesn't end with a NUL byte")?;
            // An empty string stands for the empty item, or for no item, which has no fingerprint.
            let is_item = !item.is_empty() || counted.fingerprint == fingerprint(b"");
            heap.set(index, counted, is_item.then_some(item));
        }
        let buckets = buckets.map_err(|why| why.to_string())?;
        Ok(Sketch::with_buckets(rows, decay, buckets, heap, dice))
    }

    fn save(sketch: &Sketch, sink: &mut impl Sink) {
        let (rows, heap) = (sketch.rows(), sketch.heap());
        for number in [heap.len() as u64, rows.width.get(), rows.depth.get()] {
            sink.unsigned(number);
        }
        sink.double(sketch.decay());
        sink.words(sketch.buckets(), sketch.buckets().bytes());
        let mut entries = Vec::with_capacity(heap.len().saturating_mul(ENTRY));
        let mut dice = sketch.dice().0;
        for (Counted { fingerprint, count }, item) in heap.entries() {
            let len = item.map_or(0, |item| u32::try_from(item.len()).unwrap_or(u32::MAX));
            entries.extend(fingerprint.to_le_bytes());
            entries.extend(len.to_le_bytes());
            entries.extend(std::mem::take(&mut dice).to_le_bytes());
            entries.extend(count.to_le_bytes());
            entries.extend([0; 4]);
        }
        sink.string(&entries);
        let mut string = Vec::new();
        for (_, item) in heap.entries() {
            string.clear();
            string.extend_from_slice(item.unwrap_or_default());
            string.push(0);
            sink.string(&string);
        }
    }
}

/// Reads the entries of a heap, whose items follow.
fn read_entries(entries: &[[u8; ENTRY]]) -> Result<(Heap, Dice), Error> {
    let (mut heap, mut dice) = (Heap::new(entries.len())?, Dice(0));
    for (index, entry) in entries.iter().enumerate() {
        let (halves, _) = entry.as_chunks::<4>();
        if let [fingerprint, _, low, high, count, _] = *halves {
            let [fingerprint, low, high, count] = [fingerprint, low, high, count].map(u32::from_le_bytes);
            heap.set(index, Counted { fingerprint, count }, None);
            if index == 0 {
                dice = Dice(u64::from(high) << u32::BITS | u64::from(low));
            }
        }
    }
    Ok((heap, dice))
}
