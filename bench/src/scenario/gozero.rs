//! Bloomery's commands, compared with other ways to test and add items on a server: go-zero's Lua over a bitmap, the
//! bitmap without Lua, and a SET of the items themselves.

use super::commands::{GROUP, numbers};
use crate::bench::Bench;
use crate::filters::{self, fixed};
use crate::items::{self, BULK_WIDTH, Fresh, Mix, WIDTH, item};
use crate::measure::{Side, alternate};
use crate::server::{SERVER_CORE, Server, query};
use crate::table;
use crate::wire::Batch;
use anyhow::Result;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Numbers of probes and of bits per item: go-zero's constants.
const PROBES: u64 = 14;
const BITS_PER_ITEM: u64 = 20;

/// What go-zero's filter does in the server: it sets the bits of an item, or looks for one that isn't set.
const ADD: &str = "for _, offset in ipairs(ARGV) do redis.call('setbit', KEYS[1], offset, 1) end";
const TEST: &str = "for _, offset in ipairs(ARGV) do \
    if tonumber(redis.call('getbit', KEYS[1], offset)) == 0 then return false end end return true";

/// Offsets of an item's bits, as decimal numbers. The hash is as good as go-zero's. The client computes it, so it costs
/// the server nothing.
fn offsets(number: u64, bits: u64) -> impl Iterator<Item = String> {
    let bytes = item::<WIDTH>(number);
    (0..PROBES).map(move |probe| (xxh3_64_with_seed(&bytes, probe) % bits).to_string())
}

fn lua(script: &str, numbers: &[u64], bits: u64) -> Batch {
    let mut batch = Batch::default();
    for number in numbers {
        batch.begin(4 + PROBES as usize, 1);
        [b"EVALSHA", script.as_bytes(), b"1", b"bitmap"].iter().for_each(|word| batch.argument(word));
        offsets(*number, bits).for_each(|offset| batch.argument(offset.as_bytes()));
    }
    batch
}

/// One command for each bit of each item. The commands for one item together count as one item.
fn bits_of_items(command: &str, numbers: &[u64], bits: u64) -> Batch {
    let mut batch = Batch::default();
    for number in numbers {
        for (probe, offset) in offsets(*number, bits).enumerate() {
            let mut words = vec![command, "bitmap", &offset];
            words.extend((command == "SETBIT").then_some("1"));
            batch.push(&words, u64::from(probe == 0));
        }
    }
    batch
}

pub fn run(bench: &mut Bench) -> Result<()> {
    let capacity = bench.scale.items;
    let server = bench.launch.start(Some(SERVER_CORE), &[])?;
    filters::serve::<WIDTH>(&server, "filter", fixed(capacity, 0.01, None), capacity)?;
    let bits = capacity * BITS_PER_ITEM;
    fill_others(&server, capacity, bits)?;
    tests(bench, &server, bits)?;
    adds(bench, &server, bits)
}

/// Puts the filter's items into the bitmap and into the SET.
fn fill_others(server: &Server, items: u64, bits: u64) -> Result<()> {
    // The bitmap is sent as one string, because setting 14 bits for each of 10 M items through the server would take
    // minutes.
    let mut bitmap = vec![0u8; bits.div_ceil(8) as usize];
    for number in 0..items {
        let bytes = item::<WIDTH>(number);
        for probe in 0..PROBES {
            let bit = xxh3_64_with_seed(&bytes, probe) % bits;
            bitmap[(bit / 8) as usize] |= 0x80 >> (bit % 8);
        }
    }
    redis::cmd("SET").arg("bitmap").arg(bitmap).query::<()>(&mut server.client()?)?;
    filters::send(server, "SADD", "set", 0..items)
}

fn tests(bench: &mut Bench, server: &Server, bits: u64) -> Result<()> {
    let (items, singles, many, bulk) =
        (bench.scale.items, bench.scale.singles / 4, bench.scale.many, bench.scale.bulk);
    let script: String = query(&mut server.client()?, &["SCRIPT", "LOAD", TEST])?;
    let script = &script;
    let half = |round, count| numbers(Mix::Half, round, count, items);
    let lua_side = |mix: Mix| {
        Side::new(format!("go-zero's Lua, one item, {}", mix.name()), move |round| {
            lua(script, &numbers(mix, round, singles, items), bits)
        })
        .expect(super::commands::plausible(mix))
    };
    let bulk_known = server.knows("BF.BULKTEST")?;
    let mut sides = vec![
        lua_side(Mix::Half),
        lua_side(Mix::Present),
        lua_side(Mix::Absent),
        Side::new("14 GETBIT, pipelined", |round| bits_of_items("GETBIT", &half(round, singles), bits)),
        Side::new("SISMEMBER", |round| items::commands("SISMEMBER", "set", &half(round, singles), 1)),
        Side::new("SMISMEMBER, 1000 items", |round| {
            items::commands("SMISMEMBER", "set", &half(round, many), GROUP)
        }),
        Side::new("BF.EXISTS", |round| items::commands("BF.EXISTS", "filter", &half(round, singles), 1)),
        Side::new("BF.MEXISTS, 1000 items", |round| {
            items::commands("BF.MEXISTS", "filter", &half(round, many), GROUP)
        }),
    ];
    let (one, of_many) = (sides.len() - 2, sides.len() - 1);
    if bulk_known {
        filters::serve::<BULK_WIDTH>(server, "bulk", fixed(items, 0.01, None), items)?;
        sides.push(Side::new("BF.BULKTEST, 64 KiB", |round| {
            items::bulk_commands("BF.BULKTEST", "bulk", &half(round, bulk), 4096)
        }));
    }
    let series = alternate(server, bench.rounds, &mut sides)?;
    table::sides("Other ways to test", 0, sides.iter().map(|side| side.name.as_str()), &series);
    drop(sides);
    bench.report.record("gozero-one", series[0].over(&series[one]));
    bench.report.record("gozero-many", series[0].over(&series[of_many]));
    match series.get(of_many + 1) {
        Some(bulk) => bench.report.record("gozero-bulk", series[0].over(bulk)),
        None => bench.report.unavailable(&["gozero-bulk"], "not available"),
    }
    Ok(())
}

fn adds(bench: &Bench, server: &Server, bits: u64) -> Result<()> {
    let (items, singles, many) = (bench.scale.items, bench.scale.singles / 4, bench.scale.many);
    let script: String = query(&mut server.client()?, &["SCRIPT", "LOAD", ADD])?;
    filters::serve::<WIDTH>(server, "adds", fixed(2 * items, 0.01, None), items)?;
    // Every side has its own supply of items, and adds each of them only once.
    let fresh = || Fresh(items..2 * items);
    let (mut to_lua, mut to_bits, mut to_set, mut to_set_many) =
        (fresh(), fresh(), fresh(), Fresh(2 * items..3 * items));
    let (mut to_filter, mut to_filter_many) = (fresh(), Fresh(items * 3 / 2..2 * items));
    let mut sides = [
        Side::new("go-zero's Lua, one item", |_| lua(&script, &to_lua.take(singles), bits)),
        Side::new("14 SETBIT, pipelined", |_| bits_of_items("SETBIT", &to_bits.take(singles), bits)),
        Side::new("SADD", |_| items::commands("SADD", "set", &to_set.take(singles), 1)),
        Side::new("SADD, 1000 items", |_| items::commands("SADD", "set", &to_set_many.take(many), GROUP)),
        Side::new("BF.ADD", |_| items::commands("BF.ADD", "adds", &to_filter.take(singles), 1)),
        Side::new("BF.MADD, 1000 items", |_| {
            items::commands("BF.MADD", "adds", &to_filter_many.take(many), GROUP)
        }),
    ];
    let series = alternate(server, bench.rounds, &mut sides)?;
    table::sides("Other ways to add", 0, sides.iter().map(|side| side.name.as_str()), &series);
    let memory = |key: &str| -> Result<Vec<String>> {
        let bytes: u64 = server.query(&["MEMORY", "USAGE", key, "SAMPLES", "0"])?;
        Ok(vec![key.to_owned(), table::number(bytes as f64 / 1e6)])
    };
    let lines = ["bitmap", "set", "filter"].map(memory).into_iter().collect::<Result<Vec<_>>>()?;
    table::print(
        &format!("Memory for {items} items (the SET has grown a little since)"),
        &["key", "MB"],
        &lines,
    );
    Ok(())
}
