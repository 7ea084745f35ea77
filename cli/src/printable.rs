//! Makes untrusted text safe to print on a terminal.

use std::borrow::Cow;

/// Escapes text from a server, a key or a file, so that it is safe to print on a terminal. Characters that could
/// control the terminal or reorder the text around them are written as `\x..`, byte by byte. Escaping the result again
/// doesn't change it.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_unprintable(character) { escape(character, &mut escaped) } else { escaped.push(character) }
    }
    Cow::Owned(escaped)
}

/// Whether the character could control the terminal or reorder the text around it: control characters, line and
/// paragraph separators, characters that set the direction of text, and byte order marks.
pub(crate) fn is_unprintable(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// Appends the UTF-8 bytes of a character to `text`, each as `\x..`.
pub(crate) fn escape(character: char, text: &mut String) {
    let mut bytes = [0; 4];
    text.extend(character.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\x{byte:02x}")));
}
