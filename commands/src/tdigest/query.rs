//! Quantiles, ranks and means of the nodes of a t-digest, as RedisBloom computes them.

use super::digest::Node;

/// Nodes in ascending order, and what is known about the observations that they stand for.
pub(super) struct Query<'a> {
    min: f64,
    max: f64,
    nodes: &'a [Node],
    /// For each node, the number of observations before it.
    before: Vec<f64>,
    total: f64,
}

impl<'a> Query<'a> {
    pub(super) fn new(min: f64, max: f64, nodes: &'a [Node]) -> Query<'a> {
        let mut total = 0i64;
        let before = nodes.iter().map(|node| {
            let before = total;
            total = total.saturating_add(node.weight);
            before as f64
        });
        let before = before.collect();
        Query { min, max, nodes, before, total: total as f64 }
    }

    /// The observation below which this fraction of all lies, or NaN if there is none.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        self.at(quantile * self.total)
    }

    /// The observation with this many smaller ones, which is neither the first nor beyond the last.
    pub(super) fn by_rank(&self, rank: i64) -> f64 {
        self.at_rank(rank as f64 / self.total)
    }

    /// The observation with this many larger ones, which is neither the last nor before the first.
    pub(super) fn by_reverse_rank(&self, rank: i64) -> f64 {
        self.at_rank((self.total - rank as f64 - 1.0) / self.total)
    }

    fn at_rank(&self, quantile: f64) -> f64 {
        let index = quantile * self.total;
        if self.nodes.len() > 1 && index < 1.0 { self.min } else { self.at(index) }
    }

    /// The value at an index into the sorted observations. A node's observations are assumed to lie around its mean,
    /// half of them on either side.
    fn at(&self, index: f64) -> f64 {
        let (first, last) = match self.nodes {
            [] => return f64::NAN,
            [only] => return only.mean,
            [first, .., last] => (first, last),
        };
        let (half_first, half_last) = (first.weight as f64 / 2.0, last.weight as f64 / 2.0);
        let after = self.total - index;
        // RedisBloom divides by zero if a node of two observations is at an end.
        if first.weight > 1 && index < half_first {
            return match first.weight {
                2 => self.min,
                _ => self.min + (index - 1.0) / (half_first - 1.0) * (first.mean - self.min),
            };
        }
        if index > self.total - 1.0 {
            return self.max;
        }
        if last.weight > 1 && after <= half_last {
            return match last.weight {
                2 => self.max,
                _ => self.max - (after - 1.0) / (half_last - 1.0) * (self.max - last.mean),
            };
        }
        self.between(index).unwrap_or(self.max)
    }

    /// The value at an index that is between the middles of two neighbouring nodes.
    fn between(&self, index: f64) -> Option<f64> {
        let middle = |(node, before): (&Node, &f64)| before + node.weight as f64 / 2.0;
        let later = partition(1, self.nodes.len(), |later| {
            self.node(later).is_some_and(|node| middle(node) <= index)
        });
        let (left, right) = (self.node(later.checked_sub(1)?)?, self.node(later)?);
        let (from_left, from_right) = (index - middle(left), middle(right) - index);
        let (left, right) = (left.0, right.0);
        let (mut skipped_left, mut skipped_right) = (0.0, 0.0);
        // A single observation is exactly at its mean.
        if left.weight == 1 {
            if from_left < 0.5 {
                return Some(left.mean);
            }
            skipped_left = 0.5;
        }
        if right.weight == 1 {
            if from_right <= 0.5 {
                return Some(right.mean);
            }
            skipped_right = 0.5;
        }
        let (left_part, right_part) = (from_left - skipped_left, from_right - skipped_right);
        let mean = (left.mean * right_part + right.mean * left_part) / (right_part + left_part);
        Some(mean.max(left.mean).min(right.mean))
    }

    fn node(&self, index: usize) -> Option<(&Node, &f64)> {
        self.nodes.get(index).zip(self.before.get(index))
    }

    /// The fraction of observations that are at most this value, counting half of those that are equal.
    pub(super) fn cdf(&self, value: f64) -> f64 {
        let total = self.total;
        let (first, last) = match self.nodes {
            [] => return f64::NAN,
            _ if value < self.min => return 0.0,
            _ if value > self.max => return 1.0,
            [_] => return 0.5,
            [first, .., last] => (first, last),
        };
        if value < first.mean {
            return match () {
                _ if first.mean <= self.min => 0.0,
                _ if value == self.min => 0.5 / total,
                _ => {
                    let part = (value - self.min) / (first.mean - self.min);
                    (1.0 + part * (first.weight as f64 / 2.0 - 1.0)) / total
                }
            };
        }
        if value > last.mean {
            return match () {
                _ if self.max <= last.mean => 1.0,
                _ if value == self.max => 1.0 - 0.5 / total,
                _ => {
                    let part = (self.max - value) / (self.max - last.mean);
                    1.0 - (1.0 + part * (last.weight as f64 / 2.0 - 1.0)) / total
                }
            };
        }
        self.within(value)
    }

    /// The CDF of a value from the first node's mean to the last one's.
    fn within(&self, value: f64) -> f64 {
        let total = self.total;
        let equal = self.nodes.partition_point(|node| node.mean < value);
        let larger = self.nodes.partition_point(|node| node.mean <= value);
        if equal < larger {
            if equal.saturating_add(1) == self.nodes.len() {
                return 1.0 - 0.5 / total;
            }
            let before = |index| self.before.get(index).copied().unwrap_or(total);
            let same = before(larger) - before(equal);
            return (before(equal) + same / 2.0) / total;
        }
        let pair = larger.checked_sub(1).and_then(|left| self.node(left)).zip(self.nodes.get(larger));
        let Some(((left, before), right)) = pair else { return 1.0 - 0.5 / total };
        if left.weight == 1 && right.weight == 1 {
            return (before + 1.0) / total;
        }
        let skipped = |node: &Node| if node.weight == 1 { 0.5 } else { 0.0 };
        let (skipped_left, skipped_right) = (skipped(left), skipped(right));
        let (left_weight, right_weight) = (left.weight as f64, right.weight as f64);
        let width = (left_weight + right_weight) / 2.0 - skipped_left - skipped_right;
        let part = width * (value - left.mean) / (right.mean - left.mean);
        (before + left_weight / 2.0 + skipped_left + part) / total
    }

    /// Number of observations below this value, which lies between the smallest and the largest, and half of those that
    /// are equal.
    pub(super) fn rank(&self, value: f64) -> i64 {
        whole(half_down(self.cdf(value) * self.total))
    }

    /// Number of observations above this value, which lies between the smallest and the largest, and half of those that
    /// are equal.
    pub(super) fn reverse_rank(&self, value: f64) -> i64 {
        whole((self.total - (self.cdf(value) * self.total).round()).round())
    }

    /// The mean of the observations between two quantiles, or NaN if there is none.
    pub(super) fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        match self.nodes {
            [] => return f64::NAN,
            [only] => return only.mean,
            _ => {}
        }
        let (from, to) = ((self.total * low).floor(), (self.total * high).ceil());
        let (mut sum, mut count) = (0.0, 0.0);
        for (node, done) in self.nodes.iter().zip(&self.before) {
            if *done >= to {
                break;
            }
            // In a node with both bounds, the upper one doesn't know of the lower one, as in RedisBloom.
            let weight = node.weight as f64;
            let above = weight - (from - done).max(0.0).min(weight);
            let inside = above.min((to - done).max(0.0));
            sum += node.mean * inside;
            count += inside;
        }
        sum / count
    }
}

/// The first number from `from` to `to` for which `is_before` is false.
fn partition(from: usize, to: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (from, to);
    while from < to {
        let middle = from.midpoint(to);
        if is_before(middle) {
            from = middle.saturating_add(1);
        } else {
            to = middle;
        }
    }
    from
}

/// Rounds to the nearest whole number, and halves down.
fn half_down(rank: f64) -> f64 {
    let below = rank.floor();
    if rank - below <= 0.5 { below } else { below + 1.0 }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "there are at most 2^63 observations, and the cast saturates"
)]
fn whole(rank: f64) -> i64 {
    rank as i64
}

#[cfg(test)]
mod tests {
    use super::super::digest::Digest;

    fn digest(compression: f64, values: impl IntoIterator<Item = f64>) -> Digest {
        let mut digest = Digest::new(compression);
        values.into_iter().for_each(|value| digest.add(value, 1).unwrap());
        digest.compress();
        digest
    }

    /// The 500 values of a session with RedisBloom, which tests/fixtures/sketches/transcript.json contains.
    fn recorded() -> Digest {
        digest(10.0, (0..500).map(|i| f64::from(i * 37 % 500 * 20 + 25) / 100.0))
    }

    #[test]
    fn quantiles_are_redisblooms_to_the_bit() {
        let digest = recorded();
        let query = digest.query();
        let asked = [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];
        let expected = [
            0.25,
            1.8000000000000003,
            13.214952978056427,
            27.12286973969596,
            49.78481799797777,
            73.53913633299626,
            89.14457516339867,
            98.78,
            100.05,
        ];
        assert_eq!(asked.map(|quantile| query.quantile(quantile)), expected);
        assert_eq!(query.trimmed_mean(0.1, 0.9), 49.90039655172415);
        assert_eq!([1, 50, 499].map(|rank| query.by_rank(rank)), [0.25, 13.214952978056427, 100.05]);
        assert_eq!([1, 50, 499].map(|rank| query.by_reverse_rank(rank)), [99.35, 88.92748366013069, 0.25]);
    }

    #[test]
    fn ranks_are_redisblooms_to_the_bit() {
        let digest = recorded();
        let query = digest.query();
        let asked = [0.0, 0.5, 10.0, 33.3, 50.0, 99.5, 100.0, 101.0];
        let expected = [
            0.0,
            0.0036666666666666666,
            0.0740189366351056,
            0.31939407525807756,
            0.5022646619341735,
            0.9964285714285714,
            0.9978571428571429,
            1.0,
        ];
        assert_eq!(asked.map(|value| query.cdf(value)), expected);
        assert_eq!([1.0, 10.0, 50.0, 100.0].map(|value| query.rank(value)), [3, 37, 251, 499]);
        assert_eq!([1.0, 10.0, 50.0, 100.0].map(|value| query.reverse_rank(value)), [497, 463, 249, 1]);
    }

    #[test]
    fn equal_values_share_their_rank() {
        let digest = digest(100.0, [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5].map(f64::from));
        let query = digest.query();
        let asked = [1, 2, 3, 4, 5].map(f64::from);
        assert_eq!(asked.map(|value| query.rank(value)), [0, 2, 4, 8, 12]);
        assert_eq!(asked.map(|value| query.reverse_rank(value)), [14, 13, 10, 7, 2]);
        assert_eq!([1.5, 4.5].map(|value| query.cdf(value)), [0.06666666666666667, 0.6666666666666666]);
        assert_eq!(query.trimmed_mean(0.1, 0.6), 3.125);
        assert_eq!([1, 3, 14].map(|rank| query.by_rank(rank)), [2.0, 3.0, 5.0]);
    }

    /// RedisBloom divides by zero here, and answers NaN.
    #[test]
    fn two_observations_at_an_end_have_a_value() {
        let crafted = |weights: [i64; 3]| {
            let mut digest = Digest::new(1.0);
            let pairs = [1.0, 2.0, 3.0].into_iter().zip(weights);
            pairs.for_each(|(mean, weight)| digest.add(mean, weight).unwrap());
            digest
        };
        let (first, last) = (crafted([2, 2, 1]), crafted([1, 2, 2]));
        assert_eq!([0.0, 0.1].map(|quantile| first.query().quantile(quantile)), [1.0, 1.0]);
        assert_eq!(last.query().quantile(0.8), 3.0);
    }

    #[test]
    fn one_observation_and_none_are_answered() {
        let (none, one) = (Digest::new(100.0), digest(100.0, [5.0]));
        assert!(none.query().quantile(0.5).is_nan() && none.query().cdf(0.0).is_nan());
        assert!(none.query().trimmed_mean(0.0, 1.0).is_nan());
        assert_eq!([0.0, 0.5, 1.0].map(|quantile| one.query().quantile(quantile)), [5.0; 3]);
        assert_eq!([4.0, 5.0, 6.0].map(|value| one.query().cdf(value)), [0.0, 0.5, 1.0]);
        assert_eq!((one.query().rank(5.0), one.query().trimmed_mean(0.1, 0.2)), (0, 5.0));
    }
}
