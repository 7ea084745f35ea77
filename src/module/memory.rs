//! Whether a filter may have the memory that it asks for. Allocation can fail, but the system also hands out address
//! space for which it has no memory, and kills the server when the pages are written.

use super::api::Context;
use crate::command::CommandError;

/// For fewer bytes only the configured limit is checked. To tell how much memory there is, the server writes a section
/// of INFO, which would be most of the cost of creating a small filter.
const CHECKED_FROM: u64 = 1 << 20;

/// Allows or refuses `more` bytes to a filter that will then have `total` bytes.
pub(super) fn admit(ctx: Context<'_>, limit: u64, total: u64, more: u64) -> Result<(), CommandError> {
    let refuse = |bytes, bound, name| Err(CommandError::Memory { bytes, bound: Some((bound, name)) });
    if limit > 0 && total > limit {
        return refuse(total, limit, "max-filter-bytes");
    }
    if more < CHECKED_FROM {
        return Ok(());
    }
    let [system, maxmemory, used] =
        ctx.info(c"memory", [c"total_system_memory", c"maxmemory", c"used_memory"]);
    if let Some(system) = system.filter(|system| *system > 0 && total > *system) {
        return refuse(total, system, "the memory of this machine");
    }
    if let Some(maxmemory) = maxmemory.filter(|max| *max > 0) {
        if total > maxmemory {
            return refuse(total, maxmemory, "maxmemory");
        }
        // Under the other policies the server makes room by evicting other keys.
        let evicts = !ctx.info_is(c"memory", c"maxmemory_policy", "noeviction");
        let left = maxmemory.saturating_sub(used.unwrap_or(0));
        if !evicts && more > left {
            return refuse(more, left, "what maxmemory leaves");
        }
    }
    Ok(())
}
