//! Rebuilds: the shadow of a filter, and the end of a rebuild whose shadow cannot follow.

use crate::call::{BloomKey, Call, Effect, Key};
use crate::error::{CommandError, WithoutPrefix};
use crate::options::printable;
use bloomery::filter::{Filter, Rebuild};

/// The rebuild that is running in a key.
pub(super) fn rebuild_in(key: &impl Key<Filter>) -> Option<&Rebuild> {
    key.value().ok()??.rebuild()
}

/// Ends a rebuild whose shadow cannot follow. Replicates the end, before the effect of the command that the shadow
/// could not follow. Notifies subscribers, writes a line into the log, and remembers the reason for clients that ask
/// later.
///
/// A primary whose shadow couldn't follow would have sent an ABORT first. So if this server obeys a primary, the two
/// now differ: this server lacks memory that the primary has.
#[cold]
pub(super) fn give_up<'a, C: Call<'a>>(call: &C, key: &mut C::Key<Filter>, why: &CommandError) {
    let why = WithoutPrefix(why).to_string();
    if let Some(shadow) = key.convert(Filter::abort_rebuild, Filter::take).flatten() {
        call.discard(shadow.into());
    }
    if let Ok(Some(live)) = key.bloom() {
        live.usage().rebuild_ended(&why);
    }
    call.replicate(Effect::Arguments("bf.rebuild", vec![b"ABORT".to_vec()]));
    call.changed(c"bf.rebuild.abort");
    let name = printable(call.arg(1));
    call.log(&format!("the rebuild of the filter in '{name}' has ended, because items could not be added to its shadow: {why}"));
    if call.is_from_primary() {
        call.diverged(CommandError::ShadowLost(why));
    }
}
