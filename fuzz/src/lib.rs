//! What the targets share: parsing the input, and checking everything that a filter must be able to do.

pub mod made;

use bloomery::filter::foreign::Scheme;
use bloomery::filter::{Foreign, Origin};
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Decoder, Encoder, Sink, Source, VERSION, import, value};
use bloomery::{Bloom, Cuckoo, Error, Filter};

/// Maximum size of a filter in bytes. Larger filters would be slow, and behave the same.
pub const LARGE: u64 = 1 << 16;

/// Input, read from its start. A number is 8 bytes long, and a string is preceded by its length in 2 bytes.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub fn word(&mut self) -> Option<u64> {
        self.take(8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
    }

    pub fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.take(2)?;
        self.take(u16::from_le_bytes([len[0], len[1]]).into())
    }
}

impl Source for Input<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        self.word()
    }

    fn double(&mut self) -> Option<f64> {
        self.word().map(f64::from_bits)
    }

    fn string<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        Input::string(self).map(read)
    }
}

/// Written fields, to be read again. Strings are kept separate from numbers.
#[derive(Default)]
struct Fields {
    numbers: Vec<u64>,
    strings: Vec<Vec<u8>>,
}

impl Sink for Fields {
    fn unsigned(&mut self, value: u64) {
        self.numbers.push(value);
    }

    fn double(&mut self, value: f64) {
        self.numbers.push(value.to_bits());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.strings.push(bytes.to_vec());
    }
}

/// Written [`Fields`], read from the start. A number is never read as a string, or a string as a number.
struct Written {
    numbers: std::vec::IntoIter<u64>,
    strings: std::vec::IntoIter<Vec<u8>>,
}

impl Source for Written {
    fn unsigned(&mut self) -> Option<u64> {
        self.numbers.next()
    }

    fn double(&mut self) -> Option<f64> {
        self.numbers.next().map(f64::from_bits)
    }

    fn string<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        self.strings.next().map(|bytes| read(&bytes))
    }
}

/// Saves the value in the encoding of the system that it comes from, and loads it again.
fn restarted(value: &Filter) -> Result<Filter, DecodeError> {
    let mut fields = Fields::default();
    match value {
        Filter::Foreign(filter) if matches!(filter.scheme(), Scheme::RedisBloom(_)) => {
            redisbloom::save_bloom(&mut fields, filter);
        }
        Filter::Foreign(filter) if matches!(filter.scheme(), Scheme::ValkeyBloom { .. }) => {
            import::save_valkey_bloom(&mut fields, filter);
        }
        Filter::Cuckoo(filter) if filter.spec().origin != Origin::Bloomery => {
            redisbloom::save_cuckoo(&mut fields, filter);
        }
        other => value::save(&mut fields, other),
    }
    let mut written = Written { numbers: fields.numbers.into_iter(), strings: fields.strings.into_iter() };
    match value {
        Filter::Foreign(filter) if matches!(filter.scheme(), Scheme::RedisBloom(_)) => {
            redisbloom::load_bloom(&mut written, redisbloom::ENCODING)
        }
        Filter::Foreign(filter) if matches!(filter.scheme(), Scheme::ValkeyBloom { .. }) => {
            import::load_valkey_bloom(&mut written, 1).map(|filter| Filter::Foreign(Box::new(filter)))
        }
        Filter::Cuckoo(filter) if filter.spec().origin != Origin::Bloomery => {
            redisbloom::load_cuckoo(&mut written, redisbloom::ENCODING)
        }
        _ => value::decode(&mut written, VERSION.into()),
    }
}

fn replicated(value: &Filter) -> Result<Filter, DecodeError> {
    let encoder = Encoder::new(value);
    // As in LOADCHUNK, RedisBloom's loader comes first: RedisBloom's heads begin with a number of items, which may look
    // like our magic.
    let theirs = if matches!(value, Filter::Cuckoo(_)) { Loader::cuckoo } else { Loader::bloom };
    let Ok(mut loader) = theirs(encoder.head()) else { return Decoder::read(&encoder.to_vec()) };
    let mut pushed = Ok(());
    encoder.chunks(|end, chunk| pushed = pushed.and_then(|()| loader.push(end, chunk)));
    pushed.and_then(|()| loader.finish())
}

/// Performs every operation that the filter supports, unless the filter is larger than [`LARGE`].
pub fn survives(value: Filter) {
    if value.bytes() > LARGE {
        return;
    }
    comes_back(&value);
    let value = match value {
        Filter::Foreign(filter) => Filter::Foreign(Box::new(added(*filter))),
        Filter::Cuckoo(filter) => Filter::Cuckoo(inserted(filter)),
        Filter::Bloom(filter) => Filter::Bloom(used(filter)),
        // Ends the rebuild both ways, by commit and by abort, so that each of the two filters is tested.
        value @ Filter::Rebuild(_) => {
            let commit = |filter: &mut Filter| filter.commit_rebuild().map(Filter::from);
            let abort = |filter: &mut Filter| filter.abort_rebuild().map(Filter::from);
            for end in [commit, abort] {
                let mut ended = value.snapshot().unwrap();
                let dropped = end(&mut ended).expect("it is being rebuilt");
                assert_eq!(ended.bytes() + dropped.bytes(), value.bytes());
                survives(ended);
            }
            value
        }
    };
    comes_back(&value.snapshot().unwrap());
}

/// Checks that every form in which the filter is written can be read. A filter that is read from our own format must be
/// the same as before. Another system's format may leave something out, but a filter that was loaded from that format
/// must be saved and loaded unchanged.
fn comes_back(value: &Filter) {
    let native = Encoder::native(value).to_vec();
    let read = Decoder::read(&native).expect("it was written");
    assert!(Encoder::native(&read).to_vec() == native, "written otherwise than read");
    let once = restarted(value).expect("it was saved");
    let again = restarted(&once).expect("it was loaded");
    assert!(
        Encoder::native(&again).to_vec() == Encoder::native(&once).to_vec(),
        "saved otherwise than loaded"
    );
    replicated(value).expect("it was sent");
}

fn items() -> impl Iterator<Item = Vec<u8>> {
    (0..12u32).map(|i| (i * i).to_string().into_bytes())
}

fn added(mut filter: Foreign) -> Foreign {
    for item in items() {
        let before = filter.contains(&item);
        let may_grow = matches!(filter.next_link(), Ok(Some(link)) if link.bytes <= LARGE);
        let added = match filter.try_add(&item) {
            Err(Error::Full) if may_grow => {
                assert_eq!(filter.grow(), Ok(true));
                filter.try_add(&item).expect("a new link has room").added
            }
            Err(Error::Full) => continue,
            added => added.expect("a number is an item of every encoding").added,
        };
        assert!(added != before && filter.contains(&item));
    }
    let rate = filter.rate_now();
    assert!((0.0..=1.0).contains(&rate), "{rate}");
    let _ = (filter.items(), filter.estimate(), filter.allocated());
    filter
}

fn inserted(mut filter: Cuckoo) -> Cuckoo {
    for item in items() {
        let hash = filter.hash(&item);
        let may_grow = filter.next_bytes().is_some_and(|bytes| bytes <= LARGE);
        if filter.insert(hash).is_err() {
            if !may_grow {
                continue;
            }
            filter.grow().unwrap();
            filter.insert(hash).expect("a new sub-filter has room");
        }
        assert!(filter.contains(hash) && filter.count(hash) > 0);
    }
    let removed = items().filter(|item| filter.remove(filter.hash(item))).count();
    assert!(removed as u64 <= filter.deletes());
    let before = filter.items();
    filter.compact(true);
    assert_eq!(filter.items(), before);
    filter
}

fn used(mut filter: Bloom) -> Bloom {
    for item in items() {
        let hash = filter.hash(&item);
        if filter.next_shape().ok().flatten().is_none_or(|shape| shape.bytes() <= LARGE)
            && filter.add(hash).is_ok_and(|done| done.changed)
        {
            assert!(filter.contains(hash));
        }
        let _ = (filter.count(hash), filter.remove(hash));
    }
    let _ = (filter.estimate(), filter.rate_now(), filter.allocated());
    filter
}

/// Number of bytes in a head before the header.
const ENVELOPE: usize = 24;

/// A file in our format, with a header of this kind, a body of this length, and correct checksums. `None` if the head
/// is refused, or if the body would be large.
pub fn sealed(kind: u8, header: &[u8], body_len: u64, cells: &[u8]) -> Option<Vec<u8>> {
    let mut file = b"BLMY\x01".to_vec();
    file.extend([kind, 0, 0]);
    file.extend(u32::try_from(header.len()).ok()?.to_le_bytes());
    file.extend(body_len.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&file), header);
    file.extend(crc.to_le_bytes());
    file.extend(header);
    if Decoder::new(&file).ok()?.body_len() > LARGE {
        return None;
    }
    // Each chunk is one word, so that no chunk goes beyond the end of an array.
    let stamp = stamp(kind, &file[ENVELOPE..]).to_le_bytes();
    for (offset, i) in (0..body_len).step_by(8).zip(0..) {
        let cells = cells.chunks(8).nth(i).unwrap_or(&[]);
        let mut data = [0; 8];
        data[..cells.len()].copy_from_slice(cells);
        file.extend(sealed_chunk(offset, &stamp, &data));
    }
    Some(file)
}

/// Reads a packed filter with these bytes and a correct checksum, as the only string of a value.
pub fn packed(bytes: &[u8]) -> Result<Filter, DecodeError> {
    let string = [bytes, &crc32c::crc32c(bytes).to_le_bytes()].concat();
    value::decode(
        &mut Written { numbers: vec![].into_iter(), strings: vec![string].into_iter() },
        VERSION.into(),
    )
}

/// Cuts a chunk in our format into several, with up to `cut` bytes of data each.
pub fn resealed(chunk: &[u8], cut: usize) -> Vec<Vec<u8>> {
    let (prefix, data) = chunk.split_at(20);
    let offset = u64::from_le_bytes(prefix[..8].try_into().expect("8 bytes"));
    let parts = (offset..).step_by(cut).zip(data.chunks(cut));
    parts.map(|(offset, data)| sealed_chunk(offset, &prefix[12..16], data)).collect()
}

fn sealed_chunk(offset: u64, stamp: &[u8], data: &[u8]) -> Vec<u8> {
    let mut chunk = offset.to_le_bytes().to_vec();
    chunk.extend((data.len() as u32).to_le_bytes());
    chunk.extend(stamp);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&chunk), data);
    chunk.extend(crc.to_le_bytes());
    chunk.extend(data);
    chunk
}

/// The stamp of a header: its CRC-32C, computed with the number of items in every layer or link set to 0. For a filter
/// that is being rebuilt, the stamp is the CRC-32C of both filters' stamps.
fn stamp(kind: u8, header: &[u8]) -> u32 {
    if let (6, Some((own, filters))) = (kind, header.split_at_checked(16)) {
        let live_len = u32::from_le_bytes(own[8..12].try_into().expect("4 bytes")) as usize;
        let (live, shadow) = filters.split_at(live_len.min(filters.len()));
        // A rebuild can't contain another one. A head that claims to is refused before stamps are compared.
        let stamps = [stamp(own[12].min(5), live), stamp(own[13].min(5), shadow)];
        return crc32c::crc32c(&stamps.map(u32::to_le_bytes).concat());
    }
    // Offset of the first part (a layer or link), length of a part, and offset of the number of items in a part.
    let (first, len, at) = match kind {
        4 => return crc32c::crc32c(header),
        5 => (64, 64, 32),
        _ => (96, 40, 24),
    };
    let mut header = header.to_vec();
    for part in header.get_mut(first..).into_iter().flat_map(|parts| parts.chunks_exact_mut(len)) {
        part[at..at + 8].fill(0);
    }
    crc32c::crc32c(&header)
}
