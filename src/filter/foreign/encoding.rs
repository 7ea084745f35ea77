//! The bytes that another system hashes for an item, if they aren't the item itself.

use crate::spelling::spelling;
use alloc::borrow::Cow;
use alloc::{string::String, vec::Vec};

/// How an item is turned into the bytes that the original hashed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Encoding {
    /// The item's bytes.
    #[default]
    Bytes = 0,
    /// Text in UTF-16, little-endian: Guava's unencodedCharsFunnel.
    Utf16 = 1,
    /// A decimal number as 8 bytes, little-endian: Guava's longFunnel.
    Long = 2,
    /// A decimal number as 4 bytes, little-endian: Guava's integerFunnel.
    Int = 3,
    /// Text in quotation marks, as written by Redisson's JSON codec.
    Json = 4,
    /// A string as written by Redisson's Kryo5 codec.
    Kryo5 = 5,
}

spelling!(pub Encoding {
    Bytes = "BYTES",
    Utf16 = "UTF16",
    Long = "LONG",
    Int = "INT",
    Json = "JSON",
    Kryo5 = "KRYO5",
});

impl Encoding {
    /// The bytes that the original hashed. `None` for an item that the filter cannot contain, such as a word in a
    /// filter of numbers.
    pub fn encode(self, item: &[u8]) -> Option<Cow<'_, [u8]>> {
        let text = || core::str::from_utf8(item).ok();
        Some(match self {
            Encoding::Bytes => Cow::Borrowed(item),
            Encoding::Utf16 => Cow::Owned(text()?.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Encoding::Long => Cow::Owned(text()?.parse::<i64>().ok()?.to_le_bytes().to_vec()),
            Encoding::Int => Cow::Owned(text()?.parse::<i32>().ok()?.to_le_bytes().to_vec()),
            Encoding::Json => Cow::Owned(json(text()?)),
            Encoding::Kryo5 => Cow::Owned(kryo5(text()?)),
        })
    }
}

/// A string in JSON as Jackson writes it: only quotation marks, backslashes and control characters are escaped.
fn json(text: &str) -> Vec<u8> {
    let mut json = String::from('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            '\u{8}' => json.push_str("\\b"),
            '\u{c}' => json.push_str("\\f"),
            control if control < ' ' => json.push_str(&format!("\\u{:04X}", u32::from(control))),
            other => json.push(other),
        }
    }
    json.push('"');
    json.into_bytes()
}

/// A class number followed by the string as Kryo 5 writes it. In an ASCII string of 2 to 32 characters, the highest bit
/// of the last byte is set. All other strings begin with their number of UTF-16 units plus one, and each unit is
/// written as one to three bytes.
fn kryo5(text: &str) -> Vec<u8> {
    const STRING: u8 = 3;
    let mut bytes = vec![STRING];
    if text.is_empty() {
        bytes.push(0x81);
        return bytes;
    }
    if text.is_ascii() && (2..=32).contains(&text.len()) {
        bytes.extend_from_slice(text.as_bytes());
        if let Some(last) = bytes.last_mut() {
            *last |= 0x80;
        }
        return bytes;
    }
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut rest = units.len() + 1;
    // The first byte holds six bits of the number, and each later byte holds seven.
    bytes.push(0x80 | (rest & 0x3f) as u8 | if rest > 0x3f { 0x40 } else { 0 });
    rest >>= 6;
    while rest > 0 {
        bytes.push((rest & 0x7f) as u8 | if rest > 0x7f { 0x80 } else { 0 });
        rest >>= 7;
    }
    for unit in units {
        match unit {
            0..0x80 => bytes.push(unit as u8),
            0x80..0x800 => bytes.extend([0xc0 | (unit >> 6) as u8, 0x80 | (unit & 0x3f) as u8]),
            _ => bytes.extend([
                0xe0 | (unit >> 12) as u8,
                0x80 | (unit >> 6 & 0x3f) as u8,
                0x80 | (unit & 0x3f) as u8,
            ]),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_encoded_as_the_originals_do() {
        let encode = |encoding: Encoding, item: &str| encoding.encode(item.as_bytes()).map(Cow::into_owned);
        assert_eq!(encode(Encoding::Utf16, "hé"), Some(b"h\0\xe9\0".to_vec()));
        assert_eq!(encode(Encoding::Long, "-2"), Some([&[0xfe][..], &[0xff; 7]].concat()));
        assert_eq!(
            (encode(Encoding::Int, "42"), encode(Encoding::Int, "x")),
            (Some(vec![42, 0, 0, 0]), None)
        );
        assert_eq!(Encoding::Utf16.encode(b"\xff"), None);
        assert_eq!(encode(Encoding::Json, "a\"b\n"), Some(br#""a\"b\n""#.to_vec()));
        assert_eq!(encode(Encoding::Kryo5, "hello"), Some(b"\x03hell\xef".to_vec()));
        assert_eq!(encode(Encoding::Kryo5, ""), Some(b"\x03\x81".to_vec()));
        assert_eq!(encode(Encoding::Kryo5, "x"), Some(b"\x03\x82x".to_vec()));
        assert_eq!(encode(Encoding::Kryo5, "é!"), Some(b"\x03\x83\xc3\xa9!".to_vec()));
    }
}
