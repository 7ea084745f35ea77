//! `bloomery inspect`: what is in a file, and is it whole?

mod rdb;

use crate::error::{Failure, Outcome};
use crate::info::{FilterInfo, LayerInfo, Rebuild};
use crate::items::open_file;
use crate::output::{self, Table, bytes, count, key, percent};
use crate::pieces;
use anyhow::Context;
use bloomery::filter::Origin;
use bloomery::{Family, Filter, HashKind, Layout, LayoutChoice, Overflow};
use serde::Serialize;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Say what is in a filter file, a DUMP payload or an RDB file, and whether it is whole.
///
/// All checksums are verified, and every filter is loaded as a server would load it. The exit code is 1 if anything is
/// damaged.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery inspect users.bloom
  bloomery inspect /var/lib/redis/dump.rdb
  redis-cli --raw DUMP users | head -c -1 > users.dump && bloomery inspect users.dump
  bloomery inspect dump.rdb --json | jq '.filters[] | select(.filter.fill > 0.5) | .key'")]
pub(crate) struct Options {
    /// The file
    file: PathBuf,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a file holds.
#[derive(Serialize)]
struct Report {
    file: PathBuf,
    /// `filter`, `dump`, `rdb`.
    format: &'static str,
    /// Of the format.
    version: Option<u32>,
    /// Who wrote an RDB file.
    server: Option<String>,
    /// Of all types, in an RDB file.
    keys: Option<u64>,
    /// Whether there was a checksum of the whole.
    checksum: bool,
    /// What is wrong with the file itself.
    error: Option<String>,
    filters: Vec<Entry>,
}

/// One filter.
#[derive(Serialize)]
struct Entry {
    database: Option<u64>,
    key: Option<String>,
    key_type: Option<&'static str>,
    expires_ms: Option<u64>,
    /// Where it begins.
    at_byte: u64,
    /// What is wrong with it.
    error: Option<String>,
    filter: Option<FilterInfo>,
}

/// Inspects.
pub(crate) fn run(options: &Options) -> anyhow::Result<Outcome> {
    let report = inspect(&options.file)?;
    let damaged = report.error.is_some() || report.filters.iter().any(|entry| entry.error.is_some());
    if options.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    Ok(if damaged { Outcome::No } else { Outcome::Done })
}

fn inspect(path: &Path) -> anyhow::Result<Report> {
    let mut file = open_file(path)?;
    let mut magic = Vec::new();
    let cannot = || format!("cannot read {}", path.display());
    Read::by_ref(&mut file).take(6).read_to_end(&mut magic).with_context(cannot)?;
    file.seek(SeekFrom::Start(0)).with_context(cannot)?;
    let mut report = Report {
        file: path.to_owned(),
        format: "filter",
        version: None,
        server: None,
        keys: None,
        checksum: true,
        error: None,
        filters: Vec::new(),
    };
    let source = BufReader::with_capacity(1 << 18, file);
    if magic.starts_with(&bloomery::wire::MAGIC) {
        report.version = Some(bloomery::wire::VERSION.into());
        let (filter, error) = match pieces::read_value(source) {
            Ok(value) => (Some(describe(&value)), None),
            Err(error) => (None, Some(damage(error)?)),
        };
        let entry =
            Entry { database: None, key: None, key_type: None, expires_ms: None, at_byte: 0, error, filter };
        report.filters.push(entry);
    } else if magic.starts_with(b"REDIS") || magic.starts_with(b"VALKEY") {
        report.format = "rdb";
        let filters = &mut report.filters;
        match rdb::walk(source, |found| filters.push(entry(found))) {
            Ok(file) => {
                report.version = Some(file.version);
                report.server = Some(file.server).filter(|server| !server.is_empty());
                report.keys = Some(file.keys);
                report.checksum = file.checked;
            }
            Err(error) => report.error = Some(damage(error)?),
        }
        // A server writes its keys in no order.
        report.filters.sort_by(|a, b| (a.database, &a.key).cmp(&(b.database, &b.key)));
    } else {
        report.format = "dump";
        let mut all = Vec::new();
        BufReader::new(source).read_to_end(&mut all).with_context(cannot)?;
        let Some((version, found)) = rdb::payload(&all)? else {
            let text = format!(
                "{} is no filter file, no RDB file, and no DUMP payload of a filter that is whole",
                path.display()
            );
            return Err(Failure::Data(text).into());
        };
        report.version = Some(version.into());
        report.filters.push(Entry { database: None, key: None, ..entry(found) });
    }
    Ok(report)
}

/// What is wrong with the data; an error of another sort ends the program.
fn damage(error: anyhow::Error) -> anyhow::Result<String> {
    match error.downcast_ref() {
        Some(Failure::Data(text)) => Ok(text.clone()),
        _ => Err(error),
    }
}

fn entry(found: rdb::Found) -> Entry {
    let (filter, error) = match &found.value {
        Ok(value) => (Some(describe(value)), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Entry {
        database: Some(found.database),
        key: Some(key(&found.key)),
        key_type: Some(found.key_type.name()),
        expires_ms: found.expires_ms,
        at_byte: found.at,
        error,
        filter,
    }
}

fn print(report: &Report) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let path = report.file.display();
    let version = report.version.map_or(String::new(), |version| format!(", version {version}"));
    let filters = report.filters.len();
    match report.format {
        "rdb" => {
            let server = report.server.as_ref().map_or(String::new(), |server| format!(" by {server}"));
            write!(out, "{path}: RDB file{version}{server}")?;
            if let Some(keys) = report.keys {
                write!(out, "; {} keys, {} of them filters", count(keys), count(filters as u64))?;
                write!(
                    out,
                    "; {}",
                    if report.checksum { "its checksum is right" } else { "it has no checksum" }
                )?;
            }
            writeln!(out)?;
        }
        "dump" => writeln!(
            out,
            "{path}: DUMP payload{}; its checksum is right",
            version.replace("version", "RDB version")
        )?,
        _ => writeln!(out, "{path}: filter file{version}")?,
    }
    if let Some(error) = &report.error {
        writeln!(out, "DAMAGED {error}")?;
    }
    if filters == 1 && report.format != "rdb" {
        return report.filters.iter().try_for_each(|entry| print_one(&mut out, entry));
    }
    if filters > 0 {
        writeln!(out)?;
        out.write_all(table(&report.filters).render().as_bytes())?;
    }
    Ok(())
}

fn table(entries: &[Entry]) -> Table {
    let several = entries.iter().any(|entry| entry.database.unwrap_or(0) > 0);
    let columns =
        ["key", "kind", "origin", ">items", ">capacity", ">fill", ">error rate", ">now", ">cells", ">layers"];
    let mut table = Table::new(&columns);
    for entry in entries {
        let name = entry.key.clone().unwrap_or_default();
        let name = if several { format!("{}:{name}", entry.database.unwrap_or(0)) } else { name };
        let Some(filter) = &entry.filter else {
            let error = entry.error.as_deref().unwrap_or_default();
            table.row([name, format!("DAMAGED at byte {}: {error}", entry.at_byte)]);
            continue;
        };
        let maybe = |rate: Option<f64>| rate.map_or("-".into(), percent);
        table.row([
            name,
            filter.kind.clone(),
            filter.origin.clone(),
            count(filter.items),
            filter.capacity.map_or("-".into(), count),
            maybe(filter.fill),
            maybe(filter.error_rate),
            maybe(filter.error_rate_now),
            bytes(filter.size),
            filter.filters.to_string(),
        ]);
    }
    table
}

fn print_one(out: &mut impl Write, entry: &Entry) -> anyhow::Result<()> {
    let Some(filter) = &entry.filter else {
        writeln!(out, "DAMAGED {}", entry.error.as_deref().unwrap_or_default())?;
        return Ok(());
    };
    let mut line = |name: &str, value: String| writeln!(out, "  {name:<16}{value}");
    line("kind", format!("{}, {}", filter.kind, filter.origin))?;
    let capacity = filter.capacity.map_or(String::new(), |capacity| format!(" of {}", count(capacity)));
    line("items", format!("{}{capacity}", count(filter.items)))?;
    if let Some(approximate) = filter.approximate_items {
        line("by the fill", count(approximate))?;
    }
    if let (Some(rate), Some(now)) = (filter.error_rate, filter.error_rate_now) {
        line("error rate", format!("{} promised, {} now", percent(rate), percent(now)))?;
    }
    if let Some(fill) = filter.fill {
        line("fill", percent(fill))?;
    }
    line("cells", bytes(filter.size))?;
    for (name, value) in [("layout", &filter.layout), ("hash", &filter.hash), ("when full", &filter.on_full)]
    {
        if let Some(value) = value {
            line(name, value.clone())?;
        }
    }
    line("layers", filter.filters.to_string())?;
    if let Some(rebuild) = &filter.rebuild {
        let figure = |figure: Option<u64>| figure.map_or("-".into(), count);
        let (items, capacity) = (figure(rebuild.items), figure(rebuild.capacity));
        line("being rebuilt", format!("{items} of {capacity} items are in its successor"))?;
    }
    line("whole", "yes".into())?;
    Ok(())
}

/// What a server would say of it. `size` has the bytes of the cells.
pub(crate) fn describe(value: &Filter) -> FilterInfo {
    match value {
        Filter::Bloom(filter) => {
            let spec = filter.spec();
            let on_full = match spec.family {
                Family::Scaling { .. } => "SCALE",
                Family::Fixed(Overflow::Error) | Family::Window { overflow: Overflow::Error, .. } => "ERROR",
                Family::Fixed(_) | Family::Window { .. } => "SATURATE",
            };
            let layer = |layer: &std::sync::Arc<bloomery::Layer>| LayerInfo {
                age: None,
                layout: Some(
                    if layer.shape().layout == Layout::Blocked { "BLOCKED" } else { "CLASSIC" }.into(),
                ),
                capacity: Some(layer.capacity()),
                items: layer.items(),
                error_rate: Some(layer.error_rate()),
                error_rate_now: Some(layer.rate_now()),
                cells: Some(layer.cells()),
                probes: Some(layer.probes().into()),
                fill: Some(layer.fill()),
            };
            let layout = match spec.layout {
                LayoutChoice::Auto => "AUTO",
                LayoutChoice::Blocked => "BLOCKED",
                LayoutChoice::Classic => "CLASSIC",
            };
            FilterInfo {
                kind: spec.kind().into(),
                origin: "bloomery".into(),
                layout: Some(layout.into()),
                hash: Some(hash(spec.hash)),
                shards: Some(spec.shards.into()),
                bits_per_cell: Some(spec.cell.bits().into()),
                on_full: Some(on_full.into()),
                error_rate: Some(spec.error_rate),
                error_rate_now: Some(filter.rate_now()),
                capacity: Some(filter.capacity()),
                items: filter.items(),
                approximate_items: Some(filter.estimate()),
                filters: filter.layers().len() as u64,
                cells: Some(filter.cells()),
                cells_set: Some(filter.ones()),
                fill: Some(filter.fill()),
                size: filter.bytes(),
                layers: filter.layers().iter().map(layer).collect(),
                ..FilterInfo::default()
            }
        }
        Filter::Cuckoo(filter) => {
            let spec = filter.spec();
            let slots = filter.tables().iter().map(|table| spec.slots_of(table.buckets())).sum::<u64>();
            let fill = filter.items() as f64 / (slots as f64).max(1.0);
            let tables = filter.tables().len() as u64;
            let rate = |fill| crate::info::cuckoo_rate(spec.bucket_size.into(), tables, fill);
            FilterInfo {
                kind: "cuckoo".into(),
                origin: if spec.origin == Origin::Bloomery { "bloomery" } else { "redisbloom" }.into(),
                hash: (spec.origin == Origin::Bloomery).then(|| hash(spec.hash)),
                error_rate: Some(rate(1.0)),
                error_rate_now: Some(rate(fill)),
                capacity: Some(slots),
                items: filter.items(),
                filters: tables,
                cells: Some(slots),
                cells_set: Some(filter.items()),
                fill: Some(fill),
                size: filter.bytes(),
                expansion_rate: Some(spec.expansion.into()),
                ..FilterInfo::default()
            }
        }
        Filter::Foreign(filter) => {
            let layer = |link: &bloomery::filter::foreign::Link| LayerInfo {
                capacity: Some(link.spec().capacity),
                items: link.items(),
                error_rate: Some(link.spec().error_rate),
                error_rate_now: Some(link.rate_now()),
                cells: Some(link.spec().modulus),
                probes: Some(link.spec().probes.into()),
                fill: Some(link.fill()),
                ..LayerInfo::default()
            };
            FilterInfo {
                kind: if matches!(filter.next_link(), Ok(None)) { "fixed" } else { "scaling" }.into(),
                origin: filter.origin().into(),
                error_rate_now: Some(filter.rate_now()),
                capacity: Some(filter.capacity()),
                items: filter.items(),
                approximate_items: Some(filter.estimate()),
                filters: filter.links().len() as u64,
                cells: Some(filter.cells()),
                cells_set: Some(filter.ones()),
                fill: Some(filter.fill()),
                size: filter.bytes(),
                layers: filter.links().iter().map(layer).collect(),
                ..FilterInfo::default()
            }
        }
        Filter::Rebuild(both) => {
            let shadow = both.shadow();
            let rebuild = Rebuild {
                status: "running".into(),
                kind: Some(shadow.spec().kind().into()),
                capacity: Some(shadow.capacity()),
                error_rate: Some(shadow.spec().error_rate),
                items: Some(shadow.items()),
                fill: Some(shadow.fill()),
                size: Some(shadow.bytes()),
                error_rate_now: Some(shadow.rate_now()),
                deletes_missed: Some(both.deletes_missed()),
            };
            FilterInfo { rebuild: Some(rebuild), ..describe(both.live()) }
        }
    }
}

fn hash(hash: HashKind) -> String {
    match hash {
        HashKind::Xxh3 => "XXH3",
        HashKind::SipHash => "SIPHASH",
    }
    .into()
}
