//! Numbers, keys and other text as people read them.

use crate::printable::{escape, is_unprintable};
use std::borrow::Cow;
use unicode_width::UnicodeWidthChar;

/// Bytes in units of 1024, three digits: `11.4 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// A number with thousands separators: `10,000,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A fraction in percent, with three significant digits: `1%`, `0.0123%`.
pub(crate) fn percent(fraction: f64) -> String {
    let value = fraction * 100.0;
    if !value.is_finite() {
        return "-".into();
    }
    if value == 0.0 {
        return "0%".into();
    }
    let decimals = (2 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}%")
}

/// At most `columns` of a terminal: what is longer ends in `…`.
pub(crate) fn shorten(text: &str, columns: usize) -> Cow<'_, str> {
    let mut width = 0;
    // Where to cut if it turns out to be too wide, with a column for the ellipsis.
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

/// A key as text: characters that aren't [printable], and bytes that aren't UTF-8, are written as `\x..`, as in
/// redis-cli.
pub(crate) fn key(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' {
                text.push_str("\\\\"); // a name that contains \x.. must not look like another
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
    fn numbers_have_three_significant_digits() {
        for (value, text) in [(0, "0 B"), (999, "999 B"), (1024, "1.00 KiB"), (12_582_912, "12.0 MiB")] {
            assert_eq!(bytes(value), text);
        }
        assert_eq!(bytes(1023 * 1024), "1.00 MiB");
        for (value, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (10_000_000, "10,000,000")] {
            assert_eq!(count(value), text);
        }
        for (value, text) in
            [(0.01, "1%"), (1.0, "100%"), (0.000_123_456, "0.0123%"), (0.0, "0%"), (0.5012, "50.1%")]
        {
            assert_eq!(percent(value), text);
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

    #[test]
    fn keys_that_are_not_text_are_escaped() {
        assert_eq!(key("größe".as_bytes()), "größe");
        assert_eq!(key(b"a\x00\xffb\n"), "a\\x00\\xffb\\x0a");
        assert_eq!(key(br"\xff"), r"\\xff");
    }
}
