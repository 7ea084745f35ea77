//! valkey-bloom's payload for BF.LOAD, and the fields of its data type.

#![no_main]

use bloomery::Filter;
use bloomery::parallel::alone;
use bloomery::wire::import;
use bloomery_fuzz::{Input, survives};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for filter in
        [import::valkey_bloom_payload(input, &alone), import::load_valkey_bloom(&mut Input(input), 1)]
    {
        if let Ok(filter) = filter {
            survives(Filter::Foreign(Box::new(filter)));
        }
    }
});
