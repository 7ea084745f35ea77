//! Constants of the format.

/// The first bytes of every head.
pub const MAGIC: [u8; 4] = *b"BLMY";

/// The version that is written, and the newest that is read.
pub const VERSION: u8 = 1;

/// The most bytes of cells that a writer puts in one chunk. Readers accept up to [`MAX_CHUNK`].
pub const CHUNK: usize = 1 << 20;

/// The most bytes of cells that a reader accepts in one chunk.
pub const MAX_CHUNK: usize = 16 << 20;

/// The most bytes of cells of a packed filter. Whatever a few bytes declare, they need no more memory.
pub(super) const MOST_PACKED: usize = 2048;
