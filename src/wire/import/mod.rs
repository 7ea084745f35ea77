//! Reads other systems' files and values into filters that give the same answers as the originals.

pub mod bitmap;
mod bloom_v3;
mod guava;
mod sbbf;
mod valkey_bloom;

pub use bloom_v3::bloom_v3;
pub(super) use bloom_v3::bloom_v3_fields;
pub use guava::guava;
pub(super) use guava::guava_fields;
pub use sbbf::sbbf;
pub(super) use sbbf::sbbf_fields;
pub use valkey_bloom::{
    load as load_valkey_bloom, payload as valkey_bloom_payload, save as save_valkey_bloom,
};
pub(super) use valkey_bloom::{payload_fields, payload_fields_of, spec_at_home};
