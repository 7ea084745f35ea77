//! Describes a filter in memory as a server would describe it in BF.STATS or CF.STATS.

use bloomery::{Filter, Summary};

/// Describes the filter. A window is described as of its newest generation. Sizes are bytes of the cells.
pub(crate) fn describe(filter: &Filter) -> Summary {
    let mut summary = filter.summary(0);
    summary.size = filter.live().map_or(filter.bytes(), |live| live.bytes());
    summary.next_rotation_ms = None;
    if let (Filter::Rebuild(running), Some(rebuild)) = (filter, &mut summary.rebuild) {
        rebuild.size = running.shadow().bytes();
    }
    summary
}
