//! Files of bits-and-blooms.

#![no_main]

use bloomery::Filter;
use bloomery::parallel::alone;
use bloomery::wire::import;
use bloomery_fuzz::survives;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(filter) = import::bloom_v3(input, &alone) {
        survives(Filter::Foreign(Box::new(filter)));
    }
});
