//! The common steps of commands that write: limiting the number of items, creating filters, catching up with the clock,
//! making filters grow, and ending a rebuild whose shadow cannot follow.

use super::call::{Call, Continuation, Effect, Key};
use super::error::{CommandError, WithoutPrefix};
use super::options;
use super::options::bloom::New;
use super::options::foreign::ForeignReservation;
use super::options::printable;
use super::table::Command;
use crate::config::{MIN_ITEMS_LIMIT, Settings};
use crate::error::Error;
use crate::filter::bloom::batch::group_for;
use crate::filter::foreign::{ChainSpec, Growth, Link, LinkSpec, ValkeySpec};
use crate::filter::{
    Added, Bloom, Cuckoo, Due, Filter, Foreign, Garbage, Grow, Live, LiveMut, LiveRef, Rebuild, Schedule,
    Target,
};
use crate::hash::ItemHash;
use crate::params::{Family, Spec};

/// Whether an add tests the item first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Always records the item.
    Add,
    /// Records only absent items.
    AddIfAbsent,
}

/// Refuses a command with more items than one command may have. The limit matters in a transaction or a script, where
/// the server serves no other client while the command runs.
#[inline(always)]
pub(super) fn limit_items<'a, C: Call<'a>>(call: &C, items: usize) -> Result<(), CommandError> {
    if items as u64 > MIN_ITEMS_LIMIT.unsigned_abs() { limit_many(call, items as u64) } else { Ok(()) }
}

#[cold]
fn limit_many<'a, C: Call<'a>>(call: &C, items: u64) -> Result<(), CommandError> {
    match most_items(call) {
        Some(most) if items > most => Err(CommandError::TooManyItems { items, most }),
        _ => Ok(()),
    }
}

/// Maximum number of items in one command, if there is a limit.
pub(super) fn most_items<'a, C: Call<'a>>(call: &C) -> Option<u64> {
    let most = call.settings().max_items_per_command;
    (most > 0 && !call.is_from_primary()).then_some(most)
}

/// Number of Bloom filter items between two readings of the clock. A reading takes 25 ns, and processing the items
/// takes up to 600 µs.
pub(super) const BLOOM_STEP: usize = if cfg!(small_steps) { 1 } else { 32 };

/// Number of items between two readings of the clock if adding an item touches this many cache lines.
pub(super) fn step_for(lines: usize) -> usize {
    group_for(lines).min(BLOOM_STEP)
}

/// Whether a command should end before its item number `done`, and continue later. The clock is read only before every
/// `step`th item.
#[inline(always)]
pub(super) fn should_pause<'a, C: Call<'a>>(call: &C, done: usize, step: usize) -> bool {
    done.is_multiple_of(step) && call.should_pause(done)
}

/// The number of probes per item at which a few dozen items may take a millisecond.
const MANY_PROBES: u64 = 512;

/// Times a command that tests or adds a few items, if that may take long in this filter.
#[inline(always)]
pub(super) fn time_probes<'a, C: Call<'a>>(call: &C, filter: LiveRef<'_>) {
    if filter.probes() > MANY_PROBES {
        call.may_be_long();
    }
}

/// Number of bytes of items between two readings of the clock. Hashing them takes up to 250 µs with the slowest codec.
pub(super) const STEP_BYTES: usize = 1 << 16;

/// Iterates over the items of a command, which are the arguments starting at index `first`, until the command should
/// pause.
#[inline(always)]
pub(super) fn items<'a, C: Call<'a>>(call: &C, first: usize, step: usize) -> impl Iterator<Item = &'a [u8]> {
    let (mut next, mut left, mut bytes) = (first, 0usize, 0usize);
    std::iter::from_fn(move || {
        if next >= call.argc() {
            return None;
        }
        if left == 0 || bytes >= STEP_BYTES {
            (left, bytes) = (step, 0);
            if pauses(call, first, next.saturating_sub(first), step) {
                return None;
            }
        }
        let item = call.arg(next);
        bytes = bytes.saturating_add(item.len());
        next = next.saturating_add(1);
        left = left.saturating_sub(1);
        Some(item)
    })
}

/// Whether a command should end after `done` of its items, which are the arguments starting at index `first`. If so,
/// also makes the command continue later.
///
/// Not inlined: it is called only once per group of items, but if it were inlined, its values would occupy registers
/// while the items are processed.
#[inline(never)]
pub(super) fn pauses<'a, C: Call<'a>>(call: &C, first: usize, done: usize, step: usize) -> bool {
    let of = call.argc().saturating_sub(first);
    let has_many = done > 0 || of > step.min(BLOOM_STEP);
    let pauses = has_many && call.should_pause(done);
    if pauses {
        call.go_on_later(Continuation { first, done, of: Some(of), within: None });
    }
    pauses
}

// ---- creating ------------------------------------------------------------------------------------------------------

/// Creates a Bloom filter in an opened, empty key, and replicates its creation with every parameter. Generation 0 of a
/// window begins at `since_ms`, or now.
pub(super) fn create<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    spec: Spec,
    since_ms: Option<u64>,
) -> Result<(), CommandError> {
    // A window without a period doesn't use the time, so replicas don't get it.
    let timed = matches!(spec.family, Family::Window { every_ms: 1.., .. });
    let since_ms = if timed { since_ms.unwrap_or_else(|| call.now_ms()) } else { 0 };
    let filter = Bloom::new_admitted(spec, since_ms, |bytes| admit_new(call, bytes, bytes))?;
    key.create(filter.into());
    call.replicate(Effect::Creation(Command::Reserve, &|| options::bloom::creation(&spec, since_ms, true)));
    call.changed(c"bf.reserve");
    Ok(())
}

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

/// Creates the filter for an add to a missing key.
#[inline(never)]
pub(super) fn create_new<'a, C: Call<'a>>(call: &C, key: &mut C::Key, new: New) -> Result<(), CommandError> {
    match new {
        New::Bloomery(spec) => create(call, key, spec.with_random_seed()?, None),
        New::RedisBloom(spec) => create_chain(call, key, &spec),
        New::ValkeyBloom(spec) => create_valkey_chain(call, key, &spec),
    }
}

/// Creates a RedisBloom chain, as this server's primary has done. The creation is replicated because this server may
/// have replicas and an append-only file of its own.
pub(super) fn create_chain<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    spec: &ChainSpec,
) -> Result<(), CommandError> {
    let filter = Foreign::redisbloom(spec)?;
    call.replicate(Effect::Arguments(Command::Reserve, options::redisbloom::creation(spec)));
    key.create(Filter::Foreign(Box::new(filter)));
    call.changed(c"bf.reserve");
    Ok(())
}

/// Creates a valkey-bloom chain.
fn create_valkey_chain<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    spec: &ValkeySpec,
) -> Result<(), CommandError> {
    let bytes = spec.first_link().ok_or(CommandError::TooLargeForScheme)?.bytes;
    admit_new(call, bytes, bytes)?;
    let filter = Foreign::valkey_bloom(spec)?;
    call.replicate(Effect::Arguments(Command::Insert, options::valkey_bloom::creation(spec)));
    key.create(Filter::Foreign(Box::new(filter)));
    call.changed(c"bf.reserve");
    Ok(())
}

/// Creates an empty filter of another system.
pub(super) fn create_foreign<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    reservation: ForeignReservation,
) -> Result<(), CommandError> {
    let ForeignReservation { scheme, encoding, error_rate, capacity, creation } = reservation;
    let spec = LinkSpec::reserved(&scheme, error_rate, capacity).ok_or(CommandError::TooLargeForScheme)?;
    admit_new(call, spec.bytes, spec.bytes)?;
    let filter = Foreign::new(scheme, encoding, Growth::Bitmap, vec![Link::empty(spec)?])?;
    call.replicate(Effect::Arguments(Command::Reserve, creation));
    key.create(Filter::Foreign(Box::new(filter)));
    call.changed(c"bf.reserve");
    Ok(())
}

// ---- generations ---------------------------------------------------------------------------------------------------

/// Before a write, carries out what is [`due`] in the windows of a key, and replicates it.
#[inline(always)]
pub(super) fn catch_up<'a, C: Call<'a>>(call: &C, key: &mut C::Key) -> Result<(), CommandError> {
    match key.filter()?.and_then(|filter| due(call, filter)) {
        None => Ok(()),
        Some(due) => catch_up_to(call, key, due),
    }
}

/// What the windows in a filter have to do before a write, according to the clock. A replica and a server that is
/// loading an AOF ignore the clock: commands in the stream or in the file tell them what to do.
#[inline(always)]
pub(super) fn due<'a, C: Call<'a>>(call: &C, filter: &Filter) -> Option<Due> {
    let window = match filter {
        Filter::Bloom(filter) => filter.window(),
        Filter::Rebuild(rebuild) => rebuild.window(),
        Filter::Foreign(_) | Filter::Cuckoo(_) => None,
    }?;
    if window.schedule().every_ms == 0 || call.is_from_primary() {
        return None;
    }
    window.due(call.now_ms())
}

/// Carries out what is [`due`], and replicates it.
#[cold]
pub(super) fn catch_up_to<'a, C: Call<'a>>(call: &C, key: &mut C::Key, due: Due) -> Result<(), CommandError> {
    let (words, event) = match due {
        Due::Rotation(number) => {
            open_generation(call, key, number, false)?;
            (vec![b"AT".to_vec(), number.to_string().into_bytes()], c"bf.rotate")
        }
        Due::Schedule(schedule) => {
            set_schedule(call, key, schedule)?;
            let numbers =
                [schedule.since_ms, schedule.rotations].map(|number| number.to_string().into_bytes());
            ([vec![b"SCHEDULE".to_vec()], numbers.to_vec()].concat(), c"bf.schedule")
        }
    };
    call.replicate(Effect::Arguments(Command::Rotate, words));
    call.changed(event);
    Ok(())
}

/// Makes the windows in a key continue on another schedule.
pub(super) fn set_schedule<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    schedule: Schedule,
) -> Result<(), CommandError> {
    on_each(call, key, |filter| {
        filter.set_schedule(schedule);
        Ok(Garbage::Layers(Vec::new()))
    })
}

/// Begins generation `number` in the filter of a key and in its shadow, if they are windows.
pub(super) fn open_generation<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    number: u64,
    by_hand: bool,
) -> Result<(), CommandError> {
    on_each(call, key, |filter| match filter.window() {
        None => Ok(Vec::new()),
        Some(_) if by_hand => filter.rotate(number),
        Some(_) => filter.advance(number),
    })
}

/// Applies `work` to the native filter in a key and then to its shadow, and frees what they drop. If the filter
/// refuses, nothing changes. If the shadow cannot follow, the rebuild ends.
pub(super) fn on_each<'a, C: Call<'a>, G: Into<Garbage>>(
    call: &C,
    key: &mut C::Key,
    mut work: impl FnMut(&mut Bloom) -> Result<G, Error>,
) -> Result<(), CommandError> {
    let mut run = |filter: &mut Bloom| work(filter).map(|dropped| call.discard(dropped.into()));
    let lost = match key.target()? {
        Some(Target::One(LiveMut::Bloom(filter))) => {
            run(filter)?;
            None
        }
        Some(Target::Both(rebuild)) => {
            let (live, shadow) = rebuild.both_mut();
            if let Live::Bloom(filter) = live {
                run(filter)?;
            }
            run(shadow).err()
        }
        Some(Target::One(LiveMut::Foreign(_))) | None => None,
    };
    if let Some(why) = lost {
        give_up(call, key, &why.into());
    }
    Ok(())
}

// ---- growing -------------------------------------------------------------------------------------------------------

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

    /// Adds an item to a filter that isn't allowed to make room, if there is still room for the item.
    ///
    /// # Errors
    /// [`Error::Full`].
    fn add_where_room_is(&mut self, _: Self::Item<'_>) -> Result<Added, Error> {
        Err(Error::Full)
    }
}

impl GrowInServer for Bloom {
    fn may_grow(&self, _: &Settings) -> Result<(), CommandError> {
        Ok(())
    }

    fn add_where_room_is(&mut self, item: ItemHash) -> Result<Added, Error> {
        self.add_to_any_share(item)
    }

    fn refusal(why: CommandError) -> CommandError {
        match why {
            CommandError::Full => CommandError::Full,
            why => CommandError::CannotGrow(Box::new(why)),
        }
    }
}

impl GrowInServer for Foreign {
    fn may_grow(&self, _: &Settings) -> Result<(), CommandError> {
        Ok(())
    }

    fn refusal(why: CommandError) -> CommandError {
        Bloom::refusal(why)
    }
}

impl GrowInServer for Cuckoo {
    fn may_grow(&self, settings: &Settings) -> Result<(), CommandError> {
        if self.tables().len() < settings.max_tables() { Ok(()) } else { Err(Error::TooManyLayers.into()) }
    }

    fn refusal(why: CommandError) -> CommandError {
        match why {
            CommandError::Full => CommandError::RedisBloom("Filter is full"),
            CommandError::Core(Error::TooManyLayers) => {
                CommandError::RedisBloom("Maximum expansions reached")
            }
            why => why,
        }
    }
}

/// What one command knows about the growth of one filter.
#[derive(Default)]
pub(super) struct Growing {
    /// Bytes of the live filter, if the growing filter is its shadow; otherwise 0.
    beside: u64,
    /// Why the filter may not grow, once this is known. It is remembered because it doesn't change until the command
    /// ends, and finding it out costs more than adding an item. A command may have millions of items that the full
    /// filter refuses.
    refused: Option<CommandError>,
}

impl Growing {
    /// The growth of a shadow beside its live filter. A shadow that is a window doesn't drop generations by itself to
    /// make room.
    pub(super) fn of_shadow(shadow: &Bloom, live: LiveRef<'_>) -> Growing {
        let refused = shadow.rotates_when_full().then_some(CommandError::Full);
        Growing { beside: live.bytes(), refused }
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
    loop {
        if let Some(why) = &growing.refused {
            return filter.add_where_room_is(item).map_err(|_| why.clone());
        }
        let more = grow(call, filter, growing.beside)
            .map_err(|why| growing.refused.insert(F::refusal(why)).clone())?;
        // New cells have room. But a window makes room by dropping a generation, which may have occupied none of the
        // cells that the item needs. In that case, the window drops more generations. Once the window is empty, there
        // is room.
        match filter.try_add(item) {
            Err(Error::Full) if more == 0 => {}
            result => return Ok(result?),
        }
    }
}

/// Makes room. Returns the size of the new cells in bytes, or 0 for a window, which drops items instead of adding
/// cells.
fn grow<'a, C: Call<'a>, F: GrowInServer>(
    call: &C,
    filter: &mut F,
    beside: u64,
) -> Result<u64, CommandError> {
    let Some(more) = filter.next_bytes()? else { return Err(CommandError::Full) };
    if !call.is_from_primary() && more > 0 {
        filter.may_grow(&call.settings())?;
        call.admit(filter.bytes().saturating_add(more).saturating_add(beside), more)?;
    }
    call.may_be_long();
    filter.grow()?;
    Ok(more)
}

// ---- rebuilds ------------------------------------------------------------------------------------------------------

/// The rebuild that is running in a key.
pub(super) fn rebuild_in(key: &impl Key) -> Option<&Rebuild> {
    key.filter().ok()??.rebuild()
}

/// Ends a rebuild whose shadow cannot follow. Replicates the end, before the effect of the command that the shadow
/// could not follow. Notifies subscribers, writes a line into the log, and remembers the reason for clients that ask
/// later.
///
/// A primary whose shadow couldn't follow would have sent an ABORT first. So if this server obeys a primary, the two
/// now differ: this server lacks memory that the primary has.
#[cold]
pub(super) fn give_up<'a, C: Call<'a>>(call: &C, key: &mut C::Key, why: &CommandError) {
    let why = WithoutPrefix(why).to_string();
    if let Some(shadow) = key.convert(Filter::abort_rebuild).flatten() {
        call.discard(shadow.into());
    }
    if let Ok(Some(live)) = key.bloom() {
        live.usage().rebuild_ended(&why);
    }
    call.replicate(Effect::Arguments(Command::Rebuild, vec![b"ABORT".to_vec()]));
    call.changed(c"bf.rebuild.abort");
    let name = printable(call.arg(1));
    call.log(&format!("the rebuild of the filter in '{name}' has ended, because items could not be added to its shadow: {why}"));
    if call.is_from_primary() {
        call.diverged(CommandError::ShadowLost(why));
    }
}
