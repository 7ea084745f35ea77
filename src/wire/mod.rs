//! Filters as bytes: the versioned wire format that RDB files, DUMP, AOF rewrites, BF.SCANDUMP and plain files share.
//!
//! docs/FORMAT.md describes it byte by byte. tests/kit/wire_format.py answers membership queries from these bytes
//! without sharing any code with this crate. A filter is written as *pieces*: one head, then chunks of its cells. Every
//! piece carries its own checksum. Each medium separates the pieces in its own way; a file simply concatenates them.
//!
//! [`Decoder::new`] validates the whole head before any cell is allocated, and the geometry is derived only from
//! validated parameters. This is what makes untrusted bytes safe. Checksums only detect accidental damage.
//!
//! ```
//! use bloomery::wire::{Decoder, Encoder};
//! use bloomery::Bloom;
//!
//! let mut filter = Bloom::fixed(1000, 0.01)?;
//! filter.insert("ada")?;
//!
//! let bytes = Encoder::new(&filter).to_vec();
//! let copy = Decoder::read(&bytes)?.into_bloom().ok_or("not a Bloom filter")?;
//! assert!(copy.contains("ada"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation
)]

mod arrival;
mod bytes;
mod check;
mod chunk;
mod codec;
mod decode;
mod dump;
mod encode;
mod error;
mod export;
mod format;
mod head;
pub mod import;
#[cfg(feature = "std")]
mod io;
mod kind;
pub mod lzf;
mod packed;
pub mod redisbloom;
mod stream;
pub mod value;
mod view;
pub mod whole;

pub use check::Checker;
pub use chunk::LONGEST;
pub use decode::Decoder;
pub use dump::{Dump, type_id};
pub use encode::Encoder;
pub use error::DecodeError;
pub use export::Export;
pub use format::{CHUNK, MAGIC, MAX_CHUNK, VERSION};
pub use stream::{Sink, Source};
pub use view::View;
