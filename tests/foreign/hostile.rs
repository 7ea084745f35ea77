//! Other systems' data, damaged or invented: it is refused, or loads as a filter that keeps every promise. None of it
//! causes a panic, needs more memory than its own length justifies, or takes a long time to process.
//!
//! MUTATIONS sets the number of payloads per importer (10,000 by default).

use super::export::{exported, imported};
use crate::support::alloc_counter::weighed;
use crate::support::rdb::{Field, Fields};
use crate::support::{describe, env, golden, wire};
use bloomery::filter::foreign::{Encoding, Scheme};
use bloomery::filter::{Foreign, Origin};
use bloomery::parallel::alone;
use bloomery::wire::import::{self, bitmap};
use bloomery::wire::redisbloom::{self, Loader};
use bloomery::wire::{DecodeError, Decoder, Encoder};
use bloomery::{Added, Cuckoo, Error, Filter};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

// ---- what a filter must be able to do -------------------------------------------------------------------------------

/// Saves the value as a server does, in the encoding of its system, and loads it.
fn restarted(value: &Filter) -> Result<Filter, DecodeError> {
    let mut fields = Fields::default();
    match value {
        Filter::Foreign(filter) => match filter.scheme() {
            Scheme::RedisBloom(_) => {
                redisbloom::save_bloom(&mut fields, filter);
                redisbloom::load_bloom(&mut fields, redisbloom::ENCODING)
            }
            Scheme::ValkeyBloom { .. } => {
                import::save_valkey_bloom(&mut fields, filter);
                import::load_valkey_bloom(&mut fields, 1).map(|filter| Filter::Foreign(Box::new(filter)))
            }
            _ => Decoder::read(&Encoder::new(value).to_vec()),
        },
        Filter::Cuckoo(filter) if filter.spec().origin != Origin::Bloomery => {
            redisbloom::save_cuckoo(&mut fields, filter);
            redisbloom::load_cuckoo(&mut fields, redisbloom::ENCODING)
        }
        _ => Decoder::read(&Encoder::new(value).to_vec()),
    }
}

/// Writes the value in the pieces that are sent to replicas and written to a rewritten AOF, and loads them.
fn replicated(value: &Filter) -> Result<Filter, DecodeError> {
    let encoder = Encoder::new(value);
    // Chooses the loader as LOADCHUNK does, because RedisBloom's number of items may look like our magic number.
    let theirs = if matches!(value, Filter::Cuckoo(_)) { Loader::cuckoo } else { Loader::bloom };
    let Ok(mut loader) = theirs(encoder.head()) else { return Decoder::read(&encoder.to_vec()) };
    let mut pushed = Ok(());
    encoder.chunks(|end, chunk| pushed = pushed.and_then(|()| loader.push(end, chunk)));
    pushed.and_then(|()| loader.finish())
}

/// Items to test and add. They are numbers, so every encoding can express them.
fn item(i: u32) -> Vec<u8> {
    i.to_string().into_bytes()
}

/// Performs every operation on a filter, and checks that it keeps its items.
fn survives(value: Filter, name: &str) {
    match &value {
        Filter::Foreign(filter) => {
            assert!(filter.rate_now() <= 1.0 && filter.rate_now() >= 0.0, "{name}: {}", filter.rate_now());
            let _ = (filter.items(), filter.capacity(), filter.estimate(), filter.allocated());
        }
        Filter::Cuckoo(filter) => drop((filter.items(), filter.is_sparse(), filter.allocated())),
        Filter::Bloom(_) | Filter::Rebuild(_) => panic!("{name}: it came from another system"),
    }
    comes_back(&value, name);
    let (value, members) = match value {
        Filter::Foreign(filter) => {
            let (filter, members) = added(*filter, name);
            (Filter::Foreign(Box::new(filter)), members)
        }
        Filter::Cuckoo(filter) => {
            let (filter, members) = inserted(filter, name);
            (Filter::Cuckoo(filter), members)
        }
        Filter::Bloom(_) | Filter::Rebuild(_) => unreachable!("refused above"),
    };
    let copy = value.snapshot().unwrap();
    assert_eq!(describe(&copy), describe(&value), "{name}");
    for other in [copy, comes_back(&value, name)] {
        let holds = |item: &Vec<u8>| match &other {
            Filter::Foreign(filter) => filter.contains(item),
            Filter::Cuckoo(filter) => filter.contains(filter.hash(item)),
            Filter::Bloom(_) | Filter::Rebuild(_) => false,
        };
        assert!(members.iter().all(holds), "{name}: an item was lost on the way");
    }
}

/// Checks that every form in which the filter can be written can be read again: our format, its system's format, and
/// the pieces. Returns the filter after a restart.
fn comes_back(value: &Filter, name: &str) -> Filter {
    let refused = |why| panic!("{name}: written, refused: {why}");
    let native = Encoder::native(value).to_vec();
    let read = Decoder::read(&native).unwrap_or_else(refused);
    assert!(Encoder::native(&read).to_vec() == native, "{name}: written otherwise than read");
    let once = restarted(value).unwrap_or_else(refused);
    let again = restarted(&once).unwrap_or_else(refused);
    assert_eq!(describe(&again), describe(&once), "{name}");
    let copy = replicated(value).unwrap_or_else(refused);
    assert_eq!(describe(&copy), describe(&once), "{name}: a replica has another filter than a restart");
    if let Filter::Foreign(filter) = value
        && let Some(bytes) = exported(filter)
    {
        let back = imported(filter, &bytes).unwrap_or_else(|why| panic!("{name}: exported, refused: {why}"));
        assert!(wire::body(&back) == wire::body(&**filter), "{name}: exported otherwise than held");
    }
    match (value, &once) {
        (Filter::Foreign(_), _) => {
            assert_eq!(describe(&once), describe(value), "{name}: other than it was saved");
        }
        (Filter::Cuckoo(before), Filter::Cuckoo(after)) => {
            assert_eq!(
                (before.items(), before.deletes(), wire::body(before)),
                (after.items(), after.deletes(), wire::body(after)),
                "{name}"
            );
        }
        _ => panic!("{name}: another kind"),
    }
    once
}

fn added(mut filter: Foreign, name: &str) -> (Foreign, Vec<Vec<u8>>) {
    let mut members = Vec::new();
    for i in 0..40 {
        let item = item(i);
        let before = filter.contains(&item);
        // The filter doesn't grow if its next link needs more than 64 KiB.
        let may_grow = matches!(filter.next_link(), Ok(Some(link)) if link.bytes <= 1 << 16);
        let result = match filter.try_add(&item) {
            Err(Error::Full) if may_grow => {
                assert_eq!(filter.grow(), Ok(true), "{name}");
                filter.try_add(&item)
            }
            Err(Error::Full) => continue,
            result => result,
        };
        assert_eq!(result, Ok(Added { added: !before, changed: !before }), "{name}");
        assert!(filter.contains(&item), "{name}");
        members.push(item);
    }
    (filter, members)
}

fn inserted(mut filter: Cuckoo, name: &str) -> (Cuckoo, Vec<Vec<u8>>) {
    let mut members = Vec::new();
    for i in 0..40 {
        let item = item(i);
        let hash = filter.hash(&item);
        let items = filter.items();
        let may_grow = filter.next_bytes().is_some_and(|bytes| bytes <= 1 << 16);
        if filter.try_insert(hash).is_err() {
            if !may_grow {
                continue;
            }
            filter.grow().unwrap();
            filter.try_insert(hash).unwrap();
        }
        assert!(filter.contains(hash) && filter.items() == items + 1, "{name}");
        members.push(item);
    }
    for item in members.split_off(members.len() / 2) {
        assert!(filter.remove(filter.hash(&item)), "{name}");
    }
    let items = filter.items();
    filter.compact(true);
    assert_eq!(filter.items(), items, "{name}");
    (filter, members)
}

// ---- mutations ------------------------------------------------------------------------------------------------------

/// A number at which programs typically break.
fn edge(random: &mut SmallRng) -> u64 {
    let power = 1u64 << random.random_range(0..64);
    match random.random_range(0..8) {
        0 => random.random_range(0..300),
        1 => power,
        2 => power.wrapping_sub(1),
        3 => power + 1,
        4 => u64::MAX - random.random_range(0..3),
        5 => u64::from(u32::MAX) + random.random_range(0..3) - 1,
        6 => i64::MAX as u64 + random.random_range(0..3) - 1,
        _ => random.random(),
    }
}

const ODD: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    1e300,
    5e-324,
    f64::MIN_POSITIVE,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    0.999_999_999_999_999_9,
    1e-12,
];

fn odd_double(random: &mut SmallRng) -> f64 {
    if random.random() { ODD[random.random_range(0..ODD.len())] } else { f64::from_bits(random.random()) }
}

/// Variants of the field, with all extreme values of its type.
fn edges_of(field: &Field) -> Vec<Field> {
    let powers = (0..64).map(|power| 1u64 << power);
    let numbers = powers.flat_map(|power| [power - 1, power, power + 1]).chain([u64::MAX - 1, u64::MAX]);
    match field {
        Field::Unsigned(_) => numbers.map(Field::Unsigned).collect(),
        Field::Double(_) => ODD.into_iter().map(Field::Double).collect(),
        Field::String(bytes) => {
            let lens = [0, 1, 7, 8, bytes.len() - 1, bytes.len() + 1, bytes.len() + 8];
            lens.map(|len| Field::String(bytes.iter().copied().cycle().take(len).collect())).to_vec()
        }
    }
}

/// Flips bits, writes extreme numbers in either byte order, truncates, and appends.
fn mutate_bytes(bytes: &mut Vec<u8>, random: &mut SmallRng) {
    for _ in 0..random.random_range(1..4) {
        // Most of the bytes that matter are at the front.
        let len = bytes.len().max(1);
        let most = if random.random() { len } else { len.min(64) };
        let at = random.random_range(0..most);
        match random.random_range(0..7) {
            0 | 1 => {
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.random_range(0..8))
            }
            2 | 3 => {
                let value = edge(random);
                let width = [1, 2, 4, 8][random.random_range(0..4)];
                let value = if random.random() { value.to_le_bytes() } else { value.to_be_bytes() };
                let low = if value[0] == 0 { &value[8 - width..] } else { &value[..width] };
                bytes.iter_mut().skip(at).zip(low).for_each(|(byte, new)| *byte = *new);
            }
            4 => {
                let value = odd_double(random).to_le_bytes();
                bytes.iter_mut().skip(at).zip(value).for_each(|(byte, new)| *byte = new);
            }
            5 => bytes.truncate(at),
            _ => bytes.extend((0..random.random_range(1..40)).map(|_| random.random::<u8>())),
        }
    }
}

/// Removes, duplicates and swaps fields, and changes their values.
fn mutate_fields(fields: &mut Fields, random: &mut SmallRng) {
    let fields = &mut fields.0;
    for _ in 0..random.random_range(1..4) {
        if fields.is_empty() {
            return;
        }
        let at = random.random_range(0..fields.len());
        match random.random_range(0..12) {
            0 => drop(fields.remove(at)),
            1 => fields.truncate(at),
            2 => fields.insert(at, fields[at].clone()),
            3 => fields.swap(at, 0),
            4 => {
                let tail: Vec<_> = fields.iter().skip(at).cloned().collect();
                fields.extend(tail);
            }
            _ => match &mut fields[at] {
                Field::Unsigned(value) if random.random() => *value ^= 1 << random.random_range(0..64),
                Field::Unsigned(value) => *value = edge(random),
                Field::Double(value) => *value = odd_double(random),
                Field::String(bytes) => mutate_bytes(bytes, random),
            },
        }
    }
}

fn len_of(fields: &Fields) -> usize {
    let len = |field: &Field| match field {
        Field::String(bytes) => 1 + bytes.len(),
        _ => 9,
    };
    fields.0.iter().map(len).sum()
}

/// Mutates random samples, one after the other, reads them, and checks the results. A read may need 16 bytes for each
/// byte of the data, plus `overhead` bytes.
fn throw<T: Clone>(
    name: &str,
    samples: &[T],
    overhead: i64,
    len: impl Fn(&T) -> usize,
    mutate: impl Fn(&mut T, &mut SmallRng),
    read: impl Fn(T) -> Result<Filter, DecodeError>,
) {
    // This is the control: if the samples weren't read correctly, the rest would prove nothing.
    for sample in samples {
        survives(read(sample.clone()).unwrap_or_else(|why| panic!("{name}: {why}")), name);
    }
    let (mut taken, mut refused) = (0, 0);
    for seed in 0..env("MUTATIONS", 10_000) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut payload = samples[random.random_range(0..samples.len())].clone();
        mutate(&mut payload, &mut random);
        let name = format!("{name}, seed {seed}");
        let allowed = 16 * len(&payload) as i64 + overhead;
        let (result, bytes) = weighed(|| read(payload));
        assert!(bytes <= allowed, "{name}: took {bytes} bytes, and {allowed} at most were justified");
        match result {
            Ok(value) => {
                survives(value, &name);
                taken += 1;
            }
            Err(why) => {
                assert!(!why.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(taken > 100 && refused > 100, "{name}: {taken} taken, {refused} refused");
}

fn throw_bytes(name: &str, samples: &[Vec<u8>], read: impl Fn(&[u8]) -> Result<Filter, DecodeError>) {
    throw(name, samples, 4096, Vec::len, mutate_bytes, |bytes| read(&bytes));
}

fn throw_fields(
    name: &str,
    samples: &[Fields],
    overhead: i64,
    read: impl Fn(&mut Fields) -> Result<Filter, DecodeError>,
) {
    throw(name, samples, overhead, len_of, mutate_fields, |mut fields| read(&mut fields));
    // Each field with every extreme value, while the others are correct.
    for (sample, index) in
        samples.iter().flat_map(|sample| (0..sample.0.len()).map(move |index| (sample, index)))
    {
        for edge in edges_of(&sample.0[index]) {
            let what = format!("{name}, field {index} is {edge:?}");
            let mut fields = sample.clone();
            fields.0[index] = edge;
            let allowed = 16 * len_of(&fields) as i64 + overhead;
            let (result, bytes) = weighed(|| read(&mut fields));
            assert!(bytes <= allowed, "{what}: took {bytes} bytes, and {allowed} at most were justified");
            if let Ok(value) = result {
                survives(value, &what);
            }
        }
    }
}

fn boxed(filter: Foreign) -> Filter {
    Filter::Foreign(Box::new(filter))
}

// ---- samples --------------------------------------------------------------------------------------------------------

const CHAINS: [&str; 3] = ["foreign-redisbloom", "foreign-redisbloom-1", "foreign-redisbloom-2"];

fn saved_chains() -> Vec<Fields> {
    let save = |name: &&str| {
        let mut fields = Fields::default();
        redisbloom::save_bloom(&mut fields, &golden::foreign(name));
        fields
    };
    CHAINS.iter().map(save).collect()
}

/// The fields as RedisBloom wrote them in an earlier version of its encoding.
fn narrowed(fields: &Fields, encoding: u32) -> Fields {
    let mut fields: Vec<_> = fields.0.iter().cloned().collect();
    if encoding == 0 {
        // Links have no fields for bits and n2. The number of bits follows from the capacity and the bits per item.
        for link in (4..fields.len()).step_by(8).rev() {
            if let [Field::Unsigned(capacity), _, _, Field::Double(density), Field::Unsigned(bits), ..] =
                &mut fields[link..link + 8]
            {
                *density = *bits as f64 / *capacity as f64;
            }
            fields.drain(link + 4..link + 6);
        }
    }
    match encoding {
        0 | 1 => drop(fields.drain(2..4)),
        _ => drop(fields.remove(3)),
    }
    Fields(fields.into())
}

#[test]
fn redisblooms_fields() {
    throw_fields("redisbloom 4", &saved_chains(), 4096, |fields| redisbloom::load_bloom(fields, 4));
}

#[test]
fn redisblooms_earlier_fields() {
    for encoding in [0, 1, 3] {
        let samples: Vec<_> = saved_chains().iter().map(|fields| narrowed(fields, encoding)).collect();
        throw_fields(&format!("redisbloom {encoding}"), &samples, 4096, |fields| {
            redisbloom::load_bloom(fields, encoding)
        });
    }
}

/// Bytes that the list of sub-filters may need, however short the data is. The number of sub-filters is bounded.
const SUB_FILTERS: i64 = 4 << 20;

#[test]
fn redisblooms_cuckoo_fields() {
    let save = |name: &str| {
        let mut fields = Fields::default();
        redisbloom::save_cuckoo(&mut fields, &golden::cuckoo(name));
        fields
    };
    let samples = [save("cuckoo-redisbloom"), save("cuckoo-redisbloom-1")];
    throw_fields("redisbloom cuckoo 4", &samples, SUB_FILTERS, |fields| redisbloom::load_cuckoo(fields, 4));
    // Earlier encodings had no parameters, and only the slots of each sub-filter.
    let mut old: Vec<_> = samples[1].0.iter().cloned().collect();
    old.drain(3..7);
    for at in (3..3 + (old.len() - 3) / 2).rev() {
        let link = 3 + (at - 3) * 2;
        old.remove(link);
    }
    let old = Fields(old.into());
    for encoding in [1, 3] {
        let name = format!("redisbloom cuckoo {encoding}");
        throw_fields(&name, std::slice::from_ref(&old), SUB_FILTERS, |fields| {
            redisbloom::load_cuckoo(fields, encoding)
        });
    }
}

/// The head, then chunks with their iterators.
type Pieces = (Vec<u8>, Vec<(u64, Vec<u8>)>);

fn pieces(value: &Filter) -> Pieces {
    let encoder = Encoder::new(value);
    let mut chunks = Vec::new();
    encoder.chunks(|end, chunk| chunks.push((end, chunk.to_vec())));
    (encoder.head().to_vec(), chunks)
}

fn mutate_pieces((head, chunks): &mut Pieces, random: &mut SmallRng) {
    let at = random.random_range(0..chunks.len());
    match random.random_range(0..8) {
        0 => mutate_bytes(&mut chunks[at].1, random),
        1 => chunks[at].0 = edge(random),
        2 => chunks[at].0 = chunks[at].0.wrapping_add(random.random_range(0..20)).wrapping_sub(10),
        3 => drop(chunks.remove(at)),
        4 => chunks.swap(at, 0),
        _ => mutate_bytes(head, random),
    }
}

fn load_pieces(
    loader: Result<Loader, DecodeError>,
    chunks: &[(u64, Vec<u8>)],
) -> Result<Filter, DecodeError> {
    let mut loader = loader?;
    // Before a server accepts a chunk, it checks whether there is memory for the whole filter. Here, the memory is
    // twice the length of all chunks.
    let bytes: usize = chunks.iter().map(|(_, chunk)| chunk.len()).sum();
    if loader.body_len() > 2 * bytes as u64 {
        return Err(DecodeError::Length("body"));
    }
    // A refused chunk leaves nothing behind, and loading continues with the others.
    let refused = chunks.iter().filter_map(|(end, chunk)| loader.push(*end, chunk).err()).last();
    refused.map_or_else(|| loader.finish(), Err)
}

#[test]
fn redisblooms_pieces() {
    let chains: Vec<_> = CHAINS.iter().map(|name| pieces(&boxed(golden::foreign(name)))).collect();
    let len =
        |(head, chunks): &Pieces| head.len() + chunks.iter().map(|(_, chunk)| chunk.len()).sum::<usize>();
    throw("redisbloom pieces", &chains, 4096, len, mutate_pieces, |(head, chunks)| {
        load_pieces(Loader::bloom(&head), &chunks)
    });
    let cuckoos = ["cuckoo-redisbloom", "cuckoo-redisbloom-1"];
    let cuckoos = cuckoos.map(|name| pieces(&Filter::Cuckoo(golden::cuckoo(name))));
    throw("redisbloom cuckoo pieces", &cuckoos, SUB_FILTERS, len, mutate_pieces, |(head, chunks)| {
        load_pieces(Loader::cuckoo(&head), &chunks)
    });
}

#[test]
fn valkeys_fields() {
    let mut fields = Fields::default();
    import::save_valkey_bloom(&mut fields, &golden::foreign("foreign-valkey"));
    throw_fields("valkey fields", &[fields], 4096, |fields| import::load_valkey_bloom(fields, 1).map(boxed));
}

/// A filter's payload for BF.LOAD.
fn valkey_payload(filter: &Foreign) -> Vec<u8> {
    let mut fields = Fields::default();
    import::save_valkey_bloom(&mut fields, filter);
    let mut fields = fields.0.into_iter();
    let mut number = || match fields.next() {
        Some(Field::Unsigned(value)) => value.to_le_bytes().to_vec(),
        Some(Field::Double(value)) => value.to_le_bytes().to_vec(),
        Some(Field::String(bytes)) => bytes,
        None => panic!("fields are missing"),
    };
    let (count, expansion, rate, tightening, random) = (number(), number(), number(), number(), number());
    let mut payload = [&[1][..], &expansion[..4], &rate, &tightening, &random[..1], &count].concat();
    for link in filter.links() {
        let capacity = number();
        let items = link.items().to_le_bytes();
        if std::ptr::eq(link, filter.links().last().unwrap()) {
            assert_eq!(number(), items);
        }
        let blob = number();
        payload.extend([&blob.len().to_le_bytes()[..], &blob, &items, &capacity].concat());
    }
    payload
}

#[test]
fn valkeys_payload() {
    let payload = valkey_payload(&golden::foreign("foreign-valkey"));
    throw_bytes("valkey payload", &[payload], |bytes| import::valkey_bloom_payload(bytes, &alone).map(boxed));
}

#[test]
fn bits_and_blooms_files() {
    let file = |name: &str, bits: u64, probes: u64, length: u64| {
        let words = wire::body(&golden::foreign(name));
        let big = words.chunks(8).flat_map(|word| word.iter().rev().copied());
        [bits, probes, length].map(u64::to_be_bytes).concat().into_iter().chain(big).collect::<Vec<u8>>()
    };
    let big = file("foreign-bloom-v3", 2875, 10, 2880);
    let mut little = big[..24].to_vec();
    little[16..].reverse();
    little.extend(big[24..].chunks(8).flat_map(|word| word.iter().rev()));
    throw_bytes("bits-and-blooms", &[big, little], |bytes| import::bloom_v3(bytes, &alone).map(boxed));
}

#[test]
fn guavas_files() {
    let file = |name: &str, strategy: u8| {
        let words = wire::body(&golden::foreign(name));
        let big = words.chunks(8).flat_map(|word| word.iter().rev().copied());
        [strategy, 7, 0, 0, 0, 40].into_iter().chain(big).collect::<Vec<u8>>()
    };
    let samples = [file("foreign-guava", 1), file("foreign-guava-32", 0)];
    for encoding in [Encoding::Bytes, Encoding::Utf16, Encoding::Long, Encoding::Int] {
        throw_bytes(&format!("guava {encoding:?}"), &samples, |bytes| {
            import::guava(bytes, encoding, &alone).map(boxed)
        });
    }
}

#[test]
fn parquets_bitsets() {
    let bitset = wire::body(&golden::foreign("foreign-sbbf"));
    // 352 bytes: 704 in zigzag form, written as a varint.
    let header = [&[0x15, 0xc0, 0x05][..], &[0x1c, 0x1c, 0, 0].repeat(3), &[0]].concat();
    let samples = [[&header[..], &bitset].concat(), bitset];
    for encoding in [Encoding::Bytes, Encoding::Long, Encoding::Int] {
        throw_bytes(&format!("sbbf {encoding:?}"), &samples, |bytes| {
            import::sbbf(bytes, encoding, &alone).map(boxed)
        });
    }
}

/// Bitmaps, with the two numbers that they don't contain: bits and probes. An operator may give any numbers, and they
/// determine the size of the filter. Before a server creates the filter, it checks whether there is enough memory.
#[test]
fn bitmaps() {
    type Bitmap = (u64, u32, Vec<u8>);
    let mutate = |(bits, probes, bytes): &mut Bitmap, random: &mut SmallRng| match random.random_range(0..4) {
        0 => *bits = edge(random),
        1 => *probes = edge(random) as u32,
        _ => mutate_bytes(bytes, random),
    };
    let len = |(bits, _, bytes): &Bitmap| bytes.len() + bits.div_ceil(8).min(1 << 24) as usize;
    let sample = |name: &str, bits, probes| -> Bitmap {
        (bits, probes, wire::body(&golden::foreign(name)).iter().map(|byte| byte.reverse_bits()).collect())
    };
    let within_memory = |bits: u64| if bits > 1 << 23 { Err(DecodeError::Field("bits")) } else { Ok(()) };
    let mut go_zero = sample("foreign-go-zero", 4001, 14);
    go_zero.2.truncate(501);
    throw("go-zero", &[go_zero], 4096, len, mutate, |(bits, probes, bytes)| {
        within_memory(bits)?;
        bitmap::go_zero(bits, probes, &bytes, &alone).map(boxed)
    });
    let mut redisson = sample("foreign-redisson", 2875, 7);
    redisson.2.truncate(360);
    for encoding in [Encoding::Bytes, Encoding::Json, Encoding::Kryo5] {
        let samples = std::slice::from_ref(&redisson);
        throw(&format!("redisson {encoding:?}"), samples, 4096, len, mutate, |(bits, probes, bytes)| {
            within_memory(bits)?;
            bitmap::redisson(bits, probes, encoding, &bytes, &alone).map(boxed)
        });
    }
}

// ---- our own format -------------------------------------------------------------------------------------------------

/// Corrects checksums and stamps.
fn seal(bytes: &mut [u8]) {
    let pieces = wire::pieces(bytes);
    wire::seal(bytes, &pieces);
}

/// Filters in our format with wrong values in their headers, under correct checksums. Values are accepted only if they
/// are also possible in the system's encoding, because a server may write the filter in that encoding at any time.
#[test]
fn headers_of_our_own_format() {
    for (name, recipe) in golden::FOREIGN {
        let file = wire::encode(&recipe());
        let mut control = file.clone();
        seal(&mut control);
        assert!(control == file, "{name}: this test seals otherwise than the encoder");
        let head = wire::pieces(&file)[0].end;
        let (mut taken, mut refused) = (0, 0);
        let mut show = |mut bytes: Vec<u8>, what: &str| {
            seal(&mut bytes);
            if bytes == file {
                return;
            }
            match Decoder::read(&bytes) {
                Ok(value) => {
                    assert!(wire::encode(&value) == bytes, "{what}: loads, but is written otherwise");
                    survives(value, what);
                    taken += 1;
                }
                Err(_) => refused += 1,
            }
        };
        for bit in wire::ENVELOPE * 8..head * 8 {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            show(flipped, &format!("{name}, bit {bit} of the head"));
        }
        for seed in 0..env("MUTATIONS", 10_000) / 4 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut bytes = file.clone();
            for _ in 0..random.random_range(1..3) {
                let at = random.random_range(wire::ENVELOPE..head - 8);
                let width = [1, 4, 8][random.random_range(0..3)];
                let value = if random.random_bool(0.3) {
                    odd_double(&mut random).to_bits()
                } else {
                    edge(&mut random)
                };
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            show(bytes, &format!("{name}, seed {seed}"));
        }
        println!("{name}: {taken} taken, {refused} refused");
        assert!(taken > 20 && refused > 500, "{name}: {taken} taken, {refused} refused");
    }
}

/// Every encoding with every system: only possible combinations are accepted. RedisBloom's own format has no field for
/// the encoding of items, so an encoding other than bytes would be lost, and no item would be found.
#[test]
fn items_are_encoded_as_their_system_could_have() {
    for (name, recipe) in golden::FOREIGN {
        let file = wire::encode(&recipe());
        let known: Vec<_> = (0..=255u8)
            .filter(|encoding| {
                let mut other = file.clone();
                other[wire::ENVELOPE + 3] = *encoding;
                seal(&mut other);
                Decoder::read(&other).is_ok()
            })
            .collect();
        let expected: &[u8] = match recipe().origin() {
            "guava" => &[0, 1, 2, 3],
            "redisson" => &[0, 4, 5],
            "parquet" => &[0, 2, 3],
            _ => &[0],
        };
        assert_eq!(known, expected, "{name}");
    }
}

/// Fields that a scheme doesn't use are 0. A checksum can't show whether they are, because it doesn't change if its
/// polynomial, which is five bytes long, is XORed into the data.
#[test]
fn unused_fields_are_compared_and_not_their_checksums() {
    const POLYNOMIAL: u64 = 1 << 32 | 0x1EDC_6F41;
    // The highest coefficient comes first, in the lowest bit of the first byte.
    let pattern = (POLYNOMIAL.reverse_bits() >> 31).to_le_bytes();
    let mut file = wire::encode(&golden::foreign("foreign-go-zero"));
    let before = crc32c::crc32c(&file);
    let seed = wire::ENVELOPE + 16;
    file[seed..seed + 8].iter_mut().zip(pattern).for_each(|(byte, bits)| *byte ^= bits);
    assert_eq!(crc32c::crc32c(&file), before, "the pattern is wrong");
    assert_eq!(Decoder::read(&file).err(), Some(DecodeError::Field("reserved")));
}
