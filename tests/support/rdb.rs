//! Module values as RDB files and DUMP payloads contain them, read and written without a server: an id, then fields,
//! each preceded by its type.

use bloomery::wire::{Sink, Source};
use std::collections::VecDeque;

/// One field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    Unsigned(u64),
    Double(f64),
    String(Vec<u8>),
}

use Field::{Double, String as Text, Unsigned};

/// The fields of a value, in order. Reading removes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(pub(crate) VecDeque<Field>);

impl<const N: usize> From<[Field; N]> for Fields {
    fn from(fields: [Field; N]) -> Fields {
        Fields(fields.into())
    }
}

impl Source for Fields {
    fn unsigned(&mut self) -> Option<u64> {
        match self.0.pop_front()? {
            Unsigned(value) => Some(value),
            _ => None,
        }
    }

    fn double(&mut self) -> Option<f64> {
        match self.0.pop_front()? {
            Double(value) => Some(value),
            _ => None,
        }
    }

    fn string<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        match self.0.pop_front()? {
            Text(bytes) => Some(read(&bytes)),
            _ => None,
        }
    }
}

impl Sink for Fields {
    fn unsigned(&mut self, value: u64) {
        self.0.push_back(Unsigned(value));
    }

    fn double(&mut self, value: f64) {
        self.0.push_back(Double(value));
    }

    fn string(&mut self, bytes: &[u8]) {
        self.0.push_back(Text(bytes.to_vec()));
    }
}

/// A value with its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dump {
    pub(crate) name: String,
    pub(crate) encoding: u32,
    pub(crate) fields: Fields,
}

/// The characters of type names, six bits each.
const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// The type byte of a module's value.
const MODULE: u8 = 7;
/// Types of fields.
const END: u64 = 0;
const UNSIGNED: u64 = 2;
const DOUBLE: u64 = 4;
const STRING: u64 = 5;

impl Dump {
    /// Reads a DUMP payload, whose checksum must be correct.
    pub(crate) fn read(payload: &[u8]) -> Dump {
        let (value, footer) = payload.split_at(payload.len() - 10);
        let crc = u64::from_le_bytes(footer[2..].try_into().unwrap());
        assert_eq!(crc64(&payload[..payload.len() - 8]), crc, "the checksum of the payload");
        let mut reader = Reader(value);
        assert_eq!(reader.byte(), MODULE);
        let dump = reader.value();
        assert!(reader.0.is_empty());
        dump
    }

    /// The payload as a server with this RDB version writes it.
    pub(crate) fn write(&self, version: u16) -> Vec<u8> {
        let symbol = |name: u8| SYMBOLS.iter().position(|symbol| *symbol == name).unwrap() as u64;
        let id =
            self.name.bytes().fold(0, |id, name| id << 6 | symbol(name)) << 10 | u64::from(self.encoding);
        let mut bytes = vec![MODULE];
        write_len(&mut bytes, id);
        for field in &self.fields.0 {
            match field {
                Unsigned(value) => {
                    write_len(&mut bytes, UNSIGNED);
                    write_len(&mut bytes, *value);
                }
                Double(value) => {
                    write_len(&mut bytes, DOUBLE);
                    bytes.extend_from_slice(&value.to_le_bytes());
                }
                Text(text) => {
                    write_len(&mut bytes, STRING);
                    write_string(&mut bytes, text);
                }
            }
        }
        write_len(&mut bytes, END);
        bytes.extend_from_slice(&version.to_le_bytes());
        let crc = crc64(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// A payload with compressed strings, as servers write them: plain bytes, and references in place of repeated bytes.
pub(crate) fn packed(name: &str, encoding: u32, strings: &[Vec<u8>], version: u16) -> Vec<u8> {
    let empty = Dump { name: name.to_owned(), encoding, fields: Fields::default() }.write(version);
    let mut bytes = empty[..empty.len() - 11].to_vec();
    for string in strings {
        let packed = pack(string);
        write_len(&mut bytes, STRING);
        bytes.push(0xC3);
        write_len(&mut bytes, packed.len() as u64);
        write_len(&mut bytes, string.len() as u64);
        bytes.extend(packed);
    }
    write_len(&mut bytes, END);
    bytes.extend_from_slice(&version.to_le_bytes());
    let crc = crc64(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// Compresses bytes: the reverse of [`unpack`].
fn pack(bytes: &[u8]) -> Vec<u8> {
    let (mut packed, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let run = bytes[at..].iter().take(264).take_while(|byte| at > 0 && **byte == bytes[at - 1]).count();
        if run > 8 {
            packed.extend([0xE0, (run - 9) as u8, 0]);
            at += run;
        } else {
            let len = (bytes.len() - at).min(8);
            packed.push(len as u8 - 1);
            packed.extend_from_slice(&bytes[at..at + len]);
            at += len;
        }
    }
    packed
}

/// The module values of an RDB file, with their keys.
pub(crate) fn read_file(bytes: &[u8]) -> Vec<(String, Dump)> {
    const AUX: u8 = 0xFA;
    const RESIZE: u8 = 0xFB;
    const DATABASE: u8 = 0xFE;
    const EOF: u8 = 0xFF;
    let (values, crc) = bytes.split_at(bytes.len() - 8);
    assert_eq!(crc64(values), u64::from_le_bytes(crc.try_into().unwrap()), "the checksum of the file");
    assert!(values.starts_with(b"REDIS"));
    let mut reader = Reader(&values[9..]);
    let mut found = Vec::new();
    loop {
        match reader.byte() {
            AUX => drop((reader.string(), reader.string())),
            DATABASE => drop(reader.len()),
            RESIZE => drop((reader.len(), reader.len())),
            EOF => return found,
            MODULE => {
                let key = String::from_utf8(reader.string()).unwrap();
                found.push((key, reader.value()));
            }
            other => panic!("no values of type {other} here"),
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, len: usize) -> &[u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn big_endian(&mut self, len: usize) -> u64 {
        self.take(len).iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Reads a length, or, as `Err`, the number of a special form of string.
    fn len_or_form(&mut self) -> Result<u64, u8> {
        let first = self.byte();
        match (first >> 6, first) {
            (0, _) => Ok(first.into()),
            (1, _) => Ok(u64::from(first & 0x3f) << 8 | u64::from(self.byte())),
            (2, 0x80) => Ok(self.big_endian(4)),
            (2, 0x81) => Ok(self.big_endian(8)),
            (3, _) => Err(first & 0x3f),
            _ => panic!("no length begins with {first:#x}"),
        }
    }

    fn len(&mut self) -> u64 {
        self.len_or_form().expect("a plain length")
    }

    fn string(&mut self) -> Vec<u8> {
        match self.len_or_form() {
            Ok(len) => self.take(len as usize).to_vec(),
            // Decimal integers, stored in 1, 2 or 4 bytes.
            Err(form @ 0..=2) => {
                let bytes = self.take(1 << form);
                let sign = if bytes.last().is_some_and(|byte| *byte > 127) { 0xFF } else { 0 };
                let mut padded = [sign; 4];
                padded[..bytes.len()].copy_from_slice(bytes);
                i32::from_le_bytes(padded).to_string().into_bytes()
            }
            Err(3) => {
                let (packed, len) = (self.len(), self.len());
                unpack(self.take(packed as usize), len as usize)
            }
            Err(form) => panic!("no string has the form {form}"),
        }
    }

    /// Reads a value, whose type byte has already been read.
    fn value(&mut self) -> Dump {
        let id = self.len();
        let symbol = |place: u32| char::from(SYMBOLS[(id >> (10 + 6 * place) & 63) as usize]);
        let (name, encoding) = ((0..9).rev().map(symbol).collect(), (id & 1023) as u32);
        let mut fields = Fields::default();
        loop {
            fields.0.push_back(match self.len() {
                END => return Dump { name, encoding, fields },
                UNSIGNED => Unsigned(self.len()),
                DOUBLE => Double(f64::from_le_bytes(self.take(8).try_into().unwrap())),
                STRING => Text(self.string()),
                other => panic!("no field of type {other} here"),
            });
        }
    }
}

/// Decompresses LZF, which consists of literals and of references to earlier output.
fn unpack(packed: &[u8], len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    let mut rest = packed.iter().map(|byte| usize::from(*byte));
    while let Some(control) = rest.next() {
        if control < 32 {
            bytes.extend(rest.by_ref().take(control + 1).map(|byte| byte as u8));
            continue;
        }
        let length = if control >> 5 == 7 { 7 + rest.next().unwrap() } else { control >> 5 };
        let from = bytes.len() - 1 - ((control & 31) << 8 | rest.next().unwrap());
        (0..length + 2).for_each(|i| bytes.push(bytes[from + i]));
    }
    assert_eq!(bytes.len(), len);
    bytes
}

fn write_len(bytes: &mut Vec<u8>, len: u64) {
    match len {
        0..0x40 => bytes.push(len as u8),
        0x40..0x4000 => bytes.extend([0x40 | (len >> 8) as u8, len as u8]),
        0x4000..0x1_0000_0000 => {
            bytes.push(0x80);
            bytes.extend_from_slice(&(len as u32).to_be_bytes());
        }
        _ => {
            bytes.push(0x81);
            bytes.extend_from_slice(&len.to_be_bytes());
        }
    }
}

/// Writes a string as a server without compression does: the text of an integer is stored as an integer.
fn write_string(bytes: &mut Vec<u8>, text: &[u8]) {
    let integer = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i32>().ok());
    match integer.filter(|value| value.to_string().as_bytes() == text) {
        Some(value) if i8::try_from(value).is_ok() => bytes.extend([0xC0, value as u8]),
        Some(value) if i16::try_from(value).is_ok() => {
            bytes.push(0xC1);
            bytes.extend_from_slice(&(value as i16).to_le_bytes());
        }
        Some(value) => {
            bytes.push(0xC2);
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        None => {
            write_len(bytes, text.len() as u64);
            bytes.extend_from_slice(text);
        }
    }
}

/// The Jones CRC-64, with bits reflected.
fn crc64(bytes: &[u8]) -> u64 {
    const POLYNOMIAL: u64 = 0x95AC_9329_AC4B_C9B5;
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 })
    })
}

/// Bytes from hexadecimal digits; blanks are skipped.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// The item with this prefix and number, as in the fixtures.
pub(crate) fn numbered(prefix: &str, number: u64) -> Vec<u8> {
    format!("{prefix}:{number}").into_bytes()
}
