//! Prints a report for people.

use super::report::{Entry, Report};
use crate::output::{Name, Table, bytes, count, percent};
use crate::printable::printable;
use crate::server::family::SKETCHES;
use std::io::Write;

pub(super) fn print(report: &Report) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let path = report.file.display();
    let version = report.version.map_or(String::new(), |version| format!(", version {version}"));
    let filters = report.filters.len();
    match report.format {
        "rdb" => {
            let server =
                report.server.as_ref().map_or(String::new(), |server| format!(" by {}", printable(server)));
            write!(out, "{path}: RDB file{version}{server}")?;
            if let Some(keys) = report.keys {
                write!(out, "; {} keys, {} of them filters or sketches", count(keys), count(filters as u64))?;
                let checksum = if report.checksum { "its checksum is correct" } else { "it has no checksum" };
                write!(out, "; {checksum}")?;
            }
            writeln!(out)?;
        }
        "dump" => writeln!(
            out,
            "{path}: DUMP payload{}; its checksum is correct",
            version.replace("version", "RDB version")
        )?,
        "backup" => {
            let keys = report.keys.map_or(String::new(), |keys| format!("; {} keys", count(keys)));
            writeln!(out, "{path}: backup{version}{keys}")?;
        }
        _ => writeln!(out, "{path}: filter file{version}")?,
    }
    report.problems.iter().try_for_each(|problem| writeln!(out, "DAMAGED {}", printable(problem)))?;
    if let Some(error) = &report.error {
        writeln!(out, "DAMAGED {}", printable(error))?;
    }
    if filters == 1 && matches!(report.format, "filter" | "dump") {
        return report.filters.iter().try_for_each(|entry| print_one(&mut out, entry));
    }
    if filters > 0 {
        writeln!(out)?;
        out.write_all(table(&report.filters).render().as_bytes())?;
    }
    Ok(())
}

pub(super) fn table(entries: &[Entry]) -> Table {
    let several = entries.iter().any(|entry| entry.database.unwrap_or(0) > 0);
    let columns =
        ["key", "kind", "origin", ">items", ">capacity", ">fill", ">error rate", ">now", ">cells", ">layers"];
    let mut table = Table::new(&columns);
    for entry in entries {
        let name = entry.key.as_ref().map_or(String::new(), Name::to_string);
        let name = if several { format!("{}:{name}", entry.database.unwrap_or(0)) } else { name };
        let Some(filter) = &entry.filter else {
            let kind = match &entry.error {
                Some(error) => format!("DAMAGED at byte {}: {error}", entry.at_byte),
                None => title(entry).to_owned(),
            };
            table.row([name, kind]);
            continue;
        };
        table.row([
            name,
            filter.kind.to_string(),
            filter.origin.to_string(),
            count(filter.items),
            count(filter.capacity),
            percent(filter.fill),
            filter.error_rate.map_or("-".into(), percent),
            percent(filter.error_rate_now),
            bytes(filter.size),
            filter.filters.to_string(),
        ]);
    }
    table
}

/// What a sketch is called.
fn title(entry: &Entry) -> &'static str {
    let sketch = SKETCHES.iter().find(|sketch| entry.key_type == Some(sketch.key_type));
    sketch.map_or("", |sketch| sketch.title)
}

pub(super) fn print_one(out: &mut impl Write, entry: &Entry) -> anyhow::Result<()> {
    let Some(filter) = &entry.filter else {
        match &entry.error {
            Some(error) => writeln!(out, "DAMAGED {error}")?,
            None => writeln!(out, "  {:<16}{}", "kind", title(entry))?,
        }
        return Ok(());
    };
    let mut line = |name: &str, value: String| writeln!(out, "  {name:<16}{value}");
    line("kind", format!("{}, {}", filter.kind, filter.origin))?;
    line("items", format!("{} of {}", count(filter.items), count(filter.capacity)))?;
    if let Some(approximate) = filter.approximate_items {
        line("estimated", count(approximate))?;
    }
    if let Some(rate) = filter.error_rate {
        line("error rate", format!("{} promised, {} now", percent(rate), percent(filter.error_rate_now)))?;
    }
    line("fill", percent(filter.fill))?;
    line("cells", bytes(filter.size))?;
    for (name, value) in [("layout", &filter.layout), ("hash", &filter.hash), ("when full", &filter.on_full)]
    {
        if let Some(value) = value {
            line(name, value.to_string())?;
        }
    }
    line("layers", filter.filters.to_string())?;
    if let Some(rebuild) = &filter.rebuild {
        let (items, capacity) = (count(rebuild.items), count(rebuild.capacity));
        line("being rebuilt", format!("{items} of {capacity} items are in the new filter"))?;
    }
    line("intact", "yes".into())?;
    Ok(())
}
