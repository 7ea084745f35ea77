//! Formats keys and other text for people.

use crate::printable::{escape, is_unprintable};
use ring::digest::{SHA256, digest};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use unicode_width::UnicodeWidthChar;

/// Cuts text to at most `columns` columns of a terminal. Text that was cut ends in `…`.
pub(crate) fn shorten(text: &str, columns: usize) -> Cow<'_, str> {
    let mut width = 0;
    // Where to cut if the text turns out to be too wide, leaving a column for the ellipsis.
    let mut cut = 0;
    for (at, character) in text.char_indices() {
        width += character.width().unwrap_or(0);
        if width > columns {
            return Cow::Owned([&text[..cut], "…"].concat());
        }
        if width < columns {
            cut = at + character.len_utf8();
        }
    }
    Cow::Borrowed(text)
}

/// Maximum number of characters of a name in messages, tables and labels.
const SHORT: usize = 100;

/// Maximum number of characters of a name in JSON.
const LONG: usize = 1000;

/// The name of a key, or another name that a client chose, which may be of any bytes and any length. Text shows at most
/// [`SHORT`] characters of it, and JSON at most [`LONG`].
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    long: String,
    short: String,
}

impl Name {
    pub(crate) fn new(name: &[u8]) -> Name {
        Name { long: cut(name, LONG), short: key(name) }
    }

    /// Whether the name, as JSON shows it, contains this text.
    pub(crate) fn contains(&self, text: &str) -> bool {
        self.long.contains(text)
    }

    pub(crate) fn short(&self) -> &str {
        &self.short
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short)
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.long)
    }
}

/// A key as text of at most [`SHORT`] characters and, if it is longer, a hash. Characters that aren't printable, and
/// bytes that aren't UTF-8, are written as `\x..`, as in redis-cli.
pub(crate) fn key(name: &[u8]) -> String {
    cut(name, SHORT)
}

/// A key as text of any length, from which [`unescaped`] reads it back.
pub(crate) fn escaped(name: &[u8]) -> String {
    cut(name, usize::MAX)
}

/// The name that [`escaped`] turns into this text; `None` if the text has another backslash.
pub(crate) fn unescaped(text: &str) -> Option<Vec<u8>> {
    let (mut name, mut rest) = (Vec::new(), text);
    while let Some((before, after)) = rest.split_once('\\') {
        name.extend_from_slice(before.as_bytes());
        rest = match after.strip_prefix('\\') {
            Some(after) => {
                name.push(b'\\');
                after
            }
            None => {
                let digits = after.strip_prefix('x')?.get(..2)?;
                name.push(u8::from_str_radix(digits, 16).ok()?);
                &after[3..]
            }
        };
    }
    name.extend_from_slice(rest.as_bytes());
    Some(name)
}

/// A name as text of at most `most` characters. A name that was cut ends in `…` and the start of its SHA-256, so that
/// two names differ as text too, even if somebody chose them to begin alike.
fn cut(name: &[u8], most: usize) -> String {
    let mut text = String::new();
    let mut characters = 0;
    for chunk in name.utf8_chunks() {
        for unit in chunk.valid().chars().map(Ok).chain(chunk.invalid().iter().map(Err)) {
            let end = text.len();
            match unit {
                Ok('\\') => text.push_str("\\\\"), // so that a literal \x.. doesn't look like an escaped byte
                Ok(character) if is_unprintable(character) => escape(character, &mut text),
                Ok(character) => text.push(character),
                Err(byte) => text.push_str(&format!("\\x{byte:02x}")),
            }
            characters += text[end..].chars().count();
            if characters > most {
                text.truncate(end);
                let hash = digest(&SHA256, name)
                    .as_ref()
                    .first_chunk()
                    .map_or(0, |bytes| u64::from_be_bytes(*bytes));
                return format!("{text}…{hash:016x}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escaped_name_is_read_back() {
        let long = [b'a'; 5000];
        let all: Vec<u8> = (0..=255).collect();
        for name in [&b"users"[..], b"", b"\\", b"\\x41", b"a\n/\0", &long, &all, "鍵\u{202e}".as_bytes()] {
            assert_eq!(unescaped(&escaped(name)).as_deref(), Some(name));
        }
        for text in ["\\", "\\x", "\\x4", "\\xzz", "\\n", "\\x鍵"] {
            assert_eq!(unescaped(text), None, "{text}");
        }
    }

    #[test]
    fn long_text_is_cut_by_its_width() {
        for (text, columns, cut) in [
            ("abcdef", 6, "abcdef"),
            ("abcdefg", 6, "abcde…"),
            ("鍵鍵鍵", 6, "鍵鍵鍵"),
            ("鍵鍵鍵鍵", 6, "鍵鍵…"),
            ("", 6, ""),
        ] {
            assert_eq!(shorten(text, columns), cut);
        }
        assert_eq!(shorten(&"e\u{301}".repeat(5000), 10).chars().filter(|char| *char == 'e').count(), 9);
    }
}
