//! The headers and chunks of SCANDUMP and LOADCHUNK. A chunk is a range of bytes of the arrays (of bits or of slots),
//! which are laid end to end. It contains neither its position nor a checksum. The iterator that accompanies it gives
//! its position.

use super::raw::{OLD_HASH, RawCuckoo, RawLink, known_error_rate, marked_deletes, plan};
use crate::error::Error;
use crate::filter::foreign::{Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::filter::{Census, Cuckoo, CuckooSpec, Filter, Origin, fingerprints};
use crate::mem::Words;
use crate::params::limits;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::wire::arrival::{Allocation, Arrival, ENTRY, Filled, Place};
use crate::wire::chunk;
use crate::wire::codec::take;
use crate::wire::error::DecodeError;
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::{boxed::Box, vec::Vec};

/// Maximum number of bytes in one of RedisBloom's chunks. We write shorter chunks.
pub const MAX_PIECE: u64 = 16 << 20;

/// Memory in bytes that an array needs in addition to what it reports: its entry in a map (counted twice, because up to
/// half of the map can be free), its struct with two reference counts, and the first node of its own map.
const ARRAY: u64 = (2 * size_of::<(u64, Array)>() + size_of::<Mutex<Arrival>>() + 16) as u64 + 192;

/// Memory in bytes that an array needs in addition to its cells if its chunks arrive in order: its struct, the rounding
/// up of its words, and the entries of its maps.
const SPARE: u64 = ARRAY + 8 + 5 * ENTRY;

/// Memory in bytes that a load may use in addition to its cells for short and scattered pieces. It is enough to accept
/// the pieces of a small filter in any order.
const SCATTERED: u64 = 64 << 10;

/// The header of a Bloom filter, as RedisBloom has written it since 2.2.1.
pub(in crate::wire) fn bloom_head(filter: &Foreign) -> Vec<u8> {
    let (options, growth) = match filter.growth() {
        Growth::RedisBloom { options, growth } => (options, growth),
        _ => (0, 0),
    };
    let mut head = Vec::new();
    head.extend_from_slice(&filter.items().to_le_bytes());
    head.extend_from_slice(&u32::try_from(filter.links().len()).unwrap_or(u32::MAX).to_le_bytes());
    head.extend_from_slice(&options.to_le_bytes());
    head.extend_from_slice(&growth.to_le_bytes());
    for link in filter.links() {
        let spec = link.spec();
        head.extend_from_slice(&spec.bytes.to_le_bytes());
        head.extend_from_slice(&spec.bits.to_le_bytes());
        head.extend_from_slice(&link.items().to_le_bytes());
        head.extend_from_slice(&spec.error_rate.to_le_bytes());
        head.extend_from_slice(&spec.bits_per_item.to_le_bytes());
        head.extend_from_slice(&spec.probes.to_le_bytes());
        head.extend_from_slice(&spec.capacity.to_le_bytes());
        head.push(spec.log2);
    }
    head
}

/// The header of a cuckoo filter, as RedisBloom has written it since 2.2.11.
pub(in crate::wire) fn cuckoo_head(filter: &Cuckoo) -> Vec<u8> {
    let spec = filter.spec();
    let mut head = Vec::new();
    for field in [filter.items(), spec.first_buckets(), marked_deletes(filter), filter.tables().len() as u64]
    {
        head.extend_from_slice(&field.to_le_bytes());
    }
    for field in [spec.bucket_size.into(), spec.max_iterations, spec.expansion] {
        head.extend_from_slice(&field.to_le_bytes());
    }
    head
}

/// The content of a header.
#[derive(Debug)]
enum DumpHead {
    Bloom { options: u32, growth: u32, links: Vec<(LinkSpec, u64)> },
    Cuckoo { spec: CuckooSpec, tables: usize, deletes: u64 },
}

impl DumpHead {
    /// Size in bytes of array `index`; `None` after the last array.
    fn array(&self, index: usize) -> Option<u64> {
        match self {
            DumpHead::Bloom { links, .. } => links.get(index).map(|(spec, _)| spec.bytes),
            DumpHead::Cuckoo { spec, tables, .. } => {
                let buckets = if index < *tables { spec.buckets_of(index) } else { None };
                buckets.map(|buckets| spec.slots_of(buckets))
            }
        }
    }

    /// Sizes in bytes of all arrays (of bits or of slots), in order.
    fn arrays(&self) -> impl Iterator<Item = u64> {
        (0..).map_while(|index| self.array(index))
    }

    /// Builds the filter from its arrays.
    fn build(self, arrays: impl Iterator<Item = Filled>) -> Result<Filter, DecodeError> {
        Ok(match self {
            DumpHead::Bloom { options, growth, links } => {
                let specs: Vec<_> = links.iter().map(|(spec, _)| *spec).collect();
                let scheme = Scheme::RedisBloom(plan(options, &specs));
                let links = links.into_iter().zip(arrays).map(|((spec, items), Filled { words, census })| {
                    Link::from_words(spec, items, words, census.set)
                });
                let growth = Growth::RedisBloom { options, growth };
                let filter = Foreign::new(scheme, Encoding::Bytes, growth, links.collect::<Result<_, _>>()?);
                Filter::Foreign(Box::new(filter?))
            }
            DumpHead::Cuckoo { spec, deletes, .. } => {
                let tables = arrays.map(|Filled { words, census }| (words, census.set));
                Filter::Cuckoo(Cuckoo::from_parts(spec, tables, deletes, 0)?)
            }
        })
    }
}

/// Builds a filter from a header and chunks. Chunks can arrive in any order, overlap and repeat. As in RedisBloom, the
/// most recent bytes win. The filter is complete when the chunks cover all bytes. Until then, the loader's memory is in
/// proportion to the bytes that have arrived.
#[derive(Debug)]
pub struct Loader {
    head: DumpHead,
    body_len: u64,
    /// Size in bytes of the largest array. It is computed only once, because a 38-byte head can declare 65,536 arrays.
    largest: u64,
    /// The arrays that have received bytes, by the offset of their first byte in the body.
    arrays: BTreeMap<u64, Array>,
    /// Number of body bytes that have arrived.
    arrived: u64,
    /// Memory in bytes that the arrays use.
    held: u64,
}

/// An array, and its counts when they were last read. Another thread may be placing a chunk in it.
#[derive(Debug)]
struct Array {
    arrival: Arc<Mutex<Arrival>>,
    arrived: u64,
    held: u64,
}

fn lock(arrival: &Mutex<Arrival>) -> MutexGuard<'_, Arrival> {
    arrival.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a chunk of a load belongs. Any thread can place it there.
#[derive(Debug)]
pub struct Destination {
    /// Where the array begins in the body.
    first: u64,
    /// Where the chunk begins in the array.
    start: u64,
    /// If the load ends while a thread places a chunk, that thread frees the array.
    arrival: Weak<Mutex<Arrival>>,
}

/// A chunk that has been placed, but that the load hasn't [counted](Loader::note) yet.
#[derive(Debug)]
pub struct Placed {
    at: Destination,
    taken: Result<(), Error>,
}

impl Destination {
    /// Places the chunk, unless the load has ended.
    pub fn take(self, chunk: &[u8]) -> Placed {
        let arrival = self.arrival.upgrade();
        let taken = arrival.map_or(Ok(()), |arrival| lock(&arrival).take(self.start, chunk));
        Placed { at: self, taken }
    }
}

impl Loader {
    /// Reads the header of a Bloom filter. RedisBloom has written it in three forms, which differ in length.
    pub fn bloom(head: &[u8]) -> Result<Loader, DecodeError> {
        let short = DecodeError::Length("header");
        let mut rest = head;
        let items = u64::from_le_bytes(take(&mut rest).ok_or(short)?);
        let count = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
        let options = u32::from_le_bytes(take(&mut rest).ok_or(short)?);
        // (bytes before the links, bytes of a link): since 2.2.1, in 2.2.0, before 2.2.0.
        let generations = [(20u64, 53u64), (20, 49), (16, 49)];
        let len = |(fixed, link): (u64, u64)| link.checked_mul(count.into())?.checked_add(fixed);
        let is_it = |generation: &(u64, u64)| len(*generation) == Some(head.len() as u64);
        let (fixed, link_len) = generations.into_iter().find(is_it).ok_or(short)?;
        if count as usize > limits::MAX_FOREIGN_LINKS {
            return Err(DecodeError::Field("links"));
        }
        let growth = if fixed == 20 { u32::from_le_bytes(take(&mut rest).ok_or(short)?) } else { 2 };
        let (mut links, mut work) = (Vec::new(), 0u64);
        while !rest.is_empty() {
            let mut word = || take(&mut rest).map(u64::from_le_bytes).ok_or(short);
            let (bytes, bits, items_of_link) = (word()?, word()?, word()?);
            let (error_rate, bits_per_item) = (f64::from_bits(word()?), f64::from_bits(word()?));
            let hashes = u32::from_le_bytes(take(&mut rest).ok_or(short)?).into();
            let capacity = if link_len == 53 {
                u64::from_le_bytes(take(&mut rest).ok_or(short)?)
            } else {
                u32::from_le_bytes(take(&mut rest).ok_or(short)?).into()
            };
            let [log2] = take(&mut rest).ok_or(short)?;
            let error_rate = known_error_rate(error_rate, bits_per_item);
            let raw = RawLink { bytes, bits, error_rate, bits_per_item, hashes, capacity, log2: log2.into() };
            let spec = raw.spec()?;
            work = work.saturating_add(spec.probes.into());
            links.push((spec, items_of_link));
        }
        // No filter that RedisBloom creates has more probes per item. Without this check, the client would get the
        // error only after the last piece.
        if work > limits::MAX_FOREIGN_WORK {
            return Err(DecodeError::Field("links"));
        }
        // A damaged number of items in a link would show in BF.CARD.
        if links.iter().fold(0u64, |sum, (_, items)| sum.saturating_add(*items)) != items {
            return Err(DecodeError::Field("number of items"));
        }
        Loader::new(DumpHead::Bloom { options, growth, links })
    }

    /// Reads the header of a cuckoo filter.
    pub fn cuckoo(head: &[u8]) -> Result<Loader, DecodeError> {
        let short = DecodeError::Length("header");
        // Versions 2.2.0 to 2.2.10 wrote a memory address after the header.
        if head.len() != 38 && head.len() != 46 {
            return Err(short);
        }
        let mut rest = head;
        let mut word = || take(&mut rest).map(u64::from_le_bytes).ok_or(short);
        let (_items, buckets, deletes, filters) = (word()?, word()?, word()?, word()?);
        let mut half = || take(&mut rest).map(u16::from_le_bytes).map(u64::from).ok_or(short);
        let raw = RawCuckoo {
            filters,
            buckets,
            deletes,
            bucket_size: half()?,
            max_iterations: half()?,
            expansion: half()?,
        };
        let (spec, tables) = raw.spec(raw.origin())?;
        let deletes = deletes & !OLD_HASH;
        Loader::new(DumpHead::Cuckoo { spec, tables, deletes })
    }

    fn new(head: DumpHead) -> Result<Loader, DecodeError> {
        let both = |(sum, largest): (u64, u64), len: u64| Some((sum.checked_add(len)?, largest.max(len)));
        let sizes = head.arrays().try_fold((0, 0), both).filter(|(sum, _)| *sum > 0);
        let (body_len, largest) = sizes.ok_or(DecodeError::Field("links"))?;
        Ok(Loader { head, body_len, largest, arrays: BTreeMap::new(), arrived: 0, held: 0 })
    }

    /// Whether the filter is a cuckoo filter.
    pub fn is_cuckoo(&self) -> bool {
        matches!(self.head, DumpHead::Cuckoo { .. })
    }

    /// Total bytes of all arrays.
    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Approximate upper bound, in bytes, on the memory for the chunks if they arrive in order: all arrays, plus half
    /// of the largest.
    pub fn most_held(&self) -> u64 {
        self.body_len.saturating_add(self.largest / 2)
    }

    /// Upper bound, in bytes, on the memory for chunks of any order and length: one and a half times the cells, plus
    /// 1/32 for the entries of whole blocks, plus constants. A byte that arrives alone needs 105 bytes, so chunks that
    /// exceed this bound must be refused.
    fn bound(&self) -> u64 {
        let arrays = (self.arrays.len() as u64).saturating_add(1).saturating_mul(SPARE);
        let cells = self.body_len.saturating_add(self.body_len / 2).saturating_add(self.body_len / 32);
        cells.saturating_add(arrays).saturating_add(SCATTERED)
    }

    /// Approximate memory in bytes that the chunks loaded so far use.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Number of bytes that loading a chunk of `len` bytes that ends at byte `end` of the body would newly allocate:
    /// the size of an array, or 0.
    pub fn would_allocate(&self, end: u64, len: u64) -> u64 {
        let Some(start) = end.checked_sub(len) else { return 0 };
        self.array_at(start).map_or(0, |(first, _, array_len)| {
            let inside = start.saturating_sub(first);
            match self.arrays.get(&first) {
                Some(array) => lock(&array.arrival).would_allocate(inside, len),
                None => self.new_array(array_len).would_allocate(inside, len),
            }
        })
    }

    /// Whether everything has been loaded.
    pub fn is_complete(&self) -> bool {
        self.arrived == self.body_len
    }

    /// The array that contains this byte of the body: its offset, its index and its length.
    fn array_at(&self, offset: u64) -> Option<(u64, usize, u64)> {
        match &self.head {
            DumpHead::Cuckoo { spec, tables, .. } => {
                spec.sub_filter_at(offset).filter(|(_, index, _)| index < tables)
            }
            DumpHead::Bloom { links, .. } => {
                let mut first = 0u64;
                links.iter().enumerate().find_map(|(index, (spec, _))| {
                    let (begins, end) = (first, first.saturating_add(spec.bytes));
                    first = end;
                    (offset < end).then_some((begins, index, spec.bytes))
                })
            }
        }
    }

    fn new_array(&self, len: u64) -> Arrival {
        Arrival::new(
            len,
            Allocation::InProportion,
            match self.head {
                DumpHead::Bloom { .. } => Place::Over(Words::ones),
                DumpHead::Cuckoo { .. } => Place::Over(fingerprints),
            },
        )
    }

    /// Loads the chunk that ends at byte `end` of the body. Overwrites what is there.
    ///
    /// # Errors
    /// What is wrong with the chunk. An error leaves the loader unchanged.
    pub fn push(&mut self, end: u64, chunk: &[u8]) -> Result<(), DecodeError> {
        let placed = self.destination(end, chunk)?.take(chunk);
        self.note(placed)
    }

    /// Returns where the chunk that ends at byte `end` of the body belongs. From this call on, the load counts the
    /// memory that the chunk may need, because [`note`](Loader::note) isn't called if the client disconnects.
    ///
    /// # Errors
    /// What is wrong with the chunk. An error leaves the loader unchanged.
    pub fn destination(&mut self, end: u64, chunk: &[u8]) -> Result<Destination, DecodeError> {
        let wrong = DecodeError::Field("iterator");
        let len = chunk.len() as u64;
        let start = end.checked_sub(len).ok_or(wrong)?;
        if len == 0 || len > MAX_PIECE {
            return Err(DecodeError::Length("chunk"));
        }
        // RedisBloom's chunks are bare cells, so a chunk in our format is the only sign that two clients are loading
        // into the same key.
        if chunk::open(chunk).is_ok() {
            return Err(DecodeError::OwnChunk);
        }
        // The array that contains the whole chunk.
        let (first, _, array_len) = self.array_at(start).ok_or(wrong)?;
        if end > first.saturating_add(array_len) {
            return Err(DecodeError::Length("chunk"));
        }
        let start = start.saturating_sub(first);
        let (before, held) = match self.arrays.get(&first) {
            Some(array) => (array.held, lock(&array.arrival).most_held_with(start, len)),
            None => (0, self.new_array(array_len).most_held_with(start, len)),
        };
        let own = if self.arrays.contains_key(&first) { 0 } else { ARRAY };
        let all = self.held.saturating_sub(before).saturating_add(held).saturating_add(own);
        if all > self.bound() {
            return Err(DecodeError::Scattered);
        }
        self.held = all;
        let new = self.new_array(array_len);
        let array = self.arrays.entry(first).or_insert_with(|| {
            let arrival = Arc::new(Mutex::new(new));
            Array { arrival, arrived: 0, held: 0 }
        });
        array.held = held;
        Ok(Destination { first, start, arrival: Arc::downgrade(&array.arrival) })
    }

    /// Whether a chunk was placed in an array of this load, rather than in one of another load with the same name.
    pub fn has(&self, placed: &Placed) -> bool {
        let Destination { first, arrival, .. } = &placed.at;
        self.arrays.get(first).is_some_and(|array| arrival.ptr_eq(&Arc::downgrade(&array.arrival)))
    }

    /// Counts a chunk that has been placed.
    ///
    /// # Errors
    /// [`DecodeError::OutOfMemory`], if there was no memory to place the chunk.
    pub fn note(&mut self, placed: Placed) -> Result<(), DecodeError> {
        let Placed { at: Destination { first, .. }, taken } = placed;
        if let Some(array) = self.arrays.get_mut(&first) {
            let now = lock(&array.arrival);
            self.arrived = self.arrived.saturating_sub(array.arrived).saturating_add(now.arrived());
            self.held = self.held.saturating_sub(array.held).saturating_add(now.held());
            (array.arrived, array.held) = (now.arrived(), now.held());
        }
        Ok(taken?)
    }

    /// Returns the filter as it is before any of its chunks arrive: all cells are 0. For a replica of a server with
    /// RedisBloom, which creates this filter when it reads the header. [`overwrite`] then fills the cells.
    ///
    /// # Errors
    /// [`DecodeError::OutOfMemory`], or [`DecodeError::Field`] if no such filter can exist.
    pub fn without_chunks(self) -> Result<Filter, DecodeError> {
        let blank =
            |len: u64| Ok(Filled { words: Words::zeroed(len.div_ceil(8))?, census: Census::default() });
        let arrays = self.head.arrays().map(blank).collect::<Result<Vec<_>, DecodeError>>()?;
        self.head.build(arrays.into_iter())
    }

    /// The finished filter.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if any bytes are missing, or [`DecodeError::Field`] if no such filter can exist.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Length("body"));
        }
        self.head.build(self.arrays.into_values().filter_map(|array| lock(&array.arrival).finish()))
    }
}

/// Writes a chunk that ends at byte `end` of the body into a filter that came from RedisBloom. Overwrites what is
/// there, as RedisBloom does.
///
/// # Errors
/// What is wrong with the chunk, or [`DecodeError::Complete`] for any other filter. An error leaves the filter
/// unchanged.
pub fn overwrite(filter: &mut Filter, end: u64, chunk: &[u8]) -> Result<(), DecodeError> {
    let start = end.checked_sub(chunk.len() as u64).ok_or(DecodeError::Field("iterator"))?;
    match filter {
        Filter::Foreign(filter) if matches!(filter.scheme(), Scheme::RedisBloom(_)) => {
            Ok(filter.overwrite(start, chunk)?)
        }
        Filter::Cuckoo(filter) if filter.spec().origin != Origin::Bloomery => {
            Ok(filter.overwrite(start, chunk)?)
        }
        _ => Err(DecodeError::Complete),
    }
}
