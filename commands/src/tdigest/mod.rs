//! The family of t-digests: TDIGEST.*.

mod commands;
mod digest;
mod merge;
mod query;
mod read;
mod stored;

use super::table::{Family, ForEach};

/// What the family consists of.
pub(super) fn each(work: &mut impl ForEach) {
    work.family(&Family { name: "tdigest", category: c"tdigest", has_own_type: false });
    work.data_type::<stored::RedisBloom>();
    work.command::<commands::Create>();
    work.command::<commands::Reset>();
    work.command::<commands::Add>();
    work.command::<merge::Merge>();
    work.command::<read::Info>();
    work.command::<read::Min>();
    work.command::<read::Max>();
    work.command::<read::Quantile>();
    work.command::<read::Cdf>();
    work.command::<read::Rank>();
    work.command::<read::Revrank>();
    work.command::<read::Byrank>();
    work.command::<read::Byrevrank>();
    work.command::<read::TrimmedMean>();
}
