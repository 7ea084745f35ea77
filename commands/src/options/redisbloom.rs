//! Options as RedisBloom reads them, for commands from a RedisBloom primary or from an append-only file that it wrote.
//!
//! RedisBloom sends a command as its client wrote it. So we must understand everything that it accepts, with the same
//! meaning. BF.RESERVE accepts options in any place, even as the key, and ignores unknown words. BF.INSERT accepts
//! first letters instead of whole words. Both accept error rates down to the smallest positive number. RedisBloom
//! doesn't send commands that it refuses, so little is checked.
//!
//! Bloomery sends a filter's creation with every parameter, and the seed last. A creation without a seed comes from
//! RedisBloom, and so does an add to a key that doesn't exist. Both create a RedisBloom filter, which stays equal to
//! the primary's.

use super::bloom::{self, New};
use super::valkey_bloom::Dialect;
use super::{cuckoo, integer, number};
use crate::call::Call;
use crate::error::CommandError;
use bloomery::filter::CuckooSpec;
use bloomery::filter::foreign::ChainSpec;

/// The EXPANSION of a chain that grows although its stored expansion is 0. RedisBloom sees that this number isn't 0,
/// but stores only its lower 32 bits.
const GROWS_BY_0: u64 = 1 << 32;

/// Whether BF.RESERVE or CF.RESERVE is to be read as RedisBloom reads it.
pub(crate) fn reserves<'a, C: Call<'a>>(call: &C) -> bool {
    let names_seed = |index: &usize| *index > 2 && call.arg(*index).eq_ignore_ascii_case(b"SEED");
    call.is_from_primary() && call.argc().checked_sub(2).filter(names_seed).is_none()
}

const UNKNOWN: CommandError = CommandError::RedisBloom("Unknown argument received");

/// The last words of a BF.RESERVE or CF.RESERVE that a replica writes into its own append-only file, and later reads
/// back. In such a command, options are looked for only after the capacity, so a key with the name of an option does no
/// harm.
pub(super) const OWN: [&str; 2] = ["HASH", "REDISBLOOM"];

/// Index of the first argument that may be an option: `after` in a command that ends with [`OWN`], otherwise 0, because
/// RedisBloom looks for options in all arguments, including the command's name.
fn first_option<'a, C: Call<'a>>(call: &C, after: usize) -> usize {
    let start = call.argc().saturating_sub(OWN.len());
    let is_own = (start..call.argc()).map(|index| call.arg(index)).eq(OWN.map(str::as_bytes));
    if is_own && start >= after { after } else { 0 }
}

/// The value of an option: the argument that follows the first occurrence of `word` at or after index `from`.
fn value<'a, C: Call<'a>>(call: &C, from: usize, word: &str) -> Option<&'a [u8]> {
    position(call, from, word).and_then(|index| argument(call, index.saturating_add(1)))
}

fn position<'a, C: Call<'a>>(call: &C, from: usize, word: &str) -> Option<usize> {
    (from..call.argc()).find(|index| call.arg(*index).eq_ignore_ascii_case(word.as_bytes()))
}

fn argument<'a, C: Call<'a>>(call: &C, index: usize) -> Option<&'a [u8]> {
    (index < call.argc()).then(|| call.arg(index))
}

/// `BF.RESERVE key error_rate capacity [EXPANSION expansion] [NONSCALING]`.
pub(crate) fn chain<'a, C: Call<'a>>(call: &C) -> Result<ChainSpec, CommandError> {
    let mut spec = ChainSpec {
        error_rate: error_rate(call.arg(2)).ok_or(CommandError::BadErrorRate)?,
        capacity: capacity(call.arg(3)).ok_or(CommandError::BadCapacity)?,
        ..bloom::default_chain(&call.settings())
    };
    let from = first_option(call, 4);
    if let Some(value) = value(call, from, "EXPANSION") {
        expand(&mut spec, value).ok_or(CommandError::BadExpansion)?;
    }
    spec.scales &= position(call, from, "NONSCALING").is_none();
    Ok(spec)
}

/// The arguments after the key with which BF.RESERVE creates this chain on a server that obeys, whatever its
/// configuration.
pub(crate) fn creation(spec: &ChainSpec) -> Vec<Vec<u8>> {
    let growth = if spec.scales && spec.growth == 0 { GROWS_BY_0 } else { spec.growth.into() };
    let words =
        [spec.error_rate.to_string(), spec.capacity.to_string(), "EXPANSION".into(), growth.to_string()];
    let fixed = (!spec.scales).then(|| "NONSCALING".to_owned());
    words.into_iter().chain(fixed).chain(OWN.map(str::to_owned)).map(String::into_bytes).collect()
}

/// `BF.INSERT key [CAPACITY c] [ERROR e] [EXPANSION x] [NOCREATE] [NONSCALING] ITEMS item…`. Also reads what
/// [valkey-bloom](super::valkey_bloom) sends. No option of RedisBloom begins with the same letter as one of
/// valkey-bloom's additional options.
pub(crate) fn insertion<'a, C: Call<'a>>(call: &C) -> Result<bloom::Insertion, CommandError> {
    let mut dialect = Dialect::default();
    let mut spec = bloom::default_chain(&call.settings());
    let (mut nonscaling, mut may_create) = (false, Ok(()));
    let first_item = letters(call, |letters, value| {
        match letters {
            [b'e', b'r', _] => spec.error_rate = error_rate(value()?)?,
            [b'e', ..] => expand(&mut spec, value()?)?,
            [b'c', ..] => spec.capacity = capacity(value()?)?,
            [b'n', _, b'c'] => may_create = Err(CommandError::NotFound),
            [b'n', ..] => nonscaling = true,
            [b't', ..] => dialect.tightening = Some(error_rate(value()?)?),
            [b's', ..] => dialect.seed = Some(value()?.try_into().ok()?),
            [b'v', ..] => drop(value()?),
            _ => return None,
        }
        Some(())
    })?;
    // BF.INSERT with an expansion creates a chain of fixed capacity if the configured expansion is 0. BF.RESERVE would
    // be refused.
    spec.scales &= !nonscaling && call.settings().expansion > 0;
    let of_valkey = dialect.spec(spec.capacity, spec.error_rate, if spec.scales { spec.growth } else { 0 });
    let first_item = first_item.or(of_valkey.map(|_| call.argc())).ok_or(CommandError::Arity)?;
    let new = of_valkey.map_or(New::RedisBloom(spec), New::ValkeyBloom);
    Ok(bloom::Insertion { new, may_create, scale_to: None, first_item })
}

/// `CF.RESERVE key capacity [BUCKETSIZE b] [MAXITERATIONS m] [EXPANSION e]`.
pub(crate) fn cuckoo<'a, C: Call<'a>>(call: &C) -> Result<CuckooSpec, CommandError> {
    const BAD: CommandError = CommandError::RedisBloom("Bad capacity");
    let mut spec = cuckoo::configured(call);
    spec.capacity = capacity(call.arg(2)).ok_or(BAD)?;
    let from = first_option(call, 3);
    let number = |option| match value(call, from, option) {
        None => Ok(None),
        Some(value) => integer(value).map(Some).ok_or(CommandError::Unparsed { option }),
    };
    if let Some(slots) = number("BUCKETSIZE")? {
        spec.bucket_size = u8::try_from(slots).unwrap_or(0);
    }
    if let Some(moves) = number("MAXITERATIONS")? {
        spec.max_iterations = u16::try_from(moves).unwrap_or(0);
    }
    if let Some(expansion) = number("EXPANSION")? {
        spec.expansion = CuckooSpec::expansion_for(u32::try_from(expansion).unwrap_or(u32::MAX));
    }
    Ok(spec)
}

/// `CF.INSERT key [CAPACITY c] [NOCREATE] ITEMS item…`.
pub(crate) fn cuckoo_insertion<'a, C: Call<'a>>(call: &C) -> Result<cuckoo::Insertion, CommandError> {
    let (mut asked, mut may_create) = (None, Ok(()));
    let first_item = letters(call, |letters, value| {
        match letters {
            [b'c', ..] => asked = Some(capacity(value()?)?),
            [b'n', ..] => may_create = Err(CommandError::NotFound),
            _ => return None,
        }
        Some(())
    })?;
    let first_item = first_item.ok_or(CommandError::Arity)?;
    Ok(cuckoo::Insertion { capacity: asked, may_create, first_item })
}

/// Reads options up to a word that begins with `i`, which means ITEMS. Returns the index of the first item, or `None`
/// if there is no such word. `read` gets the first three letters of each option in lower case, padded with 0, and a
/// function that returns the option's value.
fn letters<'a, C: Call<'a>>(
    call: &C,
    mut read: impl FnMut(&[u8; 3], &mut dyn FnMut() -> Option<&'a [u8]>) -> Option<()>,
) -> Result<Option<usize>, CommandError> {
    let mut next = 2usize;
    let mut word = || {
        let word = argument(call, next)?;
        next = next.saturating_add(1);
        Some(word)
    };
    while let Some(option) = word() {
        let mut letters = [0; 3];
        letters.iter_mut().zip(option).for_each(|(letter, byte)| *letter = byte.to_ascii_lowercase());
        if letters.starts_with(b"i") {
            return Ok(Some(next));
        }
        read(&letters, &mut word).ok_or(UNKNOWN)?;
    }
    Ok(None)
}

fn capacity(bytes: &[u8]) -> Option<u64> {
    u64::try_from(integer(bytes)?).ok().filter(|items| *items > 0)
}

/// Reads an expansion into the spec. 0 means a chain with a fixed capacity.
fn expand(spec: &mut ChainSpec, bytes: &[u8]) -> Option<()> {
    let expansion = integer(bytes)?;
    spec.scales = expansion != 0;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as RedisBloom stores it")]
    let stored = expansion as u32;
    spec.growth = stored;
    Some(())
}

fn error_rate(bytes: &[u8]) -> Option<f64> {
    number(bytes).filter(|rate| *rate > 0.0 && *rate < 1.0)
}
