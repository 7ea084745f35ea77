//! From a list of hashes to a static filter.

use super::layer::{Census, Layer};
use super::{Bloom, Body};
use crate::error::Error;
use crate::filter::fuse;
use crate::parallel::ParallelFor;
use crate::sizing::Shape;

impl Bloom {
    /// The static filter of the items in this list. Equal lists give equal filters, and so do lists in another order or with
    /// repetitions.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Exclusive`], [`Error::Unbuilt`].
    pub(crate) fn build(&self, parallel: &ParallelFor<'_>) -> Result<Bloom, Error> {
        let count = self.items() as usize;
        let mut hashes = Vec::new();
        let refused = Error::OutOfMemory { bytes: count as u64 * 8 };
        hashes.try_reserve_exact(count).map_err(|_| refused)?;
        hashes.extend(self.layers().iter().flat_map(Layer::hashes));
        let width = self.spec().built(1).next_shape(&[])?.probes;
        let (sizes, words, items) = fuse::build(hashes, width, parallel)?;
        let spec = self.spec().built(items);
        let shape = Shape { cells: sizes.cells(), ..spec.next_shape(&[])? };
        let layer = Layer::from_words(shape, words, items, Census::default())?;
        Ok(Bloom::from_parts(spec, Body::Fixed(layer)))
    }
}
