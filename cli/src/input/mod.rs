//! Items from a file, a pipe, or a column of a CSV file.

mod batch;
mod column;
mod items;
mod lines;
mod options;
mod source;
mod text;
mod zstd;

pub(crate) use batch::{Batch, BatchLimits, ByteSpan, blob, items_of};
pub(crate) use items::Items;
pub(crate) use options::{Input, InputFormat};
pub(crate) use source::open_file;
