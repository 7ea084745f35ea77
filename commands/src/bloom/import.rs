//! BF.IMPORT and BF.LOAD: create filters from other systems' data.

use crate::call::{Access, Admitted, Background, Call, Data, Effect, Key, TwoStep};
use crate::error::CommandError;
use crate::options::foreign::{CODEC, FUNNEL, TYPE, items};
use crate::options::{Arguments, bad, printable, unsigned, upper};
use crate::reply::Reply;
use crate::table::{ArgumentKind::Text, Entry, KeyUse, MoreKeys, bloom::IMPORT, command, required};
use crate::transfer::put;
use bloomery::filter::foreign::Encoding;
use bloomery::filter::{Filter, Foreign, Live};
use bloomery::parallel::ParallelFor;
use bloomery::params::limits;
use bloomery::wire::DecodeError;
use bloomery::wire::import::{self, bitmap};
use std::sync::Arc;

command!(
    Import,
    |call| import(call),
    Entry {
        name: "bf.import",
        arity: -4,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Creates a filter from another system's data, with the same answers as the original",
        complexity: "O(n), where n is the length of the data",
        arguments: IMPORT,
        more_keys: &[
            MoreKeys::Behind { word: c"GOZERO", from: 2, only: true, count: 1 },
            MoreKeys::Behind { word: c"REDISSON", from: 2, only: true, count: 2 },
        ],
        ..Entry::PLAIN
    }
);

/// `BF.IMPORT dest format …`:
///
/// ```text
/// GOZERO source BITS n [MAPS k] [DATA bitmap]
/// REDISSON source config [CODEC STRING|JSON|KRYO5] [DATA size iterations bitmap]
/// BLOOMV3 blob
/// GUAVA blob [FUNNEL BYTES|UTF16|LONG|INT]
/// SBBF blob [TYPE BYTES|LONG|INT]
/// ```
fn import<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (format, source) = match upper(call.arg(2)).as_slice() {
        b"GOZERO" => go_zero(call)?,
        b"REDISSON" => redisson(call)?,
        b"BLOOMV3" if call.argc() == 4 => (Format::BloomV3, Source::Argument(3)),
        b"BLOOMV3" => return Err(CommandError::Arity),
        b"GUAVA" => (Format::Guava(items(call, 4, &FUNNEL)?), Source::Argument(3)),
        b"SBBF" => (Format::Sbbf(items(call, 4, &TYPE)?), Source::Argument(3)),
        _ => return Err(bad("BF.IMPORT", "GOZERO, REDISSON, BLOOMV3, GUAVA or SBBF after the key")),
    };
    create(call, format, source)
}

command!(
    Load,
    |call| load(call),
    Entry {
        name: "bf.load",
        arity: 3,
        key: KeyUse::Insert,
        flags: "deny-oom",
        summary: "Restores a filter from what valkey-bloom writes into an append-only file",
        complexity: "O(n), where n is the length of the data",
        arguments: &[required("data", Text)],
        ..Entry::PLAIN
    }
);

/// `BF.LOAD key data`: the command that valkey-bloom writes into an AOF.
fn load<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    create(call, Format::ValkeyBloom, Source::Argument(2))
}

/// The format of the data, and the parameters that the data doesn't contain.
#[derive(Clone, Copy)]
enum Format {
    GoZero { bits: u64, probes: u32 },
    Redisson { bits: u64, probes: u32, encoding: Encoding },
    BloomV3,
    Guava(Encoding),
    Sbbf(Encoding),
    ValkeyBloom,
}

impl Format {
    fn read(self, data: &[u8], parallel: &ParallelFor<'_>) -> Result<Foreign, DecodeError> {
        match self {
            Format::GoZero { bits, probes } => bitmap::go_zero(bits, probes, data, parallel),
            Format::Redisson { bits, probes, encoding } => {
                bitmap::redisson(bits, probes, encoding, data, parallel)
            }
            Format::BloomV3 => import::bloom_v3(data, parallel),
            Format::Guava(encoding) => import::guava(data, encoding, parallel),
            Format::Sbbf(encoding) => import::sbbf(data, encoding, parallel),
            Format::ValkeyBloom => import::valkey_bloom_payload(data, parallel),
        }
    }

    /// The filter's size in bytes, if it follows from a number that came with the data and not from the data's length.
    fn declared(self) -> Option<u64> {
        match self {
            Format::GoZero { bits, .. } | Format::Redisson { bits, .. } => Some(bits.div_ceil(8)),
            Format::BloomV3 | Format::Guava(_) | Format::Sbbf(_) | Format::ValkeyBloom => None,
        }
    }
}

/// Where the data is.
enum Source {
    /// In an argument.
    Argument(usize),
    /// In the key at argument 3. The contained arguments, followed by the data itself, are those of a BF.IMPORT that
    /// creates the same filter.
    Key(Words),
}

type Words = Vec<Vec<u8>>;

/// The index of the argument that names the key with the data.
const KEY: usize = 3;

/// Creates the filter, and puts it into the key, which must be empty. If the data is in another key, the replicated
/// command contains the data itself, because that key may contain something else on a replica. Long data isn't
/// replicated. Instead, the filter is sent in pieces.
fn create<'a, C: Call<'a>>(call: &C, format: Format, source: Source) -> Result<Reply, CommandError> {
    let key = vacant(call)?;
    let (data, held) = match &source {
        Source::Argument(index) => {
            (Data::Arguments(*index..index.saturating_add(1)), call.arg(*index).len() as u64)
        }
        Source::Key(_) => (Data::Key(KEY), call.string(KEY, <[u8]>::len)? as u64),
    };
    let bytes = format.declared().unwrap_or(0).max(held);
    let mut creation = Creation { format, source, is_long: call.goes_to_background(held) };
    if call.goes_to_background(bytes) {
        // The string in a key is copied, which needs memory as well.
        let memory = match data {
            Data::Key(_) => Admitted::for_background_work(call, bytes, bytes.saturating_add(held))?,
            Data::Arguments(_) => Admitted::in_new_key(call, bytes, bytes)?,
        };
        let job = Background { keys: vec![1], inputs: Arc::new([]), data, memory };
        return call.in_background(job, creation);
    }
    if !call.is_from_primary() && format.declared().is_some() {
        call.admit(bytes, bytes)?;
    }
    let parallel: &ParallelFor<'_> = &|tasks, task| call.parallel(tasks, task);
    let (filter, effect) = match data {
        Data::Arguments(range) => creation.read(call.arg(range.start), parallel),
        Data::Key(index) => call.string(index, |data| creation.read(data, parallel))?,
    }
    .map_err(refused)?;
    let more = filter.bytes();
    put_imported(call, key, filter, effect, more)
}

/// The creation of a filter from data.
struct Creation {
    format: Format,
    source: Source,
    /// Whether the data is too long to be replicated.
    is_long: bool,
}

/// A filter that was made from data, and a command that makes the same filter elsewhere, unless that command would be
/// long.
type Imported = (Foreign, Option<Effect<'static>>);

impl Creation {
    fn read(&mut self, data: &[u8], parallel: &ParallelFor<'_>) -> Result<Imported, DecodeError> {
        let filter = self.format.read(data, parallel)?;
        let effect = || match &mut self.source {
            Source::Argument(_) => Effect::Verbatim,
            Source::Key(words) => {
                let words = std::mem::take(words);
                Effect::Arguments("bf.import", [words, vec![data.to_vec()]].concat())
            }
        };
        Ok((filter, (!self.is_long).then(effect)))
    }
}

impl TwoStep for Creation {
    type Prepared = Result<Imported, DecodeError>;

    fn prepare(&mut self, data: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared {
        self.read(data.first().copied().unwrap_or_default(), parallel)
    }

    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        imported: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError> {
        let key = vacant(call)?;
        let (filter, effect) = imported().map_err(refused)?;
        // The filter's memory is already allocated.
        put_imported(call, key, filter, effect, 0)
    }
}

/// Opens the key, which must be empty.
fn vacant<'a, C: Call<'a>>(call: &C) -> Result<C::Key<Filter>, CommandError> {
    let key = call.open::<Filter>(1, Access::Write);
    if key.value()?.is_some() { Err(CommandError::Exists) } else { Ok(key) }
}

/// Puts a filter into its key, unless it exceeds the size limit for a filter, or there is no room for `more` bytes.
fn put_imported<'a, C: Call<'a>>(
    call: &C,
    mut key: C::Key<Filter>,
    filter: Foreign,
    effect: Option<Effect<'static>>,
    more: u64,
) -> Result<Reply, CommandError> {
    if !call.is_from_primary() {
        let admitted = call.admit(filter.bytes(), more);
        if admitted.is_err() {
            call.discard(Live::Foreign(Box::new(filter)).into());
            return admitted.map(|()| Reply::Ok);
        }
    }
    let Some(effect) = effect else { return Ok(put(call, &mut key, filter.into(), c"bf.import")) };
    call.replicate(effect);
    key.create(filter.into());
    call.changed(c"bf.import");
    Ok(Reply::Ok)
}

fn refused(why: DecodeError) -> CommandError {
    CommandError::BadData(Some(why))
}

fn go_zero<'a, C: Call<'a>>(call: &C) -> Result<(Format, Source), CommandError> {
    let (mut bits, mut data) = (None, None);
    let mut maps = bitmap::GO_ZERO_PROBES;
    let mut words = Arguments { call, next: 4 };
    while let Some(word) = words.next() {
        match upper(word).as_slice() {
            b"BITS" => {
                let plausible = |value| unsigned(value).filter(|bits| (1..=limits::MAX_BYTES).contains(bits));
                bits = Some(words.value(
                    "BITS",
                    "the number of bits that the filter was made with",
                    plausible,
                )?);
            }
            b"MAPS" => {
                let plausible =
                    |value| u32::try_from(unsigned(value)?).ok().filter(|maps| (1..=256).contains(maps));
                maps = words.value("MAPS", "the number of hashes, from 1 to 256", plausible)?;
            }
            b"DATA" => {
                words.value("DATA", "a bitmap", Some)?;
                data = Some(Source::Argument(words.last()));
            }
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    let bits =
        bits.ok_or(bad("GOZERO", "a key and BITS, the number of bits that the filter was made with"))?;
    let source = data.unwrap_or_else(|| {
        let (n, k) = (bits.to_string(), maps.to_string());
        let words: [&[u8]; 7] =
            [b"GOZERO", call.arg(KEY), b"BITS", n.as_bytes(), b"MAPS", k.as_bytes(), b"DATA"];
        Source::Key(words.map(<[u8]>::to_vec).to_vec())
    });
    Ok((Format::GoZero { bits, probes: maps }, source))
}

fn redisson<'a, C: Call<'a>>(call: &C) -> Result<(Format, Source), CommandError> {
    if call.argc() < 5 {
        return Err(CommandError::Arity);
    }
    let (mut encoding, mut given) = (Encoding::Bytes, None);
    let mut words = Arguments { call, next: 5 };
    while let Some(word) = words.next() {
        match upper(word).as_slice() {
            b"CODEC" => encoding = CODEC.value(&mut words)?,
            b"DATA" => {
                let expected = "the size, the number of hash iterations and a bitmap";
                let size = words.value("DATA", expected, unsigned)?;
                let iterations = words.value("DATA", expected, unsigned)?;
                words.value("DATA", expected, Some)?;
                given = Some((size, iterations, Source::Argument(words.last())));
            }
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    let number = |field: &'static str| {
        let text = call.hash_field(4, field)?;
        text.and_then(|text| unsigned(&text)).ok_or(CommandError::BadData(Some(DecodeError::Field(field))))
    };
    let (bits, iterations, data) = match given {
        Some((size, iterations, data)) => (size, iterations, Some(data)),
        None => (number("size")?, number("hashIterations")?, None),
    };
    let source = data.unwrap_or_else(|| {
        let codec = CODEC.word(encoding);
        let (n, k) = (bits.to_string(), iterations.to_string());
        let words: [&[u8]; 8] = [
            b"REDISSON",
            call.arg(KEY),
            call.arg(4),
            b"CODEC",
            codec.as_bytes(),
            b"DATA",
            n.as_bytes(),
            k.as_bytes(),
        ];
        Source::Key(words.map(<[u8]>::to_vec).to_vec())
    });
    let probes = u32::try_from(iterations).unwrap_or(u32::MAX);
    Ok((Format::Redisson { bits, probes, encoding }, source))
}
