//! The memory of filters: words, alone or shared with a head.

mod bytes;
mod shared;
mod words;

pub(crate) use shared::{Shared, size_class};
pub use words::{Cells, use_huge_pages};
pub(crate) use words::{Words, prefetch, zeros};
