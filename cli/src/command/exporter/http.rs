//! The endpoint: /metrics, /probe, /-/healthy and /-/ready, and a start page.

use super::metrics;
use super::scrape::Scraper;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Maximum number of requests that wait for the metrics. The others are refused at once, so that connections stay free
/// for requests that need no server.
pub(super) const WAITING: usize = 48;

/// The same for each of several targets, so that a target that hangs leaves the places of the others free. A Prometheus
/// sends one request at a time.
pub(super) const WAITING_FOR_TARGET: usize = 4;

/// Number of connections in addition to those that can wait for metrics. At the maximum, a new connection replaces the
/// oldest idle one.
const SPARE_CONNECTIONS: usize = 16;

/// How long a client may take to send a request, or stay idle.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the program waits for requests in flight when it ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

const PAGE: &str = concat!(
    "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>bloomery exporter</title>
<h1>bloomery exporter</h1>
<p>Metrics of the Bloom and cuckoo filters of a Redis or Valkey server, for Prometheus.</p>
<ul><li><a href=\"/metrics\">/metrics</a>: the metrics; with --targets, the metrics of the exporter itself
<li>/probe?target=URL: with --targets, the metrics of one of them
<li><a href=\"/-/healthy\">/-/healthy</a>: whether the exporter runs
<li><a href=\"",
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/MONITORING.md\">The guide</a>: metrics, permissions, alerts, and the dashboard</ul>
"
);

/// The servers whose metrics are served.
pub(super) enum Served {
    /// The only one, at /metrics.
    One(Arc<Scraper>),
    /// Several, each at /probe?target=URL.
    Targets(BTreeMap<String, Arc<Scraper>>),
}

impl Served {
    /// Where the metrics are.
    pub(super) fn path(&self) -> &'static str {
        match self {
            Served::One(_) => "/metrics",
            Served::Targets(_) => "/probe?target=URL",
        }
    }

    fn most_connections(&self) -> usize {
        let waiting = match self {
            Served::One(_) => WAITING,
            Served::Targets(targets) => targets.len() * WAITING_FOR_TARGET,
        };
        waiting + SPARE_CONNECTIONS
    }

    /// The target in the query of /probe; otherwise, the status and the text of the refusal.
    fn target(&self, query: &str) -> Result<Arc<Scraper>, (StatusCode, &'static str)> {
        let Served::Targets(targets) = self else {
            return Err((StatusCode::NOT_FOUND, "no targets; start the exporter with --targets FILE\n"));
        };
        let Some(url) = query.strip_prefix("target=").and_then(decoded) else {
            return Err((
                StatusCode::BAD_REQUEST,
                "expected one parameter, as in /probe?target=redis://host:6379\n",
            ));
        };
        let unknown = "unknown target; the targets are the URLs in the file of --targets, spelled as there\n";
        targets.get(&url).cloned().ok_or((StatusCode::NOT_FOUND, unknown))
    }
}

/// The value of the only parameter of a query, without percent-encoding.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'&' => return None, // another parameter
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Answers requests until `stop`, then finishes those in flight.
pub(super) async fn serve(listener: TcpListener, served: Arc<Served>, stop: impl Future<Output = ()>) {
    let mut connections: VecDeque<HttpConnection> = VecDeque::new();
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, _)) = accepted else {
            // The client has disconnected, or the process is out of file descriptors: retry a little later.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        if !make_room(&mut connections, served.most_connections()) {
            continue; // every connection is waiting for its page, so the new one is closed
        }
        let served = served.clone();
        let requests = Arc::new(());
        let counted = requests.clone();
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| {
                    let (served, counted) = (served.clone(), counted.clone());
                    async move {
                        let _counted = counted;
                        answer(request, &served).await
                    }
                }),
            );
        let connection = graceful.watch(connection);
        // A client that disconnects isn't an error.
        let task = tokio::spawn(async move { connection.await.unwrap_or_default() });
        connections.push_back(HttpConnection { task: task.abort_handle(), requests });
    }
    drop(listener);
    let _ = tokio::time::timeout(END_TIMEOUT, graceful.shutdown()).await;
}

struct HttpConnection {
    task: AbortHandle,
    /// The task has a clone, and so has each request without an answer.
    requests: Arc<()>,
}

/// Makes room for a new connection: at the maximum, closes the oldest idle one. Returns false if none is idle.
fn make_room(connections: &mut VecDeque<HttpConnection>, most: usize) -> bool {
    connections.retain(|connection| !connection.task.is_finished());
    if connections.len() < most {
        return true;
    }
    let idle = connections.iter().position(|connection| Arc::strong_count(&connection.requests) <= 2);
    let Some(idle) = idle.and_then(|index| connections.remove(index)) else { return false };
    idle.task.abort();
    true
}

async fn answer(request: Request<Incoming>, served: &Served) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal =
            response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are allowed\n".into());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refusal);
    }
    Ok(match request.uri().path() {
        "/metrics" => match served {
            Served::One(scraper) => page(scraper.clone(), &metrics::exporter()).await,
            Served::Targets(_) => response(StatusCode::OK, METRICS, metrics::exporter()),
        },
        "/probe" => match served.target(request.uri().query().unwrap_or_default()) {
            Ok(scraper) => page(scraper, "").await,
            Err((status, why)) => response(status, TEXT, why.into()),
        },
        "/-/healthy" | "/-/ready" => response(StatusCode::OK, TEXT, "bloomery exporter is healthy\n".into()),
        "/" => response(StatusCode::OK, "text/html; charset=utf-8", PAGE.into()),
        _ => response(
            StatusCode::NOT_FOUND,
            TEXT,
            format!("not found; the metrics are at {}\n", served.path()),
        ),
    })
}

/// The page of a server, followed by `more`. A scrape that has begun runs to its end, even if its client disconnects,
/// and the next one waits for it.
async fn page(scraper: Arc<Scraper>, more: &str) -> Response<Full<Bytes>> {
    let Ok(_place) = scraper.places.try_acquire() else {
        let why = "too many requests wait for the metrics\n";
        return response(StatusCode::SERVICE_UNAVAILABLE, TEXT, why.into());
    };
    let mut state = scraper.turn().await;
    let scraping = scraper.clone();
    match tokio::task::spawn_blocking(move || scraping.text(&mut state)).await {
        Ok(text) => response(StatusCode::OK, METRICS, format!("{text}{more}")),
        Err(_) => {
            response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the scrape failed; see the log\n".into())
        }
    }
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
