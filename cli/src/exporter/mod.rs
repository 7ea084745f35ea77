//! `bloomery exporter`: the figures of filters, for Prometheus.
//!
//! Two things go on beside each other. A [`survey`] walks over the keyspace in the background, in slices, and
//! decides which filters get figures of their own. A [`scrape`] is what a request for /metrics causes: it asks the
//! servers for the figures of those filters, and [`metrics`] writes them down. So a scrape costs a server what its
//! labels cost, and never a walk over all keys. [`http`] is the endpoint.

mod http;
mod metrics;
mod scrape;
mod survey;

use crate::connect::Server;
use crate::error::{self, Outcome};
use anyhow::Context;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Give Prometheus the figures of filters
///
/// They are on http://127.0.0.1:19747/metrics. docs/MONITORING.md has the meaning of each, an ACL user that may do
/// just this, and how to run it as a service; ops/ has alert rules and a dashboard.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery exporter
  bloomery exporter --url redis://cache.example:6379 --user exporter --keys 'seen:*'
  bloomery exporter --cluster --host node1.example --listen 0.0.0.0:19747")]
pub(crate) struct Options {
    /// Address and port to listen on; anyone who can reach it can read the names of keys
    // Exporters register ports from 9100 to 9999, which are all taken: this one is outside.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:19747")]
    listen: SocketAddr,

    /// Watch the filters whose keys match this pattern, as in KEYS; may be repeated
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    keys: Vec<String>,

    /// Figures of their own for so many filters, the largest; the others are in the totals
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_filters: usize,

    /// Seconds between two searches for filters in the keyspace
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..))]
    interval: u64,

    #[command(flatten)]
    server: Server,
}

/// Serves until SIGTERM or SIGINT. A server that is down is a figure, not an end.
pub(crate) fn run(options: Options) -> anyhow::Result<Outcome> {
    let server = options.server.for_scrapes();
    let first = server.address()?; // what is wrong with the options shows before anything starts
    let survey = Arc::new(survey::Board::new(first));
    survey::start(
        server.clone(),
        survey::Limits {
            patterns: options.keys,
            max_filters: options.max_filters,
            interval: Duration::from_secs(options.interval),
        },
        survey.clone(),
    )
    .context("cannot start a thread")?;
    let scraper = Arc::new(scrape::Scraper::new(server, survey));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(options.listen).await.with_context(|| {
            format!("cannot listen on {}; --listen takes another address", options.listen)
        })?;
        error::note(&format!("figures are on http://{}/metrics", listener.local_addr()?));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
        };
        http::serve(listener, scraper, stop).await;
        anyhow::Ok(())
    })?;
    // A scrape that still waits for a server is not waited for.
    runtime.shutdown_background();
    error::note("ended");
    Ok(Outcome::Done)
}
