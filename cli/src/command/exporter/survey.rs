//! Periodically searches the keyspace for filters, in the background.

use crate::error;
use crate::server::connection::Server;
use crate::server::info;
use crate::server::key::FilterKey;
use crate::server::scan::Scan;
use bloomery::Summary;
use redis::{ConnectionInfo, RedisResult};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// After each step, the search pauses for this multiple of the step's duration, so it uses at most a fifth of a
/// server's time.
const REST: u32 = 4;

/// Minimum time between two searches, however often one is requested.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// What to search for, and how often.
pub(super) struct SurveyLimits {
    pub(super) patterns: Vec<String>,
    /// Maximum number of filters with metrics of their own.
    pub(super) max_filters: usize,
    pub(super) interval: Duration,
}

/// What the last searches found.
#[derive(Clone, Debug, Default)]
pub(super) struct Survey {
    /// The servers that hold keys.
    pub(super) nodes: Vec<ConnectionInfo>,
    /// The filters with metrics of their own, each with the index of its node.
    pub(super) watched: Vec<(usize, FilterKey)>,
    /// Number of filters and their bytes, by kind.
    pub(super) totals: BTreeMap<String, (u64, u64)>,
    /// Number of filters beyond [`SurveyLimits::max_filters`].
    pub(super) without_label: u64,
    /// Number of filters that the user has no permission to read.
    pub(super) without_permission: u64,
    /// When the last complete search ended, and how long it took.
    pub(super) finished: Option<(SystemTime, Duration)>,
}

/// Shares the latest survey between threads.
pub(super) struct Board {
    latest: Mutex<(Arc<Survey>, bool)>,
    /// Signals that the `bool` has become true: the next search should start now.
    wanted: Condvar,
}

impl Board {
    /// A board with an empty survey, in which one server is known.
    pub(super) fn new(first: ConnectionInfo) -> Board {
        let survey = Survey { nodes: vec![first], ..Survey::default() };
        Board { latest: Mutex::new((Arc::new(survey), false)), wanted: Condvar::new() }
    }

    pub(super) fn latest(&self) -> Arc<Survey> {
        self.lock().0.clone()
    }

    /// Requests a new search, because keys have moved, or a server has failed or is back.
    pub(super) fn want(&self) {
        self.lock().1 = true;
        self.wanted.notify_one();
    }

    fn put(&self, survey: Survey) {
        self.lock().0 = Arc::new(survey);
    }

    fn wait(&self, longest: Duration) {
        thread::sleep(SHORTEST_INTERVAL.min(longest));
        let rest = longest.saturating_sub(SHORTEST_INTERVAL);
        let waited = self.wanted.wait_timeout_while(self.lock(), rest, |latest| !latest.1);
        waited.unwrap_or_else(PoisonError::into_inner).0.1 = false;
    }

    fn lock(&self) -> MutexGuard<'_, (Arc<Survey>, bool)> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread that searches again and again, for as long as the program runs.
pub(super) fn start(server: Server, limits: SurveyLimits, board: Arc<Board>) -> io::Result<()> {
    let walk = move || {
        let mut surveyor =
            Surveyor { server, limits, found: BTreeMap::new(), finished: None, trouble: String::new() };
        loop {
            let survey = surveyor.survey(&board.latest().nodes);
            board.put(survey);
            board.wait(surveyor.limits.interval);
        }
    };
    thread::Builder::new().name("survey".into()).spawn(walk).map(drop)
}

struct Surveyor {
    server: Server,
    limits: SurveyLimits,
    /// What the last search of each node found, by address. A node that is down keeps its entry.
    found: BTreeMap<String, NodeSurvey>,
    finished: Option<(SystemTime, Duration)>,
    /// The most recent error, kept so that it is logged only once.
    trouble: String,
}

/// The filters of one node.
#[derive(Debug, Default)]
struct NodeSurvey {
    filters: BTreeMap<FilterKey, Measured>,
    without_permission: BTreeSet<FilterKey>,
}

#[derive(Debug)]
struct Measured {
    kind: String,
    bytes: u64,
}

impl Surveyor {
    fn survey(&mut self, known: &[ConnectionInfo]) -> Survey {
        let start = Instant::now();
        let mut trouble = Vec::new();
        let nodes = self.server.primaries(known).unwrap_or_else(|error| {
            trouble.push(error::text(&error));
            known.to_vec()
        });
        let addresses: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        self.found.retain(|address, _| addresses.contains(address));
        for (node, address) in nodes.iter().zip(&addresses) {
            match self.walk(node) {
                Ok(found) => drop(self.found.insert(address.clone(), found)),
                Err(error) => trouble.push(error::text(&error)),
            }
        }
        if trouble.is_empty() {
            self.finished = Some((SystemTime::now(), start.elapsed()));
        }
        trouble.dedup();
        self.log(trouble.join("; "));
        self.rank(nodes, &addresses)
    }

    /// Searches one node for filters.
    fn walk(&self, node: &ConnectionInfo) -> anyhow::Result<NodeSurvey> {
        let mut connection = self.server.open(node.clone())?;
        let mut found = NodeSurvey::default();
        for pattern in &self.limits.patterns {
            let mut scan = Scan::new(pattern);
            loop {
                let start = Instant::now();
                let Some(mut keys) = scan.next_slice(&mut connection)? else { break };
                keys.retain(|key| !found.filters.contains_key(key));
                let infos = info::fetch(&mut connection, &keys)?;
                for (key, info) in keys.into_iter().zip(infos) {
                    found.note(key, info);
                }
                thread::sleep(start.elapsed() * REST);
            }
        }
        Ok(found)
    }

    /// Computes the totals, and selects the largest filters. A key that is migrating between two nodes may be on both;
    /// it counts once.
    fn rank(&self, nodes: Vec<ConnectionInfo>, addresses: &[String]) -> Survey {
        let mut survey = Survey { nodes, finished: self.finished, ..Survey::default() };
        let mut all: Vec<(u64, &FilterKey, usize, &str)> = Vec::new();
        let mut seen = HashSet::new();
        for (index, found) in
            addresses.iter().enumerate().filter_map(|(index, at)| Some((index, self.found.get(at)?)))
        {
            survey.without_permission += found.without_permission.len() as u64;
            for (key, measured) in &found.filters {
                if seen.insert(&key.name) {
                    all.push((measured.bytes, key, index, &measured.kind));
                }
            }
        }
        for &(bytes, _, _, kind) in &all {
            let total = survey.totals.entry(kind.to_owned()).or_default();
            total.0 += 1;
            total.1 = total.1.saturating_add(bytes);
        }
        all.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        survey.without_label = all.len().saturating_sub(self.limits.max_filters) as u64;
        all.truncate(self.limits.max_filters);
        survey.watched = all.into_iter().map(|(_, key, index, _)| (index, key.clone())).collect();
        survey
    }

    fn log(&mut self, trouble: String) {
        if trouble != self.trouble {
            match trouble.as_str() {
                "" => error::note("the search for filters is complete again"),
                trouble => error::note(&format!("the search for filters is not complete: {trouble}")),
            }
            self.trouble = trouble;
        }
    }
}

impl NodeSurvey {
    fn note(&mut self, key: FilterKey, info: RedisResult<Summary>) {
        match info {
            Ok(info) => {
                drop(self.filters.insert(key, Measured { bytes: info.bytes(), kind: info.kind.into_owned() }))
            }
            Err(error) if is_forbidden(&error) => drop(self.without_permission.insert(key)),
            // The key was deleted, or now has another type.
            Err(_) => (),
        }
    }
}

/// Whether the server refused the command because the user has no permission for it.
fn is_forbidden(error: &redis::RedisError) -> bool {
    error.code() == Some("NOPERM")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> FilterKey {
        FilterKey { name: name.into(), key_type: "bloomery1" }
    }

    fn found(filters: &[(&str, &str, u64)], forbidden: &[&str]) -> NodeSurvey {
        NodeSurvey {
            filters: filters
                .iter()
                .map(|&(name, kind, bytes)| (key(name), Measured { kind: kind.into(), bytes }))
                .collect(),
            without_permission: forbidden.iter().map(|name| key(name)).collect(),
        }
    }

    fn surveyor(max_filters: usize, found: BTreeMap<String, NodeSurvey>) -> Surveyor {
        let limits = SurveyLimits { patterns: vec![], max_filters, interval: Duration::from_secs(1) };
        Surveyor { server: Server::default(), limits, found, finished: None, trouble: String::new() }
    }

    fn names(survey: &Survey) -> Vec<(usize, &str)> {
        survey.watched.iter().map(|(node, key)| (*node, std::str::from_utf8(&key.name).unwrap())).collect()
    }

    #[test]
    fn the_largest_get_labels_and_all_are_in_the_totals() {
        let nodes = BTreeMap::from([
            ("a".to_owned(), found(&[("s", "fixed", 1), ("m", "fixed", 20), ("n", "window", 20)], &["x"])),
            ("b".to_owned(), found(&[("l", "cuckoo", 300), ("m", "fixed", 20)], &["y", "z"])),
            ("gone".to_owned(), found(&[("old", "fixed", 999)], &[])),
        ]);
        let addresses = ["a".to_owned(), "b".to_owned()];
        let two = surveyor(2, nodes);
        let survey = two.rank(vec![], &addresses);
        assert_eq!(names(&survey), [(1, "l"), (0, "m")]);
        assert_eq!((survey.without_label, survey.without_permission), (2, 3));
        let totals = [("cuckoo", (1, 300)), ("fixed", (2, 21)), ("window", (1, 20))];
        assert_eq!(survey.totals, totals.map(|(kind, total)| (kind.to_owned(), total)).into());
        let all = Surveyor { limits: SurveyLimits { max_filters: 4, ..two.limits }, ..two };
        assert_eq!(names(&all.rank(vec![], &addresses)), [(1, "l"), (0, "m"), (0, "n"), (0, "s")]);
        assert_eq!(all.rank(vec![], &addresses).without_label, 0);
    }

    #[test]
    fn a_search_that_is_requested_does_not_wait() {
        let board = Board::new(("127.0.0.1", 1).into_connection_info().unwrap());
        board.want();
        let start = Instant::now();
        board.wait(Duration::from_secs(600));
        assert!(start.elapsed() < Duration::from_secs(60));
        board.wait(Duration::from_millis(1)); // no other search is requested
        assert!(!board.lock().1);
    }

    use redis::IntoConnectionInfo;
}
