//! Our own format. Checksums would stop the fuzzer, so they are corrected, and the rest of the validation is tested.

#![no_main]

use bloomery::wire::{Decoder, Encoder, lzf, whole};
use bloomery::{Filter, View};
use bloomery_fuzz::{Input, packed, sealed, survives};
use libfuzzer_sys::fuzz_target;

fn run(input: &[u8]) -> Option<()> {
    // First the input as it is: this tests heads, lengths and checksums.
    if let Ok(value) = Decoder::read(input) {
        survives(value);
    }
    if let Ok(value) = packed(input) {
        survives(value);
    }
    // `declared` and `unpack` read bytes before any checksum is verified.
    let _ = whole::declared(input);
    let mut input = Input(input);
    if let Ok(bytes) = lzf::unpack(input.0, 100) {
        assert_eq!(bytes.len(), 100);
    }
    let kind = input.byte()? % 8;
    let body_len = u64::from(u16::from_le_bytes([input.byte()?, input.byte()?]));
    let file = sealed(kind, input.string()?, body_len, input.0)?;
    // A view doesn't verify the cells, so it may accept what a decoder refuses. Otherwise they agree.
    let read = Decoder::read(&file);
    if let Ok(view) = View::new(&file) {
        let found = [&b"ada"[..], b"grace", &file].map(|item| view.contains(item));
        if let Ok(Filter::Bloom(filter)) = &read {
            assert_eq!(found, [&b"ada"[..], b"grace", &file].map(|item| filter.contains(item)));
        }
    }
    let value = read.ok()?;
    assert!(Filter::read_from(&file[..]).is_ok());
    let written = Encoder::native(&value).to_vec();
    assert!(Decoder::read(&written).is_ok());
    survives(value);
    Some(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
