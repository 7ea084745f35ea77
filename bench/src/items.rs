//! The items: decimal numbers of fixed width after a word. Items with numbers below [`ABSENT`] may be added. The others
//! never are.

use crate::wire::Batch;
use fastrand::Rng;
use std::ops::Range;

/// Items with this number or a higher one are in no filter.
pub const ABSENT: u64 = 500_000_000_000;

/// Bytes of an item in commands where each item is an argument.
pub const WIDTH: usize = 17;

/// Bytes of an item in bulk commands.
pub const BULK_WIDTH: usize = 16;

/// The item with this number: `item:000000000042` in 17 bytes, or `item000000000042` in 16.
pub fn item<const W: usize>(number: u64) -> [u8; W] {
    const DIGITS: usize = 12;
    let mut bytes = [b':'; W];
    bytes[..4].copy_from_slice(b"item");
    let mut rest = number;
    for byte in bytes[W - DIGITS..].iter_mut().rev() {
        *byte = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    bytes
}

/// Which items a test asks about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Only items that were added.
    Present,
    /// Only items that were not added.
    Absent,
    /// About half of each, in random order.
    Half,
}

impl Mix {
    /// All mixes.
    pub const ALL: [Mix; 3] = [Mix::Half, Mix::Present, Mix::Absent];

    /// The name in tables and plots.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Present => "present",
            Mix::Absent => "absent",
            Mix::Half => "half present",
        }
    }

    /// `count` random numbers of items, given that the items numbered below `added` were added.
    pub fn numbers(self, count: u64, added: u64, rng: &mut Rng) -> Vec<u64> {
        let one = |rng: &mut Rng| {
            let number = rng.u64(..added);
            let absent = match self {
                Mix::Present => false,
                Mix::Absent => true,
                Mix::Half => rng.bool(),
            };
            if absent { ABSENT + number } else { number }
        };
        (0..count).map(|_| one(rng)).collect()
    }
}

/// A command for every `group` numbers: name, key, items.
pub fn commands(name: &str, key: &str, numbers: &[u64], group: usize) -> Batch {
    let mut batch = Batch::default();
    for numbers in numbers.chunks(group) {
        batch.begin(numbers.len() + 2, numbers.len() as u64);
        batch.argument(name.as_bytes());
        batch.argument(key.as_bytes());
        numbers.iter().for_each(|number| batch.argument(&item::<WIDTH>(*number)));
    }
    batch
}

/// A bulk command for every `group` numbers: name, key, `FIXED 16`, blob.
pub fn bulk_commands(name: &str, key: &str, numbers: &[u64], group: usize) -> Batch {
    let mut batch = Batch::default();
    for numbers in numbers.chunks(group) {
        let blob: Vec<u8> = numbers.iter().flat_map(|number| item::<BULK_WIDTH>(*number)).collect();
        let width = BULK_WIDTH.to_string();
        batch.push(
            &[name.as_bytes(), key.as_bytes(), b"FIXED", width.as_bytes(), &blob],
            numbers.len() as u64,
        );
    }
    batch
}

/// Hands out numbers for adds, each only once.
#[derive(Clone)]
pub struct Fresh(pub Range<u64>);

impl Fresh {
    /// Number of items per round: `count`, or fewer if there aren't enough numbers for `rounds` rounds and the warm-up
    /// round.
    pub fn share(&self, count: u64, rounds: u64) -> u64 {
        count.min((self.0.end - self.0.start) / (rounds + 1))
    }

    /// The next `count` numbers. They are in order, but their hashes aren't.
    pub fn take(&mut self, count: u64) -> Vec<u64> {
        let start = self.0.start;
        self.0.start += count;
        assert!(self.0.start <= self.0.end, "a filter is sized for every round");
        (start..start + count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_numbers_of_fixed_width() {
        assert_eq!(&item::<WIDTH>(42), b"item:000000000042");
        assert_eq!(&item::<BULK_WIDTH>(ABSENT + 7), b"item500000000007");
    }

    #[test]
    fn half_of_the_items_are_present() {
        let numbers = Mix::Half.numbers(10_000, 100, &mut Rng::with_seed(1));
        let present = numbers.iter().filter(|number| **number < 100).count();
        assert!((4_500..5_500).contains(&present) && numbers.iter().all(|n| *n < 100 || *n >= ABSENT));
    }
}
