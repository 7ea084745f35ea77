//! Decides whether a filter may have the memory that it requests. Checking whether an allocation fails isn't enough:
//! the system also hands out address space for which it has no memory, and kills the server when the pages are written.

use super::api::Context;
use bloomery_commands::CommandError;
use bloomery_commands::metrics::PROMISED_BYTES;
use redis_module::raw::{REDISMODULE_CTX_FLAGS_EVICT, REDISMODULE_CTX_FLAGS_MAXMEMORY};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Below this number of bytes, only the configured limit is checked.
const CHECKED_FROM: u64 = 1 << 20;

/// The machine's memory in bytes, or [`UNKNOWN`]. It is kept because reading it makes the server write a section of
/// INFO, which takes 100 to 600 µs. Only the main thread uses this and [`MAXMEMORY`].
static SYSTEM: AtomicU64 = AtomicU64::new(UNKNOWN);

/// The option `maxmemory`, in bytes, or [`UNKNOWN`]. INFO shows it in the same section.
static MAXMEMORY: AtomicU64 = AtomicU64::new(UNKNOWN);

const UNKNOWN: u64 = u64::MAX;

/// Forgets `maxmemory`, which may have changed with the configuration.
pub(super) fn configuration_changed() {
    MAXMEMORY.store(UNKNOWN, Relaxed);
}

/// Allows or refuses `more` bytes for a filter that will then occupy `total` bytes. `may_evict` says whether the filter
/// is in a key, for which the server may evict other keys.
pub(super) fn admit(
    ctx: Context<'_>,
    limit: u64,
    total: u64,
    more: u64,
    may_evict: bool,
) -> Result<(), CommandError> {
    let refuse = |bytes, bound, name| Err(CommandError::Memory { bytes, bound: Some((bound, name)) });
    if limit > 0 && total > limit {
        return refuse(total, limit, "max-filter-bytes");
    }
    if more < CHECKED_FROM {
        return Ok(());
    }
    if MAXMEMORY.load(Relaxed) == UNKNOWN {
        let [system, maxmemory] = ctx.info(c"memory", [c"total_system_memory", c"maxmemory"]);
        SYSTEM.store(system.unwrap_or(0), Relaxed);
        MAXMEMORY.store(maxmemory.unwrap_or(0), Relaxed);
    }
    let (system, maxmemory) = (SYSTEM.load(Relaxed), MAXMEMORY.load(Relaxed));
    if system > 0 && total > system {
        return refuse(total, system, "the memory of this machine");
    }
    // Without the flag `MAXMEMORY`, the limit doesn't apply: a replica can be configured to ignore it.
    let flags = ctx.flags();
    if maxmemory > 0 && flags & REDISMODULE_CTX_FLAGS_MAXMEMORY != 0 {
        if total > maxmemory {
            return refuse(total, maxmemory, "maxmemory");
        }
        // The ratio has a resolution of 6 KiB if `maxmemory` is 100 GiB.
        let free = (1.0 - f64::from(ctx.used_memory_ratio())).clamp(0.0, 1.0);
        #[allow(clippy::cast_possible_truncation, reason = "between 0 and maxmemory")]
        let free = (maxmemory as f64 * free) as u64;
        let left = if may_evict && evicts(ctx) { maxmemory } else { free };
        // Subtracts memory that was granted to other commands, and that they are about to use. While they use it, some
        // of it is counted twice.
        let left = left.saturating_sub(PROMISED_BYTES.get());
        if more > left {
            return refuse(more, left, "what maxmemory leaves");
        }
    }
    Ok(())
}

/// Whether the server makes room by evicting keys.
pub(super) fn evicts(ctx: Context<'_>) -> bool {
    ctx.flags() & REDISMODULE_CTX_FLAGS_EVICT != 0
}
