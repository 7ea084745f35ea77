//! The endpoint: /metrics, /-/healthy and /-/ready, and a start page.

use super::scrape::Scraper;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinError};

/// Maximum number of connections. Prometheus keeps one or two. At the maximum, a new connection replaces the oldest
/// idle one.
const CONNECTIONS: usize = 64;

/// Maximum number of requests that wait for the metrics. The others are refused at once, so that connections stay free
/// for requests that need no server.
const WAITING: usize = 48;

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
<ul><li><a href=\"/metrics\">/metrics</a>: the metrics
<li><a href=\"/-/healthy\">/-/healthy</a>: whether the exporter runs
<li><a href=\"",
    env!("CARGO_PKG_REPOSITORY"),
    "/blob/main/docs/MONITORING.md\">The guide</a>: metrics, permissions, alerts, and the dashboard</ul>
"
);

/// Answers requests until `stop`, then finishes those in flight.
pub(super) async fn serve(listener: TcpListener, scraper: Arc<Scraper>, stop: impl Future<Output = ()>) {
    let mut connections: VecDeque<HttpConnection> = VecDeque::new();
    let places = Arc::new(Semaphore::new(WAITING));
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
        if !make_room(&mut connections) {
            continue; // every connection is waiting for its page, so the new one is closed
        }
        let (scraper, places) = (scraper.clone(), places.clone());
        let requests = Arc::new(());
        let counted = requests.clone();
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| {
                    let (scraper, places, counted) = (scraper.clone(), places.clone(), counted.clone());
                    async move {
                        let _counted = counted;
                        answer(request, scraper, &places).await
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
fn make_room(connections: &mut VecDeque<HttpConnection>) -> bool {
    connections.retain(|connection| !connection.task.is_finished());
    if connections.len() < CONNECTIONS {
        return true;
    }
    let idle = connections.iter().position(|connection| Arc::strong_count(&connection.requests) <= 2);
    let Some(idle) = idle.and_then(|index| connections.remove(index)) else { return false };
    idle.task.abort();
    true
}

async fn answer(
    request: Request<Incoming>,
    scraper: Arc<Scraper>,
    places: &Semaphore,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal =
            response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are allowed\n".into());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refusal);
    }
    Ok(match request.uri().path() {
        "/metrics" => match metrics(scraper, places).await {
            None => response(
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT,
                "too many requests wait for the metrics\n".into(),
            ),
            Some(Ok(text)) => response(StatusCode::OK, METRICS, text.as_ref().clone()),
            Some(Err(_)) => {
                response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the scrape failed; see the log\n".into())
            }
        },
        "/-/healthy" | "/-/ready" => response(StatusCode::OK, TEXT, "bloomery exporter is healthy\n".into()),
        "/" => response(StatusCode::OK, "text/html; charset=utf-8", PAGE.into()),
        _ => response(StatusCode::NOT_FOUND, TEXT, "not found; the metrics are at /metrics\n".into()),
    })
}

/// Returns the page; `None` if too many requests wait for it.
async fn metrics(scraper: Arc<Scraper>, places: &Semaphore) -> Option<Result<Arc<String>, JoinError>> {
    let _place = places.try_acquire().ok()?;
    Some(scrape(scraper).await)
}

/// Returns the page. A scrape that has begun runs to its end, even if its client disconnects, and the next one waits
/// for it.
async fn scrape(scraper: Arc<Scraper>) -> Result<Arc<String>, JoinError> {
    let mut state = scraper.turn().await;
    tokio::task::spawn_blocking(move || scraper.text(&mut state)).await
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
