//! Words as bytes, little-endian.

use super::words::{Cells, LINE, Words};
use crate::error::Error;
use crate::sync::AtomicU64;
use crate::sync::Ordering::Relaxed;
use alloc::vec::Vec;

impl Words {
    /// Words with these bytes, little-endian. The last word is padded with zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Words, Error> {
        let words = Words::zeroed(bytes.len().div_ceil(8) as u64)?;
        words.or_bytes(0, bytes);
        Ok(words)
    }

    /// Returns the first `len` bytes of the words, little-endian.
    pub(crate) fn to_bytes(words: &Cells, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Words::append_bytes(words, len, &mut bytes);
        bytes
    }

    /// Appends the first `len` bytes of the words, little-endian.
    pub(crate) fn append_bytes(words: &Cells, len: u64, to: &mut Vec<u8>) {
        let first = to.len();
        to.resize(first + words.len() * 8, 0);
        Words::read_bytes(words, 0, &mut to[first..]);
        to.truncate(first + len as usize);
    }

    /// Sets the bits that are set in `bytes`, beginning at byte `offset`. Only one thread may write.
    pub(crate) fn or_bytes(&self, offset: u64, bytes: &[u8]) {
        Words::merge_bytes(self, offset, bytes, |word, _, bits| {
            // A page of zeros stays untouched.
            if bits != 0 {
                word.store(word.load(Relaxed) | bits, Relaxed);
            }
        });
    }

    /// Overwrites bytes with `bytes`, beginning at byte `offset`. Only one thread may write.
    pub(crate) fn set_bytes(words: &Cells, offset: u64, bytes: &[u8]) {
        Words::merge_bytes(words, offset, bytes, |word, mask, bits| {
            let old = word.load(Relaxed);
            let new = old & !mask | bits;
            if new != old {
                word.store(new, Relaxed);
            }
        });
    }

    /// Calls `merge` for each word that `bytes` cover, in whole or in part, if they begin at byte `offset`. `merge`
    /// receives the word, a mask of its covered bits, and the values of these bits.
    #[inline(always)]
    fn merge_bytes(words: &Cells, offset: u64, bytes: &[u8], merge: impl Fn(&AtomicU64, u64, u64)) {
        // First the bytes up to the next word, then the rest word by word.
        let (first, skipped) = ((offset / 8) as usize, (offset % 8) as usize);
        let (head, body) = bytes.split_at(if skipped == 0 { 0 } else { (8 - skipped).min(bytes.len()) });
        let mut padded = [0; 8];
        let mask = |from: usize, len: usize| (u64::MAX >> (64 - 8 * len)) << (8 * from);
        if !head.is_empty() {
            padded[skipped..skipped + head.len()].copy_from_slice(head);
            merge(&words[first], mask(skipped, head.len()), u64::from_le_bytes(padded));
        }
        for (word, chunk) in words[first + usize::from(skipped > 0)..].iter().zip(body.chunks(8)) {
            padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            merge(word, mask(0, chunk.len()), u64::from_le_bytes(padded));
        }
    }

    /// The words that contain `len > 0` bytes, beginning at byte `offset`.
    pub(crate) fn around(words: &Cells, offset: u64, len: usize) -> &Cells {
        let first = offset as usize;
        &words[first / 8..(first + len).div_ceil(8)]
    }

    /// Copies words into `bytes`, little-endian, beginning at word `first`. The length of `bytes` is a multiple of 8.
    pub(crate) fn read_bytes(words: &Cells, first: usize, bytes: &mut [u8]) {
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(&words[first..]) {
            chunk.copy_from_slice(&word.load(Relaxed).to_le_bytes());
        }
    }

    /// The inverse of [`read_bytes`](Words::read_bytes): copies `bytes` into words that are 0, beginning at byte
    /// `offset`, a multiple of 8.
    pub(crate) fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        #[inline(always)]
        fn write(words: &Cells, bytes: &[u8]) {
            // A page of zeros stays untouched.
            if bytes.iter().fold(0, |all, byte| all | byte) != 0 {
                for (word, bytes) in words.iter().zip(bytes.as_chunks().0) {
                    word.store(u64::from_le_bytes(*bytes), Relaxed);
                }
            }
        }
        let first = (offset / 8) as usize;
        let (lines, rest) = bytes.as_chunks::<LINE>();
        let (words, last) = self[first..first + bytes.len() / 8].split_at(lines.len() * (LINE / 8));
        for (words, line) in words.chunks_exact(LINE / 8).zip(lines) {
            write(words, line);
        }
        write(last, rest);
    }
}
