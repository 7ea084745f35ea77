//! Creating Bloom filters, and replicating how they were created.

use crate::call::{Call, Effect, Key};
use crate::error::CommandError;
use crate::grow::admit_new;
use crate::options;
use crate::options::bloom::New;
use crate::options::foreign::ForeignReservation;
use bloomery::filter::foreign::{ChainSpec, Growth, Link, LinkSpec, ValkeySpec};
use bloomery::filter::{Bloom, Filter, Foreign};
use bloomery::params::{Family, Spec};

/// Creates a Bloom filter in an opened, empty key, and replicates its creation with every parameter. Generation 0 of a
/// window begins at `since_ms`, or now.
pub(super) fn create<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    spec: Spec,
    since_ms: Option<u64>,
) -> Result<(), CommandError> {
    // A window without a period doesn't use the time, so replicas don't get it.
    let timed = matches!(spec.family, Family::Window { every_ms: 1.., .. });
    let since_ms = if timed { since_ms.unwrap_or_else(|| call.now_ms()) } else { 0 };
    let filter = Bloom::new_admitted(spec, since_ms, |bytes| admit_new(call, bytes, bytes))?;
    key.create(filter.into());
    call.replicate(Effect::Creation("bf.reserve", &|| options::bloom::creation(&spec, since_ms, true)));
    call.changed(c"bf.reserve");
    Ok(())
}

/// Creates the filter for an add to a missing key.
#[inline(never)]
pub(super) fn create_new<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    new: New,
) -> Result<(), CommandError> {
    match new {
        New::Bloomery(spec) => {
            let seed = call.new_seed(spec.hash)?;
            create(call, key, Spec { seed, ..spec }, None)
        }
        New::RedisBloom(spec) => create_chain(call, key, &spec),
        New::ValkeyBloom(spec) => create_valkey_chain(call, key, &spec),
    }
}

/// Creates a RedisBloom chain, as this server's primary has done. The creation is replicated because this server may
/// have replicas and an append-only file of its own.
pub(super) fn create_chain<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    spec: &ChainSpec,
) -> Result<(), CommandError> {
    let filter = Foreign::redisbloom(spec)?;
    call.replicate(Effect::Arguments("bf.reserve", options::redisbloom::creation(spec)));
    key.create(Filter::Foreign(Box::new(filter)));
    call.changed(c"bf.reserve");
    Ok(())
}

/// Creates a valkey-bloom chain.
fn create_valkey_chain<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    spec: &ValkeySpec,
) -> Result<(), CommandError> {
    let bytes = spec.first_link().ok_or(CommandError::TooLargeForScheme)?.bytes;
    admit_new(call, bytes, bytes)?;
    let filter = Foreign::valkey_bloom(spec)?;
    call.replicate(Effect::Arguments("bf.insert", options::valkey_bloom::creation(spec)));
    key.create(Filter::Foreign(Box::new(filter)));
    call.changed(c"bf.reserve");
    Ok(())
}

/// Creates an empty filter of another system.
pub(super) fn create_foreign<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key<Filter>,
    reservation: ForeignReservation,
) -> Result<(), CommandError> {
    let ForeignReservation { scheme, encoding, error_rate, capacity, creation } = reservation;
    let spec = LinkSpec::reserved(&scheme, error_rate, capacity).ok_or(CommandError::TooLargeForScheme)?;
    admit_new(call, spec.bytes, spec.bytes)?;
    let filter = Foreign::new(scheme, encoding, Growth::Bitmap, vec![Link::empty(spec)?])?;
    call.replicate(Effect::Arguments("bf.reserve", creation));
    key.create(Filter::Foreign(Box::new(filter)));
    call.changed(c"bf.reserve");
    Ok(())
}
