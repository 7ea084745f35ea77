//! Writes filters that commands can create, and reads them again in pieces of a size that the input chooses. They must
//! be the same as before.

#![no_main]

use bloomery::wire::{Decoder, Encoder};
use bloomery_fuzz::{Input, made, resealed, survives};
use libfuzzer_sys::fuzz_target;

fn run(input: &[u8]) -> Option<()> {
    let mut input = Input(input);
    let cut = usize::from(input.byte()?) % 32 * 8 + 8;
    let value = made::value(&mut input)?;
    let written = Encoder::native(&value).to_vec();
    // The pieces of a table, whose body counts 2^51, are cut at leaves and not at bytes.
    let has_table = u64::from_le_bytes(written[12..20].try_into().expect("8 bytes")) >> 51 > 0;
    let cut = if has_table { written.len() } else { cut };
    let mut decoder = Decoder::new(Encoder::native(&value).head()).expect("it was written");
    let mut pieces = Vec::new();
    Encoder::native(&value).chunks(|_, piece| pieces.push(piece.to_vec()));
    for piece in pieces.iter().flat_map(|piece| resealed(piece, cut)) {
        assert!(!decoder.is_complete());
        decoder.push(&piece).expect("it is the next one");
    }
    let read = decoder.finish().expect("all of it came");
    assert!(Encoder::native(&read).to_vec() == written, "read otherwise than written");
    survives(value);
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
