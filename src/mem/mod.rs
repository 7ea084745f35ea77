//! The memory of filters: words, alone or shared with a head.

mod bytes;
mod shared;
mod words;

pub(crate) use shared::Shared;
pub(crate) use words::Words;
pub use words::{Cells, use_huge_pages};
