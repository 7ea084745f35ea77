//! Options of CF.RESERVE and CF.INSERT. The number of buckets in the first sub-filter is the capacity divided by the
//! bucket size, rounded down to a whole number and then up to a power of two. An expansion is also rounded up to a
//! power of two.

use super::redisbloom::OWN;
use super::{Arguments, bad, integer, may_create, printable, seed};
use crate::call::{Call, Words};
use crate::config::Settings;
use crate::error::CommandError;
use bloomery::filter::{CuckooSpec, Origin};
use bloomery::hash::{HashKind, Seed};
use bloomery::options::{CUCKOO, CUCKOO_INSERT, Options, Value, find};
use bloomery::params::limits;

/// A refusal in RedisBloom's words.
const fn refuse(text: &'static str) -> CommandError {
    CommandError::RedisBloom(text)
}

const BAD_CAPACITY: CommandError = refuse("Bad capacity");

/// `CF.RESERVE key capacity [BUCKETSIZE b] [MAXITERATIONS m] [EXPANSION e] [HASH h] [SEED s]`.
pub(crate) fn reservation<'a, C: Call<'a>>(call: &C) -> Result<CuckooSpec, CommandError> {
    // Every option has a value, so the number of arguments, including the command's name, is odd.
    if call.argc().is_multiple_of(2) {
        return Err(CommandError::Arity);
    }
    let capacity = integer(call.arg(2)).ok_or(BAD_CAPACITY)?;
    let most_slots = if call.is_from_primary() { u8::MAX } else { call.settings().max_bucket_size() };
    let mut options = Options::default();
    let mut words = Arguments { call, next: 3 };
    while let (Some(option), Some(value)) = (words.next(), words.next()) {
        let row = find(CUCKOO, option).ok_or_else(|| CommandError::UnknownOption(printable(option)))?;
        if let Value::Integer { bounds: (least, most), .. } = row.value {
            let most = if row.word == "BUCKETSIZE" { most_slots.into() } else { most };
            let number = integer(value).ok_or(CommandError::Unparsed { option: row.word })?;
            if !u64::try_from(number).is_ok_and(|number| (least..=most).contains(&number)) {
                return Err(CommandError::OptionRange { option: row.word, least, most });
            }
        }
        (row.parse)(&mut options, value).ok_or(bad(row.word, row.expected))?;
    }
    let mut spec = options.cuckoo(default_spec(&call.settings()));
    let least = u64::from(spec.bucket_size).saturating_mul(2);
    spec.capacity = u64::try_from(capacity)
        .ok()
        .filter(|items| *items >= least)
        .ok_or(refuse("Capacity must be in the range [2 * BUCKETSIZE, 1073741824]"))?;
    if spec.capacity > limits::MAX_CAPACITY {
        return Err(CommandError::CapacityTooLarge);
    }
    match options.seed {
        Some(hex) => Ok(CuckooSpec { seed: seed(hex.as_bytes(), spec.hash)?, ..spec }),
        None => Ok(CuckooSpec { seed: call.new_seed(spec.hash)?, ..spec }),
    }
}

/// The configured parameters of a new filter. It has no seed yet.
fn default_spec(settings: &Settings) -> CuckooSpec {
    CuckooSpec {
        capacity: settings.cuckoo_initial_size,
        bucket_size: settings.bucket_size(),
        max_iterations: settings.cuckoo_max_iterations,
        expansion: CuckooSpec::expansion_for(settings.cuckoo_expansion),
        origin: Origin::Bloomery,
        hash: HashKind::default(),
        seed: Seed::default(),
    }
}

/// The filter that an add to a missing key creates. Bloomery replicates a filter's creation before its first items, so
/// a primary that sends an add to a missing key runs RedisBloom. For such an add, this server uses its own
/// configuration, as RedisBloom's replicas do.
pub(crate) fn new_filter<'a, C: Call<'a>>(call: &C) -> Result<CuckooSpec, CommandError> {
    may_create(call, &Options::default(), RESERVE)?;
    seeded(call, configured(call))
}

/// The command that creates a filter.
const RESERVE: &str = "CF.RESERVE key capacity";

/// The configured parameters of a filter of this server or its primary, without a seed.
pub(super) fn configured<'a, C: Call<'a>>(call: &C) -> CuckooSpec {
    let origin = if call.is_from_primary() { Origin::RedisBloom } else { Origin::Bloomery };
    CuckooSpec { origin, ..default_spec(&call.settings()) }
}

/// Gives the spec of a native filter a random seed. RedisBloom's filters have no seed.
fn seeded<'a, C: Call<'a>>(call: &C, spec: CuckooSpec) -> Result<CuckooSpec, CommandError> {
    let seed = if spec.origin == Origin::Bloomery { call.new_seed(spec.hash)? } else { spec.seed };
    Ok(CuckooSpec { seed, ..spec })
}

/// The arguments after the key with which CF.RESERVE creates a filter of this spec on any server, whatever its
/// configuration.
pub(crate) fn creation(spec: &CuckooSpec) -> Words {
    let foreign = (spec.origin != Origin::Bloomery).then_some(OWN).into_iter().flatten().map(str::to_owned);
    let words = std::iter::once(spec.capacity.to_string()).chain(Options::of_cuckoo(spec).words(CUCKOO));
    words.chain(foreign).map(String::into_bytes).collect()
}

/// The options of a CF.INSERT or CF.INSERTNX, checked.
pub(crate) struct Insertion {
    /// Capacity of the filter that a missing key gets, if the command specifies one.
    pub(crate) capacity: Option<u64>,
    /// Whether the filter may be created, or why not.
    pub(crate) may_create: Result<(), CommandError>,
    /// The index of the first item among the arguments.
    pub(crate) first_item: usize,
}

impl Insertion {
    /// The filter that a missing key gets.
    pub(crate) fn spec<'a, C: Call<'a>>(self, call: &C) -> Result<CuckooSpec, CommandError> {
        self.may_create?;
        let spec = configured(call);
        // The primary's buckets may be smaller than those configured here, so the capacity that it sends may be less
        // than two of ours hold.
        let least = u64::from(spec.bucket_size).saturating_mul(2);
        seeded(call, CuckooSpec { capacity: self.capacity.unwrap_or(spec.capacity).max(least), ..spec })
    }
}

/// `CF.INSERT key [CAPACITY c] [NOCREATE] ITEMS item…`. Options are checked even if the key exists.
pub(crate) fn insertion<'a, C: Call<'a>>(call: &C) -> Result<Insertion, CommandError> {
    let least = i64::from(call.settings().bucket_size()).saturating_mul(2);
    let mut options = Options::default();
    let mut words = Arguments { call, next: 2 };
    loop {
        // Without ITEMS, there are too few arguments.
        let word = words.next().ok_or(CommandError::Arity)?;
        if word.eq_ignore_ascii_case(b"ITEMS") {
            break;
        }
        let row = find(CUCKOO_INSERT, word).ok_or(refuse("Unknown argument received"))?;
        let mut value = &b""[..];
        if matches!(row.value, Value::Integer { .. }) {
            value = words.next().ok_or(CommandError::Arity)?;
            if integer(value).ok_or(BAD_CAPACITY)? < least {
                return Err(refuse("Capacity must be in the range [cf-bucket-size * 2, 1073741824]"));
            }
        }
        (row.parse)(&mut options, value).ok_or(BAD_CAPACITY)?;
    }
    if words.peek().is_none() {
        return Err(CommandError::Arity);
    }
    if options.capacity.is_some_and(|capacity| capacity > limits::MAX_CAPACITY) {
        return Err(CommandError::CapacityTooLarge);
    }
    let may_create = may_create(call, &options, RESERVE);
    Ok(Insertion { capacity: options.capacity, may_create, first_item: words.next })
}
