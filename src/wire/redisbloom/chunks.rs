//! The headers and chunks of SCANDUMP and LOADCHUNK. A chunk is bytes of the bit arrays, laid end to end. It contains
//! neither its position nor a checksum: the iterator that comes with it gives the position.

use super::raw::{OLD_HASH, RawCuckoo, RawLink, marked_deletes, plan};
use crate::filter::foreign::{Encoding, Foreign, Growth, Link, LinkSpec, Scheme};
use crate::filter::{Cuckoo, CuckooSpec, Filter};
use crate::mem::Words;
use crate::wire::codec::take;
use crate::wire::error::DecodeError;

/// The most bytes in one chunk.
pub const MAX_PIECE: u64 = 16 << 20;

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
    Cuckoo { spec: CuckooSpec, buckets: Vec<u64>, deletes: u64 },
}

/// Builds a filter from a header and chunks. Chunks may come in any order, overlap and repeat. The filter is complete
/// when they cover all bits.
#[derive(Debug)]
pub struct Loader {
    head: DumpHead,
    /// Bytes of each bit array.
    lens: Vec<u64>,
    /// The arrays, each allocated with its first chunk.
    arrays: Vec<Option<Words>>,
    /// What has been loaded: ranges of the body in order, with gaps between them.
    covered: Vec<(u64, u64)>,
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
        let growth = if fixed == 20 { u32::from_le_bytes(take(&mut rest).ok_or(short)?) } else { 2 };
        let mut links = Vec::new();
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
            links.push((raw.spec()?, raw.items));
        }
        let lens = links.iter().map(|(spec, _)| spec.bytes).collect();
        Loader::new(DumpHead::Bloom { options, growth, links }, lens)
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
        let (spec, buckets) = raw.spec(raw.origin())?;
        let lens = buckets.iter().map(|buckets| spec.slots_of(*buckets)).collect();
        let deletes = deletes & !OLD_HASH;
        Loader::new(DumpHead::Cuckoo { spec, buckets, deletes }, lens)
    }

    fn new(head: DumpHead, lens: Vec<u64>) -> Result<Loader, DecodeError> {
        if lens.is_empty() || lens.iter().try_fold(0u64, |sum, len| sum.checked_add(*len)).is_none() {
            return Err(DecodeError::Field("links"));
        }
        let arrays = lens.iter().map(|_| None).collect();
        Ok(Loader { head, lens, arrays, covered: Vec::new() })
    }

    /// Whether the filter is a cuckoo filter.
    pub fn is_cuckoo(&self) -> bool {
        matches!(self.head, DumpHead::Cuckoo { .. })
    }

    /// Bytes of all bit arrays.
    pub fn body_len(&self) -> u64 {
        self.lens.iter().fold(0, |sum, len| sum.saturating_add(*len))
    }

    /// Bytes of bit arrays that have not been allocated yet.
    pub fn unallocated(&self) -> u64 {
        let missing = self.lens.iter().zip(&self.arrays).filter(|(_, array)| array.is_none());
        missing.fold(0, |sum, (len, _)| sum.saturating_add(*len))
    }

    /// Whether everything has been loaded.
    pub fn is_complete(&self) -> bool {
        self.covered == [(0, self.body_len())]
    }

    /// Loads the chunk that ends at byte `end` of the body. It sets bits and never clears any.
    ///
    /// # Errors
    /// What is wrong with the chunk. The loader is unchanged then.
    pub fn push(&mut self, end: u64, chunk: &[u8]) -> Result<(), DecodeError> {
        let wrong = DecodeError::Field("iterator");
        let len = chunk.len() as u64;
        let start = end.checked_sub(len).ok_or(wrong)?;
        if len == 0 || len > MAX_PIECE {
            return Err(DecodeError::Length("chunk"));
        }
        // The array that contains the whole chunk.
        let mut inside = start;
        let index = self.lens.iter().position(|len| match inside.checked_sub(*len) {
            Some(rest) => {
                inside = rest;
                false
            }
            None => true,
        });
        let index = index.ok_or(wrong)?;
        let array_len = self.lens.get(index).copied().unwrap_or(0);
        if inside.checked_add(len).is_none_or(|end| end > array_len) {
            return Err(DecodeError::Length("chunk"));
        }
        let array = self.arrays.get_mut(index).ok_or(wrong)?;
        let words = match array {
            Some(words) => words,
            None => array.insert(Words::zeroed(array_len.div_ceil(8))?),
        };
        words.or_bytes(inside, chunk);
        self.cover(start, end);
        Ok(())
    }

    fn cover(&mut self, mut start: u64, mut end: u64) {
        // Merges it with the ranges that it touches or overlaps.
        self.covered.retain(|(from, to)| {
            let apart = *to < start || *from > end;
            if !apart {
                (start, end) = (start.min(*from), end.max(*to));
            }
            apart
        });
        let at = self.covered.partition_point(|(from, _)| *from < start);
        self.covered.insert(at, (start, end));
    }

    /// The finished filter.
    ///
    /// # Errors
    /// [`DecodeError::Length`] if something is missing.
    pub fn finish(self) -> Result<Filter, DecodeError> {
        if !self.is_complete() {
            return Err(DecodeError::Length("body"));
        }
        let arrays = self.arrays.into_iter().map(|words| words.ok_or(DecodeError::Length("body")));
        let arrays: Vec<Words> = arrays.collect::<Result<_, _>>()?;
        Ok(match self.head {
            DumpHead::Bloom { options, growth, links } => {
                let specs: Vec<_> = links.iter().map(|(spec, _)| *spec).collect();
                let scheme = Scheme::RedisBloom(plan(options, &specs));
                let links = links.into_iter().zip(arrays);
                let links = links.map(|((spec, items), words)| Link::from_words(spec, items, words));
                let growth = Growth::RedisBloom { options, growth };
                let filter = Foreign::new(scheme, Encoding::Bytes, growth, links.collect::<Result<_, _>>()?);
                Filter::Foreign(Box::new(filter?))
            }
            DumpHead::Cuckoo { spec, buckets, deletes } => {
                let filter = Cuckoo::from_parts(spec, buckets.into_iter().zip(arrays), deletes, 0)?;
                Filter::Cuckoo(Box::new(filter))
            }
        })
    }
}
