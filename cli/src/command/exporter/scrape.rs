//! One scrape: asks the servers about the filters that the survey selected.

use super::metrics;
use super::snapshot::{NodeReading, Snapshot, Tenant};
use super::survey::{self, Board, SurveyLimits};
use crate::error;
use crate::server::connection::{Connection, Server};
use crate::server::info;
use crate::server::key::FilterKey;
use anyhow::Context;
use bloomery::Summary;
use bloomery_commands::tenants::PREFIX;
use redis::{ConnectionInfo, ErrorKind, ServerErrorKind};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};

/// Maximum age of a page: a request that arrives within this time after a scrape gets that scrape's page.
const FRESH: Duration = Duration::from_secs(1);

/// A scrape may take this many times the reply timeout, because it sends each server commands for all its filters. With
/// the default timeout of 3 s, that is 9 s, so Prometheus still gets a page: it gives up after 10 s.
const REPLIES: u32 = 3;

/// Asks the servers at most once per [`FRESH`], however many clients request the page. Only one scrape runs at a time.
pub(super) struct Scraper {
    server: Server,
    board: Arc<Board>,
    state: Arc<Mutex<State>>,
    /// Places for requests that wait for the page.
    pub(super) places: Semaphore,
}

#[derive(Default)]
pub(super) struct State {
    /// Connections by address. A server that didn't answer last time has none.
    connections: HashMap<String, Connection>,
    /// Why a server didn't answer, by address, so that each reason is logged once.
    down: HashMap<String, String>,
    scrapes: u64,
    last: Option<(Instant, Arc<String>)>,
}

impl Scraper {
    /// Starts to search the server for filters.
    pub(super) fn start(server: Server, limits: SurveyLimits, places: usize) -> anyhow::Result<Scraper> {
        let board = Arc::new(Board::new(server.address()?)); // mistakes in the options show before anything starts
        survey::start(server.clone(), limits, board.clone()).context("cannot start a thread")?;
        Ok(Scraper { server, board, state: Arc::default(), places: Semaphore::new(places) })
    }

    /// Waits until no other scrape is running. Waiting needs no thread, so a request whose client disconnects leaves
    /// nothing behind.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<State> {
        self.state.clone().lock_owned().await
    }

    /// Returns the page, which is at most [`FRESH`] old.
    pub(super) fn text(&self, state: &mut State) -> Arc<String> {
        if let Some((when, text)) = &state.last
            && when.elapsed() < FRESH
        {
            return text.clone();
        }
        let text = Arc::new(metrics::text(&self.scrape(state)));
        state.last = Some((Instant::now(), text.clone()));
        text
    }

    fn scrape(&self, state: &mut State) -> Snapshot {
        let start = Instant::now();
        let deadline = start + self.server.reply_timeout() * REPLIES;
        let survey = self.board.latest();
        let mut keys = vec![Vec::new(); survey.nodes.len()];
        for (node, key) in &survey.watched {
            keys[*node].push(key.clone());
        }
        let mut connections = std::mem::take(&mut state.connections);
        // In parallel, so that a server that hangs doesn't delay the others.
        let readings: Vec<(String, anyhow::Result<Reading>)> = thread::scope(|scope| {
            let readers: Vec<_> = survey
                .nodes
                .iter()
                .zip(keys)
                .map(|(node, keys)| {
                    let address = node.addr().to_string();
                    let connection = connections.remove(&address);
                    (address, scope.spawn(move || self.read(node, connection, keys, deadline)))
                })
                .collect();
            let join = |reader: thread::ScopedJoinHandle<'_, _>| {
                reader
                    .join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that reads its metrics panicked")))
            };
            readers.into_iter().map(|(address, reader)| (address, join(reader))).collect()
        });
        let nodes =
            readings.into_iter().map(|(address, reading)| self.note(state, address, reading)).collect();
        state.scrapes += 1;
        let db = survey.nodes.first().map_or(0, |node| node.redis_settings().db());
        Snapshot { nodes, survey, db, scrapes: state.scrapes, seconds: start.elapsed().as_secs_f64() }
    }

    /// Asks one server about itself and the filters in `keys`.
    fn read(
        &self,
        node: &ConnectionInfo,
        connection: Option<Connection>,
        keys: Vec<FilterKey>,
        deadline: Instant,
    ) -> anyhow::Result<Reading> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.server.open_by(node.clone(), Some(deadline))?,
        };
        connection.set_deadline(Some(deadline));
        let module = self.server.module();
        let text: String = redis::cmd("INFO").arg(module).query(&mut connection).context("INFO")?;
        let (totals, tenants) = (totals(&text, module), tenants(&text, module));
        anyhow::ensure!(!totals.is_empty(), "the server runs without the module {module}");
        let infos = info::fetch(&mut connection, &keys).context("BF.STATS")?;
        let moved = infos.iter().any(|info| {
            info.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::Moved))
        });
        // A filter that is gone or no longer readable is left out; the next survey will notice.
        let filters = keys.into_iter().zip(infos).filter_map(|(key, info)| Some((key, info.ok()?))).collect();
        Ok(Reading { connection, totals, tenants, filters, moved })
    }

    /// Keeps the connection, and logs when a server goes down or comes back. If the survey is out of date, requests a
    /// new one.
    fn note(&self, state: &mut State, address: String, reading: anyhow::Result<Reading>) -> NodeReading {
        match reading {
            Ok(reading) => {
                let back = state.down.remove(&address).is_some();
                if back {
                    error::note(&format!("{address} answers again"));
                }
                if back || reading.moved {
                    self.board.want();
                }
                state.connections.insert(address.clone(), reading.connection);
                let Reading { totals, tenants, filters, .. } = reading;
                NodeReading { address, totals: Some(totals), tenants, filters }
            }
            Err(error) => {
                let why = error::text(&error);
                if state.down.get(&address) != Some(&why) {
                    error::note(&format!("no metrics from {address}: {why}"));
                    self.board.want(); // another node may have replaced it
                    state.down.insert(address.clone(), why);
                }
                NodeReading { address, totals: None, tenants: Vec::new(), filters: Vec::new() }
            }
        }
    }
}

struct Reading {
    connection: Connection,
    totals: BTreeMap<String, u64>,
    tenants: Vec<Tenant>,
    filters: Vec<(FilterKey, Summary)>,
    /// Whether a key has moved since the survey.
    moved: bool,
}

/// The fields of `INFO bf`. Their names start with the name of the module, which is stripped.
fn fields<'i>(info: &'i str, module: &'i str) -> impl Iterator<Item = (&'i str, &'i str)> {
    info.lines().filter_map(move |line| line.trim().strip_prefix(module)?.strip_prefix('_')?.split_once(':'))
}

/// The fields that are numbers.
fn totals(info: &str, module: &str) -> BTreeMap<String, u64> {
    fields(info, module).filter_map(number).collect()
}

/// The fields that are tenants, each a list of `name=value`.
fn tenants(info: &str, module: &str) -> Vec<Tenant> {
    let of = |list: &str| {
        let mut rest = list.split(',').filter_map(|pair| pair.split_once('='));
        let prefix = rest.next().filter(|(name, _)| PREFIX.to_str() == Ok(name))?.1.to_owned();
        Some(Tenant { prefix, figures: rest.filter_map(number).collect() })
    };
    fields(info, module)
        .filter(|(name, _)| name.starts_with("tenant_"))
        .filter_map(|(_, list)| of(list))
        .collect()
}

fn number((name, value): (&str, &str)) -> Option<(String, u64)> {
    Some((name.to_owned(), value.parse().ok()?))
}
