//! Periodically searches the keyspace for filters, in the background.

use crate::error;
use crate::server::connection::Server;
use crate::server::info;
use crate::server::key::FilterKey;
use crate::server::scan::{Scan, rest_since};
use bloomery::Summary;
use redis::{ConnectionInfo, RedisResult};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use xxhash_rust::xxh3::xxh3_128;

/// Minimum time between two searches, however often one is requested.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// How often the first search of a node shows what it has found so far.
const FIRST_SHOWN: Duration = Duration::from_secs(2);

/// Maximum size in bytes of all names that the exporter keeps. Clients choose the names.
pub(super) const NAMES: usize = 64 << 20;

/// What to search for, how often, and how much to keep.
#[derive(Clone)]
pub(super) struct SurveyLimits {
    pub(super) patterns: Vec<String>,
    /// Maximum number of filters with metrics of their own.
    pub(super) max_filters: usize,
    pub(super) interval: Duration,
    /// Maximum size in bytes of all names that are kept.
    pub(super) names: usize,
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
    /// Number of filters without metrics of their own: beyond [`SurveyLimits::max_filters`], or with too long a name.
    pub(super) without_label: u64,
    /// Number of filters that the user has no permission to read.
    pub(super) without_permission: u64,
    /// When the last complete search ended, and how long it took.
    pub(super) finished: Option<(SystemTime, Duration)>,
    /// Whether the last search was complete; `None` before the end of the first.
    pub(super) success: Option<bool>,
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
        let mut surveyor = Surveyor::new(server, limits);
        loop {
            let survey = surveyor.survey(&board);
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
    success: Option<bool>,
    /// The most recent error, kept so that it is logged only once.
    trouble: String,
}

/// The hash of a key's name, by which filters are told apart: names can be long.
type NameHash = u128;

/// The filters of one node.
#[derive(Debug)]
struct NodeSurvey {
    filters: HashMap<NameHash, Measured>,
    largest: Largest,
    without_permission: HashSet<NameHash>,
    /// Number of filters whose names the connection has left out.
    left_out: u64,
}

#[derive(Debug)]
struct Measured {
    kind: String,
    bytes: u64,
}

/// The largest filters: at most a number of them, and at most a size of all their names.
#[derive(Debug)]
struct Largest {
    /// The bytes and the key of each, the smallest first. Among equals, the last by name comes first.
    keys: BTreeSet<(u64, Reverse<FilterKey>)>,
    names: usize,
    most: usize,
    most_names: usize,
}

impl Largest {
    fn new(most: usize, most_names: usize) -> Largest {
        Largest { keys: BTreeSet::new(), names: 0, most, most_names }
    }

    fn add(&mut self, bytes: u64, key: FilterKey) {
        self.names += key.name.len();
        self.keys.insert((bytes, Reverse(key)));
        while self.keys.len() > self.most || self.names > self.most_names {
            let Some((_, Reverse(smallest))) = self.keys.pop_first() else { break };
            self.names -= smallest.name.len();
        }
    }
}

impl Surveyor {
    fn new(server: Server, limits: SurveyLimits) -> Surveyor {
        let (found, finished, success, trouble) = Default::default();
        Surveyor { server, limits, found, finished, success, trouble }
    }

    fn survey(&mut self, board: &Board) -> Survey {
        let start = Instant::now();
        let mut trouble = Vec::new();
        let known = board.latest().nodes.clone();
        let nodes = self.server.primaries(&known).unwrap_or_else(|error| {
            trouble.push(error::text(&error));
            known
        });
        let addresses: Vec<String> = nodes.iter().map(|node| node.addr().to_string()).collect();
        self.found.retain(|address, _| addresses.contains(address));
        for (index, address) in addresses.iter().enumerate() {
            let is_first = !self.found.contains_key(address);
            let mut shown = Instant::now();
            let mut found =
                NodeSurvey::new(Largest::new(self.limits.max_filters, self.limits.names / nodes.len()));
            let walked = self.walk(&nodes[index], &mut found, |found| {
                if is_first && shown.elapsed() >= FIRST_SHOWN {
                    let others = addresses
                        .iter()
                        .enumerate()
                        .filter_map(|(at, other)| Some((at, self.found.get(other)?)));
                    board.put(self.rank(&nodes, others.chain([(index, found)])));
                    shown = Instant::now();
                }
            });
            if walked.is_ok() || (is_first && !found.filters.is_empty()) {
                self.found.insert(address.clone(), found);
            }
            trouble.extend(walked.err().map(|error| error::text(&error)));
        }
        if trouble.is_empty() {
            self.finished = Some((SystemTime::now(), start.elapsed()));
        }
        self.success = Some(trouble.is_empty());
        trouble.dedup();
        self.log(trouble.join("; "));
        let found =
            addresses.iter().enumerate().filter_map(|(at, address)| Some((at, self.found.get(address)?)));
        self.rank(&nodes, found)
    }

    /// Searches one node for filters. After each slice, calls `so_far`.
    fn walk(
        &self,
        node: &ConnectionInfo,
        found: &mut NodeSurvey,
        mut so_far: impl FnMut(&NodeSurvey),
    ) -> anyhow::Result<()> {
        let mut connection = self.server.open(node.clone())?.without_long_names();
        for pattern in &self.limits.patterns {
            let mut scan = Scan::new(pattern);
            loop {
                let start = Instant::now();
                let Some(mut keys) = scan.next_slice(&mut connection)? else { break };
                keys.retain(|key| !found.filters.contains_key(&xxh3_128(&key.name)));
                let infos = info::fetch(&mut connection, &keys)?;
                for (key, info) in keys.into_iter().zip(infos) {
                    found.note(key, info);
                }
                rest_since(start);
                so_far(found);
            }
            // Patterns can overlap, and the names that were left out can't be compared.
            found.left_out = found.left_out.max(scan.left_out);
        }
        Ok(())
    }

    /// Computes the totals, and selects the largest filters. `found` has the index of each node and its filters. A key
    /// that is migrating between two nodes may be on both; it counts once.
    fn rank<'a>(
        &self,
        nodes: &[ConnectionInfo],
        found: impl Iterator<Item = (usize, &'a NodeSurvey)>,
    ) -> Survey {
        let (finished, success) = (self.finished, self.success);
        let mut survey = Survey { nodes: nodes.to_vec(), finished, success, ..Survey::default() };
        let mut largest: Vec<(u64, usize, &FilterKey)> = Vec::new();
        let mut seen = HashSet::new();
        let mut left_out = 0;
        for (index, found) in found {
            survey.without_permission += found.without_permission.len() as u64;
            left_out += found.left_out;
            let twice = |key: &FilterKey| seen.contains(&xxh3_128(&key.name));
            let own = found.largest.keys.iter().filter(|(_, Reverse(key))| !twice(key));
            largest.extend(own.map(|(bytes, Reverse(key))| (*bytes, index, key)));
            for (name, measured) in &found.filters {
                if seen.insert(*name) {
                    let total = survey.totals.entry(measured.kind.clone()).or_default();
                    total.0 += 1;
                    total.1 = total.1.saturating_add(measured.bytes);
                }
            }
        }
        largest.sort_unstable_by(|a, b| b.0.cmp(&a.0).then_with(|| a.2.cmp(b.2)));
        largest.truncate(self.limits.max_filters);
        survey.without_label = (seen.len() - largest.len()) as u64 + left_out;
        survey.watched = largest.into_iter().map(|(_, index, key)| (index, key.clone())).collect();
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
    fn new(largest: Largest) -> NodeSurvey {
        let (filters, without_permission, left_out) = Default::default();
        NodeSurvey { filters, largest, without_permission, left_out }
    }

    fn note(&mut self, key: FilterKey, info: RedisResult<Summary>) {
        let name = xxh3_128(&key.name);
        match info {
            Ok(info) => {
                let (bytes, kind) = (info.bytes(), info.kind.into_owned());
                // SCAN can return a key twice.
                if self.filters.insert(name, Measured { kind, bytes }).is_none() {
                    self.largest.add(bytes, key);
                }
            }
            Err(error) if is_forbidden(&error) => drop(self.without_permission.insert(name)),
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
        FilterKey { name: name.as_bytes().into(), key_type: "bloomery1" }
    }

    fn found(filters: &[(&str, &'static str, u64)], forbidden: &[&str]) -> NodeSurvey {
        let mut found = NodeSurvey::new(Largest::new(4, 1000));
        for &(name, kind, size) in filters {
            let mut summary = Summary::default();
            (summary.kind, summary.size) = (kind.into(), size);
            found.note(key(name), Ok(summary));
        }
        for name in forbidden {
            let error = redis::make_extension_error("NOPERM".into(), None);
            found.note(key(name), Err(error));
        }
        found
    }

    fn surveyor(max_filters: usize, found: BTreeMap<String, NodeSurvey>) -> Surveyor {
        let limits =
            SurveyLimits { patterns: vec![], max_filters, interval: Duration::from_secs(1), names: NAMES };
        Surveyor { found, ..Surveyor::new(Server::default(), limits) }
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
        let rank = |surveyor: &Surveyor| {
            surveyor.rank(&[], ["a", "b"].map(|at| &surveyor.found[at]).into_iter().enumerate())
        };
        let two = surveyor(2, nodes);
        let survey = rank(&two);
        assert_eq!(names(&survey), [(1, "l"), (0, "m")]);
        assert_eq!((survey.without_label, survey.without_permission), (2, 3));
        let totals = [("cuckoo", (1, 300)), ("fixed", (2, 21)), ("window", (1, 20))];
        assert_eq!(survey.totals, totals.map(|(kind, total)| (kind.to_owned(), total)).into());
        let all = Surveyor { limits: SurveyLimits { max_filters: 4, ..two.limits }, ..two };
        assert_eq!(names(&rank(&all)), [(1, "l"), (0, "m"), (0, "n"), (0, "s")]);
        assert_eq!(rank(&all).without_label, 0);
    }

    #[test]
    fn few_and_short_names_are_kept() {
        let mut largest = Largest::new(3, 100);
        let mut kept = |bytes, name: &str| {
            largest.add(bytes, key(name));
            largest.keys.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>()
        };
        kept(5, "a");
        kept(7, "b");
        assert_eq!(kept(6, &"c".repeat(90)), [5, 6, 7]);
        assert_eq!(kept(4, "d"), [5, 6, 7]);
        assert_eq!(kept(8, "e"), [6, 7, 8]);
        assert_eq!(kept(9, &"f".repeat(50)), [7, 8, 9], "two names are longer than 100 bytes together");
        assert_eq!(kept(10, &"g".repeat(101)), Vec::<u64>::new(), "no room for this one alone");
        assert_eq!(kept(1, "h"), [1]);
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
