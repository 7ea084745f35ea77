//! RedisBloom's fields in RDB files and DUMP payloads: Bloom and cuckoo filters, in all versions of the encoding.

#![no_main]

use bloomery::wire::redisbloom::{load_bloom, load_cuckoo};
use bloomery_fuzz::{Input, survives};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(choice) = input.byte() else { return };
    let encoding = u32::from(choice >> 1 & 7);
    let value =
        if choice & 1 == 0 { load_bloom(&mut input, encoding) } else { load_cuckoo(&mut input, encoding) };
    if let Ok(value) = value {
        survives(value);
    }
});
