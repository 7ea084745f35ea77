//! A plan, and its options.

use crate::arguments::parse_whole;
use crate::cost::{Cost, cost, kinds, like, smaller, within};
use crate::growth::{Growth, growth};
use crate::options::{Reserve, Static};
use crate::redisbloom;
use crate::refused::Refused;
use crate::wanted::Wanted;
use serde::Serialize;

/// What a filter costs, compared with others.
#[derive(Debug, Serialize)]
pub struct Plan {
    /// The filter that the options describe.
    pub filter: Cost,
    /// The same filter in LAYOUT QUOTIENT, if that needs clearly less memory.
    pub smaller: Option<Cost>,
    /// Number of items that a filter with these options has room for in 1 GiB.
    pub items_in_gib: Option<u64>,
    /// How the filter grows; empty if it doesn't.
    pub growth: Vec<Growth>,
    /// All kinds, for the same items and error rate.
    pub kinds: Vec<Cost>,
    /// RedisBloom's filters for the same items and error rate.
    pub redisbloom: Vec<Cost>,
}

/// The options of a plan.
#[derive(clap::Args, Clone, Debug)]
pub struct PlanOptions {
    /// Show the growth of a scaling filter up to this multiple of the capacity
    #[arg(long, value_name = "TIMES", default_value_t = 10, value_parser = parse_times)]
    grow: u64,

    #[command(flatten)]
    of_static: Static,

    #[command(flatten)]
    reserve: Reserve,
}

impl PlanOptions {
    /// Validates the options, and returns the filter they describe.
    ///
    /// # Errors
    /// The first option that doesn't fit.
    pub fn wanted(&self) -> Result<Wanted, Refused> {
        // Sizes don't depend on the seed, and randomness in a browser would need more code.
        let mut reserve = self.reserve.clone();
        reserve.flags.options.seed.get_or_insert("0".into());
        // A plan needs a capacity even for a static filter, so `wanted` checks that there is one.
        let wanted = reserve.wanted()?;
        self.of_static.layout.map_or(Ok(wanted), |layout| reserve.wanted_static(layout).map(Wanted::Bloom))
    }

    /// Computes the plan.
    ///
    /// # Errors
    /// The first option that doesn't fit.
    pub fn plan(&self) -> Result<Plan, Refused> {
        let wanted = self.wanted()?;
        let (items, like) = like(&wanted);
        Ok(Plan {
            filter: Cost { command: self.reserve.command(&wanted, "KEY").join(" "), ..cost(&wanted)? },
            smaller: smaller(&wanted),
            items_in_gib: within(&wanted, 1 << 30),
            growth: growth(&wanted, self.grow),
            kinds: kinds(items, &like),
            redisbloom: redisbloom::kinds(items, like.error_rate),
        })
    }
}

fn parse_times(text: &str) -> Result<u64, String> {
    parse_whole(text, 1..=1_000_000)
}
