//! `bloomery exporter`: metrics of filters, for Prometheus.
//!
//! Two tasks run concurrently. A [`survey`] searches the keyspace in the background, in slices, and decides which
//! filters get metrics of their own. A [`scrape`] answers a request for /metrics: it asks the servers about those
//! filters, and [`metrics`] formats their replies. So the cost of a scrape is proportional to the number of these
//! filters, not to the size of the keyspace. [`http`] serves the metrics.
//!
//! With `--targets`, there is a survey and a scrape for each of several [`targets`], and none for /metrics.

mod http;
mod metrics;
mod process;
mod scrape;
mod snapshot;
mod survey;
mod targets;

use crate::arguments::parse_whole_seconds;
use crate::error::{self, Outcome};
use crate::server::connection::Server;
use anyhow::Context;
use http::Served;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Export metrics of filters to Prometheus
///
/// The metrics are at http://127.0.0.1:19747/metrics. docs/MONITORING.md explains each of them, an ACL user with the
/// minimum of permissions, and how to run the exporter as a service. ops/ has alert rules and a dashboard.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  bloomery exporter
  bloomery exporter --url redis://cache.example:6379 --user exporter --keys 'seen:*'
  bloomery exporter --cluster --host node1.example --listen 0.0.0.0:19747
  bloomery exporter --targets /etc/bloomery/targets")]
#[command(mut_arg("timeout", |timeout| timeout.default_value("3")))]
pub(crate) struct Options {
    /// Address and port to listen on; anyone who can connect to it can read key names
    // Exporters register ports from 9100 to 9999. All of these are taken, so the default is outside the range.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:19747")]
    listen: SocketAddr,

    /// Export filters whose keys match this pattern, as in KEYS; may be repeated
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    keys: Vec<String>,

    /// Export per-filter metrics for at most N filters, largest first; totals include all filters
    #[arg(long, value_name = "N", default_value_t = 1000)]
    max_filters: usize,

    /// Time between searches of the keyspace for filters: seconds, or with a unit as in 5m
    #[arg(long, value_name = "TIME", default_value = "30", value_parser = parse_interval)]
    interval: u64,

    /// Export the servers in this file, at /probe?target=URL: a line has a URL, then options as below
    #[arg(long, value_name = "FILE", conflicts_with = "Server")]
    targets: Option<PathBuf>,

    #[command(flatten)]
    server: Server,
}

fn parse_interval(text: &str) -> Result<u64, String> {
    parse_whole_seconds(text)
        .and_then(|seconds| if seconds > 0 { Ok(seconds) } else { Err("at least 1 second".into()) })
}

/// Serves metrics until SIGTERM or SIGINT. A server that is down is reported in a metric, and doesn't end the program.
pub(crate) fn run(options: Options) -> anyhow::Result<Outcome> {
    let targets = options.targets.as_deref().map(targets::read).transpose()?;
    let limits = survey::SurveyLimits {
        patterns: options.keys,
        max_filters: options.max_filters,
        interval: Duration::from_secs(options.interval),
        names: survey::NAMES / targets.as_ref().map_or(1, BTreeMap::len),
    };
    let start = |server, places| scrape::Scraper::start(server, limits.clone(), places).map(Arc::new);
    let served = match targets {
        None => Served::One(start(options.server, http::WAITING)?),
        Some(targets) => Served::Targets(
            targets
                .into_iter()
                .map(|(url, server)| Ok((url, start(server, http::WAITING_FOR_TARGET)?)))
                .collect::<anyhow::Result<_>>()?,
        ),
    };

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(options.listen).await.with_context(|| {
            format!("cannot listen on {}; use --listen to choose another address", options.listen)
        })?;
        error::note(&format!("metrics are at http://{}{}", listener.local_addr()?, served.path()));
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => (),
                _ = interrupt.recv() => (),
            }
        };
        http::serve(listener, Arc::new(served), stop).await;
        anyhow::Ok(())
    })?;
    // Doesn't wait for a scrape that is still waiting for a server.
    runtime.shutdown_background();
    error::note("ended");
    Ok(Outcome::Done)
}
