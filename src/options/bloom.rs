//! The options of a Bloom filter.

use super::{OptionRow, PLAIN, Value, choice, set, text};
use crate::params::{Cell, Layout, Steps, Tightening, limits};
use crate::spelling::{integer, milliseconds, number, unsigned};
use alloc::string::String;

/// The options of BF.RESERVE, in the order in which they are written.
pub const BLOOM: &[OptionRow] = &[
    EXPANSION,
    NONSCALING,
    TIGHTENING,
    OptionRow {
        word: "WINDOW",
        flag: ("window", "GENERATIONS"),
        value: Value::Integer { name: "generations", bounds: (2, 1000) },
        expected: GENERATIONS,
        help: "Keep this many generations, and drop the oldest on rotation; the capacity is that of one generation",
        with: &[
            OptionRow {
                word: "EVERY",
                flag: ("every", "TIME"),
                value: Value::Duration { name: "period" },
                expected: "a time between rotations such as 60000 (ms), 60s or 1h",
                help: "Time between rotations of a window: milliseconds, or with a unit as in 1h",
                with: &[],
                parse: |options, value| set(&mut options.every_ms, milliseconds(value).filter(|ms| *ms > 0)),
                write: |options| text(options.every_ms),
            },
            OptionRow {
                word: "SINCE",
                value: Value::UnixTime { name: "unix_milliseconds" },
                expected: "a Unix time in milliseconds",
                parse: |options, value| {
                    set(&mut options.since_ms, unsigned(value).filter(|ms| *ms <= limits::MAX_TIME_MS))
                },
                write: |options| text(options.since_ms),
                ..PLAIN
            },
        ],
        parse: |options, value| {
            let generations = u16::try_from(unsigned(value)?).ok();
            let possible = |count: &u16| limits::GENERATIONS_IN_TABLE.contains(&u32::from(*count));
            set(&mut options.window, generations.filter(possible))
        },
        write: |options| text(options.window),
    },
    TTL,
    OptionRow {
        word: "ONFULL",
        flag: ("on-full", "WHAT"),
        value: Value::Choice(&[
            ("error", "Refuse new items"),
            ("saturate", "Accept new items; the error rate rises"),
            ("scale", "Grow"),
            ("forget", "Forget the oldest items early; only for windows of layout quotient"),
        ]),
        expected: "ERROR, SATURATE, SCALE or FORGET",
        help: "What adding to a full filter does",
        with: &[],
        parse: |options, value| set(&mut options.on_full, choice(value)),
        write: |options| text(options.on_full),
    },
    OptionRow {
        word: "COUNTING",
        flag: ("counting", "BITS"),
        value: Value::Numbers { name: "bits", numbers: &["4", "8", "16"] },
        expected: "4, 8 or 16 bits per counter",
        help: "Use counters of 4, 8 or 16 bits, so that items can be deleted",
        with: &[],
        parse: |options, value| {
            let cells = [Cell::Counter4, Cell::Counter8, Cell::Counter16];
            let bits = unsigned(value)?;
            set(&mut options.counting, cells.into_iter().find(|cell| u64::from(cell.bits()) == bits))
        },
        write: |options| text(options.counting.map(Cell::bits)),
    },
    OptionRow {
        word: "SHARDS",
        flag: ("shards", "N"),
        value: Value::PowerOfTwo(limits::MAX_SHARDS as u64),
        expected: "a power of two from 1 to 1024",
        help: "Number of independent arrays per layer, for several writing threads; a power of two",
        with: &[],
        parse: |options, value| {
            let shards = u32::try_from(unsigned(value)?).ok();
            let possible = |shards: &u32| shards.is_power_of_two() && *shards <= limits::MAX_SHARDS;
            set(&mut options.shards, shards.filter(possible))
        },
        write: |options| text(options.shards),
    },
    LAYOUT,
    HASH,
    OptionRow {
        word: "SIZES",
        value: Value::Integer { name: "number", bounds: (0, u16::MAX as u64) },
        expected: "a number from 0 to 65535",
        parse: |options, value| set(&mut options.sizes, choice(value)),
        write: |options| text(options.sizes),
        ..PLAIN
    },
    SEED, // the last one, by which servers that obey know our filters from RedisBloom's
];

/// The options of BF.INSERT, besides those that only valkey-bloom has.
pub const INSERT: &[OptionRow] = &[CAPACITY, ERROR, EXPANSION, NOCREATE, NONSCALING, TTL];

/// The options of BF.REBUILD BEGIN for what precedes the options of BF.RESERVE.
pub const SIZE: &[OptionRow] = &[CAPACITY, ERROR];

/// The possible numbers of generations of a window, for error texts.
pub const GENERATIONS: &str = "2 to 64 generations, with LAYOUT QUOTIENT 2 to 1000";

pub(super) const CAPACITY: OptionRow = OptionRow {
    word: "CAPACITY",
    value: Value::Integer { name: "capacity", bounds: (1, limits::MAX_CAPACITY) },
    parse: |options, value| set(&mut options.capacity, unsigned(value)),
    write: |options| text(options.capacity),
    ..PLAIN
};

const ERROR: OptionRow = OptionRow {
    word: "ERROR",
    value: Value::Ratio,
    parse: |options, value| {
        set(
            &mut options.error_rate,
            number(value).filter(|rate| (limits::MIN_ERROR_RATE..1.0).contains(rate)),
        )
    },
    write: |options| text(options.error_rate),
    ..PLAIN
};

pub(super) const NOCREATE: OptionRow = OptionRow {
    word: "NOCREATE",
    value: Value::Flag,
    parse: |options, _| {
        options.nocreate = true;
        Some(())
    },
    write: |options| options.nocreate.then(String::new),
    ..PLAIN
};

pub(super) const EXPANSION: OptionRow = OptionRow {
    word: "EXPANSION",
    flag: ("expansion", "FACTOR"),
    value: Value::Integer { name: "expansion", bounds: (0, limits::MAX_EXPANSION as u64) },
    expected: "0 to 32768",
    help: "0: a full filter refuses items; else it grows and, if by layers, by this factor [default: 2]",
    with: &[],
    parse: |options, value| set(&mut options.expansion, integer(value)),
    write: |options| text(options.expansion),
};

const NONSCALING: OptionRow = OptionRow {
    word: "NONSCALING",
    flag: ("nonscaling", ""),
    value: Value::Flag,
    expected: "",
    help: "Fixed capacity: a full filter refuses new items",
    with: &[],
    parse: |options, _| {
        options.nonscaling = true;
        Some(())
    },
    write: |options| options.nonscaling.then(String::new),
};

/// BF.INSERT has it, too, for a client of valkey-bloom.
pub const TIGHTENING: OptionRow = OptionRow {
    word: "TIGHTENING",
    flag: ("tightening", "RATIO"),
    value: Value::Ratio,
    expected: "a ratio between 0 and 1, both excluded",
    help: "Grow by layers; error rate of each relative to the previous one, below 1 [default: add a table]",
    with: &[],
    parse: |options, value| set(&mut options.tightening, Tightening::geometric(number(value)?).ok()),
    write: |options| text(options.tightening?.ratio()),
};

const TTL: OptionRow = OptionRow {
    word: "TTL",
    flag: ("ttl", "TIME"),
    value: Value::Duration { name: "time" },
    expected: "a time for which an item is kept, such as 60000 (ms), 60s or 1h",
    help: "Forget items this long after their last add; the capacity is the number of items in that time: 24h",
    with: &[OptionRow {
        word: "STEPS",
        flag: ("steps", "N"),
        value: Value::Integer { name: "steps", bounds: (1, 999) },
        expected: "1 to 999 steps of a TTL",
        help: "Number of steps in which items expire; the more steps, the sooner after the TTL [default: 31]",
        with: &[],
        parse: |options, value| set(&mut options.steps, Steps::new(unsigned(value)?)),
        write: |options| text(options.steps.map(Steps::count)),
    }],
    parse: |options, value| set(&mut options.ttl_ms, milliseconds(value).filter(|ms| *ms > 0)),
    write: |options| text(options.ttl_ms),
};

const LAYOUT: OptionRow = OptionRow {
    word: "LAYOUT",
    flag: ("layout", "LAYOUT"),
    value: Value::Choice(Layout::CHOICES),
    expected: Layout::EXPECTED,
    help: "Use one cache line per item, or the least memory",
    with: &[],
    parse: |options, value| {
        let is_auto = value.eq_ignore_ascii_case(Layout::AUTO.as_bytes());
        set(&mut options.layout, if is_auto { Some(None) } else { choice(value).map(Some) })
    },
    write: |options| text(options.layout.map(|layout| layout.map_or(Layout::AUTO, Layout::as_str))),
};

pub(super) const HASH: OptionRow = OptionRow {
    word: "HASH",
    flag: ("hash", "HASH"),
    value: Value::Choice(&[
        ("xxh3", "Fast"),
        ("siphash", "Keyed: without the seed, nobody can find collisions"),
    ]),
    expected: "XXH3 or SIPHASH",
    help: "Hash function: use siphash if an adversary can choose the items",
    with: &[],
    parse: |options, value| set(&mut options.hash, choice(value)),
    write: |options| text(options.hash),
};

pub(super) const SEED: OptionRow = OptionRow {
    word: "SEED",
    flag: ("seed", "HEX"),
    value: Value::Hex(32),
    expected: "hexadecimal digits",
    help: "Key of the hash function, in hexadecimal [default: random]",
    with: &[],
    parse: |options, value| set(&mut options.seed, Some(String::from_utf8_lossy(value).into_owned())),
    write: |options| options.seed.clone(),
};
