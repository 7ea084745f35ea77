//! What a command sees of the server: [`Call`], and an opened [`Key`]. No server types, so that every rule of the
//! commands is tested without one.

use super::aborted::AbortedRebuilds;
use super::error::CommandError;
use super::loads::Loads;
use super::reply::Reply;
use super::table::Command;
use crate::config::Settings;
use crate::filter::{Cuckoo, Filter, Garbage, LiveRef, Target};
use crate::parallel::ParallelFor;
use std::ffi::CStr;

/// How a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look.
    Read,
    /// To change or create.
    Write,
}

/// The key holds a value of another type, or a filter of the other namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

impl From<WrongType> for CommandError {
    fn from(_: WrongType) -> CommandError {
        CommandError::WrongType
    }
}

/// An opened key.
pub trait Key {
    /// The filter in it, of any kind; `None` for a key that does not exist.
    ///
    /// # Errors
    /// [`WrongType`].
    fn filter(&self) -> Result<Option<&Filter>, WrongType>;

    /// The same, to change.
    ///
    /// # Errors
    /// [`WrongType`].
    fn filter_mut(&mut self) -> Result<Option<&mut Filter>, WrongType>;

    /// Puts a filter into the key, in the place of what it held; its time to live is gone.
    fn create(&mut self, filter: Filter);

    /// Changes the filter into one of another kind where it is; its time to live stays. `None` if the key holds no
    /// filter.
    fn convert<R>(&mut self, change: impl FnOnce(&mut Filter) -> R) -> Option<R>;

    /// The Bloom filter in it that answers tests: during a rebuild the live one.
    ///
    /// # Errors
    /// [`WrongType`].
    #[inline(always)]
    fn bloom(&self) -> Result<Option<LiveRef<'_>>, WrongType> {
        match self.filter()? {
            None => Ok(None),
            Some(filter) => filter.live().map(Some).ok_or(WrongType),
        }
    }

    /// What an add to the Bloom filter in it goes to.
    ///
    /// # Errors
    /// [`WrongType`].
    #[inline(always)]
    fn target(&mut self) -> Result<Option<Target<'_>>, WrongType> {
        match self.filter_mut()? {
            None => Ok(None),
            Some(filter) => filter.target().map(Some).ok_or(WrongType),
        }
    }

    /// The cuckoo filter in it.
    ///
    /// # Errors
    /// [`WrongType`].
    #[inline(always)]
    fn cuckoo(&self) -> Result<Option<&Cuckoo>, WrongType> {
        match self.filter()? {
            None => Ok(None),
            Some(filter) => filter.cuckoo().map(Some).ok_or(WrongType),
        }
    }

    /// The same, to change.
    ///
    /// # Errors
    /// [`WrongType`].
    #[inline(always)]
    fn cuckoo_mut(&mut self) -> Result<Option<&mut Cuckoo>, WrongType> {
        match self.filter_mut()? {
            None => Ok(None),
            Some(Filter::Cuckoo(filter)) => Ok(Some(filter)),
            Some(_) => Err(WrongType),
        }
    }
}

/// What is written to replicas and the AOF: effects, never requests.
#[derive(Debug)]
pub enum Effect<'e> {
    /// The command as it came.
    Verbatim,
    /// The command, applied to the key at argument 1 and the items at these arguments.
    Items(Command, &'e [usize]),
    /// The command, applied to the key at argument 1, and further arguments.
    Arguments(Command, Vec<Vec<u8>>),
}

/// A running command's view of the server. `'a` outlives the command.
pub trait Call<'a> {
    /// An opened key.
    type Key: Key;

    /// Number of arguments, with the command's name.
    fn argc(&self) -> usize;

    /// Argument `index < argc()`; 0 is the command's name, 1 the key.
    fn arg(&self, index: usize) -> &'a [u8];

    /// Opens the key named by argument `index`.
    fn open(&self, index: usize, access: Access) -> Self::Key;

    /// Closes a key that was opened to look; its filter stays for the rest of the command.
    fn close(&self, key: Self::Key) -> Option<&'a Filter>;

    /// The configuration in force.
    fn settings(&self) -> Settings;

    /// Reads the string in the key named by argument `index`; a key that does not exist is an empty string.
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

    /// Whether the command comes from a primary or an AOF, and so has been decided elsewhere: no clock, no limits.
    fn obeys(&self) -> bool;

    /// Whether the policy and the memory at hand allow a filter of `total` bytes that grows by `more`.
    ///
    /// # Errors
    /// [`CommandError::Memory`].
    fn admit(&self, total: u64, more: u64) -> Result<(), CommandError>;

    /// Sends an effect to replicas and the AOF, after those sent before.
    fn replicate(&self, effect: Effect<'_>);

    /// Says that the key at argument 1 was changed: to transactions that watch it, caches, and listeners to `event`.
    fn changed(&self, event: &'static CStr);

    /// Frees parts of a filter where that holds nobody up.
    fn discard(&self, garbage: Garbage);

    /// Threads that [`parallel`](Call::parallel) may use, this one included.
    fn threads(&self) -> usize;

    /// Runs tasks 0 to `tasks` − 1, each once, on this thread and the pool's, and returns when all are done.
    fn parallel(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));

    /// Answers with what `work` makes of the argument. If the server allows it, other clients are served meanwhile, and
    /// the reply is [`Reply::Later`].
    fn offload(
        &self,
        argument: usize,
        work: impl FnOnce(&[u8], &ParallelFor<'_>) -> Reply + Send + 'static,
    ) -> Reply;

    /// Whether the server uses more memory than it may, so that commands that need more are refused.
    fn is_out_of_memory(&self) -> bool;

    /// Writes a line into the server's log.
    fn log(&self, line: &str);

    /// The rebuilds that ended by themselves, and the database that the command works on.
    fn with_aborted_rebuilds<R>(&self, work: impl FnOnce(&mut AbortedRebuilds, i32) -> R) -> R;

    /// The filters that are being loaded in chunks, and the database that the command works on.
    fn with_loads<R>(&self, work: impl FnOnce(&mut Loads, i32) -> R) -> R;
}
