//! Constants of the format.

/// The first bytes of every head.
pub const MAGIC: [u8; 4] = *b"BLMY";

/// The version that is written, and the newest that is read.
pub const VERSION: u8 = 1;

/// Maximum number of cell bytes that a writer puts into one chunk. Readers accept up to [`MAX_CHUNK`].
pub const CHUNK: usize = 1 << 20;

/// Maximum number of cell bytes that a reader accepts in one chunk.
pub const MAX_CHUNK: usize = 16 << 20;

/// Maximum number of cell bytes in a packed filter. A short string can't make the reader allocate more than this, no
/// matter what size it declares.
pub(super) const MOST_PACKED: usize = 2048;
