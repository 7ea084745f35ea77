//! Which of the items after an offset are in the filter.

use crate::error::Failure;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// For each item after an offset, in order, whether it is in the filter. Items beyond the end of this list aren't.
///
/// A cuckoo filter may refuse an item and have room for a later one, so the items that were added needn't be the first
/// ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Taken(Vec<bool>);

impl Taken {
    /// Says that the first `count` items are in the filter.
    pub(super) fn first(count: u64) -> Taken {
        Taken(vec![true; usize::try_from(count).unwrap_or(usize::MAX)])
    }

    /// Says that the items whose flag is set are in the filter.
    pub(super) fn of(flags: impl IntoIterator<Item = bool>) -> Taken {
        let mut flags: Vec<bool> = flags.into_iter().collect();
        while flags.last() == Some(&false) {
            flags.pop();
        }
        Taken(flags)
    }

    /// Number of items that are in the filter.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().filter(|is_in| **is_in).count() as u64
    }

    /// For each item, whether it is in the filter.
    pub(super) fn flags(&self) -> &[bool] {
        &self.0
    }

    /// Forgets all items after the first `count`.
    pub(super) fn truncate(&mut self, count: u64) {
        *self = Taken::of(self.0.iter().copied().take(usize::try_from(count).unwrap_or(usize::MAX)));
    }

    /// Returns which items are in the filter once the missing ones have been sent. `sent` says which of the missing
    /// items were added.
    pub(super) fn fill(&self, sent: &Taken) -> Taken {
        let mut sent = sent.0.iter();
        let mut flags: Vec<bool> =
            self.0.iter().map(|is_in| *is_in || sent.next().copied().unwrap_or(false)).collect();
        flags.extend(sent);
        Taken::of(flags)
    }
}

/// Lengths of runs of items that are in and of items that aren't, alternating: `3,1,2` means three in, one not, two in.
impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut expected = true;
        let mut rest = self.0.as_slice();
        while !rest.is_empty() {
            let run = rest.iter().take_while(|is_in| **is_in == expected).count();
            write!(f, "{}{run}", if rest.len() == self.0.len() && expected { "" } else { "," })?;
            rest = &rest[run..];
            expected = !expected;
        }
        Ok(())
    }
}

impl FromStr for Taken {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Taken, Failure> {
        let wrong =
            || Failure::Data(format!("the account of the load is damaged: {text:?} are not runs of items"));
        let mut flags = Vec::new();
        for (index, run) in text.split(',').filter(|run| !run.is_empty()).enumerate() {
            let run: usize = run.parse().map_err(|_| wrong())?;
            // No command has more items.
            if run > 1 << 30 {
                return Err(wrong());
            }
            flags.extend(std::iter::repeat_n(index % 2 == 0, run));
        }
        Ok(Taken::of(flags))
    }
}

impl TryFrom<String> for Taken {
    type Error = Failure;

    fn try_from(text: String) -> Result<Taken, Failure> {
        text.parse()
    }
}

impl From<Taken> for String {
    fn from(taken: Taken) -> String {
        taken.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_were_written() {
        for (flags, text) in [("", ""), ("111", "3"), ("1110110", "3,1,2"), ("011", "0,1,2"), ("000", "")] {
            let taken = Taken::of(flags.bytes().map(|flag| flag == b'1'));
            assert_eq!(taken.to_string(), text, "{flags}");
            assert_eq!(text.parse::<Taken>().unwrap(), taken);
        }
        assert_eq!("3,1".parse::<Taken>().unwrap(), Taken::first(3));
        for text in ["x", "-1", "3,x", "99999999999"] {
            assert!(text.parse::<Taken>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_was_sent_fills_the_gaps() {
        for (before, sent, after) in [
            ("", "3", "3"),
            ("3", "2", "5"),
            ("1,1,1", "1", "3"),
            ("1,2,1", "0,1,1", "1,1,2"),
            ("0,1,1", "", "0,1,1"),
        ] {
            let [before, sent, after] = [before, sent, after].map(|text| text.parse::<Taken>().unwrap());
            assert_eq!(before.fill(&sent), after);
        }
        let mut taken: Taken = "2,1,3".parse().unwrap();
        assert_eq!((taken.count(), taken.flags()), (5, &[true, true, false, true, true, true][..]));
        taken.truncate(3);
        assert_eq!(taken, Taken::first(2));
    }
}
