//! Writes a module's value as a DUMP payload, which RESTORE turns into a key. [`whole`](super::whole) has the layout.

use super::stream::Sink;
use super::whole::{MODULE, STRING};
use crate::mem::crc64;
use alloc::vec::Vec;
use core::ffi::CStr;

/// The RDB version in the footer. It is the one that brought this encoding of modules' values, with Redis 4.0. Servers
/// refuse versions newer than their own, and Valkey from 9.0 on refuses some of Redis's.
const RDB_VERSION: u16 = 8;

/// Types of the other fields in a module's value.
const END: u64 = 0;
const UNSIGNED: u64 = 2;
const DOUBLE: u64 = 4;

/// The characters of the names of types, six bits each.
const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The number that stands for a type in RDB files: its name in 6 bits per character, and its encoding in 10 bits.
pub fn type_id(name: &CStr, encoding: u32) -> u64 {
    let symbol = |name: &u8| SYMBOLS.iter().position(|symbol| symbol == name).unwrap_or(0) as u64;
    let name = name.to_bytes().iter().fold(0, |id, name| id << 6 | symbol(name));
    name << 10 | u64::from(encoding & 1023)
}

/// A payload that is being written, a field at a time.
pub struct Dump(Vec<u8>);

impl Dump {
    /// Begins the value of a type with this [number](type_id).
    pub fn new(type_id: u64) -> Dump {
        let mut dump = Dump(vec![MODULE]);
        dump.length(type_id);
        dump
    }

    /// Ends the value. Returns the payload.
    pub fn finish(mut self) -> Vec<u8> {
        self.length(END);
        self.0.extend(RDB_VERSION.to_le_bytes());
        let checksum = crc64(&self.0);
        self.0.extend(checksum.to_le_bytes());
        self.0
    }

    /// A number in the encoding that RDB files use for lengths and types.
    #[allow(clippy::cast_possible_truncation, reason = "the ranges say that the numbers fit")]
    fn length(&mut self, length: u64) {
        match length {
            0..0x40 => self.0.push(length as u8),
            0x40..0x4000 => self.0.extend((0x4000 | length as u16).to_be_bytes()),
            0x4000..0x1_0000_0000 => {
                self.0.push(0x80);
                self.0.extend((length as u32).to_be_bytes());
            }
            _ => {
                self.0.push(0x81);
                self.0.extend(length.to_be_bytes());
            }
        }
    }
}

impl Sink for Dump {
    fn unsigned(&mut self, value: u64) {
        self.length(UNSIGNED);
        self.length(value);
    }

    fn double(&mut self, value: f64) {
        self.length(DOUBLE);
        self.0.extend(value.to_le_bytes());
    }

    fn string(&mut self, bytes: &[u8]) {
        self.length(STRING);
        self.length(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from RedisBloom on Redis 8.0: a count-min sketch of 2 columns and 2 rows after 3 increments of an item.
    /// Only the footer differs, whose version is the server's.
    #[test]
    fn payloads_are_those_of_servers() {
        const RECORDED: [u8; 36] = *b"\x07\x81\x08\xc4\xa4\xf9\x36\x0f\x10\x00\x02\x02\x02\x02\x02\x03\
            \x05\x10\x03\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\x08";
        let mut dump = Dump::new(type_id(c"CMSk-TYPE", 0));
        [2, 2, 3].into_iter().for_each(|field| dump.unsigned(field));
        dump.string(&[3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let payload = dump.finish();
        assert!(payload.starts_with(&RECORDED));
        assert_eq!(payload.len(), 36 + 9);
    }

    #[test]
    fn lengths_have_four_forms() {
        for (length, bytes) in [
            (63, &[63][..]),
            (64, &[0x40, 64]),
            (16_383, &[0x7f, 0xff]),
            (16_384, &[0x80, 0, 0, 0x40, 0]),
            (1 << 32, &[0x81, 0, 0, 0, 1, 0, 0, 0, 0]),
        ] {
            let mut dump = Dump(Vec::new());
            dump.length(length);
            assert_eq!(dump.0, bytes);
        }
    }
}
