//! A head in RedisBloom's format, and chunks that may overlap and come in any order.

#![no_main]

use bloomery::wire::redisbloom::Loader;
use bloomery_fuzz::{Input, LARGE, survives};
use libfuzzer_sys::fuzz_target;

fn run(input: &[u8]) -> Option<()> {
    let mut input = Input(input);
    let begin = if input.byte()? & 1 == 0 { Loader::bloom } else { Loader::cuckoo };
    let mut loader = begin(input.string()?).ok().filter(|loader| loader.body_len() <= LARGE)?;
    while let (Some(end), Some(chunk)) = (input.take(3), input.string()) {
        let _ = loader.push(u32::from_le_bytes([end[0], end[1], end[2], 0]).into(), chunk);
    }
    // If bytes are missing, all bytes are set to 0, so that most heads lead to a filter.
    if !loader.is_complete() {
        (1..=loader.body_len()).for_each(|end| loader.push(end, &[0]).expect("inside, and one byte"));
    }
    survives(loader.finish().ok()?);
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
