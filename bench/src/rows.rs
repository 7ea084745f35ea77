//! Bloomery's targets, as data. Measurements are compared with them.

/// On which side of its target a measurement should be.
#[derive(Clone, Copy)]
pub enum Bound {
    /// For a cost.
    AtMost(f64),
    /// For a gain.
    AtLeast(f64),
}

/// Which of the two tables a row is in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Time.
    Speed,
    /// Space.
    Memory,
}

/// One measurement of the scoreboard.
pub struct Row {
    /// Name for `--only` and in files.
    pub id: &'static str,
    /// Its table.
    pub section: Section,
    /// What is measured, in words.
    pub figure: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// The target.
    pub bound: Bound,
}

impl Bound {
    /// Whether a measurement meets the target.
    pub fn holds(self, figure: f64) -> bool {
        match self {
            Bound::AtMost(most) => figure <= most,
            Bound::AtLeast(least) => figure >= least,
        }
    }
}

/// RedisBloom's memory for a filter that grew from 100 to 10 million items at 1%, in bytes. One row is relative to it.
pub const REDISBLOOM_GROWN: f64 = 53.5e6;

const fn speed(id: &'static str, figure: &'static str, unit: &'static str, bound: Bound) -> Row {
    Row { id, section: Section::Speed, figure, unit, bound }
}

const fn memory(id: &'static str, figure: &'static str, unit: &'static str, bound: Bound) -> Row {
    Row { id, section: Section::Memory, figure, unit, bound }
}

use Bound::{AtLeast, AtMost};

/// Every row.
pub const ROWS: &[Row] = &[
    speed("exists", "EXISTS, one item", "× one line", AtMost(1.0)),
    speed("test", "TEST, one item", "× one line", AtMost(1.0)),
    speed("add", "ADD, one item", "× one line", AtMost(1.05)),
    speed("mexists", "MEXISTS, 1000 items, 10 M filter at 1%", "× one line", AtMost(1.1)),
    speed("mexists-large", "MEXISTS, 1000 items, 1 GiB filter", "× one line", AtMost(1.1)),
    speed("madd", "MADD, 1000 items, 10 M filter", "× one line", AtMost(1.2)),
    speed("bulktest", "BULKTEST FIXED 16, 64 KiB blobs, 10 M filter", "× one line", AtMost(1.15)),
    speed("bulkadd", "BULKADD FIXED 16, 64 KiB blobs, 10 M filter", "× one line", AtMost(1.6)),
    speed("counting-add", "counting ADD, 1000 items", "× floor", AtMost(1.5)),
    speed("counting-del", "counting DEL, 1000 items", "× floor", AtMost(1.5)),
    speed("quotient-test", "QUOTIENT TEST, 1000 items", "× two lines", AtMost(1.15)),
    speed("quotient-add", "QUOTIENT ADD, 1000 items, 50% to 80% full", "× two lines", AtMost(1.15)),
    speed("quotient-counting-test", "QUOTIENT, counting, TEST, 1000 items", "× two lines", AtMost(1.15)),
    speed(
        "quotient-counting-add",
        "QUOTIENT, counting, ADD, 1000 items, half full",
        "× two lines",
        AtMost(1.15),
    ),
    speed("quotient-counting-del", "QUOTIENT, counting, DEL, 1000 items", "× two lines", AtMost(1.15)),
    speed("quotient-window-8", "QUOTIENT, window of 8, TEST, 1000 items", "× two lines", AtMost(1.15)),
    speed("quotient-window-60", "QUOTIENT, window of 60, TEST, 1000 items", "× two lines", AtMost(1.15)),
    speed("static-build", "static filter built, one thread", "ns per item", AtMost(60.0)),
    speed("static-test", "static filter TEST, 1000 items", "× three lines", AtMost(1.2)),
    speed("window", "window of 8 generations, MEXISTS of 1000", "× floor", AtMost(2.0)),
    speed("gozero-one", "faster than go-zero's Lua, one item per command", "×", AtLeast(15.0)),
    speed("gozero-many", "faster than go-zero's Lua, 1000 items per command", "×", AtLeast(80.0)),
    speed("gozero-bulk", "faster than go-zero's Lua, bulk", "×", AtLeast(500.0)),
    speed("reserve", "BF.RESERVE of 1 GiB holds the main thread", "ms", AtMost(1.0)),
    speed("unlink", "UNLINK of 1 GiB holds the main thread", "ms", AtMost(1.0)),
    speed("others", "other clients' p99 during a bulk test of 1 M, 1 GiB CLASSIC", "× idle", AtMost(2.0)),
    speed("bgsave", "BGSAVE of a 1 GiB filter, rate", "× string's", AtLeast(0.8)),
    speed("load", "loading a 1 GiB filter, rate", "× string's", AtLeast(0.8)),
    speed("core", "core: batched blocked test, 128 MiB", "ns per item", AtMost(25.0)),
    speed("core-fastbloom", "core: faster than crate fastbloom's AtomicBloomFilter", "×", AtLeast(3.0)),
    speed("core-threads", "core: 2 threads adding to one sharded filter", "× one", AtLeast(1.8)),
    memory("blocked-1", "BLOCKED at 1%", "bits per item", AtMost(9.95)),
    memory("blocked-01", "BLOCKED at 0.1%", "bits per item", AtMost(15.6)),
    memory("classic-1", "CLASSIC at 1%", "bits per item", AtMost(9.62)),
    memory("classic-01", "CLASSIC at 0.1%", "bits per item", AtMost(14.42)),
    memory("partitioned-1", "PARTITIONED at 1%", "bits per item", AtMost(9.62)),
    memory("partitioned-01", "PARTITIONED at 0.1%", "bits per item", AtMost(14.42)),
    memory("quotient-1", "QUOTIENT at 1%", "bits per item", AtMost(9.6)),
    memory("quotient-01", "QUOTIENT at 0.1%", "bits per item", AtMost(12.8)),
    memory("quotient-001", "QUOTIENT at 0.01%", "bits per item", AtMost(17.0)),
    memory("quotient-millionth", "QUOTIENT at 0.0001%", "bits per item", AtMost(23.5)),
    memory("quotient-counting-1", "QUOTIENT, COUNTING 4 at 1%", "bits per item", AtMost(14.5)),
    memory("quotient-counting-01", "QUOTIENT, COUNTING 4 at 0.1%", "bits per item", AtMost(18.0)),
    memory("quotient-window", "QUOTIENT, window of 8 at 1%, full", "bits per item", AtMost(14.5)),
    memory("static-04", "static at 0.39%", "bits per item", AtMost(9.1)),
    memory("static-millionth", "static at 1e-6", "bits per item", AtMost(22.6)),
    memory("ribbon-078", "static, RIBBON, at 0.78%", "bits per item", AtMost(7.4)),
    memory("ribbon-01", "static, RIBBON, at 0.1%", "bits per item", AtMost(10.6)),
    memory("ribbon-millionth", "static, RIBBON, at 1e-6", "bits per item", AtMost(21.2)),
    memory("grown", "grown from 100 to 10 M items, at 1%", "× RedisBloom's", AtMost(0.7)),
    memory("empty", "an empty default filter, including all overhead", "bytes", AtMost(350.0)),
];

/// The row with that name.
pub fn row(id: &str) -> &'static Row {
    ROWS.iter().find(|row| row.id == id).expect("rows are named by constants of this program")
}
