//! Memory for new filters, and adds that make a filter grow.

use super::call::Call;
use super::error::CommandError;
use crate::config::Settings;
use crate::metrics::ADDS_REFUSED;
use bloomery::Error;
use bloomery::filter::{Added, Bloom, Grow, LiveRef, Refusal};

/// The creation of filters and sub-filters of at least this many bytes is timed, because the server may have to be
/// asked how much memory the machine has, which takes 100 to 600 µs.
const LONG_TO_CREATE: u64 = 1 << 20;

/// Checks whether a new filter of `more` bytes may be created in a key whose filters then occupy `total` bytes
/// together. A replica doesn't check, because it has to create what its primary has created.
pub(super) fn admit_new<'a, C: Call<'a>>(call: &C, total: u64, more: u64) -> Result<(), CommandError> {
    if more >= LONG_TO_CREATE {
        call.may_be_long();
    }
    if call.is_from_primary() { Ok(()) } else { call.admit(total, more) }
}

/// Checks a new filter against the limits for one filter and for its tenant. A table counts as large as its capacity
/// needs, although it doesn't need this memory yet.
pub(super) fn admit_reserved<'a, C: Call<'a>>(call: &C, bytes: u64) -> Result<(), CommandError> {
    if call.is_from_primary() { Ok(()) } else { call.admit(bytes, 0) }
}

/// The rules for growing a filter in the server, which depend on the kind of filter: limits, and the wording of
/// refusals.
pub(super) trait GrowInServer: Grow {
    /// Whether the configuration allows the filter to grow.
    ///
    /// # Errors
    /// The reason, if it doesn't.
    fn may_grow(&self, settings: &Settings) -> Result<(), CommandError>;

    /// The error that the client gets for a refusal to grow.
    fn refusal(why: CommandError) -> CommandError;

    /// Counts an item that the filter refused.
    fn refuse(&mut self, why: Refusal);

    /// Adds an item to a filter that isn't allowed to grow, if there is still room for the item.
    ///
    /// # Errors
    /// [`Error::Full`].
    fn add_where_room_is(&mut self, _: Self::Item<'_>) -> Result<Added, Error> {
        Err(Error::Full)
    }
}

/// What one command knows about the growth of one filter.
#[derive(Default)]
pub(super) struct Growing {
    /// Bytes of the live filter, if the growing filter is its shadow.
    beside: Option<u64>,
    /// Why the filter may not grow, once this is known. It is remembered because it doesn't change until the command
    /// ends, and finding it out costs more than adding an item. A command may have millions of items that the full
    /// filter refuses.
    refused: Option<CommandError>,
}

impl Growing {
    /// The growth of a shadow beside its live filter. A shadow that is a window doesn't begin generations by
    /// itself.
    pub(super) fn of_shadow(shadow: &Bloom, live: LiveRef<'_>) -> Growing {
        let refused = shadow.forgets_when_full().then_some(CommandError::Full);
        Growing { beside: Some(live.bytes()), refused }
    }
}

/// Adds one item, growing the filter within the memory limits.
#[inline(always)]
pub(super) fn add_one<'a, C: Call<'a>, F: GrowInServer>(
    call: &C,
    filter: &mut F,
    item: F::Item<'_>,
    growing: &mut Growing,
) -> Result<Added, CommandError> {
    match filter.try_add(item) {
        Err(Error::Full) => grow_and_add(call, filter, item, growing),
        result => Ok(result?),
    }
}

/// Adds an item for which there is no room yet.
#[cold]
pub(super) fn grow_and_add<'a, C: Call<'a>, F: GrowInServer>(
    call: &C,
    filter: &mut F,
    item: F::Item<'_>,
    growing: &mut Growing,
) -> Result<Added, CommandError> {
    let why = match &growing.refused {
        Some(why) => match filter.add_where_room_is(item) {
            Ok(done) => return Ok(done),
            Err(_) => why,
        },
        None => match grow(call, filter, growing.beside.unwrap_or(0)) {
            Ok(()) => match filter.try_add(item) {
                // Not remembered, because another item may still have a place.
                Err(Error::Full) => &CommandError::Saturated,
                done => return Ok(done?),
            },
            Err(why) => growing.refused.insert(why),
        },
    };
    // If a shadow refuses an item, the rebuild ends, and the live filter still gets the item.
    if growing.beside.is_none() {
        filter.refuse(why.refusal());
        ADDS_REFUSED.count(why.refusal());
    }
    Err(F::refusal(why.clone()))
}

/// Makes room: adds cells or, in a window, begins a generation.
fn grow<'a, C: Call<'a>, F: GrowInServer>(call: &C, filter: &mut F, beside: u64) -> Result<(), CommandError> {
    let Some(more) = filter.next_bytes()? else { return Err(CommandError::Full) };
    if !call.is_from_primary() && more > 0 {
        filter.may_grow(&call.settings())?;
        call.admit(filter.bytes().saturating_add(more).saturating_add(beside), more)?;
    }
    call.may_be_long();
    filter.grow()?;
    Ok(())
}
