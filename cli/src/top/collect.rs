//! What the servers know of their filters, again and again.

use super::Sort;
use crate::connect::{Node, Server};
use crate::info::{self, FilterInfo};
use crate::output::key;
use crate::scan::{FilterKey, Scan};
use redis::ErrorKind;
use serde::Serialize;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// All filters, at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Snapshot {
    /// `127.0.0.1:6379`, or the number of nodes.
    pub(super) servers: Vec<String>,
    pub(super) filters: Vec<Row>,
    /// Filters of which the user may not read anything, or that another error hides.
    pub(super) hidden: u64,
    /// What hid the last of them.
    pub(super) hidden_by: Option<String>,
}

/// One filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Row {
    /// Which of the servers has it.
    pub(super) server: String,
    pub(super) key: String,
    /// Tests a second; none before the second look.
    pub(super) tests_per_second: Option<f64>,
    pub(super) adds_per_second: Option<f64>,
    pub(super) info: FilterInfo,
}

impl Row {
    /// Items over capacity.
    pub(super) fn full(&self) -> f64 {
        self.info.items as f64 / self.info.capacity.unwrap_or(0).max(1) as f64
    }

    /// The error rate at the present fill over the promise.
    pub(super) fn error_ratio(&self) -> f64 {
        match (self.info.error_rate_now, self.info.error_rate) {
            (Some(now), Some(promised)) if promised > 0.0 => now / promised,
            _ => 0.0,
        }
    }

    /// The observed error rate, of the shortest span that has one.
    pub(super) fn observed(&self) -> Option<f64> {
        let feedback = self.info.feedback.as_ref()?;
        [&feedback.minute, &feedback.hour, &feedback.life]
            .into_iter()
            .find_map(|span| span.observed_error_rate)
    }
}

impl Snapshot {
    /// Puts the filters into this order; equal ones by name, so that they stay where they are.
    pub(super) fn sort(&mut self, by: Sort) {
        let measure = |row: &Row| match by {
            Sort::Memory => row.info.bytes() as f64,
            Sort::Full => row.full(),
            Sort::Error => row.error_ratio(),
            Sort::Tests => row.tests_per_second.unwrap_or(0.0),
            Sort::Adds => row.adds_per_second.unwrap_or(0.0),
            Sort::Key => 0.0,
        };
        self.filters.sort_by(|a, b| {
            measure(b).total_cmp(&measure(a)).then_with(|| (&a.key, &a.server).cmp(&(&b.key, &b.server)))
        });
    }
}

/// Asks the servers.
pub(super) struct Collector {
    server: Server,
    pattern: String,
    scan_interval: Duration,
    nodes: Vec<Watched>,
    scanned: Option<Instant>,
}

/// A node, and its filters as of the last walk over its keys.
struct Watched {
    node: Node,
    keys: Vec<FilterKey>,
    before: HashMap<Vec<u8>, Counts>,
}

/// What rates are made of.
struct Counts {
    at: Instant,
    tests: u64,
    adds: u64,
}

impl Collector {
    pub(super) fn new(server: Server, pattern: &str, scan_interval: Duration) -> Collector {
        Collector { server, pattern: pattern.to_owned(), scan_interval, nodes: Vec::new(), scanned: None }
    }

    /// One look. After an error the next one connects anew.
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
            let watched = |node| Watched { node, keys: Vec::new(), before: HashMap::new() };
            self.nodes = self.server.nodes()?.into_iter().map(watched).collect();
        }
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= self.scan_interval) {
            for watched in &mut self.nodes {
                watched.keys = Scan::new(&self.pattern).collect(&mut watched.node.connection)?;
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
        for (filter, answer) in self.keys.iter().zip(answers) {
            let info = match answer {
                Ok(info) => info,
                // Deleted, or replaced, or moved to another node since the last walk.
                Err(error) if is_gone(&error) => continue,
                Err(error) => {
                    snapshot.hidden += 1;
                    snapshot.hidden_by = Some(crate::error::server_text(&error));
                    continue;
                }
            };
            let before = self.before.get(&filter.name);
            let rate = |count: Option<u64>, then: fn(&Counts) -> u64| {
                let before = before?;
                let seconds = (now - before.at).as_secs_f64();
                // Counts begin anew when a filter is replaced.
                Some(count?.saturating_sub(then(before)) as f64 / seconds.max(0.001))
            };
            let (tests, adds) = (info.tests(), info.adds);
            snapshot.filters.push(Row {
                server: self.node.address.clone(),
                key: key(&filter.name),
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
