//! Builds a ribbon filter.
//!
//! The items' equations are brought into echelon form one by one. Each row keeps at most one equation that begins with
//! it. If another equation begins with the same row, the two are added, and the sum begins with a later row. Because
//! the items' equations come in ascending order of their first rows, this needs a single pass over the table. Then the
//! rows are computed from last to first.

use super::equation::Equation;
use super::sizes::{BLOCK, MOST_COLUMNS, Sizes};
use crate::error::Error;
use crate::filter::layout::rounds::{TURN, fill, turn, until_built};
use crate::mem::Words;
use crate::parallel::ParallelFor;
use crate::sync::Ordering::Relaxed;
use alloc::vec::Vec;

/// Bytes per item that building a filter needs in addition to the list and the filter: the item's hash, and a row of 20
/// bytes.
pub(super) const BYTES: u64 = 30;

/// See [`Algorithm::build`](super::super::algorithm::Algorithm::build). The result depends only on the set of hashes
/// and the error rate.
pub(super) fn build(
    hashes: Vec<u64>,
    error_rate: f64,
    parallel: &ParallelFor<'_>,
) -> Result<((u64, Words), u64), Error> {
    until_built(hashes, parallel, |hashes, rounds| {
        let sizes =
            Sizes::for_items(hashes.len() as u64, error_rate).ok_or(Error::Unreachable { error_rate })?;
        let mut echelon = Echelon { sizes, rows: Vec::new(), fingerprints: Vec::new() };
        fill(&mut echelon.rows, sizes.cells() as usize, parallel)?;
        fill(&mut echelon.fingerprints, sizes.cells() as usize, parallel)?;
        match echelon.add(hashes, parallel)? {
            true => Ok(Some((sizes.cells(), echelon.solve(rounds, parallel)?))),
            false => Ok(None),
        }
    })
}

/// For each row, the equation that begins with it, if there is one.
struct Echelon {
    sizes: Sizes,
    /// Each equation's rows; the lowest bit is the row itself. 0 if there is no equation.
    rows: Vec<u128>,
    fingerprints: Vec<u32>,
}

impl Echelon {
    /// Adds the equations of these items. Returns false if they contradict each other.
    fn add(&mut self, hashes: &[u64], parallel: &ParallelFor<'_>) -> Result<bool, Error> {
        let starts = self.sizes.starts();
        let used = u32::MAX >> (u32::BITS - self.sizes.columns);
        for part in hashes.chunks(TURN) {
            turn(parallel)?;
            for hash in part {
                let Equation { start, mut rows, fingerprint } = Equation::of(*hash, starts);
                let (mut at, mut fingerprint) = (start as usize, fingerprint & used);
                loop {
                    let known = self.rows[at];
                    if known == 0 {
                        (self.rows[at], self.fingerprints[at]) = (rows, fingerprint);
                        break;
                    }
                    rows ^= known;
                    fingerprint ^= self.fingerprints[at];
                    if rows == 0 {
                        if fingerprint != 0 {
                            return Ok(false);
                        }
                        break;
                    }
                    let skipped = rows.trailing_zeros();
                    rows >>= skipped;
                    at += skipped as usize;
                }
            }
        }
        Ok(true)
    }

    /// Computes the filter's words. A row that no equation begins with is 0.
    ///
    /// The last column is computed for all blocks, although only the wide ones store it: adding equations may have
    /// extended an equation from a wide block to rows in later blocks.
    fn solve(&self, rounds: u64, parallel: &ParallelFor<'_>) -> Result<Words, Error> {
        let words = Words::zeroed(self.sizes.words())?;
        // For each column, the 128 rows after the current one. The lowest bit is the next row.
        let mut after = [0u128; MOST_COLUMNS as usize];
        let after = &mut after[..self.sizes.columns as usize];
        for block in (0..self.sizes.blocks).rev() {
            let first = (block * BLOCK) as usize;
            if first.is_multiple_of(TURN) {
                turn(parallel)?;
            }
            for row in (first..first + BLOCK as usize).rev() {
                let (rows, fingerprint) = (self.rows[row] >> 1, self.fingerprints[row]);
                for (column, after) in after.iter_mut().enumerate() {
                    let others = (rows & *after).count_ones() ^ fingerprint >> column;
                    *after = *after << 1 | u128::from(others & 1);
                }
            }
            let columns = self.sizes.columns_at(block) as usize;
            let place = self.sizes.word(block) as usize;
            for (word, after) in words[place..].iter().zip(&after[..columns]) {
                word.store(*after as u64, Relaxed);
            }
        }
        words[words.len() - 1].store(self.sizes.describe(rounds), Relaxed);
        Ok(words)
    }
}
