//! Turns a list of hashes into a shorter list, or into a static filter.

use super::{Bloom, Body};
use crate::error::Error;
use crate::filter::layout::{Census, Layer, Shape};
use crate::hash::ItemHash;
use crate::parallel::ParallelFor;
use crate::params::Layout;
use alloc::vec::Vec;

/// The share of repetitions is estimated from a sample, which consists of the hashes that are multiples of this number.
const SAMPLE: u64 = 256;

/// Number of different hashes that may be missing from the sample by chance.
const SLACK: u64 = 8;

impl Bloom {
    /// The hashes in this list.
    fn hashes(&self) -> Result<Vec<u64>, Error> {
        let mut hashes = Vec::new();
        let refused = Error::OutOfMemory { bytes: self.items().saturating_mul(8) };
        hashes.try_reserve_exact(self.items() as usize).map_err(|_| refused)?;
        hashes.extend(self.layers().iter().flat_map(Layer::hashes));
        Ok(hashes)
    }

    /// This list without repetitions; `None` if repetitions are estimated to make up less than half of it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn shortened(&self) -> Result<Option<Bloom>, Error> {
        let sampled = self.layers().iter().flat_map(Layer::hashes).filter(|hash| hash.is_multiple_of(SAMPLE));
        let mut sample: Vec<u64> = sampled.collect();
        sample.sort_unstable();
        sample.dedup();
        if (sample.len() as u64 + SLACK) * SAMPLE > self.items() / 2 {
            return Ok(None);
        }
        let mut hashes = self.hashes()?;
        hashes.sort_unstable();
        hashes.dedup();
        let mut list = Bloom::new_admitted(self.spec(), 0, |_| Ok(()))?;
        for high in hashes {
            list.add(ItemHash { low: 0, high })?;
        }
        Ok(Some(list))
    }

    /// Bytes per item that building the static filter needs in addition to the list and the filter.
    #[doc(hidden)]
    pub fn build_bytes(&self) -> u64 {
        self.spec().layout.map_or(0, Layout::build_bytes)
    }

    /// Builds the static filter for the items in this list. Lists with the same items give equal filters, even if their
    /// order differs or items are repeated.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Exclusive`], [`Error::Unbuilt`].
    #[doc(hidden)]
    pub fn build(&self, parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        let spec = self.spec();
        let Some(layout) = spec.layout else { return Err(Error::Exclusive("only a list is built")) };
        let ((cells, words), items) = layout.build(self.hashes()?, spec.error_rate, parallel)?;
        let spec = spec.built(items);
        let shape = Shape { cells, ..spec.next_shape(&[])? };
        let layer = Layer::from_words(shape, words, items, Census::default())?;
        Ok(Bloom::from_parts(spec, Body::Fixed(layer)))
    }
}
