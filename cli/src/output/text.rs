//! Formats keys and other text for people.

use crate::printable::{escape, is_unprintable};
use std::borrow::Cow;
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

/// A key as text. Characters that aren't printable, and bytes that aren't UTF-8, are written as `\x..`, as in
/// redis-cli.
pub(crate) fn key(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                text.push_str("\\\\"); // so that a literal \x.. doesn't look like an escaped byte
            } else if is_unprintable(character) {
                escape(character, &mut text);
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn keys_that_are_not_text_are_escaped() {
        assert_eq!(key("größe".as_bytes()), "größe");
        assert_eq!(key(b"a\x00\xffb\n"), "a\\x00\\xffb\\x0a");
        assert_eq!(key(br"\xff"), r"\\xff");
    }
}
