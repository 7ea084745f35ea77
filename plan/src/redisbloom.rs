//! Computes what RedisBloom's filters would cost for the items and the error rate of a plan, by the `bloomery` crate's
//! rules for RedisBloom's chains.

use crate::cost::Cost;
use bloomery::filter::foreign::{ChainSpec, LinkSpec};
use bloomery::{Family, Spec};

/// RedisBloom's limits: it lowers higher error rates to [`HIGHEST_RATE`], and refuses to reserve more than
/// [`MOST_ITEMS`] items in one filter.
const HIGHEST_RATE: f64 = 0.25;
const MOST_ITEMS: u64 = 1 << 30;

/// The chain that RedisBloom creates for BF.RESERVE with these numbers; `None` if it refuses. Without an expansion, the
/// chain's capacity is fixed.
fn chain(items: u64, error_rate: f64, expansion: Option<u32>) -> Option<ChainSpec> {
    (items <= MOST_ITEMS).then_some(ChainSpec {
        capacity: items,
        error_rate: error_rate.min(HIGHEST_RATE),
        growth: expansion.unwrap_or(2),
        scales: expansion.is_some(),
    })
}

/// How RedisBloom's chain for this spec grows: its capacity and its bytes after each link.
pub(crate) fn growth(spec: &Spec) -> impl Iterator<Item = (u64, u64)> {
    let links = match spec.family {
        Family::Scaling { expansion, .. } => chain(spec.capacity, spec.error_rate, Some(expansion)),
        _ => None,
    };
    links.into_iter().flat_map(|chain| chain.links()).scan((0u64, 0u64), |(items, bytes), link| {
        *items = items.saturating_add(link.capacity);
        *bytes = bytes.saturating_add(link.bytes);
        Some((*items, *bytes))
    })
}

/// Bytes of RedisBloom's fixed filter; `None` if RedisBloom can't create one.
pub(crate) fn fixed_bytes(items: u64, error_rate: f64) -> Option<u64> {
    chain(items, error_rate, None)?.links().next().map(|link| link.bytes)
}

/// Computes what RedisBloom's filters cost. Empty if RedisBloom can't create any for this number of items.
pub(crate) fn kinds(items: u64, error_rate: f64) -> Vec<Cost> {
    let kinds = [("fixed", None, " NONSCALING"), ("scaling", Some(2), "")];
    kinds
        .into_iter()
        .filter_map(|(kind, expansion, option)| {
            let link = chain(items, error_rate, expansion)?.links().next()?;
            Some(Cost {
                kind: format!("RedisBloom {kind}"),
                command: format!("BF.RESERVE KEY {error_rate} {items}{option}"),
                when_full: if expansion.is_some() { "grows by a layer" } else { "refuses new items" },
                ..cost(&link)
            })
        })
        .collect()
}

fn cost(link: &LinkSpec) -> Cost {
    let (items, probes) = (link.capacity as f64, link.probes);
    let fill = 1.0 - (-f64::from(probes) * items / link.modulus as f64).exp();
    Cost {
        kind: String::new(),
        command: String::new(),
        capacity: link.capacity,
        room: link.capacity,
        memory_bytes: link.bytes,
        bits_per_item: link.bytes as f64 * 8.0 / items,
        error_rate: fill.powi(probes as i32),
        cells: link.modulus,
        bits_per_cell: 1,
        probes,
        layout: "CLASSIC",
        layers: 1,
        cache_lines: probes.into(),
        deletes: false,
        when_full: "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What MEMORY USAGE reported for RedisBloom 2.8's filters at 1% (docs/benchmarks/rivals.json): the bits, and up to
    /// 150 bytes for each filter and each of its links.
    #[test]
    fn the_sizes_are_those_that_were_measured() {
        let overhead = |measured: u64, bits: u64| measured.checked_sub(bits).unwrap();
        for (items, scaling, fixed) in [
            (10, 144, 144),
            (1000, 1512, 1328),
            (100_000, 137_976, 119_944),
            (1_000_000, 1_378_600, 1_198_264),
        ] {
            let costs = kinds(items, 0.01);
            assert!(overhead(scaling, costs[1].memory_bytes) < 150, "{items}");
            assert!(overhead(fixed, costs[0].memory_bytes) < 150, "{items}");
            assert_eq!(fixed_bytes(items, 0.01), Some(costs[0].memory_bytes));
            for cost in costs {
                assert!(cost.error_rate <= 0.0101, "{cost:?}");
            }
        }
        for (items, times, measured) in [(10, 1000, 29_608), (1000, 40, 133_840), (10_000, 1000, 28_879_288)]
        {
            let grown =
                growth(&Spec::scaling(items, 0.01)).take_while(|grown| grown.0 < items * times).count();
            let (_, bits) = growth(&Spec::scaling(items, 0.01)).nth(grown).unwrap();
            assert!(overhead(measured, bits) < 150 * (grown as u64 + 2), "{items} {times}: {bits}");
        }
        assert!(kinds(MOST_ITEMS, 0.01).len() == 2 && kinds(MOST_ITEMS + 1, 0.01).is_empty());
    }
}
