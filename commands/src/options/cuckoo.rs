//! Options of CF.RESERVE and CF.INSERT. The number of buckets in the first sub-filter is the capacity divided by the
//! bucket size, rounded down to a whole number and then up to a power of two. An expansion is also rounded up to a
//! power of two.

use super::{Arguments, choice, integer, printable, seed, upper};
use crate::call::{Call, Words};
use crate::config::Settings;
use crate::error::CommandError;
use bloomery::filter::{CuckooSpec, Origin};
use bloomery::hash::{HashKind, Seed};
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
    let mut spec = default_spec(&call.settings());
    let mut seed_digits = None;
    let mut words = Arguments { call, next: 3 };
    while let (Some(word), Some(value)) = (words.next(), words.next()) {
        match upper(word).as_slice() {
            b"BUCKETSIZE" => {
                let slots = integer(value).ok_or(refuse("Couldn't parse BUCKETSIZE"))?;
                let most = if call.is_from_primary() { u8::MAX } else { call.settings().max_bucket_size() };
                let slots = u8::try_from(slots).ok().filter(|slots| (1..=most).contains(slots));
                spec.bucket_size = slots.ok_or(CommandError::BucketSizeRange { most })?;
            }
            b"MAXITERATIONS" => {
                let moves = integer(value).ok_or(refuse("Couldn't parse MAXITERATIONS"))?;
                spec.max_iterations = u16::try_from(moves)
                    .ok()
                    .filter(|moves| *moves > 0)
                    .ok_or(refuse("MAXITERATIONS: value must be in the range [1, 65535]"))?;
            }
            b"EXPANSION" => {
                let expansion = integer(value).ok_or(refuse("Couldn't parse EXPANSION"))?;
                let expansion = u32::try_from(expansion).ok().filter(|e| *e <= limits::MAX_EXPANSION);
                spec.expansion = CuckooSpec::expansion_for(
                    expansion.ok_or(refuse("EXPANSION: value must be in the range [0, 32768]"))?,
                );
            }
            b"HASH" => {
                let expected = CommandError::BadOption { option: "HASH", expected: "XXH3 or SIPHASH" };
                spec.hash = choice(value).ok_or(expected)?;
            }
            b"SEED" => seed_digits = Some(value),
            _ => return Err(CommandError::UnknownOption(printable(word))),
        }
    }
    spec.capacity = capacity_for(capacity, spec.bucket_size)
        .ok_or(refuse("Capacity must be in the range [2 * BUCKETSIZE, 1073741824]"))?;
    if spec.capacity > limits::MAX_CAPACITY {
        return Err(CommandError::CapacityTooLarge);
    }
    match seed_digits {
        Some(hex) => Ok(CuckooSpec { seed: seed(hex, spec.hash)?, ..spec }),
        None => Ok(spec.with_random_seed()?),
    }
}

/// The number of items as a capacity, if it is at least the number of slots in two buckets. Callers check the upper
/// limit.
fn capacity_for(items: i64, bucket_size: u8) -> Option<u64> {
    u64::try_from(items).ok().filter(|items| *items >= u64::from(bucket_size).saturating_mul(2))
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

/// The filter that an add to a missing key creates, without its seed. Bloomery replicates a filter's creation before
/// its first items, so a primary that sends an add to a missing key runs RedisBloom. For such an
/// add, this server uses its own configuration, as RedisBloom's replicas do.
pub(crate) fn new_filter<'a, C: Call<'a>>(call: &C) -> CuckooSpec {
    let origin = if call.is_from_primary() { Origin::RedisBloom } else { Origin::Bloomery };
    CuckooSpec { origin, ..default_spec(&call.settings()) }
}

/// Gives the spec of a native filter a random seed. RedisBloom's filters have no seed.
pub(crate) fn seeded(spec: CuckooSpec) -> Result<CuckooSpec, CommandError> {
    if spec.origin == Origin::Bloomery { Ok(spec.with_random_seed()?) } else { Ok(spec) }
}

/// The arguments after the key with which CF.RESERVE creates a filter of this spec on any server, whatever its
/// configuration.
pub(crate) fn creation(spec: &CuckooSpec) -> Words {
    let CuckooSpec { capacity, bucket_size, max_iterations, expansion, .. } = spec;
    let hash = match spec.origin {
        Origin::Bloomery => format!("{} SEED {:x}", spec.hash.as_str(), u128::from(spec.seed)),
        _ => "REDISBLOOM".into(),
    };
    let words = format!(
        "{capacity} BUCKETSIZE {bucket_size} MAXITERATIONS {max_iterations} EXPANSION {expansion} HASH {hash}"
    );
    words.split(' ').map(Vec::from).collect()
}

/// The options of a CF.INSERT or CF.INSERTNX, checked.
pub(crate) struct Insertion {
    /// Capacity of the filter that a missing key gets, if the command specifies one.
    pub(crate) capacity: Option<u64>,
    pub(crate) create: bool,
    /// The index of the first item among the arguments.
    pub(crate) first_item: usize,
}

impl Insertion {
    /// The filter that a missing key gets.
    pub(crate) fn spec<'a, C: Call<'a>>(&self, call: &C) -> Result<CuckooSpec, CommandError> {
        let spec = new_filter(call);
        // The primary's buckets may be smaller than those configured here, so the capacity that it sends may be less
        // than two of ours hold.
        let least = u64::from(spec.bucket_size).saturating_mul(2);
        seeded(CuckooSpec { capacity: self.capacity.unwrap_or(spec.capacity).max(least), ..spec })
    }
}

/// `CF.INSERT key [CAPACITY c] [NOCREATE] ITEMS item…`. Options are checked even if the key exists.
pub(crate) fn insertion<'a, C: Call<'a>>(call: &C) -> Result<Insertion, CommandError> {
    let (mut capacity, mut create) = (None, true);
    let mut words = Arguments { call, next: 2 };
    loop {
        // Without ITEMS, there are too few arguments.
        let word = words.next().ok_or(CommandError::Arity)?;
        if word.eq_ignore_ascii_case(b"ITEMS") {
            break;
        } else if word.eq_ignore_ascii_case(b"CAPACITY") {
            let items = integer(words.next().ok_or(CommandError::Arity)?).ok_or(BAD_CAPACITY)?;
            let items = capacity_for(items, call.settings().bucket_size())
                .ok_or(refuse("Capacity must be in the range [cf-bucket-size * 2, 1073741824]"))?;
            capacity = Some(items);
        } else if word.eq_ignore_ascii_case(b"NOCREATE") {
            create = false;
        } else {
            return Err(refuse("Unknown argument received"));
        }
    }
    if words.peek().is_none() {
        return Err(CommandError::Arity);
    }
    if capacity.is_some_and(|capacity| capacity > limits::MAX_CAPACITY) {
        return Err(CommandError::CapacityTooLarge);
    }
    Ok(Insertion { capacity, create, first_item: words.next })
}
