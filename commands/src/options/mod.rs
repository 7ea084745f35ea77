//! Parsing of options, and their canonical form for replication.
//!
//! Options are matched as whole words and by position. RedisBloom's BF.RESERVE looks for them anywhere, even in the
//! key: a filter in a key named `nonscaling` doesn't scale. Its BF.INSERT accepts any word that begins like an option.
//! What a RedisBloom primary sends is parsed by RedisBloom's rules.

pub(super) mod bloom;
pub(super) mod cuckoo;
pub(super) mod foreign;
pub(super) mod redisbloom;
pub(super) mod valkey_bloom;

use super::call::Call;
use super::error::CommandError;
use bloomery::hash::{HashKind, Seed};
use bloomery::options::Options;
pub(super) use bloomery::spelling::number;
pub(super) use bloomery::spelling::{integer, unsigned};
use smallvec::SmallVec;

/// A length in bytes, greater than that of any option's name.
const BEYOND_OPTIONS: usize = 16;

/// A word in upper case, to be compared with options. A word can be 512 MiB long, so words that are longer than any
/// option are cut off.
pub(super) fn upper(word: &[u8]) -> SmallVec<[u8; BEYOND_OPTIONS]> {
    word.iter().take(BEYOND_OPTIONS).map(u8::to_ascii_uppercase).collect()
}

/// A client's bytes for use in an error text: printable, and short.
pub(super) fn printable(bytes: &[u8]) -> String {
    const MOST: usize = 64;
    let mut text =
        bytes.iter().take(MOST).flat_map(|byte| byte.escape_ascii()).map(char::from).collect::<String>();
    if bytes.len() > MOST {
        text.push('…');
    }
    text
}

/// A cursor over the arguments of a command.
pub(super) struct Arguments<'c, C> {
    pub(super) call: &'c C,
    pub(super) next: usize,
}

impl<'a, C: Call<'a>> Arguments<'_, C> {
    fn peek(&self) -> Option<&'a [u8]> {
        (self.next < self.call.argc()).then(|| self.call.arg(self.next))
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        let word = self.peek()?;
        self.next = self.next.saturating_add(1);
        Some(word)
    }

    /// Index of the argument that was read last.
    pub(super) fn last(&self) -> usize {
        self.next.saturating_sub(1)
    }

    /// Reads an option's value and converts it with `parse`. The error says what the option accepts.
    pub(super) fn value<T>(
        &mut self,
        option: &'static str,
        expected: &'static str,
        parse: impl Fn(&'a [u8]) -> Option<T>,
    ) -> Result<T, CommandError> {
        self.next().and_then(parse).ok_or(bad(option, expected))
    }
}

/// Whether an add may create the filter that isn't in its key. If the client says how large the filter is to be, it
/// may, whatever the configuration says. `by` is the command that creates such filters.
///
/// # Errors
/// Why the add is refused.
pub(super) fn may_create<'a, C: Call<'a>>(
    call: &C,
    options: &Options,
    by: &'static str,
) -> Result<(), CommandError> {
    let is_sized = options.capacity.is_some();
    if options.nocreate {
        Err(CommandError::NotFound)
    } else if is_sized || call.settings().auto_create || call.is_from_primary() {
        Ok(())
    } else {
        Err(CommandError::NotCreated { by })
    }
}

pub(super) fn bad(option: &'static str, expected: &'static str) -> CommandError {
    CommandError::BadOption { option, expected }
}

fn seed(hex: &[u8], hash: HashKind) -> Result<Seed, CommandError> {
    let expected = match hash {
        HashKind::SipHash => "1 to 32 hexadecimal digits for SIPHASH",
        _ => "1 to 16 hexadecimal digits for XXH3",
    };
    let digits = hash.seed_bits() as usize / 4;
    let text = std::str::from_utf8(hex)
        .ok()
        .filter(|text| {
            (1..=digits).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_hexdigit())
        })
        .ok_or(bad("SEED", expected))?;
    u128::from_str_radix(text, 16).map(Seed::from).map_err(|_| bad("SEED", expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_compared_with_options_by_their_first_bytes() {
        assert_eq!(upper(b"MaxIterations").as_slice(), b"MAXITERATIONS");
        assert_eq!(upper(&[b'x'; 1 << 20]).as_slice(), [b'X'; BEYOND_OPTIONS]);
        assert!(!upper(b"ITEMSITEMSITEMSITEMS").spilled());
    }

    #[test]
    fn what_a_client_sent_is_quoted_in_print() {
        assert_eq!(printable(b"a\r\n%s\0\xff"), "a\\r\\n%s\\x00\\xff");
        assert_eq!(printable(&[b'x'; 100]).chars().count(), 65);
    }
}
