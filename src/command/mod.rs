//! The commands: arguments in, reply and effects out. No server types, so that every rule here is tested without one.
//!
//! A command sees the server through [`Call`]: its arguments, the keys it may open, the clock, the configuration, and
//! the three things it may cause besides its reply (replication, a keyspace event, freeing memory elsewhere).
//!
//! | file | commands |
//! | --- | --- |
//! | `advice` | what BF.INFO FULL advises |
//! | `algebra` | BF.MERGE, INTERSECT, EQUAL |
//! | `bulk` | BF.BULKADD, BULKTEST |
//! | `items` | BF.ADD, MADD, ADDNX, EXISTS, MEXISTS, TEST, MTEST, DEL, MDEL, COUNT, AGE, and the items of INSERT |
//! | `lifecycle` | BF.RESERVE, INSERT, ROTATE, CLEAR |
//! | `feedback` | BF.FEEDBACK |
//! | `info` | BF.CARD, INFO, DEBUG |
//! | `foreign` | what BF.* do with other systems' filters |
//! | `rebuild` | BF.REBUILD |
//! | `double` | what the other BF.* do with a filter that is being rebuilt |
//! | `cuckoo` | CF.*, all but the next |
//! | `import` | BF.IMPORT, BF.LOAD |
//! | `transfer` | SCANDUMP, LOADCHUNK of both |

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

mod advice;
mod algebra;
mod bulk;
mod cuckoo;
mod double;
pub mod error;
mod feedback;
mod foreign;
mod import;
mod info;
mod items;
mod lifecycle;
mod options;
mod rebuild;
pub mod reply;
pub mod table;
mod transfer;

pub use crate::filter::Fork;
pub use error::CommandError;
pub use rebuild::Ended;
pub use reply::{Answer, Answers, Reply};
pub use table::{Command, Namespace, TABLE};
pub use transfer::{Loads, each_piece, load_command};

use crate::config::{MIN_ITEMS_LIMIT, Settings};
use crate::error::Error;
use crate::filter::{Bloom, Cuckoo, Filter, Foreign, Rebuild, Retired};
use crate::params::Spec;
use std::ffi::CStr;

/// How a key is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look.
    Read,
    /// To change or create.
    Write,
}

/// The key holds a value of another type, or a filter of the other kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongType;

impl From<WrongType> for CommandError {
    fn from(_: WrongType) -> CommandError {
        CommandError::WrongType
    }
}

/// An opened key.
pub trait Key {
    /// The filter in it, of either kind; `None` for a key that does not exist.
    ///
    /// # Errors
    /// [`WrongType`].
    fn value(&self) -> Result<Option<&Filter>, WrongType>;

    /// The same, to change.
    ///
    /// # Errors
    /// [`WrongType`].
    fn value_mut(&mut self) -> Result<Option<&mut Filter>, WrongType>;

    /// Puts a filter into the key, in the place of what it held; a time to live that it had is gone.
    fn create(&mut self, value: Filter);

    /// Changes the value into one of another kind, where it is; the time to live stays. `None` for a key that holds
    /// none.
    fn convert<R>(&mut self, change: impl FnOnce(&mut Filter) -> R) -> Option<R>;

    /// The Bloom filter in it, if that is one of ours. Of one that is being rebuilt, the live one.
    ///
    /// # Errors
    /// [`CommandError::WrongType`]; [`CommandError::NotNative`] for another system's.
    #[inline(always)]
    fn filter(&self) -> Result<Option<&Bloom>, CommandError> {
        match self.value()? {
            None => Ok(None),
            Some(Filter::Bloom(filter)) => Ok(Some(filter)),
            Some(other) => live(other).map(Some),
        }
    }

    /// The same, to change.
    ///
    /// # Errors
    /// As [`filter`](Key::filter); [`CommandError::Rebuilding`] for a filter with a shadow, which would miss the change.
    #[inline(always)]
    fn filter_mut(&mut self) -> Result<Option<&mut Bloom>, CommandError> {
        match self.value_mut()? {
            None => Ok(None),
            Some(Filter::Bloom(filter)) => Ok(Some(filter)),
            Some(Filter::Foreign(_)) => Err(CommandError::NotNative),
            Some(Filter::Cuckoo(_)) => Err(CommandError::WrongType),
            Some(Filter::Rebuild(_)) => Err(CommandError::Rebuilding),
        }
    }

    /// The Bloom filter in it to change, whether or not a shadow will miss the change.
    ///
    /// # Errors
    /// As [`filter`](Key::filter).
    fn live_mut(&mut self) -> Result<Option<&mut Bloom>, CommandError> {
        match self.value_mut()? {
            None => Ok(None),
            Some(value) => live_mut(value).map(Some),
        }
    }

    /// The rebuild that is running.
    fn rebuild(&self) -> Option<&Rebuild> {
        self.value().ok()??.rebuild()
    }

    /// The same, to change.
    fn rebuild_mut(&mut self) -> Option<&mut Rebuild> {
        match self.value_mut() {
            Ok(Some(Filter::Rebuild(rebuild))) => Some(rebuild),
            _ => None,
        }
    }

    /// The cuckoo filter in it.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    #[inline(always)]
    fn cuckoo(&self) -> Result<Option<&Cuckoo>, CommandError> {
        match self.value()? {
            None => Ok(None),
            Some(Filter::Cuckoo(filter)) => Ok(Some(filter)),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    /// The same, to change.
    ///
    /// # Errors
    /// [`CommandError::WrongType`].
    #[inline(always)]
    fn cuckoo_mut(&mut self) -> Result<Option<&mut Cuckoo>, CommandError> {
        match self.value_mut()? {
            None => Ok(None),
            Some(Filter::Cuckoo(filter)) => Ok(Some(filter)),
            Some(_) => Err(CommandError::WrongType),
        }
    }

    /// The other system's filter in it, if it is one, also while it is being rebuilt.
    fn foreign(&self) -> Option<&Foreign> {
        match self.value().ok()??.live() {
            Filter::Foreign(filter) => Some(filter),
            _ => None,
        }
    }

    /// The same, to change; none with a shadow, which would miss the change.
    fn foreign_mut(&mut self) -> Option<&mut Foreign> {
        match self.value_mut() {
            Ok(Some(Filter::Foreign(filter))) => Some(filter),
            _ => None,
        }
    }
}

/// The filter of ours that answers tests.
#[cold]
fn live(value: &Filter) -> Result<&Bloom, CommandError> {
    match value.live() {
        Filter::Bloom(filter) => Ok(filter),
        Filter::Foreign(_) => Err(CommandError::NotNative),
        Filter::Cuckoo(_) | Filter::Rebuild(_) => Err(CommandError::WrongType),
    }
}

/// The same, to change.
fn live_mut(value: &mut Filter) -> Result<&mut Bloom, CommandError> {
    match value {
        Filter::Bloom(filter) => Ok(filter),
        Filter::Foreign(_) => Err(CommandError::NotNative),
        Filter::Cuckoo(_) => Err(CommandError::WrongType),
        Filter::Rebuild(rebuild) => live_mut(rebuild.live_mut()),
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

    /// Closes a key that was opened to look; its value stays for the rest of the command.
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

    /// Sends an effect to replicas and the AOF, behind those sent before.
    fn replicate(&self, effect: Effect<'_>);

    /// Says that the key at argument 1 was changed: to transactions that watch it, caches, and listeners to `event`.
    fn changed(&self, event: &'static CStr);

    /// Frees parts of a filter where it holds nobody up.
    fn retire(&self, dropped: Retired);

    /// Threads that [`fork`](Call::fork) may use, this one included.
    fn threads(&self) -> usize;

    /// Runs tasks 0 to `tasks` − 1, each once, on this thread and on those of the pool, and returns when all are done.
    fn fork(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));

    /// Answers with what `work` makes of the argument, while other clients are served if the server allows it: then the
    /// reply is [`Reply::Later`].
    fn offload(
        &self,
        argument: usize,
        work: impl FnOnce(&[u8], &Fork<'_>) -> Reply + Send + 'static,
    ) -> Reply;

    /// Whether the server uses more memory than it may, so that commands that need more are refused.
    fn is_out_of_memory(&self) -> bool;

    /// Writes a line into the server's log.
    fn log(&self, line: &str);

    /// The rebuilds that ended by themselves, and the database that the command works on.
    fn with_ended<R>(&self, work: impl FnOnce(&mut Ended, i32) -> R) -> R;

    /// The filters that are being loaded in chunks, and the database that the command works on.
    fn with_loads<R>(&self, work: impl FnOnce(&mut Loads, i32) -> R) -> R;
}

/// Runs a command.
///
/// # Errors
/// Why it was refused; the keys are then as they were.
#[inline(always)]
pub fn run<'a, C: Call<'a>>(command: Command, call: &C) -> Result<Reply, CommandError> {
    match command {
        Command::Reserve => lifecycle::reserve(call),
        Command::Insert => lifecycle::insert(call),
        Command::Rotate => lifecycle::rotate(call),
        Command::Clear => lifecycle::clear(call),
        Command::Add => items::add(call),
        Command::Madd => items::add_many(call),
        Command::Addnx => items::add_if_absent(call),
        Command::Exists | Command::Test => items::test(call),
        Command::Mexists | Command::Mtest => items::test_many(call),
        Command::Del => items::delete(call),
        Command::Mdel => items::delete_many(call),
        Command::Count => items::count(call),
        Command::Age => items::age(call),
        Command::Card => info::card(call),
        Command::Info => info::info(call),
        Command::Debug => info::debug(call),
        Command::Feedback => feedback::feedback(call),
        Command::Scandump => transfer::scan_dump(call, Namespace::Bloom),
        Command::Loadchunk => transfer::load_chunk(call, Namespace::Bloom),
        Command::Bulkadd => bulk::add(call),
        Command::Bulktest => bulk::test(call),
        Command::Merge => algebra::merge(call),
        Command::Intersect => algebra::intersect(call),
        Command::Equal => algebra::equal(call),
        Command::Import => import::import(call),
        Command::Load => import::load(call),
        Command::Rebuild => rebuild::rebuild(call),
        Command::CfReserve => cuckoo::reserve(call),
        Command::CfAdd => cuckoo::add(call, cuckoo::Mode::Add),
        Command::CfAddnx => cuckoo::add(call, cuckoo::Mode::AddIfAbsent),
        Command::CfInsert => cuckoo::insert(call, cuckoo::Mode::Add),
        Command::CfInsertnx => cuckoo::insert(call, cuckoo::Mode::AddIfAbsent),
        Command::CfExists => cuckoo::test(call),
        Command::CfMexists => cuckoo::test_many(call),
        Command::CfDel => cuckoo::delete(call),
        Command::CfCount => cuckoo::count(call),
        Command::CfCompact => cuckoo::compact(call),
        Command::CfInfo => cuckoo::info(call),
        Command::CfDebug => cuckoo::debug(call),
        Command::CfScandump => transfer::scan_dump(call, Namespace::Cuckoo),
        Command::CfLoadchunk => transfer::load_chunk(call, Namespace::Cuckoo),
    }
}

/// Refuses a command with more items than one may have: nobody else is served while it runs.
#[inline(always)]
fn limit_items<'a, C: Call<'a>>(call: &C, items: usize) -> Result<(), CommandError> {
    if items as u64 > MIN_ITEMS_LIMIT.unsigned_abs() { limit_many(call, items as u64) } else { Ok(()) }
}

#[cold]
fn limit_many<'a, C: Call<'a>>(call: &C, items: u64) -> Result<(), CommandError> {
    let most = call.settings().max_items_per_command;
    if most == 0 || items <= most || call.obeys() {
        return Ok(());
    }
    Err(CommandError::TooManyItems { items, most })
}

/// Creates a Bloom filter in an opened, empty key, and replicates its creation with every parameter.
fn create<'a, C: Call<'a>>(
    call: &C,
    key: &mut C::Key,
    spec: Spec,
    since_ms: u64,
) -> Result<(), CommandError> {
    if !call.obeys() {
        let bytes = bytes_for(&spec)?;
        call.admit(bytes, bytes)?;
    }
    let filter = Bloom::new_since(spec, since_ms)?;
    call.replicate(Effect::Arguments(Command::Reserve, options::bloom::creation(filter.spec(), since_ms)));
    key.create(Filter::Bloom(filter));
    call.changed(c"bf.reserve");
    Ok(())
}

/// Bytes of cells that a new filter of this spec takes.
fn bytes_for(spec: &Spec) -> Result<u64, CommandError> {
    Ok(match Bloom::bytes_for(spec) {
        // Beyond every limit; this way the refusal names the one that matters here.
        Err(Error::OutOfMemory { bytes }) => bytes,
        bytes => bytes?,
    })
}

/// The generation that a read sees: by the clock, unless nothing depends on it.
#[inline(always)]
fn current_generation<'a, C: Call<'a>>(call: &C, filter: &Bloom) -> u64 {
    match filter.window() {
        None => 0,
        Some(window) if window.schedule().every_ms == 0 => window.newest(),
        Some(window) => window.number_at(call.now_ms()),
    }
}

/// Brings a window up to the clock before a write, and replicates that before the write itself. On a replica and while
/// an AOF is loaded the clock is not asked: the primary's rotations come along.
#[inline(always)]
fn catch_up<'a, C: Call<'a>>(call: &C, filter: &mut Bloom) -> Result<(), CommandError> {
    let Some(window) = filter.window() else { return Ok(()) };
    if window.schedule().every_ms == 0 || call.obeys() {
        return Ok(());
    }
    let number = window.number_at(call.now_ms());
    if number > window.newest() {
        call.retire(filter.advance(number)?.into());
        call.replicate(Effect::Arguments(
            Command::Rotate,
            vec![b"AT".to_vec(), number.to_string().into_bytes()],
        ));
        call.changed(c"bf.rotate");
    }
    Ok(())
}
