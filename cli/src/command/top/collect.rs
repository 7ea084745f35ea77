//! Asks the servers about their filters and sketches, repeatedly.

use super::snapshot::{Row, Snapshot};
use crate::error::server_text;
use crate::output::Name;
use crate::printable::printable;
use crate::server::connection::{Node, Server};
use crate::server::family::value_types;
use crate::server::info;
use crate::server::key::FilterKey;
use crate::server::scan::Scan;
use redis::ErrorKind;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Queries the servers, and keeps the connections, keys and counters that the next query needs.
pub(super) struct Collector {
    server: Server,
    pattern: String,
    scan_interval: Duration,
    nodes: Vec<Watched>,
    scanned: Option<Instant>,
}

/// A node, and its filters as of the last search.
struct Watched {
    node: Node,
    keys: Vec<FilterKey>,
    /// Number of filters whose names are too long.
    left_out: u64,
    before: HashMap<Arc<[u8]>, Counts>,
}

/// A filter's counters at one time, to compute rates from.
struct Counts {
    at: Instant,
    tests: u64,
    adds: u64,
}

impl Collector {
    pub(super) fn new(server: Server, pattern: &str, scan_interval: Duration) -> Collector {
        Collector { server, pattern: pattern.to_owned(), scan_interval, nodes: Vec::new(), scanned: None }
    }

    /// Queries the servers once. After an error, the next query connects again.
    pub(super) fn look(&mut self) -> anyhow::Result<Snapshot> {
        let result = self.try_look();
        if result.is_err() {
            self.nodes.clear();
            self.scanned = None;
        }
        result
    }

    fn try_look(&mut self) -> anyhow::Result<Snapshot> {
        if self.nodes.is_empty() {
            let watched = |node: Node| {
                let node = Node { connection: node.connection.without_long_names(), ..node };
                Watched { node, keys: Vec::new(), left_out: 0, before: HashMap::new() }
            };
            self.nodes = self.server.nodes()?.into_iter().map(watched).collect();
        }
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= self.scan_interval) {
            for watched in &mut self.nodes {
                let mut scan = Scan::of(&self.pattern, value_types());
                watched.keys = scan.collect(&mut watched.node.connection)?;
                watched.left_out = scan.left_out;
            }
            self.scanned = Some(Instant::now());
        }
        let mut snapshot = Snapshot::default();
        for watched in &mut self.nodes {
            watched.look(&mut snapshot)?;
        }
        Ok(snapshot)
    }
}

impl Watched {
    fn look(&mut self, snapshot: &mut Snapshot) -> anyhow::Result<()> {
        snapshot.servers.push(self.node.address.clone());
        let answers = info::fetch(&mut self.node.connection, &self.keys)?;
        let now = Instant::now();
        if self.left_out > 0 {
            snapshot.hidden += self.left_out;
            snapshot.hidden_by = Some("the name is longer than 16 KiB".into());
        }
        for (filter, answer) in self.keys.iter().zip(answers) {
            let info = match answer {
                Ok(info) => info,
                // The filter was deleted, replaced, or moved to another node since the last search.
                Err(error) if is_gone(&error) => continue,
                Err(error) => {
                    snapshot.hidden += 1;
                    snapshot.hidden_by = Some(printable(&server_text(&error)).into_owned());
                    continue;
                }
            };
            let before = self.before.get(&filter.name);
            let rate = |count: Option<u64>, then: fn(&Counts) -> u64| {
                let before = before?;
                let seconds = (now - before.at).as_secs_f64();
                // Counts start at 0 again when a filter is replaced.
                Some(count?.saturating_sub(then(before)) as f64 / seconds.max(0.001))
            };
            let (tests, adds) = (info.tests(), info.adds);
            snapshot.filters.push(Row {
                server: self.node.address.clone(),
                key: Name::new(&filter.name),
                tests_per_second: rate(tests, |counts| counts.tests),
                adds_per_second: rate(adds, |counts| counts.adds),
                info,
            });
            let counts = Counts { at: now, tests: tests.unwrap_or(0), adds: adds.unwrap_or(0) };
            self.before.insert(filter.name.clone(), counts);
        }
        Ok(())
    }
}

fn is_gone(error: &redis::RedisError) -> bool {
    let text = error.to_string();
    text.contains("not found")
        || text.contains("WRONGTYPE")
        || matches!(error.kind(), ErrorKind::Server(kind) if format!("{kind:?}") == "Moved")
}
