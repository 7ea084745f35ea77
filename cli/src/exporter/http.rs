//! The endpoint: /metrics, /-/healthy, and a page that says what this is.

use super::scrape::Scraper;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Connections at a time. Prometheus holds one or two.
const CONNECTIONS: usize = 64;

/// How long a client may take to send its request, or stay without sending one.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// How long requests that are under way at the end have to be answered.
const END_TIMEOUT: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";
/// Prometheus has read this format since 2.5.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PAGE: &str = "<!doctype html>
<html lang=\"en\"><meta charset=\"utf-8\"><title>bloomery exporter</title>
<h1>bloomery exporter</h1>
<p>Figures of the Bloom and cuckoo filters of a Redis or Valkey server, for Prometheus.</p>
<ul><li><a href=\"/metrics\">/metrics</a>: the figures
<li><a href=\"/-/healthy\">/-/healthy</a>: whether this program runs</ul>
";

/// Answers requests until `stop`, and then those that are under way.
pub(super) async fn serve(listener: TcpListener, scraper: Arc<Scraper>, stop: impl Future<Output = ()>) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let permit = connections.clone().acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stop => break,
        };
        let Ok((stream, _)) = accepted else {
            // The client is gone again, or there are no more file descriptors: those come back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let scraper = scraper.clone();
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .serve_connection(
                TokioIo::new(stream),
                service_fn(move |request| answer(request, scraper.clone())),
            );
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            let _ = connection.await; // a client that goes away is no error
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(END_TIMEOUT, graceful.shutdown()).await;
}

async fn answer(
    request: Request<Incoming>,
    scraper: Arc<Scraper>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET and HEAD alone\n".into());
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refusal);
    }
    Ok(match request.uri().path() {
        "/metrics" => match tokio::task::spawn_blocking(move || scraper.text()).await {
            Ok(text) => response(StatusCode::OK, OPENMETRICS, text.as_ref().clone()),
            Err(_) => {
                response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the scrape failed; see the log\n".into())
            }
        },
        "/-/healthy" => response(StatusCode::OK, TEXT, "bloomery exporter is healthy\n".into()),
        "/" => response(StatusCode::OK, "text/html; charset=utf-8", PAGE.into()),
        _ => response(StatusCode::NOT_FOUND, TEXT, "not found; the figures are at /metrics\n".into()),
    })
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
