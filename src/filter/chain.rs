//! The scaling filter: layers of growing capacity and shrinking error rate (Almeida, Baquero, Preguiça, Hutchison,
//! "Scalable Bloom Filters", 2007). Items go to the newest layer; a test asks all of them, newest first.

use super::layer::Layer;
use crate::error::Error;
use crate::hash::ItemHash;
use crate::params::{Spec, limits};
use crate::sizing::Shape;
use smallvec::SmallVec;
use std::sync::Arc;

/// A layer list: one inline, because most chains never grow.
pub(crate) type Layers = SmallVec<[Arc<Layer>; 1]>;

/// Layers from oldest to newest; never empty. Those that a merge took in stand before the newest.
pub struct Chain {
    layers: Layers,
}

impl Chain {
    pub(crate) fn new(spec: &Spec) -> Result<Chain, Error> {
        let mut chain = Chain { layers: Layers::new() };
        chain.grow(spec)?;
        Ok(chain)
    }

    pub(crate) fn from_layers(layers: Layers) -> Chain {
        assert!(!layers.is_empty(), "a chain has a first layer");
        Chain { layers }
    }

    /// Layers from oldest to newest.
    pub fn layers(&self) -> &[Arc<Layer>] {
        &self.layers
    }

    /// Whether some layer may hold the item.
    #[inline]
    pub fn contains(&self, item: ItemHash) -> bool {
        // The newest layers are the largest and hold most items.
        self.layers.iter().rev().any(|layer| layer.contains(item))
    }

    /// Whether some layer but the newest may hold the item.
    #[inline]
    pub(crate) fn older_contain(&self, item: ItemHash) -> bool {
        self.layers.iter().rev().skip(1).any(|layer| layer.contains(item))
    }

    /// Shape of the layer that an add to the full chain would open.
    pub(crate) fn next_shape(&self, spec: &Spec) -> Result<Shape, Error> {
        if self.layers.len() >= limits::MAX_LAYERS {
            return Err(Error::TooManyLayers);
        }
        let capacities: SmallVec<[u64; 32]> = self.layers.iter().map(|layer| layer.capacity()).collect();
        spec.next_shape(&capacities)
    }

    pub(crate) fn grow(&mut self, spec: &Spec) -> Result<(), Error> {
        let layer = Layer::new(self.next_shape(spec)?)?;
        self.layers.push(Arc::new(layer));
        Ok(())
    }

    /// Takes in layers that were filled elsewhere. Adds go on where they did, and so does growth.
    pub(crate) fn insert_before_newest(&mut self, layers: Vec<Arc<Layer>>) {
        self.layers.insert_many(self.layers.len() - 1, layers);
    }

    /// The layer that takes the adds.
    #[inline]
    pub fn newest(&self) -> &Arc<Layer> {
        &self.layers[self.layers.len() - 1]
    }
}
