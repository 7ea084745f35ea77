//! What every scenario gets: a way to start servers, the sizes of the run, and the report.

use crate::report::Report;
use crate::server::Launch;
use std::path::PathBuf;

/// Sizes of a run.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Number of items in the filter called "10 M".
    pub items: u64,
    /// Number of commands in a round of commands with one item each.
    pub singles: u64,
    /// Number of items in a round of commands with 1000 items each.
    pub many: u64,
    /// Number of items in a round of bulk tests.
    pub bulk: u64,
    /// Size in bytes of the filter called "1 GiB".
    pub large: u64,
}

impl Scale {
    /// For the numbers of the scoreboard.
    pub const FULL: Scale =
        Scale { items: 10_000_000, singles: 200_000, many: 500_000, bulk: 4_000_000, large: 1 << 30 };
    /// Just enough to check that everything works.
    pub const QUICK: Scale =
        Scale { items: 200_000, singles: 5_000, many: 10_000, bulk: 100_000, large: 16 << 20 };
}

/// What every scenario gets.
pub struct Bench {
    /// Starts the servers.
    pub launch: Launch,
    /// Number of rounds that count.
    pub rounds: u64,
    /// The sizes of filters and rounds.
    pub scale: Scale,
    /// Folder for the plots.
    pub plots: PathBuf,
    /// What has been measured so far.
    pub report: Report,
}
