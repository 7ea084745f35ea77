//! The family of Top-K sketches: TOPK.*. A sketch keeps the most frequent items of a stream (Gong et al., "HeavyKeeper:
//! An Accurate Algorithm for Finding Top-k Elephant Flows", 2018).

mod commands;
mod decay;
mod heap;
mod sketch;
mod stored;

use super::table::{Family, ForEach};

/// What the family consists of.
pub(super) fn each(work: &mut impl ForEach) {
    work.family(&Family { name: "topk", category: c"topk", has_own_type: false });
    work.data_type::<stored::RedisBloom>();
    work.command::<commands::Reserve>();
    work.command::<commands::Add>();
    work.command::<commands::Incrby>();
    work.command::<commands::Query>();
    work.command::<commands::Count>();
    work.command::<commands::List>();
    work.command::<commands::Info>();
}
