//! What a scrape read from the servers.

use super::survey::Survey;
use crate::server::key::FilterKey;
use bloomery::Summary;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What one scrape read.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) nodes: Vec<NodeReading>,
    pub(super) survey: Arc<Survey>,
    /// Number of the database, a label of filters outside database 0.
    pub(super) db: i64,
    pub(super) scrapes: u64,
    pub(super) seconds: f64,
}

/// What one server replied.
#[derive(Debug)]
pub(super) struct NodeReading {
    pub(super) address: String,
    /// The numbers of `INFO bf`, by name without the prefix; `None` if the server is down.
    pub(super) totals: Option<BTreeMap<String, u64>>,
    /// The numbers of each tenant, by name.
    pub(super) tenants: Vec<Tenant>,
    pub(super) filters: Vec<(FilterKey, Summary)>,
}

/// A tenant of a server, as INFO shows it.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) prefix: String,
    pub(super) figures: BTreeMap<String, u64>,
}
