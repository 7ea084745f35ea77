//! The options of `bloomery load`.

use crate::input::{BatchLimits, Input};
use crate::output::progress::Pace;
use crate::server::connection::Server;
use bloomery_plan::Reserve;

/// Add items from a file, stdin or a CSV column to a filter on a server.
///
/// If the filter doesn't exist, --capacity and --error-rate create it. Each line is an item, without its line end (LF
/// or CR LF). Empty lines are skipped and counted.
///
/// With --resume, the same command continues a load that was interrupted. A key next to the filter, the bookmark, says
/// up to which byte of the input all items are in the filter. Items after it may be added again, which changes nothing;
/// filters that count their items refuse --resume. The load stops if the filter was replaced, or the input has changed.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery load users ids.txt -n 10M -e 1%            # creates the filter and fills it
  bloomery load urls urls.gz                          # into an existing filter
  bloomery load emails users.csv --column email --resume
  bloomery load users ids.txt -n 1G -e 1% --cluster --spread 64   # one filter in 64 parts
  bloomery load users ids.txt --rebuild               # adds to the rebuild started by BF.REBUILD users BEGIN")]
pub(crate) struct Options {
    /// The filter's key
    pub(super) key: String,

    /// Continue the load of this input into this key where it stopped, and let it be continued
    #[arg(long)]
    pub(super) resume: bool,

    /// Number of connections that send in parallel
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(super) connections: u8,

    /// Maximum number of items per command [default: 32768]
    #[arg(long, value_name = "ITEMS", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(super) batch: Option<u64>,

    /// Add the items to the rebuild of this filter that is in progress (BF.REBUILD key ADDBULK)
    #[arg(long)]
    pub(super) rebuild: bool,

    /// Fill one filter that is spread over a cluster in N parts; the key is its name
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024),
        conflicts_with_all = ["resume", "rebuild", "connections"])]
    pub(super) spread: Option<u16>,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) input: Input,

    #[command(flatten)]
    pub(super) reserve: Reserve,

    #[command(flatten)]
    pub(super) pace: Pace,

    #[command(flatten)]
    pub(super) server: Server,
}

impl Options {
    /// Size of a batch, which is one command. `most_items` is the maximum number of its items.
    pub(super) fn limits(&self, most_items: u64) -> BatchLimits {
        BatchLimits { items: self.batch.unwrap_or(BATCH.items).min(most_items), ..BATCH }
    }
}

/// Default size of a command. A server handles this many bytes in a few milliseconds.
pub(super) const BATCH: BatchLimits = BatchLimits { items: 32_768, bytes: 1 << 20 };
