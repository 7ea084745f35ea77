//! What is behind a key: [`Stored`] says what the server needs to know of a value, and [`DataType`] how a value is
//! saved. Each family of commands has values of its own type.

use bloomery::Error;
use bloomery::filter::Contents;
use bloomery::metrics::Sum;
use bloomery::parallel::ParallelFor;
use bloomery::wire::{Sink, Source};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A value in a key.
pub trait Stored: Sized + Send + 'static {
    /// The command that loads such values in pieces, by its name under the prefix `bf`. An AOF rewrite writes
    /// [such commands](Stored::rewrite), or RESTORE if there is none.
    const REWRITTEN_AS: Option<&'static str> = None;

    /// The server's handles of the [`DataType`]s of these values. The first type is the family's own. The others are
    /// other systems', and may be missing.
    fn handles() -> &'static [Handle];

    /// The index of the data type as which this value is saved.
    fn data_type(&self) -> usize {
        0
    }

    /// A copy that shares no memory with this value.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    fn copy(&self, parallel: &ParallelFor<'_>) -> Result<Self, Error>;

    /// Bytes of the value's cells. Freeing them takes time in proportion to this.
    fn bytes(&self) -> u64;

    /// Bytes that count for the limits of a tenant: cells, including those for which the server isn't asked again.
    fn reserved_bytes(&self) -> u64 {
        self.bytes()
    }

    /// Bytes of memory, including all overhead.
    fn allocated(&self) -> usize;

    /// Hands the commands that load this value to `emit`, each with its name under the prefix `bf` and its arguments
    /// after the key.
    fn rewrite(&self, _emit: &mut dyn FnMut(&'static str, &[&[u8]])) {}

    /// The metric that counts values of this kind.
    fn gauge(&self) -> Option<&'static Sum> {
        None
    }

    /// The value's share of the totals that INFO shows.
    #[inline]
    fn contents(&self) -> Contents {
        Contents::default()
    }

    /// Whether an add changes only one of the totals, the number of items, unless the value grows.
    #[inline]
    fn is_plain(&self) -> bool {
        false
    }
}

/// A data type of the server: a name in RDB files and DUMP payloads, and the encoding that belongs to it.
pub trait DataType: 'static {
    /// The values.
    type Value: Stored;
    /// Nine characters.
    const NAME: &'static CStr;
    /// The version of the encoding that is written, and the newest that is read.
    const ENCODING: i32;

    /// Reads a value.
    fn load(source: &mut impl Source, encoding: u32) -> Result<Self::Value, String>;

    /// Writes a value.
    fn save(value: &Self::Value, sink: &mut impl Sink);

    /// Writes a value into a file or a snapshot. If this server obeys a primary, so may the server that reads it.
    fn save_file(value: &Self::Value, sink: &mut impl Sink, _obeys: bool) {
        Self::save(value, sink);
    }
}

/// The server's handle of a data type. Null if another module has registered the type. `Relaxed` is enough, because it
/// is written once, before any command can run.
pub struct Handle(AtomicPtr<c_void>);

impl Handle {
    /// Of a type that isn't registered.
    pub(super) const fn new() -> Handle {
        Handle(AtomicPtr::new(ptr::null_mut()))
    }

    /// The pointer.
    #[inline(always)]
    pub fn get(&self) -> *mut c_void {
        self.0.load(Relaxed)
    }

    /// Stores the pointer.
    pub fn set(&self, handle: *mut c_void) {
        self.0.store(handle, Relaxed);
    }
}
