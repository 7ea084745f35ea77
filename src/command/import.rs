//! BF.IMPORT and BF.LOAD: filters from other systems' data.

use super::call::{Access, Call, Key};
use super::error::CommandError;
use super::options::{Arguments, bad, choice, printable, unsigned};
use super::reply::Reply;
use super::table::Namespace;
use super::transfer::replicate_pieces;
use crate::filter::Foreign;
use crate::filter::foreign::Encoding;
use crate::params::limits;
use crate::wire::import::{self, bitmap};
use crate::wire::{DecodeError, Encoder};

/// `BF.IMPORT dest format …`:
///
/// ```text
/// GOZERO source BITS n [MAPS k]
/// REDISSON source config [CODEC STRING|JSON|KRYO5]
/// BLOOMV3 blob
/// GUAVA blob [FUNNEL BYTES|UTF16|LONG|INT]
/// ```
pub(super) fn import<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    let filter = match call.arg(2).to_ascii_uppercase().as_slice() {
        b"GOZERO" => go_zero(call)?,
        b"REDISSON" => redisson(call)?,
        b"BLOOMV3" if call.argc() == 4 => import::bloom_v3(call.arg(3)).map_err(refused)?,
        b"BLOOMV3" => return Err(CommandError::Arity),
        b"GUAVA" => guava(call)?,
        _ => return Err(bad("BF.IMPORT", "GOZERO, REDISSON, BLOOMV3 or GUAVA behind the key")),
    };
    create(call, filter)
}

/// `BF.LOAD key data`: the command that valkey-bloom writes into an AOF.
pub(super) fn load<'a, C: Call<'a>>(call: &C) -> Result<Reply, CommandError> {
    create(call, import::valkey_bloom_payload(call.arg(2)).map_err(refused)?)
}

/// Puts the filter into the key, which must be empty. Replicates the filter itself, since the source key may differ
/// on a replica.
fn create<'a, C: Call<'a>>(call: &C, filter: Foreign) -> Result<Reply, CommandError> {
    let mut key = call.open(1, Access::Write);
    if key.filter()?.is_some() {
        return Err(CommandError::Exists);
    }
    if !call.obeys() {
        call.admit(filter.bytes(), filter.bytes())?;
    }
    replicate_pieces(call, Namespace::Bloom, &Encoder::new(&filter));
    key.create(filter.into());
    call.changed(c"bf.import");
    Ok(Reply::Ok)
}

/// Checks memory for a filter whose size is a number in the command and not the length of the data.
fn admit<'a, C: Call<'a>>(call: &C, bits: u64) -> Result<(), CommandError> {
    let bytes = bits.div_ceil(8);
    call.admit(bytes, bytes)
}

fn refused(why: DecodeError) -> CommandError {
    CommandError::BadData(Some(why))
}

fn go_zero<'a, C: Call<'a>>(call: &C) -> Result<Foreign, CommandError> {
    let mut bits = None;
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
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    let bits =
        bits.ok_or(bad("GOZERO", "a key and BITS, the number of bits that the filter was made with"))?;
    admit(call, bits)?;
    call.string(3, |bitmap| bitmap::go_zero(bits, maps, bitmap))?.map_err(refused)
}

fn redisson<'a, C: Call<'a>>(call: &C) -> Result<Foreign, CommandError> {
    let codec = |word: &[u8]| match word.to_ascii_uppercase().as_slice() {
        b"STRING" => Some(Encoding::Bytes),
        _ => choice(word).filter(|encoding| matches!(encoding, Encoding::Json | Encoding::Kryo5)),
    };
    if call.argc() < 5 {
        return Err(CommandError::Arity);
    }
    let mut encoding = Encoding::Bytes;
    let mut words = Arguments { call, next: 5 };
    while let Some(word) = words.next() {
        if !word.eq_ignore_ascii_case(b"CODEC") {
            return Err(CommandError::UnknownOption(printable(word)));
        }
        encoding = words.value("CODEC", "STRING, JSON or KRYO5", codec)?;
    }
    let number = |field: &'static str| {
        let text = call.hash_field(4, field)?;
        text.and_then(|text| unsigned(&text)).ok_or(CommandError::BadData(Some(DecodeError::Field(field))))
    };
    let size = number("size")?;
    let iterations = u32::try_from(number("hashIterations")?).unwrap_or(u32::MAX);
    admit(call, size)?;
    call.string(3, |bitmap| bitmap::redisson(size, iterations, encoding, bitmap))?.map_err(refused)
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
