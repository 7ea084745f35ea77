//! Options of BF.RESERVE, BF.INSERT and BF.REBUILD.

use super::valkey_bloom::Dialect;
use super::{Arguments, bad, integer, may_create, number, printable, seed, upper};
use crate::call::{Access, BloomKey, Call, Words};
use crate::config::{Settings, bytes};
use crate::error::CommandError;
use crate::metrics::SIZES_REFUSED;
use bloomery::Error;
use bloomery::filter::foreign::{ChainSpec, Growth, ValkeySpec};
use bloomery::filter::{Bloom, Filter, Foreign, LiveRef, Window};
use bloomery::hash::{HashKind, Seed};
use bloomery::options::{
    self, BLOOM, GENERATIONS, INSERT, Kind, NONSCALING_EXPANDS, OptionRow, Options, Value,
};
use bloomery::params::{Cell, Family, Layout, Overflow, SIZES, STATIC_ALONE, Spec, Tightening, limits};
use std::mem;

/// Parses an error rate, with BF.RESERVE's error texts.
pub(super) fn error_rate(bytes: &[u8]) -> Result<f64, CommandError> {
    let rate = number(bytes).ok_or(CommandError::BadErrorRate)?;
    if !(rate > 0.0 && rate < 1.0) {
        return Err(CommandError::ErrorRateRange);
    }
    if rate < limits::MIN_ERROR_RATE { Err(CommandError::ErrorRateTooSmall) } else { Ok(rate) }
}

/// Parses a capacity, with BF.RESERVE's error texts. In practice, memory is exhausted well below
/// [`limits::MAX_CAPACITY`].
pub(super) fn capacity(bytes: &[u8]) -> Result<u64, CommandError> {
    let capacity = integer(bytes).ok_or(CommandError::BadCapacity)?;
    let capacity =
        u64::try_from(capacity).ok().filter(|items| *items > 0).ok_or(CommandError::CapacityRange)?;
    if capacity > limits::MAX_CAPACITY { Err(CommandError::CapacityTooLarge) } else { Ok(capacity) }
}

/// How large BF.RESERVE asks a filter to be.
#[derive(Clone, Copy)]
enum Size {
    /// 0: for a filter that needn't be told.
    Any,
    Items(u64),
    /// A number of bytes with a unit.
    Bytes(u64),
}

impl Size {
    fn parse(word: &[u8]) -> Result<Size, CommandError> {
        let has_unit = word.last().is_some_and(|last| last.eq_ignore_ascii_case(&b'b'));
        match str::from_utf8(word).ok().filter(|_| has_unit).and_then(bytes) {
            Some(bytes) => Ok(Size::Bytes(bytes)),
            None if word == b"0" => Ok(Size::Any),
            None => capacity(word).map(Size::Items),
        }
    }

    fn items(self) -> Option<u64> {
        if let Size::Items(items) = self { Some(items) } else { None }
    }
}

/// The filter that BF.RESERVE or BF.REBUILD BEGIN requests.
pub(crate) struct Reservation {
    pub(crate) spec: Spec,
    /// When a window's generation 0 begins, in Unix milliseconds. `None` means the current time.
    pub(crate) since_ms: Option<u64>,
}

/// `BF.RESERVE key error_rate capacity [option…]`.
pub(crate) fn reservation<'a, C: Call<'a>>(call: &C) -> Result<Reservation, CommandError> {
    let rate = error_rate(call.arg(2))?;
    let size = Size::parse(call.arg(3))?;
    let mut other = None;
    let options = reserve_options(Arguments { call, next: 4 }, |word, words| {
        if word == b"LIKE" {
            other = Some(words.next);
            words.value("LIKE", "the key of a filter", Some)?;
            if words.call.argc() != 6 {
                return Err(CommandError::Exclusive(
                    "LIKE copies every option of the other filter, so no other options can be given",
                ));
            }
        }
        Ok(word == b"LIKE")
    })?;
    if let Some(index) = other {
        // A table that was created with capacity 0 has capacity 1, and so may another filter.
        let capacity = if let Size::Any = size { Some(1) } else { size.items() };
        return like(call, index, rate, capacity.ok_or(CommandError::CapacityRange)?);
    }
    refuse_static(options.layout.flatten())?;
    let Kind { family, layout, steps } = kind(&options, None, call.settings())?;
    let hash = options.hash.unwrap_or_default();
    let spec = Spec {
        capacity: steps.capacity(size.items().unwrap_or(1)),
        error_rate: rate,
        seed: seed_or_random(call, &options, hash)?,
        shards: options.shards.unwrap_or(1),
        hash,
        layout,
        cell: options.counting.unwrap_or(Cell::Bit),
        family,
    };
    let spec = match size {
        Size::Bytes(bytes) => spec.within(bytes).map_err(|why| match why {
            Error::Capacity(_) => CommandError::TooFewBytes,
            why => why.into(),
        })?,
        // A table that grows takes the capacity only as a hint.
        Size::Any if !(spec.is_table() && spec.grows()) => return Err(CommandError::CapacityRange),
        _ => spec,
    };
    Ok(Reservation { spec, since_ms: options.since_ms })
}

/// The kind of filter that the options describe.
fn kind(options: &Options, otherwise: Option<Layout>, settings: Settings) -> Result<Kind, CommandError> {
    options.kind(otherwise, settings.expansion).map_err(|why| match why {
        Error::Exclusive(NONSCALING_EXPANDS) => CommandError::NonscalingExpands,
        Error::Expansion(_) => CommandError::ExpansionRange,
        Error::Generations(_) => bad("WINDOW", GENERATIONS),
        why => why.into(),
    })
}

/// Refuses to create an empty filter of a static layout, because it would stay empty.
fn refuse_static(layout: Option<Layout>) -> Result<(), CommandError> {
    if !layout.is_some_and(Layout::is_built) {
        return Ok(());
    }
    Err(CommandError::Exclusive(
        "a static filter is built from all its items at once: BF.REBUILD key BEGIN LAYOUT FUSE or RIBBON, then \
         ADD and COMMIT",
    ))
}

fn seed_or_random<'a, C: Call<'a>>(
    call: &C,
    options: &Options,
    hash: HashKind,
) -> Result<Seed, CommandError> {
    match &options.seed {
        Some(hex) => seed(hex.as_bytes(), hash),
        None => Ok(call.new_seed(hash)?),
    }
}

/// What an add to a missing key creates.
pub(crate) enum New {
    /// A filter of ours. It gets a random seed. If it is a window, its generation 0 begins now.
    Bloomery(Spec),
    /// A RedisBloom filter, on a server that obeys a RedisBloom server.
    RedisBloom(ChainSpec),
    /// A valkey-bloom filter. Only valkey-bloom hashes with a seed of 32 bytes.
    ValkeyBloom(ValkeySpec),
}

/// The filter that an add to a missing key creates. Bloomery replicates a filter's creation before its first items, so
/// a primary that sends an add to a missing key runs RedisBloom. For such an add, this server uses its own
/// configuration, as RedisBloom's replicas do.
pub(crate) fn new_filter<'a, C: Call<'a>>(call: &C) -> Result<New, CommandError> {
    may_create(call, &Options::default(), RESERVE)?;
    let settings = call.settings();
    if call.is_from_primary() {
        if SIZES_REFUSED.get() > 0 {
            return Err(CommandError::OtherSizes(None)); // the key may be missing because its creation was refused
        }
        return Ok(New::RedisBloom(default_chain(&settings)));
    }
    let family = Settings::family_for(settings.expansion);
    Ok(New::Bloomery(Spec { family, ..Spec::fixed(settings.initial_size, settings.error_rate) }))
}

/// The command that creates a filter.
const RESERVE: &str = "BF.RESERVE key error_rate capacity";

/// The chain that RedisBloom creates for an add to a missing key.
pub(super) fn default_chain(settings: &Settings) -> ChainSpec {
    ChainSpec {
        capacity: settings.initial_size,
        error_rate: settings.error_rate,
        growth: settings.expansion,
        scales: settings.expansion > 0,
    }
}

/// Reads the options. Each word is first passed to `own`, which reads the options that only the running command has.
/// `own` returns whether the word was one of them.
fn reserve_options<'a, 'c, C: Call<'a>>(
    mut words: Arguments<'c, C>,
    mut own: impl FnMut(&[u8], &mut Arguments<'c, C>) -> Result<bool, CommandError>,
) -> Result<Options, CommandError> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        if own(&upper(word), &mut words)? {
            continue;
        }
        if word.eq_ignore_ascii_case(b"SCHEME") {
            return Err(CommandError::Exclusive(
                "SCHEME follows the capacity, and none of our options goes with it: the filter is another system's",
            ));
        }
        let row = options::find(BLOOM, word).ok_or_else(|| CommandError::UnknownOption(printable(word)))?;
        read(row, &mut options, &mut words)?;
    }
    // What a primary or an append-only file creates has a number, unless it is 0.
    let is_from_primary = words.call.is_from_primary();
    let sizes = options.sizes.unwrap_or(if is_from_primary { 0 } else { SIZES });
    if sizes == SIZES {
        return Ok(options);
    }
    if is_from_primary {
        SIZES_REFUSED.add(1);
    }
    Err(CommandError::OtherSizes(Some(sizes)))
}

/// Reads the value of an option.
fn read<'a, C: Call<'a>>(
    row: &OptionRow,
    options: &mut Options,
    words: &mut Arguments<'_, C>,
) -> Result<(), CommandError> {
    let is_expansion = row.word == "EXPANSION";
    let value = match row.value {
        Value::Flag => Some(&b""[..]),
        Value::Numbers { numbers, .. } if words.peek().and_then(integer).is_none() => {
            numbers.first().map(|number| number.as_bytes())
        }
        _ => words.next(),
    };
    if value.is_none() && is_expansion {
        return Err(CommandError::NoExpansion);
    }
    let read = value.and_then(|value| (row.parse)(options, value));
    read.ok_or(if is_expansion { CommandError::BadExpansion } else { bad(row.word, row.expected) })
}

/// `BF.REBUILD key BEGIN [CAPACITY c] [ERROR e] [option…]`: the spec of the shadow. Properties that the options don't
/// specify are the live filter's, as far as they are known, but the seed is random. If any option determines the kind
/// of filter, no part of the kind comes from the live filter. Without CAPACITY, the capacity is the live filter's, or
/// the number of its items if that is larger. Only a rebuild into a static filter may begin in a missing key.
pub(crate) fn shadow<'a, C: Call<'a>>(
    call: &C,
    live: Option<LiveRef<'_>>,
) -> Result<Reservation, CommandError> {
    let (mut rate, mut size) = (None, None);
    let options = reserve_options(Arguments { call, next: 3 }, |word, words| {
        match word {
            b"ERROR" => rate = Some(error_rate(words.next().ok_or(CommandError::BadErrorRate)?)?),
            b"CAPACITY" => size = Some(capacity(words.next().ok_or(CommandError::BadCapacity)?)?),
            b"LIKE" => {
                return Err(CommandError::Exclusive("a rebuild begins with the options of its own filter"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let settings = call.settings();
    let is_named = options.name_a_kind();
    let mut known = match live {
        Some(LiveRef::Bloom(filter)) => Spec { capacity: needed(filter), ..filter.spec() },
        Some(LiveRef::Foreign(filter)) => of_foreign(filter, settings),
        None if options.layout.flatten().is_some_and(Layout::is_built) => {
            Spec::fixed(settings.initial_size, settings.error_rate)
        }
        None => return Err(CommandError::NotFound),
    };
    if is_named && known.is_static() {
        known.layout = None;
    }
    let Kind { family, layout, steps } = kind(&options, known.layout, settings)?;
    let mut spec = Spec {
        capacity: steps.capacity(size.unwrap_or(known.capacity)),
        error_rate: rate.unwrap_or(known.error_rate),
        seed: Seed::default(),
        shards: options.shards.unwrap_or(known.shards),
        hash: options.hash.unwrap_or(known.hash),
        layout,
        cell: if is_named { options.counting.unwrap_or(Cell::Bit) } else { known.cell },
        family: if is_named { family } else { known.family },
    };
    if spec.is_static() {
        if is_named || options.shards.is_some_and(|shards| shards > 1) {
            return Err(CommandError::Exclusive(STATIC_ALONE));
        }
        spec.seed = seed_or_random(call, &options, spec.hash)?;
        return Ok(Reservation { spec: spec.list(), since_ms: None });
    }
    if let (Family::Window { every_ms, .. }, Some(window)) = (spec.family, live.and_then(LiveRef::window)) {
        keep_schedule(&options, every_ms, window)?;
    }
    spec.seed = seed_or_random(call, &options, spec.hash)?;
    Ok(Reservation { spec, since_ms: options.since_ms })
}

/// Refuses a schedule that differs from the window's own.
fn keep_schedule(options: &Options, every_ms: u64, window: &Window) -> Result<(), CommandError> {
    let schedule = window.schedule();
    let names_every = options.every_ms.is_some() || options.ttl_ms.is_some();
    if names_every && every_ms != schedule.every_ms
        || options.since_ms.is_some_and(|given| given != schedule.since_ms)
    {
        return Err(CommandError::Exclusive(
            "a window and its shadow rotate together, so a rebuild keeps EVERY and SINCE; leave them out",
        ));
    }
    Ok(())
}

/// The capacity that a filter should have had: its own, or the number of its items if that is larger.
fn needed(filter: &Bloom) -> u64 {
    match filter.window() {
        // A window's capacity is the capacity of one generation.
        Some(window) => {
            let share = window.span().checked_div(window.layers().len() as u64).unwrap_or(1);
            let layers = window.layers().iter();
            layers
                .map(|layer| at_least(layer.capacity(), layer.items(), layer.estimate()))
                .fold(1, u64::max)
                .div_ceil(share)
        }
        // A table has room for more than its capacity when it has grown.
        None if filter.has_table() => at_least(filter.spec().capacity, filter.items(), filter.estimate()),
        None => at_least(filter.capacity(), filter.items(), filter.estimate()),
    }
}

fn at_least(capacity: u64, items: u64, estimate: u64) -> u64 {
    let needed = if items > capacity { items.max(estimate) } else { capacity };
    needed.clamp(1, limits::MAX_CAPACITY)
}

/// The spec of the native filter that comes closest to another system's filter.
fn of_foreign(filter: &Foreign, settings: Settings) -> Spec {
    let capacity = at_least(filter.capacity(), filter.items(), filter.estimate());
    // A bitmap has no promised error rate, so the rate of a half-full bitmap is used. A bitmap's capacity is also
    // defined as the number of items at which it is half full.
    let half_full = || filter.links().first().map_or(0.5, |link| link.spec().error_rate);
    let error_rate = filter.error_rate().unwrap_or_else(half_full).clamp(limits::MIN_ERROR_RATE, 0.5);
    let takes_all = filter.growth() == Growth::Bitmap;
    let family = match filter.expansion() {
        // In a RedisBloom chain that may grow, expansion 0 means RedisBloom's default, 2.
        Some(0) => Settings::family_for(2),
        Some(expansion) => Settings::family_for(expansion.min(limits::MAX_EXPANSION)),
        // A bitmap refuses no items, so its replacement must not refuse any either.
        None if takes_all && settings.expansion == 0 => Settings::family_for(Settings::default().expansion),
        None if takes_all => Settings::family_for(settings.expansion),
        None => Family::Fixed(Overflow::Error),
    };
    Spec { family, ..Spec::fixed(capacity, error_rate) }
}

/// The spec of another filter, for LIKE. The error rate and the capacity in the command must equal that filter's.
fn like<'a, C: Call<'a>>(
    call: &C,
    index: usize,
    error_rate: f64,
    capacity: u64,
) -> Result<Reservation, CommandError> {
    let key = call.open::<Filter>(index, Access::Read);
    let other = key.bloom()?.ok_or(CommandError::LikeNotFound)?.bloom().ok_or(CommandError::NotNative)?;
    let spec = other.spec();
    refuse_static(spec.layout)?;
    if (spec.error_rate, spec.capacity) != (error_rate, capacity) {
        return Err(CommandError::LikeDiffers { error_rate: spec.error_rate, capacity: spec.capacity });
    }
    let since_ms = other.window().map(|window| window.schedule().since_ms);
    Ok(Reservation { spec, since_ms })
}

/// The arguments after the key with which BF.RESERVE creates a filter of this spec on any server, whatever its
/// configuration. With `leave_out`, SHARDS, LAYOUT and HASH are left out if they have BF.RESERVE's defaults, which
/// don't depend on the configuration. A BF.REBUILD can't leave them out, because its defaults are the live filter's
/// values.
pub(crate) fn creation(spec: &Spec, since_ms: u64, leave_out: bool) -> Words {
    let usual = if leave_out { Options::usual() } else { Options::default() };
    let options = Options::of(spec, since_ms).words_unlike(&usual, BLOOM);
    let words = [spec.error_rate.to_string(), spec.capacity.to_string()].into_iter().chain(options);
    words.map(String::into_bytes).collect()
}

/// The options of a BF.INSERT, checked and combined.
pub(crate) struct Insertion {
    pub(crate) new: New,
    /// Whether the filter may be created, or why not.
    pub(crate) may_create: Result<(), CommandError>,
    /// The capacity that a newly created filter must be able to reach.
    pub(crate) scale_to: Option<u64>,
    /// The index of the first item among the arguments.
    pub(crate) first_item: usize,
}

/// `BF.INSERT key [CAPACITY c] [ERROR e] [EXPANSION x] [NOCREATE] [NONSCALING] [TTL ms [STEPS n]] ITEMS item…`. As in
/// RedisBloom, if an option is repeated, the last one wins, and options are checked even if the key exists. If one of
/// valkey-bloom's options is given (`[TIGHTENING r] [SEED bytes] [VALIDATESCALETO n]`), ITEMS may be missing.
pub(crate) fn insertion<'a, C: Call<'a>>(call: &C) -> Result<Insertion, CommandError> {
    let settings = call.settings();
    let (mut options, mut dialect) = (Options::default(), Dialect::default());
    let mut words = Arguments { call, next: 2 };
    loop {
        let Some(word) = words.next() else {
            // Without ITEMS, there are too few arguments.
            if dialect.is_spoken() { break } else { return Err(CommandError::Arity) }
        };
        let word = upper(word);
        if word.as_slice() == b"ITEMS" {
            if words.peek().is_none() { return Err(CommandError::Arity) } else { break }
        } else if dialect.read(&word, &mut words)? {
            continue;
        }
        let row =
            options::find(INSERT, &word).ok_or(CommandError::RedisBloom("Unknown argument received"))?;
        read_for_insert(row, &mut options, &mut words)?;
    }
    let rate = options.error_rate.unwrap_or(settings.error_rate);
    let size = options.capacity.unwrap_or(settings.initial_size);
    let expansion = options.expansion.and_then(|expansion| u32::try_from(expansion).ok());
    // Other than in BF.RESERVE, NONSCALING goes with EXPANSION, and with TTL.
    let nonscaling = mem::take(&mut options.nonscaling);
    let expansion = if nonscaling { 0 } else { expansion.unwrap_or(settings.expansion) };
    if dialect.scale_to.is_some() && expansion == 0 {
        return Err(CommandError::ValkeyBloom(
            "ERR cannot use NONSCALING and VALIDATESCALETO options together",
        ));
    }
    let Kind { family, layout, steps } = kind(&options, None, settings)?;
    let new = match options.ttl_ms {
        Some(_) if dialect.is_spoken() => {
            return Err(CommandError::Exclusive(
                "TTL creates a window, so TIGHTENING, SEED and VALIDATESCALETO cannot be given",
            ));
        }
        Some(_) => New::Bloomery(Spec { family, layout, ..Spec::fixed(steps.capacity(size), rate) }),
        None => match dialect.spec(size, rate, expansion) {
            Some(spec) => New::ValkeyBloom(spec),
            None => {
                let family = match (Settings::family_for(expansion), dialect.tightening) {
                    (Family::Scaling { expansion, .. }, Some(ratio)) => {
                        Family::Scaling { expansion, tightening: Tightening::geometric(ratio)? }
                    }
                    (family, _) => family,
                };
                New::Bloomery(Spec { family, ..Spec::fixed(size, rate) })
            }
        },
    };
    let may_create = may_create(call, &options, RESERVE);
    Ok(Insertion { new, may_create, scale_to: dialect.scale_to, first_item: words.next })
}

/// Reads the value of an option of BF.INSERT. RedisBloom refuses a value in other words than those of BF.RESERVE.
fn read_for_insert<'a, C: Call<'a>>(
    row: &OptionRow,
    options: &mut Options,
    words: &mut Arguments<'_, C>,
) -> Result<(), CommandError> {
    let why = match row.word {
        "CAPACITY" => "Bad capacity",
        "ERROR" => "Bad error rate",
        "EXPANSION" => "Bad expansion",
        _ => return read(row, options, words),
    };
    let value = words.next().ok_or(CommandError::Arity)?;
    row.read(options, value).ok_or(CommandError::RedisBloom(why))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
