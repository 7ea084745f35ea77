//! Reads RDB files and DUMP payloads of Redis up to 8.2 and Valkey up to 9.1 from start to end. Loads filters,
//! names sketches, and skips everything else.
//!
//! A value that can't be skipped safely ends the walk with an error, never with a guess.

use crate::error::{Failure, note};
use crate::output::{count, key};
use crate::server::family::{SKETCHES, key_types};
use bloomery::Filter;
use bloomery::wire::lzf::unpack;
use bloomery::wire::redisbloom::{load_bloom, load_cuckoo};
use bloomery::wire::{DecodeError, Source, import, value};
use crc::{CRC_64_REDIS, Crc, Digest, Table};
use std::io::{ErrorKind, Read};

/// Computes the checksum at the end of a file or payload, which covers all bytes before it.
pub(super) static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Characters of the names of module types, six bits each.
const SYMBOLS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The newest RDB versions whose types and operations are supported: Redis 8.2 writes 12, Valkey 9.1 writes 80.
const NEWEST_REDIS: u32 = 12;
const NEWEST_VALKEY: u32 = 80;

/// Operations before and between keys.
mod operation {
    pub(super) const SLOT_IMPORT: u8 = 243;
    pub(super) const SLOT_INFO: u8 = 244;
    pub(super) const FUNCTION: u8 = 245;
    pub(super) const MODULE_AUX: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const AUX: u8 = 250;
    pub(super) const SIZES: u8 = 251;
    pub(super) const EXPIRE_MS: u8 = 252;
    pub(super) const EXPIRE_S: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// The type byte of a module value.
pub(super) const MODULE: u8 = 7;

/// Types of the fields of a module value.
pub(super) mod field {
    pub(in crate::command::inspect) const END: u64 = 0;
    pub(in crate::command::inspect) const SIGNED: u64 = 1;
    pub(in crate::command::inspect) const UNSIGNED: u64 = 2;
    pub(in crate::command::inspect) const FLOAT: u64 = 3;
    pub(in crate::command::inspect) const DOUBLE: u64 = 4;
    pub(in crate::command::inspect) const STRING: u64 = 5;
}

/// Maximum length in bytes of a name that is read: other commands read no longer ones from a server. Compressed, a name
/// may have 88 times fewer bytes in the file.
const LONGEST_NAME: u64 = 64 << 20;

/// A filter or a sketch found in the file.
pub(in crate::command) struct Found {
    /// Offset of the value.
    pub(super) at: u64,
    pub(super) database: u64,
    pub(super) key: Vec<u8>,
    /// Unix time in milliseconds.
    pub(super) expires_ms: Option<u64>,
    pub(super) key_type: &'static str,
    pub(in crate::command) value: Value,
}

/// A filter, unless it is damaged; `None` for a sketch, whose contents aren't checked.
type Value = Option<Result<Filter, DecodeError>>;

/// What a walk finds out about the file itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct File {
    /// Version of the format.
    pub(super) version: u32,
    /// Name and version of the server that wrote the file.
    pub(super) server: String,
    /// Number of keys of all types.
    pub(super) keys: u64,
    /// Whether the file has a checksum. A wrong checksum is an error.
    pub(super) checked: bool,
}

/// Walks through an RDB file, and calls `found` for every filter and sketch.
pub(super) fn walk(source: impl Read, mut found: impl FnMut(Found)) -> anyhow::Result<File> {
    let mut reader = RdbReader::new(source);
    let (is_valkey, version) = reader.magic()?;
    let mut file = File { version, ..File::default() };
    let (mut database, mut expires_ms) = (0, None);
    let (mut product, mut product_version) = (String::new(), String::new());
    loop {
        let at = reader.at;
        match reader.byte()? {
            operation::AUX => {
                let (name, value) = (reader.string(LONGEST_NAME)?, reader.string(LONGEST_NAME)?);
                let value = || key(&value);
                match name.as_slice() {
                    b"redis-ver" => (product, product_version) = ("Redis".into(), value()),
                    b"valkey-ver" => (product, product_version) = ("Valkey".into(), value()),
                    _ => {}
                }
            }
            operation::DATABASE => database = reader.length()?,
            operation::SIZES => reader.lengths(2)?,
            operation::EXPIRE_S => {
                expires_ms = Some(u64::from(u32::from_le_bytes(reader.array()?)).saturating_mul(1000));
            }
            operation::EXPIRE_MS => expires_ms = Some(u64::from_le_bytes(reader.array()?)),
            operation::FREQUENCY => drop(reader.byte()?),
            operation::IDLE => reader.lengths(1)?,
            operation::MODULE_AUX => {
                // The module's id, and a typed number that says whether the data comes before or after the keys.
                reader.lengths(3)?;
                reader.skip_fields()?;
            }
            operation::FUNCTION => reader.skip_string()?,
            operation::SLOT_INFO => reader.lengths(3)?,
            operation::SLOT_IMPORT if is_valkey => {
                reader.skip_string()?;
                let ranges = reader.length()?;
                (0..ranges).try_for_each(|_| reader.lengths(2))?;
            }
            operation::END => {
                file.server = format!("{product} {product_version}").trim().to_owned();
                file.checked = version >= 5 && reader.checksum()?;
                reader.end()?;
                return Ok(file);
            }
            kind => {
                let key = reader.string(LONGEST_NAME)?;
                file.keys += 1;
                let expires_ms = expires_ms.take();
                if kind == MODULE {
                    let value_at = reader.at;
                    if let Some((key_type, value)) = reader.module_value()? {
                        found(Found { at: value_at, database, key, expires_ms, key_type, value });
                    }
                } else {
                    reader.skip_value(kind, is_valkey, at)?;
                }
            }
        }
    }
}

/// Reads a source sequentially, and keeps track of the position and the checksum.
pub(super) struct RdbReader<R> {
    source: R,
    at: u64,
    digest: Digest<'static, u64, Table<16>>,
    /// The type of a field, if it was read but the field's value wasn't.
    pending: Option<u64>,
}

fn wrong(at: u64, what: impl std::fmt::Display) -> anyhow::Error {
    Failure::Data(format!("at byte {at}: {what}")).into()
}

impl<R: Read> RdbReader<R> {
    pub(super) fn new(source: R) -> RdbReader<R> {
        RdbReader { source, at: 0, digest: CRC.digest(), pending: None }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> anyhow::Result<()> {
        self.source.read_exact(buffer).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => wrong(self.at, "the file ends early"),
            _ => error.into(),
        })?;
        self.digest.update(buffer);
        self.at += buffer.len() as u64;
        Ok(())
    }

    pub(super) fn array<const N: usize>(&mut self) -> anyhow::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> anyhow::Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads `length` bytes in steps. So even if a damaged file gives a huge length, not much more memory is allocated
    /// than the file has bytes.
    fn bytes(&mut self, length: u64) -> anyhow::Result<Vec<u8>> {
        const STEP: u64 = 1 << 20;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < length {
            let from = bytes.len();
            bytes.resize(from + (length - from as u64).min(STEP) as usize, 0);
            self.fill(&mut bytes[from..])?;
        }
        Ok(bytes)
    }

    fn skip(&mut self, mut length: u64) -> anyhow::Result<()> {
        let mut buffer = [0; 1 << 13];
        while length > 0 {
            let step = length.min(buffer.len() as u64);
            self.fill(&mut buffer[..step as usize])?;
            length -= step;
        }
        Ok(())
    }

    /// Reads the magic: `REDIS` and four digits, or `VALKEY` and three. Returns whether it is Valkey's, and the
    /// version.
    fn magic(&mut self) -> anyhow::Result<(bool, u32)> {
        let magic: [u8; 9] = self.array()?;
        let (is_valkey, digits) = match &magic {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (false, digits.as_slice()),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (true, digits.as_slice()),
            _ => return Err(wrong(0, "not an RDB file")),
        };
        let version = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let version = version.ok_or_else(|| wrong(0, "not an RDB file: it has no version"))?;
        let newest = if is_valkey { NEWEST_VALKEY } else { NEWEST_REDIS };
        if version > newest {
            note(&format!(
                "RDB version {version} is newer than {newest}; reading ends at the first unknown type"
            ));
        }
        Ok((is_valkey, version))
    }

    /// Reads a length. Returns `Err` with the number of the encoding if a specially encoded string follows instead.
    fn length_or_form(&mut self) -> anyhow::Result<Result<u64, u8>> {
        let at = self.at;
        let first = self.byte()?;
        Ok(Ok(match (first >> 6, first) {
            (0, _) => first.into(),
            (1, _) => u64::from(first & 0x3f) << 8 | u64::from(self.byte()?),
            (2, 0x80) => u32::from_be_bytes(self.array()?).into(),
            (2, 0x81) => u64::from_be_bytes(self.array()?),
            (3, _) => return Ok(Err(first & 0x3f)),
            _ => return Err(wrong(at, format_args!("no length begins with {first:#04x}"))),
        }))
    }

    pub(super) fn length(&mut self) -> anyhow::Result<u64> {
        let at = self.at;
        self.length_or_form()?
            .map_err(|form| wrong(at, format_args!("a length, not the form {form} of a string")))
    }

    fn lengths(&mut self, count: u64) -> anyhow::Result<()> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    /// Reads a string. One of more than `longest` bytes is skipped, and a text with its length is returned instead.
    pub(super) fn string(&mut self, longest: u64) -> anyhow::Result<Vec<u8>> {
        let at = self.at;
        let instead = |length| format!("({} bytes)", count(length)).into_bytes();
        match self.length_or_form()? {
            Ok(length) if length > longest => self.skip(length).map(|()| instead(length)),
            Ok(length) => self.bytes(length),
            Err(0) => Ok(i8::from_le_bytes(self.array()?).to_string().into_bytes()),
            Err(1) => Ok(i16::from_le_bytes(self.array()?).to_string().into_bytes()),
            Err(2) => Ok(i32::from_le_bytes(self.array()?).to_string().into_bytes()),
            Err(3) => {
                let (packed, length) = (self.length()?, self.length()?);
                if packed.max(length) > longest {
                    return self.skip(packed).map(|()| instead(length));
                }
                let packed = self.bytes(packed)?;
                unpack(&packed, length).map_err(|_| wrong(at, "a compressed string is damaged"))
            }
            Err(form) => Err(wrong(at, format_args!("no string has the form {form}"))),
        }
    }

    fn skip_string(&mut self) -> anyhow::Result<()> {
        let at = self.at;
        match self.length_or_form()? {
            Ok(length) => self.skip(length),
            Err(form @ 0..=2) => self.skip(1 << form),
            Err(3) => {
                let packed = self.length()?;
                self.length()?;
                self.skip(packed)
            }
            Err(form) => Err(wrong(at, format_args!("no string has the form {form}"))),
        }
    }

    fn strings(&mut self, count: u64) -> anyhow::Result<()> {
        (0..count).try_for_each(|_| self.skip_string())
    }

    /// Skips a value of a built-in type.
    fn skip_value(&mut self, kind: u8, is_valkey: bool, at: u64) -> anyhow::Result<()> {
        match (kind, is_valkey) {
            // Strings, and other types in encodings that are one string.
            (0 | 9 | 10 | 11 | 12 | 13 | 16 | 17 | 20, _) => self.skip_string(),
            // Lists and sets.
            (1 | 2 | 14, _) => {
                let count = self.length()?;
                self.strings(count)
            }
            // Sorted sets: type 3 has the scores as text, and type 5 as doubles.
            (3, _) => self.each(|reader| {
                reader.skip_string()?;
                match reader.byte()? {
                    253.. => Ok(()),
                    length => reader.skip(length.into()),
                }
            }),
            (5, _) => self.each(|reader| {
                reader.skip_string()?;
                reader.skip(8)
            }),
            // Hashes.
            (4, _) => self.each(|reader| reader.strings(2)),
            // Lists of nodes, each with its kind before it.
            (18, _) => self.each(|reader| {
                reader.lengths(1)?;
                reader.skip_string()
            }),
            (15 | 19 | 21, _) => self.skip_stream(kind),
            // Valkey's hashes whose fields expire.
            (22, true) => self.each(|reader| {
                reader.strings(2)?;
                reader.skip(8)
            }),
            // Redis's hashes whose fields expire. Both types begin with the earliest time. Then come either the fields,
            // each with its time before it (24), or a single string (25).
            (24, false) => {
                self.skip(8)?;
                self.each(|reader| {
                    reader.lengths(1)?;
                    reader.strings(2)
                })
            }
            (25, false) => {
                self.skip(8)?;
                self.skip_string()
            }
            _ => {
                let text = format!("type {kind} is unknown and cannot be skipped; reading ends here");
                Err(wrong(at, text))
            }
        }
    }

    fn each(&mut self, mut skip: impl FnMut(&mut RdbReader<R>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let count = self.length()?;
        (0..count).try_for_each(|_| skip(self))
    }

    /// Skips a stream: entries, ids, and consumer groups. Types 19 and 21 have more ids, and type 21 has a second
    /// timestamp for each consumer.
    fn skip_stream(&mut self, kind: u8) -> anyhow::Result<()> {
        self.each(|reader| reader.strings(2))?;
        // The stream's length and last id; in newer types also its first id, the highest id deleted, and the number of
        // entries ever added.
        self.lengths(if kind >= 19 { 8 } else { 3 })?;
        self.each(|reader| {
            reader.skip_string()?;
            reader.lengths(if kind >= 19 { 3 } else { 2 })?;
            // Pending entries: id, time, deliveries.
            reader.each(|reader| {
                reader.skip(16 + 8)?;
                reader.lengths(1)
            })?;
            reader.each(|reader| {
                reader.skip_string()?;
                reader.skip(if kind >= 21 { 16 } else { 8 })?;
                reader.each(|reader| reader.skip(16))
            })
        })
    }

    /// Reads the name of a module's type, and the version of its encoding.
    pub(super) fn type_name(&mut self) -> anyhow::Result<(Vec<u8>, u32)> {
        let id = self.length()?;
        let symbol = |place: u32| SYMBOLS[(id >> (10 + 6 * place) & 63) as usize];
        Ok(((0..9).rev().map(symbol).collect(), (id & 1023) as u32))
    }

    /// Reads a module value after its type byte: returns its type and a filter or sketch, or skips the value and
    /// returns `None`.
    pub(super) fn module_value(&mut self) -> anyhow::Result<Option<(&'static str, Value)>> {
        let (name, encoding) = self.type_name()?;
        if let Some(sketch) = SKETCHES.iter().find(|sketch| sketch.key_type.as_bytes() == name) {
            return self.skip_fields().map(|_| Some((sketch.key_type, None)));
        }
        let known = key_types().into_iter().find(|known| known.as_bytes() == name);
        let mut fields = ValueFields { reader: self, failed: None };
        let value = known.map(|key_type| (key_type, load(&mut fields, key_type, encoding)));
        if let Some(failed) = fields.failed {
            return Err(failed);
        }
        let left = self.skip_fields()?;
        Ok(value.map(|(key_type, value)| match value {
            Ok(_) if left > 0 => (key_type, Some(Err(DecodeError::Length("payload")))),
            value => (key_type, Some(value)),
        }))
    }

    /// Skips the remaining fields of a module value, and returns their number.
    fn skip_fields(&mut self) -> anyhow::Result<u64> {
        let mut skipped = 0;
        loop {
            let at = self.at;
            let kind = match self.pending.take() {
                Some(kind) => kind,
                None => self.length()?,
            };
            match kind {
                field::END => return Ok(skipped),
                field::SIGNED | field::UNSIGNED => self.lengths(1)?,
                field::FLOAT => self.skip(4)?,
                field::DOUBLE => self.skip(8)?,
                field::STRING => self.skip_string()?,
                other => {
                    return Err(wrong(at, format_args!("no field of a module's value has the type {other}")));
                }
            }
            skipped += 1;
        }
    }

    /// Verifies the checksum. Returns whether there is one: servers can be configured to write none.
    fn checksum(&mut self) -> anyhow::Result<bool> {
        let (at, expected) = (self.at, self.digest.clone().finalize());
        match u64::from_le_bytes(self.array()?) {
            0 => Ok(false),
            found if found == expected => Ok(true),
            _ => Err(wrong(at, "wrong checksum of the file")),
        }
    }

    pub(super) fn end(&mut self) -> anyhow::Result<()> {
        let at = self.at;
        match self.byte() {
            Ok(_) => Err(wrong(at, "there is more data after the end")),
            Err(_) => Ok(()),
        }
    }
}

/// The fields of a module value, as the library reads them.
struct ValueFields<'r, R> {
    reader: &'r mut RdbReader<R>,
    /// An error of the reader: the file itself is damaged or can't be read.
    failed: Option<anyhow::Error>,
}

impl<R: Read> ValueFields<'_, R> {
    /// Reads a value if it has the wanted type; otherwise the type stays pending.
    fn of<T>(&mut self, wanted: u64, read: impl FnOnce(&mut RdbReader<R>) -> anyhow::Result<T>) -> Option<T> {
        if self.failed.is_some() || self.reader.pending.is_some() {
            return None;
        }
        let result = match self.reader.length() {
            Ok(kind) if kind == wanted => read(self.reader),
            Ok(other) => {
                self.reader.pending = Some(other);
                return None;
            }
            Err(error) => Err(error),
        };
        result.map_err(|error| self.failed = Some(error)).ok()
    }
}

impl<R: Read> Source for ValueFields<'_, R> {
    fn unsigned(&mut self) -> Option<u64> {
        self.of(field::UNSIGNED, RdbReader::length)
    }

    fn double(&mut self) -> Option<f64> {
        self.of(field::DOUBLE, |reader| reader.array().map(f64::from_le_bytes))
    }

    fn string<T>(&mut self, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.of(field::STRING, |reader| reader.string(u64::MAX)).map(|bytes| read(&bytes))
    }
}

/// Loads a filter from its fields, as the module does.
fn load(fields: &mut impl Source, key_type: &str, encoding: u32) -> Result<Filter, DecodeError> {
    match key_type {
        "MBbloom--" => load_bloom(fields, encoding),
        "MBbloomCF" => load_cuckoo(fields, encoding),
        "bloomfltr" => {
            import::load_valkey_bloom(fields, encoding).map(|filter| Filter::Foreign(Box::new(filter)))
        }
        _ => value::decode(fields, encoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An RDB file: this magic and body, the end mark, and the checksum.
    fn file(magic: &[u8], body: &[&[u8]]) -> Vec<u8> {
        let mut bytes = [magic, &body.concat(), &[operation::END]].concat();
        bytes.extend(CRC.checksum(&bytes).to_le_bytes());
        bytes
    }

    fn keys(bytes: &[u8]) -> anyhow::Result<u64> {
        walk(bytes, |_| {}).map(|file| file.keys)
    }

    #[test]
    fn every_type_is_skipped() {
        let bodies: &[&[u8]] = &[
            b"\x00\x01k\x01v",
            b"\x00\x01k\xc0\xff",
            b"\x00\x01k\xc1\xff\xff",
            b"\x00\x01k\xc2\xff\xff\xff\xff",
            b"\x00\x01k\xc3\x02\x05\x00a",
            b"\x01\x01k\x02\x01a\x01b",
            b"\x02\x01k\x40\x01\x01a",
            b"\x03\x01k\x03\x01a\x031.5\x01b\xfd\x01c\xff",
            b"\x04\x01k\x01\x01f\x01v",
            b"\x05\x01k\x01\x01a12345678",
            b"\x0b\x01k\x04abcd",
            b"\x0e\x01k\x80\x00\x00\x00\x01\x01a",
            b"\x12\x01k\x01\x02\x01a",
            b"\x14\x01k\x01a",
            // A stream of each type, with a group, a pending entry and a consumer.
            b"\x0f\x01k\x01\x01n\x01l\x01\x02\x03\x01\x01g\x02\x03\x01aaaaaaaaaaaaaaaabbbbbbbb\x01\x01\x01cbbbbbbbb\x01aaaaaaaaaaaaaaaa",
            b"\x13\x01k\x01\x01n\x01l\x01\x02\x03\x02\x03\x00\x00\x01\x01\x01g\x02\x03\x01\x00\x01\x01cbbbbbbbb\x00",
            b"\x15\x01k\x01\x01n\x01l\x01\x02\x03\x02\x03\x00\x00\x01\x01\x01g\x02\x03\x01\x00\x01\x01cbbbbbbbbdddddddd\x00",
            b"\x18\x01k12345678\x01\x05\x01f\x01v",
            b"\x19\x01k12345678\x01l",
            // Another module's value: a signed, an unsigned, a float, a double, a string.
            b"\x07\x01k\x81AAAAAAAA\x01\x05\x02\x05\x03ffff\x04dddddddd\x05\x01s\x00",
        ];
        for body in bodies {
            // The next key is found only if exactly the right number of bytes was skipped.
            let bytes = file(b"REDIS0012", &[body, b"\xfc12345678\x00\x04last\x01v"]);
            assert_eq!(keys(&bytes).unwrap_or_else(|error| panic!("{body:?}: {error}")), 2);
        }
        let valkey =
            file(b"VALKEY080", &[b"\xf3\x01j\x01\x01\x02\x16\x01k\x01\x01f\x01v12345678\x00\x01l\x01v"]);
        assert_eq!(keys(&valkey).unwrap(), 2);
    }

    #[test]
    fn operations_between_keys_are_read() {
        let aux = b"\xfa\x09redis-ver\x067.0.15\xfe\x03\xfb\x01\x01\xf8\x05\xf9\x07\xf4\x01\x02\x03\xf5\x01f";
        let module_aux = b"\xf7\x81AAAAAAAA\x02\x01\x05\x01s\x00\x00\x01k\x01v";
        let found = walk(file(b"REDIS0010", &[aux, module_aux]).as_slice(), |_| {}).unwrap();
        assert_eq!(found, File { version: 10, server: "Redis 7.0.15".into(), keys: 1, checked: true });
    }

    #[test]
    fn what_is_not_known_ends_the_walk() {
        for body in [b"\x16\x01k\x01".as_slice(), b"\x63\x01k\x01", b"\xf3\x00", b"\xf6\x00"] {
            let error = keys(&file(b"REDIS0012", &[body])).unwrap_err();
            assert!(error.to_string().starts_with("at byte 9: type "), "{error}");
            assert_eq!(crate::error::code(&error), 2);
        }
    }

    #[test]
    fn damage_is_found() {
        let bytes = file(b"REDIS0010", &[b"\x00\x01k\x01v"]);
        assert_eq!(keys(&bytes).unwrap(), 1);
        for length in 0..bytes.len() {
            assert!(keys(&bytes[..length]).is_err(), "{length}");
        }
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 1;
            assert!(keys(&damaged).is_err(), "{place}");
        }
        assert!(keys(&[bytes.as_slice(), b"x"].concat()).is_err());
        // A server that is configured to write no checksum writes 0.
        let mut unchecked = bytes.clone();
        let end = bytes.len() - 8;
        unchecked[end..].fill(0);
        assert!(!walk(unchecked.as_slice(), |_| {}).unwrap().checked);
    }
}
