//! Filters are written to streams and read from them: only their own bytes, with errors that say what is wrong, and
//! with memory that follows the bytes.

use crate::support::alloc_counter::weighed;
use crate::support::{describe, golden};
use bloomery::wire::DecodeError;
use bloomery::{AtomicBloom, Bloom, Cuckoo, ExpiringBloom, Filter, Spec};
use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// A source that gives one byte at a time.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let len = to.len().min(1);
        self.0.read(&mut to[..len])
    }
}

/// A disk with room for this many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn written(filter: &Filter) -> Vec<u8> {
    let mut bytes = Vec::new();
    filter.write_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn every_kind_goes_through_a_stream() {
    for name in golden::names() {
        let bytes = golden::bytes(name);
        let read = Filter::read_from(Slow(&bytes)).unwrap();
        assert_eq!(describe(&read), describe(&Filter::from_bytes(&bytes).unwrap()), "{name}");
        assert!(written(&read) == bytes, "{name}");
    }
    let (mut bloom, mut stream) = (Bloom::from_iter(["ada"]), Vec::new());
    bloom.extend(0..3_000_000);
    let mut expiring = ExpiringBloom::new(0.01, Duration::from_secs(60)).unwrap();
    expiring.insert_at("ada", 7).unwrap();
    let (cuckoo, atomic) = (Cuckoo::from_iter(["ada"]), AtomicBloom::fixed(9, 0.1).unwrap());
    atomic.insert("ada");
    bloom.write_to(&mut stream).unwrap();
    cuckoo.write_to(&mut stream).unwrap();
    expiring.write_to(&mut stream).unwrap();
    atomic.write_to(&mut stream).unwrap();
    let mut from = &stream[..];
    assert!(Bloom::read_from(&mut from).unwrap() == bloom, "of several chunks");
    assert!(Cuckoo::read_from(&mut from).unwrap() == cuckoo);
    assert!(ExpiringBloom::read_from(&mut from).unwrap().contains_at("ada", 60_000));
    assert!(AtomicBloom::read_from(&mut from).unwrap().contains("ada"));
    assert!(from.is_empty(), "each has read its own bytes");
}

#[test]
fn a_stream_that_ends_early_or_is_damaged_is_an_error() {
    for name in golden::names() {
        let bytes = golden::bytes(name);
        for len in 0..bytes.len() {
            let error = Filter::read_from(&bytes[..len]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{name}, {len}");
            let text = error.to_string();
            assert!(
                ["head", "chunk"]
                    .map(|part| format!("the input ends inside a {part} of the filter"))
                    .contains(&text)
            );
        }
        for place in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            let error = Filter::read_from(&damaged[..]).unwrap_err();
            let is_longer = error.kind() == ErrorKind::UnexpectedEof;
            let why = error.get_ref().and_then(|why| why.downcast_ref::<DecodeError>());
            assert!(is_longer || error.kind() == ErrorKind::InvalidData && why.is_some(), "{name}: {error}");
        }
    }
    let error = Bloom::read_from(&b"a text that is longer than 24 bytes"[..]).unwrap_err();
    assert_eq!(error.to_string(), "not a Bloomery filter");
    let error = Cuckoo::read_from(&Bloom::from_iter(["ada"]).to_bytes()[..]).unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::InvalidData, "a filter of another kind")
    );
    let filter = Bloom::new(Spec::fixed(2_000_000, 0.01)).unwrap();
    for room in [0, 100, 1 << 20, filter.to_bytes().len() - 1] {
        assert_eq!(filter.write_to(Full(room)).unwrap_err().kind(), ErrorKind::StorageFull);
    }
    assert!(filter.write_to(Full(filter.to_bytes().len())).is_ok());
}

/// A filter of many chunks, whose head declares all of them, needs little memory until their bytes come.
#[test]
fn memory_follows_the_bytes() {
    let mut filter = Bloom::new(Spec::fixed(16_000_000, 0.01)).unwrap();
    filter.insert("ada").unwrap();
    let bytes = filter.to_bytes();
    let chunk = 20 + (1 << 20);
    for len in [24, 100, 180, 200, 10_000, 200_000, chunk, 200 + chunk, 200 + 2 * chunk, bytes.len()] {
        let (_, peak) = weighed(|| Filter::read_from(&bytes[..len]).is_ok());
        assert!(peak as usize <= 6 * len + 4096, "{peak} bytes for {len}");
    }
}
