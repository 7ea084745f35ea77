//! Bitmaps of go-zero and Redisson, with any numbers of bits and probes.

#![no_main]

use bloomery::Filter;
use bloomery::filter::foreign::Encoding;
use bloomery::parallel::alone;
use bloomery::wire::import::bitmap;
use bloomery_fuzz::{Input, LARGE, survives};
use libfuzzer_sys::fuzz_target;

fn run(input: &[u8]) -> Option<()> {
    let mut input = Input(input);
    let (bits, probes) = (input.word()?, u32::try_from(input.word()? >> 32).ok()?);
    // An import allocates the size that the input declares, even if that size is wrong. Commands check the size against
    // limits first. Here, the size is either small, or so large that the import must be refused.
    let bits = if bits >> 48 == 0 { bits % (8 * LARGE) } else { bits.max(1 << 49 | 1) };
    let encoding = [Encoding::Bytes, Encoding::Json, Encoding::Kryo5][bits as usize % 3];
    for filter in [
        bitmap::go_zero(bits, probes, input.0, &alone),
        bitmap::redisson(bits, probes, encoding, input.0, &alone),
    ] {
        if let Ok(filter) = filter {
            survives(Filter::Foreign(Box::new(filter)));
        }
    }
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
