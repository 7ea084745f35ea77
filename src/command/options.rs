//! Parsing of options, and their canonical form for replication.
//!
//! Options are matched whole and by position. RedisBloom looks for them anywhere, the key included, and takes any word
//! that begins alike; a key named `nonscaling` makes a non-scaling filter there.

use super::error::CommandError;
use super::{Access, Call, Key};
use crate::config::Settings;
use crate::filter::Schedule;
use crate::hash::{HashKind, Seed};
use crate::params::{Cell, Family, LayoutChoice, Overflow, Spec, Tightening, limits};

/// An integer as the server reads them: no sign but `-`, no leading zeros, no blanks.
pub(super) fn integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let canonical = match digits {
        [b'0'] => bytes.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    canonical.then(|| std::str::from_utf8(bytes).ok()?.parse().ok()).flatten()
}

/// A number; NaN is none.
pub(super) fn number(bytes: &[u8]) -> Option<f64> {
    std::str::from_utf8(bytes).ok()?.parse().ok().filter(|value: &f64| !value.is_nan())
}

fn unsigned(bytes: &[u8], takes: CommandError) -> Result<u64, CommandError> {
    integer(bytes).and_then(|value| u64::try_from(value).ok()).ok_or(takes)
}

/// Bytes of a client in an error text: printable, and not longer than one wants to read.
fn printable(bytes: &[u8]) -> String {
    const MOST: usize = 64;
    let mut text = bytes.iter().take(MOST).flat_map(|byte| byte.escape_ascii()).map(char::from).collect::<String>();
    if bytes.len() > MOST {
        text.push('…');
    }
    text
}

/// The error rate of BF.RESERVE.
fn error_rate(bytes: &[u8]) -> Result<f64, CommandError> {
    let rate = number(bytes).ok_or(CommandError::BadErrorRate)?;
    if !(rate > 0.0 && rate < 1.0) {
        return Err(CommandError::ErrorRateRange);
    }
    if rate < limits::MIN_ERROR_RATE { Err(CommandError::ErrorRateTooSmall) } else { Ok(rate) }
}

/// The capacity of BF.RESERVE. How large it may be is a matter of memory.
fn capacity(bytes: &[u8]) -> Result<u64, CommandError> {
    let capacity = integer(bytes).ok_or(CommandError::BadCapacity)?;
    u64::try_from(capacity)
        .ok()
        .filter(|capacity| (1..=limits::MAX_CAPACITY).contains(capacity))
        .ok_or(CommandError::CapacityRange)
}

/// What BF.RESERVE is asked for.
pub(super) struct Reservation {
    pub(super) spec: Spec,
    /// When a window's generation 0 begins, in Unix milliseconds; `None` for now.
    pub(super) since_ms: Option<u64>,
}

/// The options of BF.RESERVE as they stand, before it is clear how they go together.
#[derive(Default)]
struct ReserveOptions<'a> {
    expansion: Option<i64>,
    nonscaling: bool,
    counting: Option<Cell>,
    window: Option<u8>,
    every_ms: Option<u64>,
    since_ms: Option<u64>,
    shards: Option<u32>,
    layout: LayoutChoice,
    hash: HashKind,
    seed: Option<&'a [u8]>,
    tightening: Option<Tightening>,
    on_full: Option<OnFull>,
    /// Index of the key.
    like: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnFull {
    Error,
    Saturate,
    Scale,
}

/// `BF.RESERVE key error_rate capacity [option…]`.
pub(super) fn reservation<'a, C: Call<'a>>(call: &C) -> Result<Reservation, CommandError> {
    let rate = error_rate(call.arg(2))?;
    let capacity = capacity(call.arg(3))?;
    let options = reserve_options(call)?;
    if let Some(index) = options.like {
        return like(call, index, rate, capacity);
    }
    let family = family(&options, call.settings())?;
    let spec = Spec {
        capacity,
        error_rate: rate,
        seed: Seed::default(),
        shards: options.shards.unwrap_or(1),
        hash: options.hash,
        layout: options.layout,
        cell: options.counting.unwrap_or(Cell::Bit),
        family,
    };
    let spec = match options.seed {
        Some(hex) => Spec { seed: seed(hex, spec.hash)?, ..spec },
        None => with_random_seed(spec)?,
    };
    Ok(Reservation { spec, since_ms: options.since_ms })
}

/// The same spec with a seed that nobody can guess.
pub(super) fn with_random_seed(spec: Spec) -> Result<Spec, CommandError> {
    let seed = Seed::random(spec.hash).map_err(|_| CommandError::NoRandomness)?;
    Ok(Spec { seed, ..spec })
}

fn reserve_options<'a, C: Call<'a>>(call: &C) -> Result<ReserveOptions<'a>, CommandError> {
    let mut options = ReserveOptions::default();
    let mut index = 4;
    // The value behind the option, or the refusal when there is none.
    let value = |index: &mut usize, missing: CommandError| {
        *index += 1;
        if *index < call.len() { Ok(call.arg(*index)) } else { Err(missing) }
    };
    while index < call.len() {
        let word = call.arg(index);
        if word.eq_ignore_ascii_case(b"EXPANSION") {
            let text = value(&mut index, CommandError::NoExpansion)?;
            options.expansion = Some(integer(text).ok_or(CommandError::BadExpansion)?);
        } else if word.eq_ignore_ascii_case(b"NONSCALING") {
            options.nonscaling = true;
        } else if word.eq_ignore_ascii_case(b"COUNTING") {
            // The width may be left out.
            let width = if index + 1 < call.len() { integer(call.arg(index + 1)) } else { None };
            options.counting = Some(match width {
                None => Cell::Counter4,
                Some(4) => Cell::Counter4,
                Some(8) => Cell::Counter8,
                Some(16) => Cell::Counter16,
                Some(_) => return Err(bad("COUNTING", "4, 8 or 16 bits a counter")),
            });
            index += usize::from(width.is_some());
        } else if word.eq_ignore_ascii_case(b"WINDOW") {
            let takes = || bad("WINDOW", "2 to 64 generations");
            let generations = unsigned(value(&mut index, takes())?, takes())?;
            options.window = Some(
                u8::try_from(generations)
                    .ok()
                    .filter(|count| limits::GENERATIONS.contains(&(*count).into()))
                    .ok_or_else(takes)?,
            );
        } else if word.eq_ignore_ascii_case(b"EVERY") {
            let takes = || bad("EVERY", "milliseconds between rotations, at least 1");
            let every_ms = unsigned(value(&mut index, takes())?, takes())?;
            options.every_ms = Some(every_ms).filter(|ms| *ms > 0);
            options.every_ms.ok_or_else(takes)?;
        } else if word.eq_ignore_ascii_case(b"SINCE") {
            let takes = || bad("SINCE", "a Unix time in milliseconds");
            let since = unsigned(value(&mut index, takes())?, takes())?;
            options.since_ms = Some(since).filter(|ms| *ms <= MAX_SINCE);
            options.since_ms.ok_or_else(takes)?;
        } else if word.eq_ignore_ascii_case(b"SHARDS") {
            let takes = || bad("SHARDS", "a power of two from 1 to 1024");
            let shards = unsigned(value(&mut index, takes())?, takes())?;
            options.shards = u32::try_from(shards)
                .ok()
                .filter(|shards| shards.is_power_of_two() && *shards <= limits::MAX_SHARDS);
            options.shards.ok_or_else(takes)?;
        } else if word.eq_ignore_ascii_case(b"LAYOUT") {
            let takes = || bad("LAYOUT", "AUTO, BLOCKED or CLASSIC");
            let name = value(&mut index, takes())?;
            options.layout = one_of(name, &LAYOUTS).ok_or_else(takes)?;
        } else if word.eq_ignore_ascii_case(b"HASH") {
            let takes = || bad("HASH", "XXH3 or SIPHASH");
            let name = value(&mut index, takes())?;
            options.hash = one_of(name, &HASHES).ok_or_else(takes)?;
        } else if word.eq_ignore_ascii_case(b"SEED") {
            options.seed = Some(value(&mut index, bad("SEED", "hexadecimal digits"))?);
        } else if word.eq_ignore_ascii_case(b"TIGHTENING") {
            let takes = || bad("TIGHTENING", "a ratio between 0 and 1, both excluded");
            let ratio = number(value(&mut index, takes())?).ok_or_else(takes)?;
            options.tightening = Some(Tightening::geometric(ratio).map_err(|_| takes())?);
        } else if word.eq_ignore_ascii_case(b"ONFULL") {
            let takes = || bad("ONFULL", "ERROR, SATURATE or SCALE");
            let name = value(&mut index, takes())?;
            options.on_full = Some(one_of(name, &ON_FULL).ok_or_else(takes)?);
        } else if word.eq_ignore_ascii_case(b"LIKE") {
            value(&mut index, bad("LIKE", "the key of a filter"))?;
            options.like = Some(index);
            if call.len() != 6 {
                return Err(CommandError::Exclusive("LIKE takes everything from the other filter, so no other options"));
            }
        } else {
            return Err(CommandError::UnknownOption(printable(word)));
        }
        index += 1;
    }
    Ok(options)
}

/// The latest time that [`crate::wire`] takes as plausible.
const MAX_SINCE: u64 = 1 << 62;

const LAYOUTS: [(&str, LayoutChoice); 3] =
    [("AUTO", LayoutChoice::Auto), ("BLOCKED", LayoutChoice::Blocked), ("CLASSIC", LayoutChoice::Classic)];

const HASHES: [(&str, HashKind); 2] = [("XXH3", HashKind::Xxh3), ("SIPHASH", HashKind::SipHash)];

const ON_FULL: [(&str, OnFull); 3] =
    [("ERROR", OnFull::Error), ("SATURATE", OnFull::Saturate), ("SCALE", OnFull::Scale)];

fn one_of<T: Copy>(word: &[u8], names: &[(&str, T)]) -> Option<T> {
    names.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| *value)
}

/// The name of a value in one of the tables above.
fn name_of<T: PartialEq>(value: T, names: &[(&'static str, T)]) -> &'static str {
    names.iter().find(|(_, other)| *other == value).map_or("", |(name, _)| name)
}

/// Name of a layout choice, as BF.RESERVE takes it.
pub(super) fn layout_name(layout: LayoutChoice) -> &'static str {
    name_of(layout, &LAYOUTS)
}

/// Name of a hash, as BF.RESERVE takes it.
pub(super) fn hash_name(hash: HashKind) -> &'static str {
    name_of(hash, &HASHES)
}

fn bad(option: &'static str, takes: &'static str) -> CommandError {
    CommandError::BadOption { option, takes }
}

/// Which family the options mean.
fn family(options: &ReserveOptions<'_>, settings: Settings) -> Result<Family, CommandError> {
    if options.nonscaling && options.expansion.is_some() {
        return Err(CommandError::NonscalingExpands);
    }
    let expansion = options.expansion.map(expansion_in_range).transpose()?;
    if options.every_ms.is_some() && options.window.is_none() {
        return Err(CommandError::Exclusive("EVERY belongs to WINDOW generations"));
    }
    if options.since_ms.is_some() && options.every_ms.is_none() {
        return Err(CommandError::Exclusive("SINCE belongs to WINDOW generations EVERY milliseconds"));
    }
    if options.counting.is_some() && options.window.is_some() {
        return Err(CommandError::Exclusive(
            "COUNTING and WINDOW exclude each other: a window's items leave with their generation, not one by one",
        ));
    }
    // EXPANSION 0 is RedisBloom's other way to say NONSCALING.
    let asks_to_scale =
        expansion.is_some_and(|e| e > 0) || options.tightening.is_some() || options.on_full == Some(OnFull::Scale);
    if asks_to_scale && options.counting.is_some() {
        return Err(CommandError::Exclusive(
            "a counting filter has a fixed capacity: a delete could not tell which layer holds the item, \
             so EXPANSION, TIGHTENING and ONFULL SCALE do not go with COUNTING",
        ));
    }
    if asks_to_scale && options.window.is_some() {
        return Err(CommandError::Exclusive(
            "a window's generations have a fixed capacity, so EXPANSION, TIGHTENING and ONFULL SCALE do not go with \
             WINDOW",
        ));
    }
    if let Some(generations) = options.window {
        let overflow = match options.on_full {
            Some(OnFull::Error) => Overflow::Error,
            // A stream should not stop because one hour was busier than planned.
            _ => Overflow::Saturate,
        };
        return Ok(Family::Window { generations, overflow, every_ms: options.every_ms.unwrap_or(0) });
    }
    let fixed = options.nonscaling
        || options.counting.is_some()
        || expansion == Some(0)
        || matches!(options.on_full, Some(OnFull::Error | OnFull::Saturate));
    let may_scale = expansion.or(Some(settings.expansion)).filter(|e| *e > 0);
    match may_scale {
        Some(_) if fixed && asks_to_scale => Err(CommandError::NonscalingExpands),
        Some(expansion) if !fixed => Ok(Family::Scaling {
            expansion,
            tightening: options.tightening.unwrap_or(Tightening::INVERSE_SQUARE),
        }),
        None if asks_to_scale => {
            // Asked to scale while the configured expansion is 0: by RedisBloom's default, then.
            let tightening = options.tightening.unwrap_or(Tightening::INVERSE_SQUARE);
            Ok(Family::Scaling { expansion: Settings::default().expansion, tightening })
        }
        _ => Ok(Family::Fixed(match options.on_full {
            Some(OnFull::Saturate) => Overflow::Saturate,
            _ => Overflow::Error,
        })),
    }
}

fn expansion_in_range(value: i64) -> Result<u32, CommandError> {
    u32::try_from(value).ok().filter(|e| *e <= limits::MAX_EXPANSION).ok_or(CommandError::ExpansionRange)
}

fn seed(hex: &[u8], hash: HashKind) -> Result<Seed, CommandError> {
    let takes = match hash {
        HashKind::Xxh3 => "1 to 16 hexadecimal digits for XXH3",
        HashKind::SipHash => "1 to 32 hexadecimal digits for SIPHASH",
    };
    let digits = hash.seed_bits() as usize / 4;
    let text = std::str::from_utf8(hex)
        .ok()
        .filter(|text| (1..=digits).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .ok_or(bad("SEED", takes))?;
    u128::from_str_radix(text, 16).map(Seed::from).map_err(|_| bad("SEED", takes))
}

/// The spec of another filter, which the numbers given must agree with.
fn like<'a, C: Call<'a>>(
    call: &C,
    index: usize,
    error_rate: f64,
    capacity: u64,
) -> Result<Reservation, CommandError> {
    let key = call.open(index, Access::Read);
    let other = key.filter()?.ok_or(CommandError::LikeNotFound)?;
    let spec = *other.spec();
    if (spec.error_rate, spec.capacity) != (error_rate, capacity) {
        return Err(CommandError::LikeDiffers { error_rate: spec.error_rate, capacity: spec.capacity });
    }
    let since_ms = other.window().map(|window| window.schedule().since_ms);
    Ok(Reservation { spec, since_ms })
}

/// The arguments of BF.RESERVE behind the key that make a filter of this spec anywhere, whatever is configured there.
pub(super) fn creation(spec: &Spec, since_ms: u64) -> Vec<Vec<u8>> {
    let mut words = vec![spec.error_rate.to_string(), spec.capacity.to_string()];
    let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
    match spec.family {
        Family::Fixed(overflow) => {
            option("ONFULL", if overflow == Overflow::Error { "ERROR" } else { "SATURATE" }.to_owned());
        }
        Family::Scaling { expansion, tightening } => {
            option("EXPANSION", expansion.to_string());
            if let Some(ratio) = tightening.ratio() {
                option("TIGHTENING", ratio.to_string());
            }
        }
        Family::Window { generations, overflow, every_ms } => {
            option("WINDOW", generations.to_string());
            option("ONFULL", if overflow == Overflow::Error { "ERROR" } else { "SATURATE" }.to_owned());
            if every_ms > 0 {
                option("EVERY", every_ms.to_string());
                let Schedule { since_ms, .. } = Schedule { since_ms, ..Schedule::default() };
                option("SINCE", since_ms.to_string());
            }
        }
    }
    if spec.cell.counts() {
        option("COUNTING", spec.cell.bits().to_string());
    }
    option("SHARDS", spec.shards.to_string());
    option("LAYOUT", layout_name(spec.layout).to_owned());
    option("HASH", hash_name(spec.hash).to_owned());
    option("SEED", format!("{:x}", u128::from(spec.seed)));
    words.into_iter().map(String::into_bytes).collect()
}

/// What BF.INSERT is asked for.
pub(super) struct Insertion {
    pub(super) spec: Spec,
    pub(super) create: bool,
    /// Argument of the first item.
    pub(super) first_item: usize,
}

/// `BF.INSERT key [CAPACITY c] [ERROR e] [EXPANSION x] [NOCREATE] [NONSCALING] ITEMS item…`. As in RedisBloom the last
/// of equal options wins, and they are checked even where the key exists.
pub(super) fn insertion<'a, C: Call<'a>>(call: &C) -> Result<Insertion, CommandError> {
    let settings = call.settings();
    let (mut rate, mut size) = (settings.error_rate, settings.initial_size);
    let (mut expansion, mut nonscaling, mut create) = (settings.expansion, false, true);
    let mut index = 2;
    let value = |index: &mut usize| {
        *index += 1;
        if *index < call.len() { Ok(call.arg(*index)) } else { Err(CommandError::Arity) }
    };
    while index < call.len() {
        let word = call.arg(index);
        if word.eq_ignore_ascii_case(b"ITEMS") {
            index += 1;
            break;
        } else if word.eq_ignore_ascii_case(b"CAPACITY") {
            size = capacity(value(&mut index)?).map_err(|_| CommandError::BadInsertOption("Bad capacity"))?;
        } else if word.eq_ignore_ascii_case(b"ERROR") {
            rate = error_rate(value(&mut index)?).map_err(|_| CommandError::BadInsertOption("Bad error rate"))?;
        } else if word.eq_ignore_ascii_case(b"EXPANSION") {
            expansion = integer(value(&mut index)?)
                .and_then(|value| expansion_in_range(value).ok())
                .ok_or(CommandError::BadInsertOption("Bad expansion"))?;
        } else if word.eq_ignore_ascii_case(b"NOCREATE") {
            create = false;
        } else if word.eq_ignore_ascii_case(b"NONSCALING") {
            nonscaling = true;
        } else {
            return Err(CommandError::BadInsertOption("Unknown argument received"));
        }
        index += 1;
    }
    if index >= call.len() {
        return Err(CommandError::Arity);
    }
    let family = Settings::family_for(if nonscaling { 0 } else { expansion });
    Ok(Insertion { spec: Spec { family, ..Spec::fixed(size, rate) }, create, first_item: index })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_the_server_reads_them() {
        for (text, value) in [("0", 0), ("-5", -5), ("100", 100), ("9223372036854775807", i64::MAX)] {
            assert_eq!(integer(text.as_bytes()), Some(value));
        }
        for text in ["", "-", "+1", "01", "-0", " 1", "1 ", "1.5", "1e3", "0x10", "9223372036854775808", "abc"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn error_rates_have_redisblooms_refusals() {
        assert_eq!(error_rate(b"1e-3"), Ok(0.001));
        for text in ["0", "1", "-1", "inf", "-inf"] {
            assert_eq!(error_rate(text.as_bytes()), Err(CommandError::ErrorRateRange), "{text}");
        }
        for text in ["nan", "abc", "", "0.1x"] {
            assert_eq!(error_rate(text.as_bytes()), Err(CommandError::BadErrorRate), "{text}");
        }
        assert_eq!(error_rate(b"1e-13"), Err(CommandError::ErrorRateTooSmall));
    }

    #[test]
    fn what_a_client_sent_is_quoted_in_print() {
        assert_eq!(printable(b"a\r\n%s\0\xff"), "a\\r\\n%s\\x00\\xff");
        assert_eq!(printable(&[b'x'; 100]).chars().count(), 65);
    }
}
