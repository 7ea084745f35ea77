//! Guava's files, each with every funnel that a command can name.

#![no_main]

use bloomery::Filter;
use bloomery::filter::foreign::Encoding;
use bloomery::parallel::alone;
use bloomery::wire::import;
use bloomery_fuzz::survives;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    for encoding in [Encoding::Bytes, Encoding::Utf16, Encoding::Long, Encoding::Int] {
        if let Ok(filter) = import::guava(input, encoding, &alone) {
            survives(Filter::Foreign(Box::new(filter)));
        }
    }
});
