//! Constants of the format.

/// The first bytes of every head.
pub const MAGIC: [u8; 4] = *b"BLMY";

/// The version that is written, and the newest that is read.
pub const VERSION: u8 = 1;

/// Maximum number of bytes of cells that a writer puts into one chunk. Readers accept up to [`MAX_CHUNK`].
pub const CHUNK: usize = 1 << 20;

/// Maximum number of bytes of cells that a reader accepts in one chunk.
pub const MAX_CHUNK: usize = 16 << 20;

/// Maximum number of bytes of cells in a packed filter. No matter what a few bytes declare, they need no more memory
/// than this.
pub(super) const MOST_PACKED: usize = 2048;
