//! The t-digest: nodes that stand for observations near each other, few in the middle of a distribution and single
//! observations at its ends (Dunning, Ertl, "Computing Extremely Accurate Quantiles Using t-Digests", 2019).
//!
//! Results are RedisBloom's of 2026, bit for bit, so the order of all operations on doubles is part of the format.

use super::query::Query;
use std::cmp::Ordering;
use std::f64::consts::PI;

/// The largest compression with which RedisBloom's capacity is an `i32`.
pub(super) const MOST_COMPRESSION: u32 = 357_913_939;

/// Observations that are kept as their mean and their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Node {
    pub(super) mean: f64,
    pub(super) weight: i64,
}

/// Why an observation can't be added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Refused {
    /// Too many observations for an `i64`, or nodes so heavy that compressing makes no room.
    Overflow,
    /// This many bytes were not available.
    Memory(u64),
}

#[derive(Debug, PartialEq)]
pub(super) struct Digest {
    /// An integer, unless a RedisBloom file says otherwise.
    compression: f64,
    /// Number of nodes for which RedisBloom allocates memory at once. Ours grows up to this.
    capacity: usize,
    /// The smallest observation; the largest double if there is none.
    min: f64,
    /// The largest observation; the smallest double if there is none.
    max: f64,
    /// Merged nodes in ascending order, then unmerged ones in the order in which they came.
    nodes: Vec<Node>,
    merged: usize,
    merged_weight: i64,
    unmerged_weight: i64,
    compressions: i64,
}

impl Digest {
    /// An empty digest. Larger compressions are more exact, and need more nodes.
    pub(super) fn new(compression: f64) -> Digest {
        Digest {
            compression,
            capacity: capacity(compression),
            min: f64::MAX,
            max: f64::MIN,
            nodes: Vec::new(),
            merged: 0,
            merged_weight: 0,
            unmerged_weight: 0,
            compressions: 0,
        }
    }

    /// A digest from a file that was checked, with nodes in ascending order. They are all merged or all unmerged.
    pub(super) fn from_parts(
        compression: f64,
        (min, max): (f64, f64),
        nodes: Vec<Node>,
        compressions: i64,
        is_compressed: bool,
    ) -> Option<Digest> {
        let weight = nodes.iter().try_fold(0i64, |sum, node| sum.checked_add(node.weight))?;
        let (merged, merged_weight) = if is_compressed { (nodes.len(), weight) } else { (0, 0) };
        let unmerged_weight = weight.saturating_sub(merged_weight);
        let empty = Digest::new(compression);
        Some(Digest { min, max, nodes, merged, merged_weight, unmerged_weight, compressions, ..empty })
    }

    /// A copy whose nodes are all merged.
    pub(super) fn compressed(&self) -> Result<Digest, Refused> {
        let mut copy = self.copy()?;
        copy.compress();
        copy.nodes.shrink_to_fit();
        Ok(copy)
    }

    /// A copy with sorted nodes. Compressing sorts first, and sorting is stable, so the copy compresses as the digest
    /// does, also after further adds.
    pub(super) fn sorted(&self) -> Result<Digest, Refused> {
        let mut copy = self.copy()?;
        copy.sort();
        Ok(copy)
    }

    pub(super) fn copy(&self) -> Result<Digest, Refused> {
        let mut nodes = Vec::new();
        reserve(&mut nodes, self.nodes.len())?;
        nodes.extend_from_slice(&self.nodes);
        Ok(Digest { nodes, ..*self })
    }

    /// Adds `weight` observations with this mean, a finite number.
    #[inline]
    pub(super) fn add(&mut self, mean: f64, weight: i64) -> Result<(), Refused> {
        let unmerged = self.unmerged_weight.checked_add(weight).ok_or(Refused::Overflow)?;
        unmerged.checked_add(self.merged_weight).ok_or(Refused::Overflow)?;
        if self.nodes.len() == self.nodes.capacity() || self.nodes.len() >= self.most_nodes() {
            self.make_room()?;
        }
        self.min = self.min.min(mean);
        self.max = self.max.max(mean);
        self.nodes.push(Node { mean, weight });
        // Compressing has changed the unmerged weight.
        self.unmerged_weight = self.unmerged_weight.saturating_add(weight);
        Ok(())
    }

    /// Compresses, and adds the nodes of a digest without unmerged ones.
    pub(super) fn add_all(&mut self, compressed: &Digest) -> Result<(), Refused> {
        self.compress();
        compressed.nodes.iter().try_for_each(|node| self.add(node.mean, node.weight))
    }

    /// Allocates memory for more nodes, or compresses if there are as many as there may be.
    #[cold]
    fn make_room(&mut self) -> Result<(), Refused> {
        let most = self.most_nodes();
        if self.nodes.len() >= most {
            self.compress();
        }
        if self.nodes.len() >= most {
            return Err(Refused::Overflow);
        }
        if self.nodes.len() == self.nodes.capacity() {
            let nodes = self.nodes.len();
            let wanted = nodes.saturating_mul(2).clamp(FIRST_NODES, most);
            reserve(&mut self.nodes, wanted.saturating_sub(nodes))?;
        }
        Ok(())
    }

    /// Merges nodes that stand for few enough observations together: at most q(1 − q) · 2πW·ln(W) / compression of W,
    /// at quantile q. So the first and the last node stay alone.
    pub(super) fn compress(&mut self) {
        if self.is_compressed() {
            return;
        }
        self.sort();
        let observations = self.observations();
        let total = observations as f64;
        let normalizer = self.compression / (2.0 * PI * total * total.ln());
        // The number of observations before the node, and the quantile where it begins.
        let (mut before, mut first) = (0.0, 0.0);
        self.nodes.dedup_by(|next, node| {
            let both = node.weight as f64 + next.weight as f64;
            let fits = |quantile: f64| both * normalizer <= quantile * (1.0 - quantile);
            let is_light = fits(first) && fits((before + both) / total);
            if is_light {
                node.join(next);
            } else {
                before += node.weight as f64;
                first = before / total;
            }
            is_light
        });
        self.merged = self.nodes.len();
        self.merged_weight = observations;
        self.unmerged_weight = 0;
        self.compressions = self.compressions.saturating_add(1);
    }

    /// Sorting is stable. Of nodes with equal means, the order decides which are merged.
    fn sort(&mut self) {
        self.nodes.sort_by(|a, b| a.mean.partial_cmp(&b.mean).unwrap_or(Ordering::Equal));
    }

    /// Whether compressing would change nothing.
    pub(super) fn is_compressed(&self) -> bool {
        self.merged == self.nodes.len()
    }

    /// The nodes of a digest without unmerged ones, ready to be asked.
    pub(super) fn query(&self) -> Query<'_> {
        Query::new(self.min, self.max, &self.nodes)
    }

    pub(super) fn compression(&self) -> f64 {
        self.compression
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// The number of nodes at which an add compresses.
    fn most_nodes(&self) -> usize {
        self.capacity.saturating_sub(1)
    }

    pub(super) fn min(&self) -> f64 {
        self.min
    }

    pub(super) fn max(&self) -> f64 {
        self.max
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn merged(&self) -> usize {
        self.merged
    }

    pub(super) fn merged_weight(&self) -> i64 {
        self.merged_weight
    }

    pub(super) fn unmerged_weight(&self) -> i64 {
        self.unmerged_weight
    }

    pub(super) fn observations(&self) -> i64 {
        self.merged_weight.saturating_add(self.unmerged_weight)
    }

    pub(super) fn compressions(&self) -> i64 {
        self.compressions
    }

    /// Bytes of memory for nodes.
    pub(super) fn bytes(&self) -> u64 {
        Digest::bytes_of(self.nodes.capacity())
    }

    /// Bytes of memory after adding this many observations, at most.
    pub(super) fn bytes_with(&self, observations: usize) -> u64 {
        let nodes = self.nodes.len().saturating_add(observations);
        let doubled = self.nodes.len().saturating_mul(2);
        let grown = if nodes > self.nodes.capacity() { nodes.max(doubled).min(self.most_nodes()) } else { 0 };
        self.bytes().max(Digest::bytes_of(grown))
    }

    /// Bytes of memory for this many nodes.
    pub(super) fn bytes_of(nodes: usize) -> u64 {
        (nodes as u64).saturating_mul(size_of::<Node>() as u64)
    }
}

/// Number of nodes for which the first observation allocates memory.
const FIRST_NODES: usize = 4;

/// The capacity that belongs to a compression.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "compressions are at least 1, and at most MOST_COMPRESSION"
)]
pub(super) fn capacity(compression: f64) -> usize {
    (compression as usize).saturating_mul(6).saturating_add(10)
}

impl Node {
    /// Takes in another node, whose mean isn't smaller.
    fn join(&mut self, other: &Node) {
        self.weight = self.weight.saturating_add(other.weight);
        let mean = self.mean + ((other.mean - self.mean) * other.weight as f64) / self.weight as f64;
        // The difference of two doubles may be infinite, and weights above 2^50 round. Nodes stay finite and in order.
        self.mean = if mean > other.mean { other.mean } else { mean };
    }
}

/// Reserves memory for this many more nodes.
pub(super) fn reserve(nodes: &mut Vec<Node>, more: usize) -> Result<(), Refused> {
    let wanted = nodes.len().saturating_add(more);
    nodes.try_reserve_exact(more).map_err(|_| Refused::Memory(Digest::bytes_of(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(digest: &Digest) -> (usize, usize, i64, i64, i64) {
        let unmerged = digest.nodes.len() - digest.merged;
        (digest.merged, unmerged, digest.merged_weight, digest.unmerged_weight, digest.compressions)
    }

    /// The numbers are RedisBloom's.
    #[test]
    fn adds_compress_when_the_nodes_are_used_up() {
        let mut digest = Digest::new(10.0);
        (0..500).for_each(|i| digest.add(f64::from(i * 37 % 500 * 20 + 25) / 100.0, 1).unwrap());
        assert_eq!(counts(&digest), (11, 21, 479, 21, 8));
        digest.compress();
        assert_eq!(counts(&digest), (11, 0, 500, 0, 9));
        digest.compress();
        assert_eq!(digest.compressions, 9, "nothing was left to compress");
        let mut merged = Digest::new(10.0);
        (0..2).for_each(|_| merged.add_all(&digest).unwrap());
        assert_eq!(counts(&merged), (11, 11, 500, 500, 1));
    }

    /// A replica saves its digests like this, and goes on with them after a restart.
    #[test]
    fn a_sorted_digest_compresses_as_before() {
        for stop in 0..300 {
            let mut digest = Digest::new(3.0);
            let value = |i| f64::from(i * 37 % 23);
            (0..stop).for_each(|i| digest.add(value(i), 1).unwrap());
            let sorted = digest.sorted().unwrap();
            let (parts, is_compressed) = ((sorted.min, sorted.max), digest.is_compressed());
            let loaded = Digest::from_parts(3.0, parts, sorted.nodes, digest.compressions, is_compressed);
            let mut loaded = loaded.unwrap();
            for digest in [&mut digest, &mut loaded] {
                (0..40).for_each(|i| digest.add(value(i * i), 1).unwrap());
                digest.compress();
            }
            assert_eq!(loaded, digest, "{stop}");
        }
    }

    /// Differences and products of doubles overflow, and weights above 2^53 round.
    #[test]
    fn extreme_nodes_stay_finite_and_in_order() {
        let mut digest = Digest::new(1.0);
        for i in 0..10_000 {
            let value = f64::MAX * [1.0, -1.0, 0.99, -0.5, 1e-300][i % 5];
            digest.add(value, 1 << (i % 49)).unwrap();
        }
        digest.compress();
        assert!(digest.nodes.iter().all(|node| node.mean.is_finite()), "{:?}", digest.nodes);
        assert!(digest.nodes.is_sorted_by(|a, b| a.mean <= b.mean), "{:?}", digest.nodes);
        let weight = digest.observations();
        while digest.add_all(&digest.copy().unwrap()).is_ok() {
            digest.compress();
        }
        digest.compress();
        assert!(digest.observations() >= weight && digest.add(0.0, i64::MAX) == Err(Refused::Overflow));
        assert!(digest.nodes.is_sorted_by(|a, b| a.mean <= b.mean), "{:?}", digest.nodes);
    }

    #[test]
    fn memory_grows_with_the_nodes_up_to_the_capacity() {
        let mut digest = Digest::new(100.0);
        assert_eq!(digest.bytes(), 0);
        (0..5).for_each(|i| digest.add(f64::from(i), 1).unwrap());
        assert_eq!(digest.bytes(), 8 * 16);
        (0..100_000).for_each(|i| digest.add(f64::from(i), 1).unwrap());
        assert_eq!(digest.bytes(), 609 * 16);
        assert!(digest.compressed().unwrap().bytes() < 250 * 16);
    }
}
