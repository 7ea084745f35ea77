//! What needs `unsafe`: the memory of filters, which is words, alone or shared with a head; checksums; locks without
//! `std`.

mod bytes;
mod checksum;
#[cfg(any(test, not(feature = "std")))]
pub(crate) mod lock;
mod shared;
mod source;
mod words;

pub(crate) use checksum::{crc32c, crc32c_append, crc64};
pub(crate) use shared::{Shared, size_class};
pub(crate) use source::Source;
pub use words::{Cells, Words, use_huge_pages};
pub(crate) use words::{prefetch, zeros};
