//! The headers and chunks of SCANDUMP and LOADCHUNK. A chunk is bytes of the bit arrays, laid end to end. It contains
//! neither its position nor a checksum: the iterator that comes with it gives the position.

use super::raw::{OLD_HASH, RawCuckoo, RawLink, marked_deletes, plan};
use crate::error::Error;
use crate::filter::foreign::{Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::filter::{Census, Cuckoo, CuckooSpec, Filter, Origin, fingerprints};
use crate::mem::Words;
use crate::params::limits;
use crate::wire::arrival::{Allocation, Arrival, ENTRY, Filled, Place};
use crate::wire::chunk;
use crate::wire::codec::take;
use crate::wire::error::DecodeError;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Maximum number of bytes in one chunk, as RedisBloom cuts them. We write shorter chunks.
pub const MAX_PIECE: u64 = 16 << 20;

/// Bytes that an array costs in addition to those that it reports: its entry in the map, half of which may be free, its
/// own struct with two reference counts, and the first node of its own map.
const ARRAY: u64 = (2 * size_of::<(u64, Array)>() + size_of::<Mutex<Arrival>>() + 16) as u64 + 192;

/// Bytes that an array holds in addition to its cells if it comes in order: its struct, its words rounded up, and
/// entries of its maps.
const SPARE: u64 = ARRAY + 8 + 5 * ENTRY;

/// Bytes that a load may hold beyond its cells for pieces that are short and scattered, so that every order of pieces
/// of a small filter is accepted.
const SCATTERED: u64 = 64 << 10;

/// The header of a Bloom filter, as RedisBloom writes it since 2.2.1.
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

/// The header of a cuckoo filter, as RedisBloom writes it since 2.2.11.
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

/// What a header says.
#[derive(Debug)]
enum DumpHead {
    Bloom { options: u32, growth: u32, links: Vec<(LinkSpec, u64)> },
    Cuckoo { spec: CuckooSpec, tables: usize, deletes: u64 },
}

impl DumpHead {
    /// Bytes of bit array `index`; `None` after the last.
    fn array(&self, index: usize) -> Option<u64> {
        match self {
            DumpHead::Bloom { links, .. } => links.get(index).map(|(spec, _)| spec.bytes),
            DumpHead::Cuckoo { spec, tables, .. } => {
                let buckets = if index < *tables { spec.buckets_of(index) } else { None };
                buckets.map(|buckets| spec.slots_of(buckets))
            }
        }
    }

    /// Bytes of all bit arrays, in order.
    fn arrays(&self) -> impl Iterator<Item = u64> {
        (0..).map_while(|index| self.array(index))
    }

    /// The filter, from its arrays.
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

/// Builds a filter from a header and chunks. Chunks may come in any order, overlap and repeat: as in RedisBloom, the
/// last one counts. The filter is complete when they cover all bits. Until then, it needs memory in proportion to the
/// bytes that have arrived.
#[derive(Debug)]
pub struct Loader {
    head: DumpHead,
    body_len: u64,
    /// Bytes of the largest array. Computed once, since a head of 38 bytes may declare 65,536 arrays.
    largest: u64,
    /// The arrays that have received bytes, by the offset of their first byte in the body.
    arrays: BTreeMap<u64, Array>,
    /// Bytes of the body that have arrived.
    arrived: u64,
    /// Bytes of memory that the arrays hold.
    held: u64,
}

/// An array, and the count when it was last looked at. Another thread may place a chunk in it.
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

/// A chunk in its place, which the load has yet to [count](Loader::note).
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
    /// Reads the header of a Bloom filter. It has had three forms, which differ in length.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn bloom(head: &[u8]) -> Result<Loader, DecodeError> {
        let short = DecodeError::Length("header");
        let mut rest = head;
        // The number of items: the links have it too.
        let _: [u8; 8] = take(&mut rest).ok_or(short)?;
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
            let (bytes, bits, items) = (word()?, word()?, word()?);
            let (error_rate, bits_per_item) = (f64::from_bits(word()?), f64::from_bits(word()?));
            let hashes = u32::from_le_bytes(take(&mut rest).ok_or(short)?).into();
            let capacity = if link_len == 53 {
                u64::from_le_bytes(take(&mut rest).ok_or(short)?)
            } else {
                u32::from_le_bytes(take(&mut rest).ok_or(short)?).into()
            };
            let [log2] = take(&mut rest).ok_or(short)?;
            let raw = RawLink {
                bytes,
                bits,
                items,
                error_rate,
                bits_per_item,
                hashes,
                capacity,
                log2: log2.into(),
            };
            let spec = raw.spec()?;
            work = work.saturating_add(spec.probes.into());
            links.push((spec, raw.items));
        }
        // No filter has more probes for an item. Without this check, the client would be told only after the last
        // piece.
        if work > limits::MAX_FOREIGN_WORK {
            return Err(DecodeError::Field("links"));
        }
        Loader::new(DumpHead::Bloom { options, growth, links })
    }

    /// Reads the header of a cuckoo filter.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn cuckoo(head: &[u8]) -> Result<Loader, DecodeError> {
        let short = DecodeError::Length("header");
        // Versions 2.2.0 to 2.2.10 wrote an address after it.
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

    /// Bytes of all bit arrays.
    pub fn body_len(&self) -> u64 {
        self.body_len
    }

    /// Approximate maximum bytes of memory for its chunks: all arrays, and half of the largest in addition, if they
    /// come in order.
    pub fn most_held(&self) -> u64 {
        self.body_len.saturating_add(self.largest / 2)
    }

    /// The most memory that it holds for any order and length of chunks: one and a half times the cells, plus 1/32 for
    /// the entries of whole blocks. A byte that arrives alone needs 105 bytes, so anything beyond this must be refused.
    fn bound(&self) -> u64 {
        let arrays = (self.arrays.len() as u64).saturating_add(1).saturating_mul(SPARE);
        let cells = self.body_len.saturating_add(self.body_len / 2).saturating_add(self.body_len / 32);
        cells.saturating_add(arrays).saturating_add(SCATTERED)
    }

    /// Approximate bytes of memory that the chunks loaded so far hold.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes that a chunk of `len` bytes which ends at byte `end` of the body would have allocated besides these: an
    /// array, or 0.
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

    /// The bit array that has this byte of the body: where it begins, its index, and its length.
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

    /// Loads the chunk that ends at byte `end` of the body, over what is there.
    ///
    /// # Errors
    /// What is wrong with the chunk. The loader is unchanged then.
    pub fn push(&mut self, end: u64, chunk: &[u8]) -> Result<(), DecodeError> {
        let placed = self.destination(end, chunk)?.take(chunk);
        self.note(placed)
    }

    /// Where the chunk that ends at byte `end` of the body belongs. From now on the load counts the memory that the
    /// chunk may take, because the client may never come back.
    ///
    /// # Errors
    /// What is wrong with the chunk. The loader is unchanged then.
    pub fn destination(&mut self, end: u64, chunk: &[u8]) -> Result<Destination, DecodeError> {
        let wrong = DecodeError::Field("iterator");
        let len = chunk.len() as u64;
        let start = end.checked_sub(len).ok_or(wrong)?;
        if len == 0 || len > MAX_PIECE {
            return Err(DecodeError::Length("chunk"));
        }
        // RedisBloom's chunks are bare cells, so nothing else shows that two clients load into one key.
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

    /// Whether a chunk was placed in an array of this load, and not of another with the same name.
    pub fn has(&self, placed: &Placed) -> bool {
        let Destination { first, arrival, .. } = &placed.at;
        self.arrays.get(first).is_some_and(|array| arrival.ptr_eq(&Arc::downgrade(&array.arrival)))
    }

    /// Counts a chunk that was placed.
    ///
    /// # Errors
    /// [`DecodeError::OutOfMemory`]. The chunk isn't placed then.
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

    /// The filter before any of its chunks have arrived: all its cells are 0. For a server that follows a server with
    /// RedisBloom, which also has such a filter; see [`overwrite`].
    ///
    /// # Errors
    /// Whatever [`finish`](Loader::finish) refuses, [`DecodeError::OutOfMemory`].
    pub fn without_chunks(self) -> Result<Filter, DecodeError> {
        let blank =
            |len: u64| Ok(Filled { words: Words::zeroed(len.div_ceil(8))?, census: Census::default() });
        let arrays = self.head.arrays().map(blank).collect::<Result<Vec<_>, DecodeError>>()?;
        self.head.build(arrays.into_iter())
    }

    /// The finished filter.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if something is missing.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Length("body"));
        }
        self.head.build(self.arrays.into_values().filter_map(|array| lock(&array.arrival).finish()))
    }
}

/// Writes a chunk that ends at byte `end` of the body into a filter that came from RedisBloom, as RedisBloom does: over
/// what is there.
///
/// # Errors
/// What is wrong with the chunk, or [`DecodeError::Complete`] for any other filter. The filter is unchanged then.
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
