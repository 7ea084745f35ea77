//! The scaling filter: layers of growing capacity and shrinking error rate (Almeida, Baquero, Preguiça, Hutchison,
//! "Scalable Bloom Filters", 2007). Items go to the newest layer. A test looks at all layers, newest first.
//!
//! By default, the second layer is a table, which grows by itself, so there is no third one. With the layout QUOTIENT,
//! the only layer is a table.

use crate::error::Error;
use crate::filter::layout::{Layer, Shape};
use crate::hash::ItemHash;
use crate::params::{Spec, limits};
use alloc::{boxed::Box, vec::Vec};
use smallvec::SmallVec;

/// Layers from oldest to newest; never empty. Layers that came from a merge are placed before the newest. There is at
/// most one table.
pub struct Chain(Layers);

/// A single layer is stored inline, because most chains never grow. Several layers are boxed, which keeps the enum at
/// 16 bytes.
enum Layers {
    One(Layer),
    #[expect(clippy::box_collection, reason = "8 bytes less in each filter")]
    Several(Box<Vec<Layer>>),
}

impl Layers {
    /// Takes all layers out so that they can be changed. What remains is empty and must be replaced.
    fn take(&mut self) -> Vec<Layer> {
        match core::mem::replace(self, Layers::Several(Box::default())) {
            Layers::One(layer) => vec![layer],
            Layers::Several(layers) => *layers,
        }
    }
}

impl Chain {
    pub(crate) fn new(shape: Shape) -> Result<Chain, Error> {
        Ok(Chain(Layers::One(Layer::new(shape)?)))
    }

    pub(crate) fn from_layers(mut layers: Vec<Layer>) -> Chain {
        assert!(!layers.is_empty(), "a chain has a first layer");
        match (layers.pop(), layers.is_empty()) {
            (Some(only), true) => Chain(Layers::One(only)),
            (newest, _) => {
                layers.extend(newest);
                Chain(Layers::Several(Box::new(layers)))
            }
        }
    }

    /// Layers from oldest to newest.
    #[inline]
    pub fn layers(&self) -> &[Layer] {
        match &self.0 {
            Layers::One(layer) => core::slice::from_ref(layer),
            Layers::Several(layers) => layers,
        }
    }

    /// Whether any layer may contain the item.
    #[inline]
    pub fn contains(&self, item: ItemHash) -> bool {
        // The newest layers are the largest and contain most of the items.
        self.layers().iter().rev().any(|layer| layer.contains(item))
    }

    /// Whether any layer except the newest may contain the item.
    #[inline]
    pub(crate) fn older_contain(&self, item: ItemHash) -> bool {
        self.layers().iter().rev().skip(1).any(|layer| layer.contains(item))
    }

    /// Shape of the layer that the chain adds when it next grows.
    pub(crate) fn next_shape(&self, spec: &Spec) -> Result<Shape, Error> {
        if self.layers().len() >= limits::MAX_LAYERS {
            return Err(Error::TooManyLayers);
        }
        let capacities: SmallVec<[u64; 32]> = self.layers().iter().map(|layer| layer.capacity()).collect();
        spec.next_shape(&capacities)
    }

    /// Makes the chain's table the newest layer. If it has none, adds the next layer.
    pub(crate) fn grow(&mut self, spec: &Spec) -> Result<(), Error> {
        let table = self.layers().iter().position(Layer::has_table);
        let next = match table {
            Some(_) => None,
            None => Some(Layer::new(self.next_shape(spec)?)?),
        };
        let mut layers = self.0.take();
        layers.reserve_exact(1);
        let newest = next.or_else(|| table.map(|index| layers.remove(index)));
        newest.iter().filter(|layer| layer.has_table()).for_each(Layer::grow_table);
        layers.extend(newest);
        self.0 = Layers::Several(Box::new(layers));
        Ok(())
    }

    /// Inserts layers that were filled elsewhere. The newest layer stays the newest, so adds continue as before.
    pub(crate) fn insert_before_newest(&mut self, layers: Vec<Layer>) {
        let mut all = self.0.take();
        let newest = all.pop();
        all.extend(layers);
        all.extend(newest);
        self.0 = Layers::Several(Box::new(all));
    }

    /// The layer that receives new items.
    #[inline]
    pub fn newest(&self) -> &Layer {
        match &self.0 {
            Layers::One(layer) => layer,
            Layers::Several(layers) => &layers[layers.len() - 1],
        }
    }
}
