//! Probabilities of Bloom filters, as small functions with their sources.
//!
//! The unit of analysis is a *range*: the cells over which all k probes of one item are spread. A CLASSIC shard is
//! one range of m/shards cells; a BLOCKED filter has one range per 512-bit block. An item falls into each range
//! with equal probability, so the number of items in a range is binomial. The filter's error rate is the mean of
//! the range's rate over that distribution: the Poisson mixture of Putze, Sanders, Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters" (JEA 2009), §3. This one formula covers both blocks and shards.
//!
//! Everything here is computed with IEEE basic operations and the pure-Rust `libm`, never with the platform's libm:
//! geometry is derived from these numbers, and a replica with a different C library must derive the same geometry.

/// How the probes of an item are spread: over the cells of one range, with the same number of probes in each slice of
/// the range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// Number of ranges.
    pub ranges: f64,
    /// Slices of a range: in PARTITIONED, as many as an item has probes; otherwise 1.
    pub slices: u32,
    /// Cells per slice.
    pub cells: f64,
    /// Probes of an item in each slice.
    pub probes: u32,
}

/// ln 2.
pub(crate) const LN_2: f64 = core::f64::consts::LN_2;

/// `base` to an integer power, by squaring. `f64::powi` may give different results with different compilers; this
/// function must not.
pub fn power(base: f64, exponent: u32) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}

/// Natural logarithm of the chance that one uniform draw over `cells` cells misses a given cell.
fn ln_miss(cells: f64) -> f64 {
    // A single cell is never missed. exp() underflows to 0 at about -745.
    if cells <= 1.0 { -745.0 } else { libm::log1p(-1.0 / cells) }
}

/// Chance that an absent item tests positive in one range, given the mean fraction of *empty* cells after `draws`
/// uniform draws over `cells` cells.
///
/// The probes are independent draws, so the rate is `E[fill^k]`. The textbook formula `E[fill]^k` is 1% to 5% too low
/// for a 512-bit block, which the tests would notice. The second-order term uses the variance of the number of
/// occupied cells (Kolchin, Sevast'yanov, Chistyakov, "Random Allocations", 1978).
fn range_rate(empty: f64, draws: f64, cells: f64, probes: u32) -> f64 {
    let fill = 1.0 - empty;
    if fill <= 0.0 {
        return 0.0;
    }
    let load = draws / cells;
    let variance = empty * (1.0 - (1.0 + load) * empty) / cells;
    let k = f64::from(probes);
    let rate = power(fill, probes) * (1.0 + 0.5 * k * (k - 1.0) * variance.max(0.0) / (fill * fill));
    rate.min(1.0)
}

/// Error rate of equal ranges that together contain `items` items.
///
/// Exact up to the second-order term of `range_rate`; within 1% of simulation for p ≥ 1e-4
/// (tests/library/error_rate.rs). The slices of a range are filled by independent probes, so their rates multiply. With
/// one probe per slice, this is exact: the rate of k slices of s cells is (1 − (1 − 1/s)^n)^k (Almeida et al.,
/// "Scalable Bloom Filters", 2007).
pub(crate) fn mixture_rate(spread: Spread, items: f64) -> f64 {
    let Spread { ranges, slices, cells, probes } = spread;
    let k = f64::from(probes);
    let ln_empty = k * ln_miss(cells);
    let rate = |empty: f64, load: f64| power(range_rate(empty, load * k, cells, probes), slices);
    let at = |load: f64| rate(libm::exp(load * ln_empty), load);
    if ranges <= 1.0 {
        return at(items);
    }
    let mean = items / ranges;
    let variance = mean * (1.0 - 1.0 / ranges);
    if mean > 1000.0 {
        // Five-point Gauss–Hermite: at this mean the binomial is nearly normal, and the rate is a smooth function
        // of the load.
        const NODES: [(f64, f64); 5] = [
            (0.0, 8.0 / 15.0),
            (1.355_626_179_974_266, 0.222_075_922_005_612_6),
            (-1.355_626_179_974_266, 0.222_075_922_005_612_6),
            (2.856_970_013_872_806, 0.011_257_411_327_720_69),
            (-2.856_970_013_872_806, 0.011_257_411_327_720_69),
        ];
        let deviation = libm::sqrt(variance);
        return NODES.iter().map(|(x, weight)| weight * at(mean + x * deviation)).sum();
    }
    // Sum outward from the mode, with weights relative to it, so that no factorial is needed.
    let step = libm::exp(ln_empty);
    let odds = 1.0 / (ranges - 1.0);
    let mode = libm::floor(mean);
    let (mut total, mut weights) = (0.0, 0.0);
    let (mut load, mut weight, mut empty) = (mode, 1.0, libm::exp(mode * ln_empty));
    while weight > 1e-17 {
        total += weight * rate(empty, load);
        weights += weight;
        weight *= (items - load).max(0.0) / (load + 1.0) * odds;
        load += 1.0;
        empty *= step;
    }
    (load, weight, empty) = (mode, 1.0, libm::exp(mode * ln_empty));
    while load > 0.0 && weight > 1e-17 {
        weight *= load / (items - load + 1.0) / odds;
        load -= 1.0;
        empty /= step;
        total += weight * rate(empty.min(1.0), load);
        weights += weight;
    }
    total / weights
}

/// Error rate of a split-block filter whose blocks contain `load` items on average. A block has eight words of 32 bits,
/// and an item sets one bit in each. The rate is the mean of (1 − (31/32)^j)^8 over a Poisson distribution of j (Apple,
/// "Split block Bloom filters", 2021).
pub(crate) fn split_block_rate(load: f64) -> f64 {
    // (31/32)^700 is 2e-10.
    if load > 700.0 {
        return 1.0;
    }
    let (mut rate, mut items, mut weight, mut empty) = (0.0, 0.0, libm::exp(-load), 1.0);
    while items <= load || weight > 1e-17 {
        rate += weight * power(1.0 - empty, 8);
        items += 1.0;
        weight *= load / items;
        empty *= 31.0 / 32.0;
    }
    rate
}

/// Expected fraction of set cells if the ranges contain `items` items: the inverse of [`estimate_items`].
#[cfg(test)]
pub(crate) fn expected_fill(spread: Spread, items: f64) -> f64 {
    -libm::expm1(items * ln_item_miss(spread))
}

/// Number of distinct items that would set a fraction `fill` of the cells; infinite if all cells are set.
///
/// Swamidass and Baldi, "Mathematical Correction for Fingerprint Similarity Measures" (2007), extended to blocks:
/// an item leaves a given cell empty unless it falls into the cell's range and one of its k probes hits the cell.
pub(crate) fn estimate_items(spread: Spread, fill: f64) -> f64 {
    if fill >= 1.0 {
        return f64::INFINITY;
    }
    libm::log1p(-fill) / ln_item_miss(spread)
}

/// Standard deviation of [`estimate_items`] for `items` items: the standard deviation of the number of set cells,
/// divided by the number of cells that one more item is expected to set.
///
/// Two cells in the same range are both empty more often than independent cells, because some items miss the range. If
/// they are in the same slice, this is a little less frequent, because one probe hits at most one of the two cells. Two
/// cells in different ranges are both empty less often, because no item can be in both ranges. The variance of the
/// number of empty cells follows as a sum over pairs of cells. For one range it is m·e^−λ·(1 − (1 + λ)·e^−λ) at a load
/// of λ = k·n/m, as in [`range_rate`]. For blocks whose cells are mostly set, the variance is many times larger, since
/// some blocks are much fuller than others.
pub(crate) fn estimate_deviation(spread: Spread, items: f64) -> f64 {
    let Spread { ranges, slices, cells, probes } = spread;
    let (k, range) = (f64::from(probes), f64::from(slices) * cells);
    let all = ranges * range;
    // First the chance that an item sets a given cell of its range, then the chance that it sets two given cells of a
    // slice, minus the square of the first chance.
    let hit = -libm::expm1(k * ln_miss(cells));
    let beside =
        libm::exp(2.0 * k * ln_miss(cells)) * libm::expm1(k * ln_miss((cells - 1.0) * (cells - 1.0)));
    let ln_empty = ln_item_miss(spread);
    let (empty, one) = (libm::exp(items * ln_empty), hit / ranges);
    // The chance that both cells of a pair are empty, divided by the square of the chance for one cell, minus 1.
    let excess = |of_one: f64| libm::expm1(items * libm::log1p(of_one / ((1.0 - one) * (1.0 - one))));
    let in_range = |beside: f64| excess((hit * hit * (1.0 - 1.0 / ranges) + beside) / ranges);
    let pairs = (cells - 1.0) * in_range(beside)
        + (range - cells) * in_range(0.0)
        + (all - range) * excess(-one * one);
    let variance = all * empty * (1.0 - empty) + all * empty * empty * pairs;
    libm::sqrt(variance.max(0.0)) / (all * empty * -ln_empty)
}

/// Natural logarithm of the chance that one item leaves a given cell of the whole filter empty.
fn ln_item_miss(Spread { ranges, cells, probes, .. }: Spread) -> f64 {
    let hit_in_range = -libm::expm1(f64::from(probes) * ln_miss(cells));
    libm::log1p(-(hit_in_range / ranges.max(1.0)).min(1.0 - 1e-16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(ranges: f64, cells: f64, probes: u32) -> Spread {
        Spread { ranges, slices: 1, cells, probes }
    }

    fn sliced(ranges: f64, cells: f64, slices: u32) -> Spread {
        Spread { ranges, slices, cells, probes: 1 }
    }

    #[test]
    fn textbook_values() {
        // m/n = 10, k = 7: Broder and Mitzenmacher's survey gives 0.00819.
        let rate = mixture_rate(whole(1.0, 10_000_000.0, 7), 1_000_000.0);
        assert!((rate - 0.008_19).abs() < 1e-5, "{rate}");
        // The same number of bits in 512-bit blocks: RocksDB's bloom_impl.h gives about 0.0095 for 10 bits and 6
        // probes.
        let blocked = mixture_rate(whole(10_000_000.0 / 512.0, 512.0, 6), 1_000_000.0);
        assert!((0.009_4..0.009_7).contains(&blocked), "{blocked}");
    }

    /// Slices have the rate that the textbook formula gives. It is above the rate of the same cells without slices, and
    /// the difference becomes smaller with more cells.
    #[test]
    fn slices_have_the_rate_of_almeida() {
        for (cells, items, more) in [(10.0, 7.0, 0.135), (192.0, 100.0, 0.007), (1e6, 7e5, 2e-6)] {
            let rate = mixture_rate(sliced(1.0, cells, 7), items);
            let textbook = (1.0 - (1.0 - 1.0 / cells).powf(items)).powi(7);
            assert!((rate / textbook - 1.0).abs() < 1e-9, "{rate} {textbook}");
            let classic = mixture_rate(whole(1.0, 7.0 * cells, 7), items);
            assert!(rate > classic && rate < (1.0 + more) * classic, "{rate} {classic} {more}");
        }
    }

    /// The numbers are from Parquet's BloomFilter.md, "Sizing": bits per item, and the rate.
    #[test]
    fn split_blocks_have_the_rates_that_parquet_states() {
        for (bits, rate) in [(6.0, 0.1), (10.5, 0.01), (16.9, 0.001), (26.4, 0.000_1), (41.0, 0.000_01)] {
            let computed = split_block_rate(256.0 / bits);
            assert!((computed / rate - 1.0).abs() < 0.1, "{bits} bits: {computed}");
        }
        assert_eq!((split_block_rate(0.0), split_block_rate(701.0)), (0.0, 1.0));
    }

    #[test]
    fn the_quadrature_continues_the_sum() {
        let below = mixture_rate(whole(100.0, 9585.0, 7), 99_900.0);
        let above = mixture_rate(whole(100.0, 9585.0, 7), 100_100.0);
        assert!(above > below && above / below < 1.02, "{below} {above}");
    }

    #[test]
    fn estimate_inverts_expected_fill() {
        for spread in [
            whole(1.0, 9_600.0, 7),
            whole(1954.0, 512.0, 7),
            whole(8.0, 1200.0, 10),
            whole(1.0, 64.0, 3),
            sliced(1.0, 64.0, 7),
            sliced(8.0, 192.0, 10),
        ] {
            for items in [1.0, 10.0, 500.0] {
                let back = estimate_items(spread, expected_fill(spread, items));
                assert!((back / items - 1.0).abs() < 1e-6, "{spread:?} {items} {back}");
            }
        }
        assert_eq!(estimate_items(whole(1.0, 64.0, 3), 1.0), f64::INFINITY);
    }

    /// Simulates filters as lists of cells, from nearly empty to nearly full. The standard deviation of their estimates
    /// is close to the computed one.
    #[test]
    fn estimates_deviate_as_far_as_simulated_ones() {
        const FILTERS: usize = 2000;
        let mut random = 1u64;
        let mut draw = |n: f64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((u128::from(random) * n as u128) >> 64) as usize
        };
        for spread in [
            whole(1.0, 64.0, 1),
            whole(1.0, 1200.0, 7),
            whole(2.0, 128.0, 5),
            whole(8.0, 512.0, 6),
            whole(8.0, 100.0, 3),
            sliced(1.0, 192.0, 7),
            sliced(8.0, 64.0, 5),
        ] {
            let Spread { ranges, slices, cells, probes } = spread;
            let full = ranges * cells * LN_2 / f64::from(probes);
            for items in [0.1, 1.0, 3.0].map(|part| (part * full).ceil()) {
                let (mut sum, mut squares) = (0.0, 0.0);
                for _ in 0..FILTERS {
                    let slices = slices as usize;
                    let mut set = vec![false; ranges as usize * slices * cells as usize];
                    for _ in 0..items as usize {
                        let first = draw(ranges) * slices;
                        for slice in first..first + slices {
                            (0..probes).for_each(|_| set[slice * cells as usize + draw(cells)] = true);
                        }
                    }
                    let fill = set.iter().filter(|set| **set).count() as f64 / set.len() as f64;
                    let estimate = estimate_items(spread, fill);
                    (sum, squares) = (sum + estimate, squares + estimate * estimate);
                }
                let n = FILTERS as f64;
                let found = ((squares - sum * sum / n) / (n - 1.0)).sqrt();
                let deviation = estimate_deviation(spread, items);
                assert!(
                    (0.9..1.25).contains(&(found / deviation)),
                    "{items} items in {spread:?}: {found}, not {deviation}"
                );
            }
        }
        // The two terms of the variance nearly cancel here, and the result is still precise.
        let load: f64 = 0.1;
        let one_range = estimate_deviation(whole(1.0, 1e9, 7), 1e9 * load / 7.0);
        let textbook = (1e9 * (load.exp_m1() - load)).sqrt() / 7.0;
        assert!((one_range / textbook - 1.0).abs() < 1e-6, "{one_range} {textbook}");
        assert!(estimate_deviation(whole(2e6, 512.0, 6), 1e8) > one_range);
    }
}
