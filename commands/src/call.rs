//! What a command sees of the server: [`Call`], and an opened [`Key`]. There are no server types here, so every
//! rule of the commands can be tested without a server.

use super::chunked::Chunked;
use super::error::CommandError;
use super::reply::Reply;
use super::stored::Stored;
use super::uploads::Uploads;
use crate::config::Settings;
use bloomery::filter::{Filter, Garbage, Live, LiveRef, Target};
use bloomery::parallel::{ParallelFor, Stop};
use bloomery::{Error, HashKind, Seed};
use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

/// How a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For changing or creating.
    Write,
    /// For adding an item. The command calls [`Key::added`] if the item was absent. For other commands, the sums in
    /// INFO are updated by comparing the filter before and after, which takes more instructions.
    Add,
}

/// Why a key can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It holds a value of another type, or a filter of the other namespace.
    WrongType,
    /// The server doesn't let it be written now, for example because another thread is saving it.
    Locked,
}

impl From<Unusable> for CommandError {
    fn from(why: Unusable) -> CommandError {
        match why {
            Unusable::WrongType => CommandError::WrongType,
            Unusable::Locked => CommandError::Locked,
        }
    }
}

/// An opened key for values of the type `T`.
pub trait Key<T: Stored> {
    /// The value in the key; `None` for a key that does not exist.
    ///
    /// # Errors
    /// [`Unusable`].
    fn value(&self) -> Result<Option<&T>, Unusable>;

    /// The value, to be changed.
    ///
    /// # Errors
    /// [`Unusable`].
    fn value_mut(&mut self) -> Result<Option<&mut T>, Unusable>;

    /// Counts items that were absent, in a key that was opened for [`Access::Add`].
    fn added(&mut self, _items: u64) {}

    /// Counts all changes from now on, not only [added](Key::added) items, because the filter is about to grow.
    fn compare(&mut self) {}

    /// Puts a value into the key, replacing what is there. The key's time to live is removed.
    fn create(&mut self, value: T);

    /// Changes the value into one of another kind in place. The key keeps its time to live. `None` if the key holds no
    /// such value. `take` moves the value out, in case it has to be put into the key again.
    fn convert<R>(&mut self, change: impl FnOnce(&mut T) -> R, take: impl FnOnce(&mut T) -> T) -> Option<R>;
}

/// A key for Bloom filters.
pub(crate) trait BloomKey: Key<Filter> {
    /// The Bloom filter that answers tests; during a rebuild, the live filter.
    ///
    /// # Errors
    /// [`Unusable`].
    #[inline(always)]
    fn bloom(&self) -> Result<Option<LiveRef<'_>>, Unusable> {
        match self.value()? {
            None => Ok(None),
            Some(filter) => filter.live().map(Some).ok_or(Unusable::WrongType),
        }
    }

    /// The Bloom filter that an add goes to; during a rebuild, both filters.
    ///
    /// # Errors
    /// [`Unusable`].
    #[inline(always)]
    fn target(&mut self) -> Result<Option<Target<'_>>, Unusable> {
        match self.value_mut()? {
            None => Ok(None),
            Some(filter) => filter.target().map(Some).ok_or(Unusable::WrongType),
        }
    }
}

impl<K: Key<Filter>> BloomKey for K {}

/// Words of a command.
pub(crate) type Words = Vec<Vec<u8>>;

/// What replicas and the AOF receive: what a command has done, which may differ from what its client requested.
pub enum Effect<'e> {
    /// The command with its arguments unchanged.
    Verbatim,
    /// The command, applied to the key at argument 1 and the items in these arguments.
    Items(&'static str, &'e [usize]),
    /// The command, applied to the key at argument 1, with these further arguments.
    Arguments(&'static str, Words),
    /// Like `Arguments`, but the words are computed only if somebody receives them.
    Creation(&'static str, &'e (dyn Fn() -> Words + Sync)),
}

/// A command that works [in the background](Call::in_background), in two steps.
pub trait TwoStep: Send + 'static {
    /// The result of the first step.
    type Prepared: Send + 'static;

    /// The first step, on a worker: computes the result from the inputs. `data` is what [`Background::data`] names.
    fn prepare(&mut self, data: &[&[u8]], parallel: &ParallelFor<'_>) -> Self::Prepared;

    /// The second step, on the main thread: opens the keys again, and puts the result into one of them. If it doesn't
    /// ask for the result, the result is freed on another thread.
    ///
    /// # Errors
    /// If the command is refused, for example because its inputs are no longer [in their keys](still_in_keys).
    fn commit<'a, C: Call<'a>>(
        self,
        call: &C,
        prepared: impl FnOnce() -> Self::Prepared,
    ) -> Result<Reply, CommandError>;
}

/// Checks that `now`, the filters in a command's keys, are the ones from which the first step has computed its result.
/// The server may delete, replace and rename keys during the work.
///
/// # Errors
/// [`CommandError::Changed`].
pub(super) fn still_in_keys(inputs: &[Live], now: &[LiveRef<'_>]) -> Result<(), CommandError> {
    let mut pairs = inputs.iter().zip(now);
    let are_same = inputs.len() == now.len() && pairs.all(|(given, now)| given.as_ref().is_shared_with(*now));
    if are_same { Ok(()) } else { Err(CommandError::Changed) }
}

/// The inputs of [background work](Call::in_background).
pub struct Background {
    /// Indexes of the arguments that name the command's keys. Other commands can't write to these keys during the work.
    pub keys: Vec<usize>,
    /// The filters that the work reads.
    pub inputs: Arc<[Live]>,
    /// The arguments or the string that the work reads.
    pub data: Data,
    /// The maximum amount of memory that the work may need. It is reserved, so no other command is
    /// [granted](Call::admit) it.
    pub memory: Admitted,
}

/// Memory that a command may use for its result. Background work can't begin without it. A command from a primary or an
/// AOF gets it without a check, because this server has to create the same filter as the server that sent the command.
pub struct Admitted {
    bytes: u64,
}

impl Admitted {
    /// Memory for a filter of `total` bytes in an empty key, or in a key whose filter it replaces within one run of the
    /// command. The server may evict other keys for this memory, which it does between commands.
    pub(super) fn in_new_key<'a>(call: &impl Call<'a>, total: u64, bytes: u64) -> Result<Self, CommandError> {
        Self::asked(call, bytes, || call.admit(total, bytes))
    }

    /// Memory that doesn't make any key grow: the result replaces something, or isn't in a key. No keys are evicted for
    /// it, because the command's own keys might be among them.
    pub(super) fn beside_keys<'a>(
        call: &impl Call<'a>,
        total: u64,
        bytes: u64,
    ) -> Result<Self, CommandError> {
        Self::asked(call, bytes, || {
            call.admit_tenant(|| total)?;
            call.admit_outside_keys(total, bytes)
        })
    }

    /// Like [`beside_keys`](Admitted::beside_keys), for a command that would need less memory if it didn't work in the
    /// background. The error text says so.
    pub(super) fn for_background_work<'a>(
        call: &impl Call<'a>,
        total: u64,
        bytes: u64,
    ) -> Result<Self, CommandError> {
        Self::beside_keys(call, total, bytes).map_err(|why| CommandError::Background(Box::new(why)))
    }

    fn asked<'a>(
        call: &impl Call<'a>,
        bytes: u64,
        ask: impl FnOnce() -> Result<(), CommandError>,
    ) -> Result<Self, CommandError> {
        if !call.is_from_primary() {
            ask()?;
        }
        Ok(Admitted { bytes })
    }

    /// The amount of memory in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Bytes that [background work](Call::in_background) reads, besides filters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// These arguments.
    Arguments(Range<usize>),
    /// The string in the key named by an argument. It is read in several steps, as a client would do with GETRANGE, so
    /// other clients may set bits between two steps. If it is replaced or loses bits, the command ends with
    /// [`CommandError::Changed`].
    Key(usize),
}

/// The rest of a command that [goes on later](Call::go_on_later).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// Index of the argument with the command's first item, or with all items.
    pub first: usize,
    /// Number of items that are done.
    pub done: usize,
    /// Number of items in the whole command, if it has counted them.
    pub of: Option<usize>,
    /// Where the remaining items begin, if all items are in one argument.
    pub within: Option<Within>,
}

/// A position between two items of one argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within {
    /// Number of bytes before the position.
    pub at: usize,
    /// Length of each item in bytes; `None` if each is preceded by its length.
    pub width: Option<NonZeroUsize>,
}

/// A running command's view of the server. `'a` outlives the command.
pub trait Call<'a> {
    /// An opened key for values of the type `T`.
    type Key<T: Stored>: Key<T>;

    /// Number of arguments, including the command's name.
    fn argc(&self) -> usize;

    /// Argument `index < argc()`; 0 is the command's name, 1 the key.
    fn arg(&self, index: usize) -> &'a [u8];

    /// Opens the key named by argument `index`.
    fn open<T: Stored>(&self, index: usize, access: Access) -> Self::Key<T>;

    /// The configuration in force.
    fn settings(&self) -> Settings;

    /// Reads the string in the key named by argument `index`. A key that doesn't exist is an empty string.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    fn string<R>(&self, index: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R, CommandError>;

    /// A field of the hash in the key named by argument `index`.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    fn hash_field(&self, index: usize, field: &'static str) -> Result<Option<Vec<u8>>, CommandError>;

    /// Unix time in milliseconds.
    fn now_ms(&self) -> u64;

    /// A random seed for a new filter. The tests' server draws the same ones in each run.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    fn new_seed(&self, hash: HashKind) -> Result<Seed, Error> {
        Seed::random(hash)
    }

    /// Whether the command comes from a primary or an AOF. If so, the command was accepted when it was first run, so
    /// neither the clock nor limits apply.
    fn is_from_primary(&self) -> bool;

    /// Checks whether the configured limits and the free memory allow a filter to grow by `more` bytes to `total`
    /// bytes.
    ///
    /// # Errors
    /// [`CommandError::Memory`].
    fn admit(&self, total: u64, more: u64) -> Result<(), CommandError>;

    /// Like [`admit`](Call::admit), for memory that is in no key: the server must not evict keys to make room for it.
    ///
    /// # Errors
    /// [`CommandError::Memory`].
    fn admit_outside_keys(&self, total: u64, more: u64) -> Result<(), CommandError>;

    /// Checks whether the tenant of the key at argument 1, if there is one, may have a filter of `total()` bytes there.
    /// So does [`admit`](Call::admit).
    ///
    /// # Errors
    /// [`CommandError::TenantBytes`] or [`CommandError::TenantFilters`].
    fn admit_tenant(&self, _total: impl FnOnce() -> u64) -> Result<(), CommandError> {
        Ok(())
    }

    /// A number that changes when the server saves its keys, and may change at other times; at least 1.
    fn saves(&self) -> u64;

    /// Sends an effect to replicas and the AOF, after those sent before.
    fn replicate(&self, effect: Effect<'_>);

    /// Whether replicas or an AOF get what is [replicated](Call::replicate).
    fn has_replication_sinks(&self) -> bool;

    /// Announces that the key at argument 1 has changed: to transactions that watch it, client-side caches, and
    /// subscribers to `event`. This happens when the command has ended and closed its keys, because subscribers may
    /// change or delete the filter.
    fn changed(&self, event: &'static CStr);

    /// Frees parts of a filter on another thread, so that no client waits for this.
    fn discard(&self, garbage: Garbage);

    /// Number of threads that [`parallel`](Call::parallel) may use, including this one.
    fn threads(&self) -> usize;

    /// Runs tasks 0 to `tasks` − 1, each once, on this thread and the pool's. Returns when all are done.
    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));

    /// Runs `work` on the argument, and replies with its result. If the server allows it, other clients are served in
    /// the meantime, and the reply is [`Reply::Later`]. If the client disconnects, `work` is told to stop, and may
    /// return `None`. The same happens if the filters that `work` reads, `inputs`, have left their keys and occupy too
    /// much memory.
    ///
    /// # Errors
    /// [`CommandError::ManyWaiting`] or [`CommandError::MuchWaiting`] if too many others wait.
    fn offload(
        &self,
        argument: usize,
        inputs: Arc<[Live]>,
        work: impl FnOnce(&[u8], &ParallelFor<'_>, &Stop) -> Option<Result<Reply, CommandError>> + Send + 'static,
    ) -> Result<Reply, CommandError>;

    /// A text for users, in which commands get the names under which they are registered.
    fn renamed(&self, text: String) -> String {
        text
    }

    /// Announces that what follows may block the server for long. Commands that are usually short aren't timed until
    /// they call this: reading the clock twice would be a tenth of their work.
    fn may_be_long(&self) {}

    /// Whether the command has blocked the server for long enough, and should [go on later](Call::go_on_later) after
    /// `done` items. Commands ask every few items. Commands with many items also ask before the first one, to measure
    /// how long the arguments before the items take. Every piece repeats these arguments, so its items may take at
    /// least as long.
    fn should_pause(&self, _done: usize) -> bool {
        false
    }

    /// Ends the command with the reply for the items that are done. The server serves other clients and then runs the
    /// command again, with the same arguments before the items and with the remaining items. The replies are joined
    /// into one.
    fn go_on_later(&self, _rest: Continuation) {}

    /// Whether work on this many bytes would block the server for too long, and can be done [in the
    /// background](Call::in_background).
    fn goes_to_background(&self, bytes: u64) -> bool;

    /// Begins the first step of a command on another thread. The reply is [`Reply::Later`], other clients are served in
    /// the meantime, and other commands that write one of the keys wait. When the first step is done, the second one
    /// follows, with a call that has the same arguments and the same time.
    ///
    /// # Errors
    /// [`CommandError::ManyWaiting`] or [`CommandError::MuchWaiting`] if too many others wait.
    fn in_background(&self, job: Background, command: impl TwoStep) -> Result<Reply, CommandError>;

    /// Starts to send a filter to replicas and the AOF, as a load, a few pieces at a time. The filter will be put into
    /// the key at argument 1, which is still empty. The reply is [`Reply::Later`], and other clients are served in
    /// between. When only the last piece is left, [`put_sent`](super::put_sent) is called.
    ///
    /// # Errors
    /// Returns the filter if it isn't sent in this way, because it isn't large, nobody
    /// [gets](Call::has_replication_sinks) it, the client can't wait, or the server doesn't tell the module when it
    /// forks.
    fn send<T: Chunked>(&self, filter: T, event: &'static CStr) -> Result<Reply, T>;

    /// Whether the server is above its memory limit, so commands that need more memory are refused.
    fn is_out_of_memory(&self) -> bool;

    /// Whether the server evicts keys when it needs memory.
    fn evicts(&self) -> bool;

    /// Writes a line into the server's log.
    fn log(&self, line: &str);

    /// Records that a command from a primary or an AOF was carried out only partly, so that this server differs from
    /// the one that sent it. When the command has ended, the reply is this error, whatever the command returns: the
    /// server then logs it, counts it in `unexpected_error_replies`, and does what `propagation-error-behavior` says.
    fn diverged(&self, why: CommandError);

    /// Calls `work` with the filters that are being loaded in chunks, and with the number of the database that the
    /// command works on.
    fn with_uploads<R>(&self, work: impl FnOnce(&mut Uploads, i32) -> R) -> R;
}
