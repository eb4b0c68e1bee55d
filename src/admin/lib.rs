//! The side door every part opens: health, readiness, metrics, log filter.
//!
//! Served in plain HTTP on an address of the operator's choice, loopback by default: `/healthz`, `/livez`, `/readyz` (with
//! `?verbose`), `/metrics`, `GET` and `PUT /log-level`. It never shows a secret and never changes anything but the log filter.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::Router;
use parking_lot::RwLock;
use tokio::net::TcpListener;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// Sets a new log filter; the answer is the reason why not.
pub type LogFilter = reload::Handle<EnvFilter, Registry>;

type Check = Box<dyn Fn() -> Result<(), String> + Send + Sync>;
type Metrics = Box<dyn Fn() -> String + Send + Sync>;

/// What the door shows. Cloning shares it.
#[derive(Clone, Default)]
pub struct Door {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    checks: RwLock<BTreeMap<String, Check>>,
    metrics: RwLock<Vec<Metrics>>,
    filter: RwLock<Option<LogFilter>>,
}

impl Door {
    /// Adds a readiness check; `Err` says what is waited for.
    pub fn check(&self, name: &str, check: impl Fn() -> Result<(), String> + Send + Sync + 'static) {
        self.inner.checks.write().insert(name.to_owned(), Box::new(check));
    }

    /// Adds a source of metrics in Prometheus' text format.
    pub fn metrics(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        self.inner.metrics.write().push(Box::new(source));
    }

    /// Lets the log filter be changed at run time.
    pub fn log_filter(&self, handle: LogFilter) {
        *self.inner.filter.write() = Some(handle);
    }

    /// Every check with its fault, if any.
    pub fn state(&self) -> BTreeMap<String, Result<(), String>> {
        self.inner.checks.read().iter().map(|(name, check)| (name.clone(), check())).collect()
    }

    /// Binds the address and returns it with the future that serves until `stop` completes.
    ///
    /// # Errors
    /// [`OpenError`] when the address cannot be bound.
    pub async fn open(
        self,
        address: SocketAddr,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(SocketAddr, impl Future<Output = ()> + Send), OpenError> {
        let listener = TcpListener::bind(address).await.map_err(|source| OpenError { address, source })?;
        let bound = listener.local_addr().map_err(|source| OpenError { address, source })?;
        let router = Router::new()
            .route("/healthz", get(|| async { "ok" }))
            .route("/livez", get(|| async { "ok" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route("/log-level", get(log_level).put(set_log_level))
            .with_state(self);
        let serve = async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop).await {
                tracing::error!(%error, "the admin server ended");
            }
        };
        Ok((bound, serve))
    }
}

/// The address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("bind the admin address {address}")]
pub struct OpenError {
    address: SocketAddr,
    #[source]
    source: std::io::Error,
}

async fn ready(State(door): State<Door>, Query(query): Query<BTreeMap<String, String>>) -> impl IntoResponse {
    let state = door.state();
    let failed = state.values().any(Result::is_err);
    let mut text = String::new();
    if failed || query.contains_key("verbose") {
        for (name, result) in &state {
            text.push_str(&match result {
                Ok(()) => format!("[+]{name} ok\n"),
                Err(why) => format!("[-]{name} failed: {why}\n"),
            });
        }
        text.push_str(if failed { "readyz check failed\n" } else { "readyz check passed\n" });
    } else {
        text.push_str("ok");
    }
    (if failed { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }, text)
}

async fn metrics(State(door): State<Door>) -> impl IntoResponse {
    let text: String = door.inner.metrics.read().iter().map(|source| source()).collect();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
}

async fn log_level(State(door): State<Door>) -> impl IntoResponse {
    let filter = door.inner.filter.read();
    let current = filter.as_ref().and_then(|handle| handle.with_current(|filter| filter.to_string()).ok());
    match current {
        Some(text) => (StatusCode::OK, format!("{text}\n")),
        None => (StatusCode::NOT_IMPLEMENTED, "the log filter of this process is fixed\n".to_owned()),
    }
}

async fn set_log_level(State(door): State<Door>, body: String) -> impl IntoResponse {
    let wanted = match EnvFilter::try_new(body.trim()) {
        Ok(wanted) => wanted,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("parse the log filter: {error}\n")),
    };
    let filter = door.inner.filter.read();
    match filter.as_ref().map(|handle| handle.reload(wanted)) {
        Some(Ok(())) => (StatusCode::OK, "changed\n".to_owned()),
        Some(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("change the log filter: {error}\n")),
        None => (StatusCode::NOT_IMPLEMENTED, "the log filter of this process is fixed\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("open");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("utf-8");
        text
    }

    #[tokio::test]
    async fn readiness_names_what_is_waited_for() {
        let door = Door::default();
        door.check("caches", || Ok(()));
        door.metrics(|| "a_total 1\n".to_owned());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (address, serve) = door
            .clone()
            .open(([127, 0, 0, 1], 0).into(), async { drop(stopped.await) })
            .await
            .expect("a free port");
        let serving = tokio::spawn(serve);
        assert!(get(address, "/readyz").await.ends_with("\r\n\r\nok"));
        assert!(get(address, "/metrics").await.ends_with("a_total 1\n"));
        door.check("lease", || Err("another replica leads".to_owned()));
        let text = get(address, "/readyz").await;
        assert!(text.starts_with("HTTP/1.1 503"), "{text}");
        assert!(text.contains("[-]lease failed: another replica leads\n"), "{text}");
        drop(stop);
        serving.await.expect("no panic");
    }
}
