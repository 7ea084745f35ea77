//! Options of BF.RESERVE, BF.INSERT and BF.REBUILD.

use super::valkey_bloom::Dialect;
use super::{Arguments, bad, choice, integer, number, printable, seed, unsigned, upper};
use crate::command::call::{Access, BloomKey, Call, Words};
use crate::command::error::CommandError;
use crate::config::Settings;
use crate::error::Error;
use crate::filter::foreign::{ChainSpec, Growth, ValkeySpec};
use crate::filter::{Bloom, Filter, Foreign, LiveRef, Window};
use crate::hash::{HashKind, Seed};
use crate::params::{Cell, Family, Layout, Overflow, STATIC_ALONE, Spec, Steps, Tightening, limits};
use crate::spelling::spelling;
use std::fmt;

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

const GENERATIONS: &str = "2 to 64 generations, with LAYOUT FINGERPRINT 2 to 1000";

/// The filter that BF.RESERVE or BF.REBUILD BEGIN requests.
pub(in crate::command) struct Reservation {
    pub(in crate::command) spec: Spec,
    /// When a window's generation 0 begins, in Unix milliseconds. `None` means the current time.
    pub(in crate::command) since_ms: Option<u64>,
}

/// The options of BF.RESERVE as written, before they are checked for conflicts.
#[derive(Default)]
struct ReserveOptions<'a> {
    expansion: Option<i64>,
    nonscaling: bool,
    counting: Option<Cell>,
    window: Option<u16>,
    every_ms: Option<u64>,
    since_ms: Option<u64>,
    ttl_ms: Option<u64>,
    steps: Option<Steps>,
    shards: Option<u32>,
    /// The inner `None` is AUTO.
    layout: Option<Option<Layout>>,
    hash: Option<HashKind>,
    seed: Option<&'a [u8]>,
    tightening: Option<Tightening>,
    on_full: Option<OnFull>,
    /// Index of the argument that follows LIKE: the key of the filter whose options are copied.
    like: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnFull {
    Error,
    Saturate,
    Scale,
    Rotate,
}

spelling!(OnFull { Error = "ERROR", Saturate = "SATURATE", Scale = "SCALE", Rotate = "ROTATE" });

/// `BF.RESERVE key error_rate capacity [option…]`.
pub(in crate::command) fn reservation<'a, C: Call<'a>>(call: &C) -> Result<Reservation, CommandError> {
    let rate = error_rate(call.arg(2))?;
    let capacity = capacity(call.arg(3))?;
    let mut options = reserve_options(Arguments { call, next: 4 }, |_, _| Ok(false))?;
    let capacity = options.resolve_ttl()?.capacity(capacity);
    if let Some(index) = options.like {
        return like(call, index, rate, capacity);
    }
    let layout = options.layout_of(None);
    refuse_static(layout)?;
    let hash = options.hash.unwrap_or_default();
    let family = family(&options, layout, call.settings())?;
    let spec = Spec {
        capacity,
        error_rate: rate,
        seed: seed_or_random(options.seed, hash)?,
        shards: options.shards.unwrap_or(1),
        hash,
        layout,
        cell: options.counting.unwrap_or(Cell::Bit),
        family,
    };
    Ok(Reservation { spec, since_ms: options.since_ms })
}

/// The layout that a word names; the inner `None` is AUTO.
fn layout(word: &[u8]) -> Option<Option<Layout>> {
    if word.eq_ignore_ascii_case(Layout::AUTO.as_bytes()) { Some(None) } else { choice(word).map(Some) }
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

fn seed_or_random(hex: Option<&[u8]>, hash: HashKind) -> Result<Seed, CommandError> {
    match hex {
        Some(hex) => seed(hex, hash),
        None => Seed::random(hash).map_err(|_| Error::NoRandomness.into()),
    }
}

/// What an add to a missing key creates.
pub(in crate::command) enum New {
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
pub(in crate::command) fn new_filter<'a, C: Call<'a>>(call: &C) -> New {
    let settings = call.settings();
    if call.is_from_primary() {
        return New::RedisBloom(default_chain(&settings));
    }
    let family = Settings::family_for(settings.expansion);
    New::Bloomery(Spec { family, ..Spec::fixed(settings.initial_size, settings.error_rate) })
}

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
) -> Result<ReserveOptions<'a>, CommandError> {
    let mut options = ReserveOptions::default();
    while let Some(word) = words.next() {
        match upper(word).as_slice() {
            word if own(word, &mut words)? => {}
            b"EXPANSION" => {
                let value = words.next().ok_or(CommandError::NoExpansion)?;
                options.expansion = Some(integer(value).ok_or(CommandError::BadExpansion)?);
            }
            b"NONSCALING" => options.nonscaling = true,
            b"COUNTING" => {
                // The width is optional.
                let width = words.peek().and_then(integer);
                options.counting = Some(match width {
                    None | Some(4) => Cell::Counter4,
                    Some(8) => Cell::Counter8,
                    Some(16) => Cell::Counter16,
                    Some(_) => return Err(bad("COUNTING", "4, 8 or 16 bits per counter")),
                });
                if width.is_some() {
                    words.next();
                }
            }
            b"WINDOW" => {
                let generations = words.value("WINDOW", GENERATIONS, |value| {
                    let generations = u32::try_from(integer(value)?).ok()?;
                    limits::GENERATIONS_IN_TABLE.contains(&generations).then_some(generations)
                });
                options.window = u16::try_from(generations?).ok();
            }
            b"EVERY" => {
                let expected = "the milliseconds between rotations, at least 1";
                options.every_ms =
                    Some(words.value("EVERY", expected, |value| unsigned(value).filter(|ms| *ms > 0))?);
            }
            b"TTL" => options.ttl_ms = Some(ttl_ms(&mut words)?),
            b"STEPS" => options.steps = Some(steps(&mut words)?),
            b"SINCE" => {
                let plausible = |value| unsigned(value).filter(|ms| *ms <= limits::MAX_TIME_MS);
                options.since_ms = Some(words.value("SINCE", "a Unix time in milliseconds", plausible)?);
            }
            b"SHARDS" => {
                options.shards = Some(words.value("SHARDS", "a power of two from 1 to 1024", |value| {
                    let shards = u32::try_from(integer(value)?).ok()?;
                    (shards.is_power_of_two() && shards <= limits::MAX_SHARDS).then_some(shards)
                })?);
            }
            b"LAYOUT" => {
                let expected = "AUTO, BLOCKED, CLASSIC, FINGERPRINT, FUSE, PARTITIONED or RIBBON";
                options.layout = Some(words.value("LAYOUT", expected, layout)?);
            }
            b"HASH" => options.hash = Some(words.value("HASH", "XXH3 or SIPHASH", choice)?),
            b"SEED" => options.seed = Some(words.value("SEED", "hexadecimal digits", Some)?),
            b"TIGHTENING" => {
                let ratio = |value| Tightening::geometric(number(value)?).ok();
                let expected = "a ratio between 0 and 1, both excluded";
                options.tightening = Some(words.value("TIGHTENING", expected, ratio)?);
            }
            b"ONFULL" => {
                options.on_full = Some(words.value("ONFULL", "ERROR, SATURATE, SCALE or ROTATE", choice)?);
            }
            b"SCHEME" => {
                return Err(CommandError::Exclusive(
                    "SCHEME follows the capacity, and none of our options goes with it: the filter is another system's",
                ));
            }
            b"LIKE" => {
                options.like = Some(words.next);
                words.value("LIKE", "the key of a filter", Some)?;
                if words.call.argc() != 6 {
                    return Err(CommandError::Exclusive(
                        "LIKE copies every option of the other filter, so no other options can be given",
                    ));
                }
            }
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    Ok(options)
}

fn ttl_ms<'a, C: Call<'a>>(words: &mut Arguments<'_, C>) -> Result<u64, CommandError> {
    let expected = "the time for which an item is kept, in milliseconds, at least 1";
    words.value("TTL", expected, |value| unsigned(value).filter(|ms| *ms > 0))
}

fn steps<'a, C: Call<'a>>(words: &mut Arguments<'_, C>) -> Result<Steps, CommandError> {
    words.value("STEPS", "1 to 999 steps of a TTL", |value| unsigned(value).and_then(Steps::new))
}

impl ReserveOptions<'_> {
    /// Replaces a TTL with the window that implements it. Returns the TTL's number of steps, or 1 without a TTL.
    fn resolve_ttl(&mut self) -> Result<Steps, CommandError> {
        let Some(ttl_ms) = self.ttl_ms else {
            return match self.steps {
                None => Ok(Steps::ONE),
                Some(_) => Err(CommandError::Exclusive("STEPS belongs to TTL milliseconds")),
            };
        };
        let is_table = self.layout.is_none_or(|layout| layout == Some(Layout::Fingerprint));
        if self.window.is_some() || self.every_ms.is_some() || self.since_ms.is_some() || !is_table {
            return Err(CommandError::Exclusive(
                "TTL creates a window of LAYOUT FINGERPRINT with its own generations, so WINDOW, EVERY, SINCE and other \
                 layouts cannot be given",
            ));
        }
        let steps = self.steps.unwrap_or_default().within(ttl_ms);
        self.every_ms = Some(steps.every_ms(ttl_ms));
        (self.window, self.layout) = (Some(steps.generations()), Some(Some(Layout::Fingerprint)));
        Ok(steps)
    }

    /// The requested layout, or `otherwise` if none is requested. AUTO chooses FINGERPRINT for options that no other
    /// layout supports.
    fn layout_of(&self, otherwise: Option<Layout>) -> Option<Layout> {
        let needs_fingerprints = self.counting.is_some() && self.asks_to_scale()
            || self.window.is_some_and(|generations| !limits::GENERATIONS.contains(&generations.into()))
            || self.on_full == Some(OnFull::Rotate);
        match self.layout.unwrap_or(otherwise) {
            None if needs_fingerprints => Some(Layout::Fingerprint),
            layout => layout,
        }
    }

    /// Whether any option asks for a filter that scales. EXPANSION 0 doesn't: it is RedisBloom's other spelling of
    /// NONSCALING.
    fn asks_to_scale(&self) -> bool {
        self.expansion.is_some_and(|expansion| expansion > 0)
            || self.tightening.is_some()
            || self.on_full == Some(OnFull::Scale)
    }

    /// Whether any option determines the kind of filter.
    fn name_a_kind(&self) -> bool {
        self.expansion.is_some()
            || self.nonscaling
            || self.counting.is_some()
            || self.window.is_some()
            || self.every_ms.is_some()
            || self.since_ms.is_some()
            || self.tightening.is_some()
            || self.on_full.is_some()
    }
}

/// `BF.REBUILD key BEGIN [CAPACITY c] [ERROR e] [option…]`: the spec of the shadow. Properties that the options don't
/// specify are the live filter's, as far as they are known, but the seed is random. If any option determines the kind
/// of filter, no part of the kind comes from the live filter. Without CAPACITY, the capacity is the live filter's, or
/// the number of its items if that is larger. Only a rebuild into a static filter may begin in a missing key.
pub(in crate::command) fn shadow<'a, C: Call<'a>>(
    call: &C,
    live: Option<LiveRef<'_>>,
) -> Result<Reservation, CommandError> {
    let (mut rate, mut size) = (None, None);
    let mut options = reserve_options(Arguments { call, next: 3 }, |word, words| {
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
    let parts = options.resolve_ttl()?;
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
    let layout = options.layout_of(known.layout);
    let mut spec = Spec {
        capacity: parts.capacity(size.unwrap_or(known.capacity)),
        error_rate: rate.unwrap_or(known.error_rate),
        seed: Seed::default(),
        shards: options.shards.unwrap_or(known.shards),
        hash: options.hash.unwrap_or(known.hash),
        layout,
        cell: if is_named { options.counting.unwrap_or(Cell::Bit) } else { known.cell },
        family: if is_named { family(&options, layout, settings)? } else { known.family },
    };
    if spec.is_static() {
        if is_named || options.shards.is_some_and(|shards| shards > 1) {
            return Err(CommandError::Exclusive(STATIC_ALONE));
        }
        spec.seed = seed_or_random(options.seed, spec.hash)?;
        return Ok(Reservation { spec: spec.list(), since_ms: None });
    }
    if let (Family::Window { .. }, Some(window)) = (spec.family, live.and_then(LiveRef::window)) {
        keep_schedule(&options, window)?;
    }
    spec.seed = seed_or_random(options.seed, spec.hash)?;
    Ok(Reservation { spec, since_ms: options.since_ms })
}

/// Refuses a schedule that differs from the window's own.
fn keep_schedule(options: &ReserveOptions<'_>, window: &Window) -> Result<(), CommandError> {
    let schedule = window.schedule();
    let differs = |given: Option<u64>, own| given.is_some_and(|given| given != own);
    if differs(options.every_ms, schedule.every_ms) || differs(options.since_ms, schedule.since_ms) {
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

/// The family that follows from the options, in this layout.
fn family(
    options: &ReserveOptions<'_>,
    layout: Option<Layout>,
    settings: Settings,
) -> Result<Family, CommandError> {
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
    let asks_to_scale = options.asks_to_scale();
    if asks_to_scale && options.counting.is_some() && layout != Some(Layout::Fingerprint) {
        return Err(CommandError::Exclusive(
            "a filter of counters has a fixed capacity: a delete could not tell which layer holds the item, \
             so COUNTING with EXPANSION, TIGHTENING or ONFULL SCALE needs LAYOUT FINGERPRINT",
        ));
    }
    if asks_to_scale && options.window.is_some() {
        return Err(CommandError::Exclusive(
            "a window's generations have a fixed capacity, so EXPANSION, TIGHTENING and ONFULL SCALE cannot be combined with \
             WINDOW",
        ));
    }
    if let Some(generations) = options.window {
        let is_table = layout == Some(Layout::Fingerprint);
        if !is_table && !limits::GENERATIONS.contains(&generations.into()) {
            return Err(bad("WINDOW", GENERATIONS));
        }
        let overflow = match options.on_full {
            Some(OnFull::Error) => Overflow::Error,
            Some(OnFull::Saturate) => Overflow::Saturate,
            Some(OnFull::Rotate) => Overflow::Rotate,
            // By default, no items are refused: a stream should not stop because one hour was busier than planned. A
            // table has no room beyond its capacity, so it rotates.
            _ if is_table => Overflow::Rotate,
            _ => Overflow::Saturate,
        };
        return Ok(Family::Window { generations, overflow, every_ms: options.every_ms.unwrap_or(0) });
    }
    let fixed = options.nonscaling
        || options.counting.is_some() && !asks_to_scale
        || expansion == Some(0)
        || matches!(options.on_full, Some(OnFull::Error | OnFull::Saturate | OnFull::Rotate));
    let may_scale = expansion.or(Some(settings.expansion)).filter(|e| *e > 0);
    if fixed && asks_to_scale {
        return Err(CommandError::NonscalingExpands);
    }
    match may_scale {
        Some(expansion) if !fixed => Ok(Family::Scaling {
            expansion,
            tightening: options.tightening.unwrap_or(Tightening::INVERSE_SQUARE),
        }),
        None if asks_to_scale => {
            // The options ask for a filter that scales, but the configured expansion is 0: use RedisBloom's default.
            let tightening = options.tightening.unwrap_or(Tightening::INVERSE_SQUARE);
            Ok(Family::Scaling { expansion: Settings::default().expansion, tightening })
        }
        _ => Ok(Family::Fixed(match options.on_full {
            Some(OnFull::Saturate) => Overflow::Saturate,
            Some(OnFull::Rotate) => Overflow::Rotate,
            _ => Overflow::Error,
        })),
    }
}

fn expansion_in_range(value: i64) -> Result<u32, CommandError> {
    u32::try_from(value).ok().filter(|e| *e <= limits::MAX_EXPANSION).ok_or(CommandError::ExpansionRange)
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
pub(in crate::command) fn creation(spec: &Spec, since_ms: u64, leave_out: bool) -> Words {
    let mut words = vec![spec.error_rate.to_string(), spec.capacity.to_string()];
    let mut option = |name: &str, value: &dyn fmt::Display| words.extend([name.into(), value.to_string()]);
    match spec.family {
        // Only a rebuild creates a static filter, and its kind follows from the layout.
        _ if spec.is_static() => {}
        Family::Fixed(overflow) => option("ONFULL", &overflow.as_str()),
        Family::Scaling { expansion, tightening } => {
            option("EXPANSION", &expansion);
            if let Some(ratio) = tightening.ratio() {
                option("TIGHTENING", &ratio);
            }
        }
        Family::Window { generations, overflow, every_ms } => {
            option("WINDOW", &generations);
            option("ONFULL", &overflow.as_str());
            if every_ms > 0 {
                option("EVERY", &every_ms);
                option("SINCE", &since_ms);
            }
        }
    }
    if spec.cell.counts() {
        option("COUNTING", &spec.cell.bits());
    }
    let default = Spec::fixed(spec.capacity, spec.error_rate);
    if !leave_out || spec.shards != default.shards {
        option("SHARDS", &spec.shards);
    }
    if !leave_out || spec.layout != default.layout {
        option("LAYOUT", &spec.layout_word());
    }
    if !leave_out || spec.hash != default.hash {
        option("HASH", &spec.hash.as_str());
    }
    option("SEED", &format_args!("{:x}", u128::from(spec.seed)));
    words.into_iter().map(String::into_bytes).collect()
}

/// The options of a BF.INSERT, checked and combined.
pub(in crate::command) struct Insertion {
    pub(in crate::command) new: New,
    pub(in crate::command) create: bool,
    /// The capacity that a newly created filter must be able to reach.
    pub(in crate::command) scale_to: Option<u64>,
    /// The index of the first item among the arguments.
    pub(in crate::command) first_item: usize,
}

/// `BF.INSERT key [CAPACITY c] [ERROR e] [EXPANSION x] [NOCREATE] [NONSCALING] [TTL ms [STEPS n]] ITEMS item…`. As in
/// RedisBloom, if an option is repeated, the last one wins, and options are checked even if the key exists. If one of
/// valkey-bloom's options is given (`[TIGHTENING r] [SEED bytes] [VALIDATESCALETO n]`), ITEMS may be missing.
pub(in crate::command) fn insertion<'a, C: Call<'a>>(call: &C) -> Result<Insertion, CommandError> {
    let settings = call.settings();
    let (mut rate, mut size) = (settings.error_rate, settings.initial_size);
    let (mut expansion, mut nonscaling, mut create) = (settings.expansion, false, true);
    let (mut aging, mut dialect) = (ReserveOptions::default(), Dialect::default());
    let mut words = Arguments { call, next: 2 };
    loop {
        let Some(word) = words.next() else {
            // Without ITEMS, there are too few arguments.
            if dialect.is_spoken() { break } else { return Err(CommandError::Arity) }
        };
        let refuse = CommandError::RedisBloom;
        match upper(word).as_slice() {
            b"ITEMS" if words.peek().is_none() => return Err(CommandError::Arity),
            b"ITEMS" => break,
            b"CAPACITY" => {
                size =
                    capacity(words.next().ok_or(CommandError::Arity)?).map_err(|_| refuse("Bad capacity"))?;
            }
            b"ERROR" => {
                rate = error_rate(words.next().ok_or(CommandError::Arity)?)
                    .map_err(|_| refuse("Bad error rate"))?;
            }
            b"EXPANSION" => {
                let value = integer(words.next().ok_or(CommandError::Arity)?);
                let value = value.and_then(|value| expansion_in_range(value).ok());
                expansion = value.ok_or(refuse("Bad expansion"))?;
                aging.expansion = Some(expansion.into());
            }
            b"NOCREATE" => create = false,
            b"NONSCALING" => nonscaling = true,
            b"TTL" => aging.ttl_ms = Some(ttl_ms(&mut words)?),
            b"STEPS" => aging.steps = Some(steps(&mut words)?),
            word if dialect.read(word, &mut words)? => {}
            _ => return Err(refuse("Unknown argument received")),
        }
    }
    let expansion = if nonscaling { 0 } else { expansion };
    if dialect.scale_to.is_some() && expansion == 0 {
        return Err(CommandError::ValkeyBloom(
            "ERR cannot use NONSCALING and VALIDATESCALETO options together",
        ));
    }
    let capacity = aging.resolve_ttl()?.capacity(size);
    let new = match aging.layout {
        Some(_) if dialect.is_spoken() => {
            return Err(CommandError::Exclusive(
                "TTL creates a window, so TIGHTENING, SEED and VALIDATESCALETO cannot be given",
            ));
        }
        Some(layout) => {
            let family = family(&aging, layout, settings)?;
            New::Bloomery(Spec { family, layout, ..Spec::fixed(capacity, rate) })
        }
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
    Ok(Insertion { new, create, scale_to: dialect.scale_to, first_item: words.next })
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
