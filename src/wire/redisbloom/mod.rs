//! RedisBloom's own encodings of its Bloom and cuckoo filters, read and written, so that data moves in and out without
//! a rebuild: the fields of RDB files and DUMP payloads, and the headers and chunks of SCANDUMP.
//!
//! Every version since 1.0 is read, and the newest is written. A filter that came from RedisBloom stays one, bit for
//! bit.

mod chunks;
mod fields;
mod raw;

pub use chunks::{Destination, Loader, MAX_PIECE, Placed, overwrite};
pub(super) use chunks::{bloom_head, cuckoo_head};
pub use fields::{ENCODING, load_bloom, load_cuckoo, save_bloom, save_cuckoo};
pub(super) use raw::{plan, spec_at_home};
