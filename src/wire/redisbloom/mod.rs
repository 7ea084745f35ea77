//! Reads and writes RedisBloom's own encodings of its Bloom and cuckoo filters: the fields of RDB files and DUMP
//! payloads, and the headers and chunks of SCANDUMP. So data can be migrated in both directions without rebuilding
//! filters.
//!
//! Reads every version since 1.0, and writes the newest. A filter that came from RedisBloom remains a RedisBloom
//! filter, bit for bit.

mod chunks;
mod fields;
mod raw;

pub use chunks::{Destination, Loader, MAX_PIECE, Placed, overwrite};
pub(super) use chunks::{bloom_head, cuckoo_head};
pub use fields::{ENCODING, load_bloom, load_cuckoo, save_bloom, save_cuckoo};
pub(super) use raw::{plan, spec_at_home};
