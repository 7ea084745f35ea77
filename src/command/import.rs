//! BF.IMPORT and BF.LOAD: filters from other systems' data.

use super::call::{Access, Call, Effect, Key};
use super::error::CommandError;
use super::options::{Arguments, bad, choice, printable, unsigned};
use super::reply::Reply;
use super::table::{Command, Namespace};
use super::transfer::replicate_pieces;
use crate::filter::Foreign;
use crate::filter::foreign::Encoding;
use crate::params::limits;
use crate::wire::import::{self, bitmap};
use crate::wire::{DecodeError, Encoder};

/// `BF.IMPORT dest format …`:
///
/// ```text
/// GOZERO source BITS n [MAPS k] [DATA bitmap]
/// REDISSON source config [CODEC STRING|JSON|KRYO5] [DATA size iterations bitmap]
/// BLOOMV3 blob
/// GUAVA blob [FUNNEL BYTES|UTF16|LONG|INT]
/// ```
pub(super) fn import<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let (filter, effect) = match call.arg(2).to_ascii_uppercase().as_slice() {
        b"GOZERO" => go_zero(call)?,
        b"REDISSON" => redisson(call)?,
        b"BLOOMV3" if call.argc() == 4 => (import::bloom_v3(call.arg(3)).map_err(refused)?, None),
        b"BLOOMV3" => return Err(CommandError::Arity),
        b"GUAVA" => (guava(call)?, None),
        _ => return Err(bad("BF.IMPORT", "GOZERO, REDISSON, BLOOMV3 or GUAVA behind the key")),
    };
    create(call, filter, effect)
}

/// `BF.LOAD key data`: the command that valkey-bloom writes into an AOF.
pub(super) fn load<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    create(call, import::valkey_bloom_payload(call.arg(2)).map_err(refused)?, None)
}

/// Arguments of a BF.IMPORT that makes the same filter without reading another key.
type Words = Vec<Vec<u8>>;

/// Puts the filter into the key, which must be empty. Replicates the filter itself, since the source key may differ
/// on a replica: in pieces, or by an import that is shorter.
fn create<'a, C: Call<'a>>(call: &C, filter: Foreign, effect: Option<Words>) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    if key.filter()?.is_some() {
        return Err(CommandError::Exists);
    }
    if !call.obeys() {
        call.admit(filter.bytes(), filter.bytes())?;
    }
    match effect {
        Some(words) => call.replicate(Effect::Arguments(Command::Import, words)),
        None => replicate_pieces(call, Namespace::Bloom, &Encoder::new(&filter)),
    }
    key.create(filter.into());
    call.changed(c"bf.import");
    Ok(Reply::Ok)
}

/// Checks memory for a filter whose size is a number in the command and not the length of the data.
fn admit<'a, C: Call<'a>>(call: &C, bits: u64) -> Result<(), CommandError> {
    if call.obeys() {
        return Ok(());
    }
    let bytes = bits.div_ceil(8);
    call.admit(bytes, bytes)
}

/// What makes the filter from a bitmap that is shorter than half of its bits: `words`, DATA, `numbers` and the bitmap.
/// The bits may be 60 bytes of command and 512 MiB of zeros, which no replica needs to be sent. A longer bitmap goes in
/// pieces of 16 MiB, which are at most twice as long as it.
fn shorter(words: &[&[u8]], numbers: Words, bits: u64, bitmap: &[u8]) -> Option<Words> {
    let is_short = (bitmap.len() as u64).saturating_mul(2) < bits.div_ceil(8);
    is_short.then(|| {
        let words = words.iter().map(|word| word.to_vec()).chain([b"DATA".to_vec()]);
        words.chain(numbers).chain([bitmap.to_vec()]).collect()
    })
}

/// The bitmap from argument 3, the name of a key, or from the command. Passes it to `read`.
fn with_bitmap<'a, C: Call<'a>, R>(
    call: &C,
    data: Option<&'a [u8]>,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<R, CommandError> {
    match data {
        Some(bitmap) => Ok(read(bitmap)),
        None => call.string(3, read),
    }
}

fn refused(why: DecodeError) -> CommandError {
    CommandError::BadData(Some(why))
}

/// A filter, and what replicates it if that isn't the filter's pieces.
type Imported = (Foreign, Option<Words>);

fn go_zero<'a, C: Call<'a>>(call: &C) -> Result<Imported, CommandError> {
    let (mut bits, mut data) = (None, None);
    let mut maps = bitmap::GO_ZERO_PROBES;
    let mut words = Arguments { call, next: 4 };
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
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
            b"DATA" => data = Some(words.value("DATA", "a bitmap", Some)?),
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    let bits =
        bits.ok_or(bad("GOZERO", "a key and BITS, the number of bits that the filter was made with"))?;
    admit(call, bits)?;
    let made = with_bitmap(call, data, |bitmap| {
        let (n, k) = (bits.to_string(), maps.to_string());
        let words: [&[u8]; 6] = [b"GOZERO", call.arg(3), b"BITS", n.as_bytes(), b"MAPS", k.as_bytes()];
        Ok((bitmap::go_zero(bits, maps, bitmap)?, shorter(&words, Vec::new(), bits, bitmap)))
    })?;
    made.map_err(refused)
}

fn redisson<'a, C: Call<'a>>(call: &C) -> Result<Imported, CommandError> {
    let codec = |word: &[u8]| match word.to_ascii_uppercase().as_slice() {
        b"STRING" => Some(Encoding::Bytes),
        _ => choice(word).filter(|encoding| matches!(encoding, Encoding::Json | Encoding::Kryo5)),
    };
    if call.argc() < 5 {
        return Err(CommandError::Arity);
    }
    let (mut encoding, mut given) = (Encoding::Bytes, None);
    let mut words = Arguments { call, next: 5 };
    while let Some(word) = words.next() {
        match word.to_ascii_uppercase().as_slice() {
            b"CODEC" => encoding = words.value("CODEC", "STRING, JSON or KRYO5", codec)?,
            b"DATA" => {
                let takes = "the size, the number of hash iterations and a bitmap";
                let size = words.value("DATA", takes, unsigned)?;
                let iterations = words.value("DATA", takes, unsigned)?;
                given = Some((size, iterations, words.value("DATA", takes, Some)?));
            }
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    let number = |field: &'static str| {
        let text = call.hash_field(4, field)?;
        text.and_then(|text| unsigned(&text)).ok_or(CommandError::BadData(Some(DecodeError::Field(field))))
    };
    let (size, iterations, data) = match given {
        Some((size, iterations, bitmap)) => (size, iterations, Some(bitmap)),
        None => (number("size")?, number("hashIterations")?, None),
    };
    let probes = u32::try_from(iterations).unwrap_or(u32::MAX);
    admit(call, size)?;
    let made = with_bitmap(call, data, |bitmap| {
        let filter = bitmap::redisson(size, probes, encoding, bitmap)?;
        let codec = if encoding == Encoding::Bytes { "STRING" } else { encoding.as_str() };
        let words: [&[u8]; 5] = [b"REDISSON", call.arg(3), call.arg(4), b"CODEC", codec.as_bytes()];
        let numbers = vec![size.to_string().into_bytes(), iterations.to_string().into_bytes()];
        Ok((filter, shorter(&words, numbers, size, bitmap)))
    })?;
    made.map_err(refused)
}

fn guava<'a, C: Call<'a>>(call: &C) -> Result<Foreign, CommandError> {
    let funnel =
        |word: &[u8]| choice(word).filter(|encoding| !matches!(encoding, Encoding::Json | Encoding::Kryo5));
    let mut encoding = Encoding::Bytes;
    let mut words = Arguments { call, next: 4 };
    while let Some(word) = words.next() {
        if !word.eq_ignore_ascii_case(b"FUNNEL") {
            return Err(CommandError::UnknownOption(printable(word)));
        }
        encoding = words.value("FUNNEL", "BYTES, UTF16, LONG or INT", funnel)?;
    }
    import::guava(call.arg(3), encoding).map_err(refused)
}
