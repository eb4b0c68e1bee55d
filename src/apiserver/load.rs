//! Load on an API server, ours or another: requests per second and latencies, told by clients that cost little themselves.
//!
//! Each client has one connection of plain HTTP/1.1 over TLS and sends its next request when the last is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// Why no figure came about.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The kubeconfig does not say where the server is, or has no client certificate.
    #[error("read the kubeconfig: {0}")]
    Kubeconfig(String),
    /// The keys cannot be used.
    #[error("use the keys of the kubeconfig")]
    Tls(#[from] rustls::Error),
    /// The connection broke.
    #[error("talk to the server")]
    Connection(#[from] std::io::Error),
    /// The answer is no HTTP.
    #[error("read the answer of the server: {0}")]
    Answer(String),
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// Read one object.
    Get,
    /// Make objects of a kilobyte.
    Create,
    /// Change an object; each client has its own.
    Patch,
    /// Read 500 objects.
    List,
    /// One writer, all clients watch: events a second, latency from the write to the watcher.
    Watch,
}

impl What {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 5] = [Self::Get, Self::Create, Self::Patch, Self::List, Self::Watch];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Create => "create",
            Self::Patch => "patch",
            Self::List => "list",
            Self::Watch => "watch",
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was done.
    pub what: What,
    /// By how many clients at a time.
    pub clients: usize,
    /// Answers (of a watch: events) a second.
    pub per_second: f64,
    /// Median latency, milliseconds.
    pub p50_ms: f64,
    /// Latency that one in a hundred exceeds, milliseconds.
    pub p99_ms: f64,
    /// Answers that were no success.
    pub failed: u64,
}

/// A server to be measured.
#[derive(Clone)]
pub struct Target {
    host: String,
    /// Goes before every path: the way through a proxy.
    prefix: String,
    connector: tokio_rustls::TlsConnector,
}

fn material(entry: &Value, name: &str) -> Result<Vec<u8>, LoadError> {
    let lacks = || LoadError::Kubeconfig(format!("it has no {name}"));
    if let Some(data) = entry.get(format!("{name}-data")).and_then(Value::as_str) {
        return base64::engine::general_purpose::STANDARD.decode(data).map_err(|_| lacks());
    }
    Ok(std::fs::read(entry.get(name).and_then(Value::as_str).ok_or_else(lacks)?)?)
}

impl Target {
    /// The server of a kubeconfig; its first user must have a client certificate.
    pub fn new(kubeconfig: &str) -> Result<Self, LoadError> {
        let fault = |e: String| LoadError::Kubeconfig(e);
        let config = manifest::parse(kubeconfig, &manifest::Limits::FILE).map_err(|e| fault(e.to_string()))?;
        let entry = |path: &str| config.pointer(path).ok_or_else(|| fault(format!("{path} is missing")));
        let (cluster, user) = (entry("/clusters/0/cluster")?, entry("/users/0/user")?);
        let pem = |e: rustls::pki_types::pem::Error| fault(e.to_string());
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&material(cluster, "certificate-authority")?) {
            roots.add(certificate.map_err(pem)?)?;
        }
        let certificates = CertificateDer::pem_slice_iter(&material(user, "client-certificate")?).collect::<Result<Vec<_>, _>>().map_err(pem)?;
        let key = PrivateKeyDer::from_pem_slice(&material(user, "client-key")?).map_err(pem)?;
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates, key)?;
        let server = cluster.get("server").and_then(Value::as_str).unwrap_or_default();
        Ok(Self { prefix: String::new(), host: server.trim_start_matches("https://").trim_end_matches('/').to_owned(), connector: tokio_rustls::TlsConnector::from(Arc::new(tls)) })
    }

    /// The same server's proxy: `prefix` goes before every path.
    #[must_use]
    pub fn through(&self, prefix: &str) -> Self {
        Self { prefix: prefix.trim_end_matches('/').to_owned(), ..self.clone() }
    }

    async fn open(&self) -> Result<Connection, LoadError> {
        let tcp = TcpStream::connect(&self.host).await?;
        tcp.set_nodelay(true)?;
        let name = self.host.rsplit_once(':').map_or(self.host.as_str(), |(name, _)| name).to_owned();
        let name = ServerName::try_from(name).map_err(|e| LoadError::Kubeconfig(e.to_string()))?;
        let stream = self.connector.connect(name, tcp).await?;
        Ok(Connection { stream, buffer: Vec::new(), at: 0, host: self.host.clone(), prefix: self.prefix.clone() })
    }
}

struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    /// What of the buffer is read already.
    at: usize,
    host: String,
    prefix: String,
}

impl Connection {
    async fn more(&mut self) -> Result<(), LoadError> {
        if self.at > 0 && (self.at == self.buffer.len() || self.at > 1 << 20) {
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(LoadError::Answer("the server closed the connection".into()));
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<String, LoadError> {
        loop {
            let rest = &self.buffer[self.at..];
            if let Some(end) = rest.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&rest[..end]).into_owned();
                self.at += end + 2;
                return Ok(line);
            }
            self.more().await?;
        }
    }

    /// The next bytes; they are thrown away unless wanted.
    async fn take(&mut self, count: usize, mut keep: Option<&mut Vec<u8>>) -> Result<(), LoadError> {
        let mut left = count;
        loop {
            let now = left.min(self.buffer.len() - self.at);
            if let Some(keep) = keep.as_deref_mut() {
                keep.extend_from_slice(&self.buffer[self.at..self.at + now]);
            }
            self.at += now;
            left -= now;
            if left == 0 {
                return Ok(());
            }
            self.more().await?;
        }
    }

    /// Sends a request and reads the head of its answer: code, length (none: in pieces).
    async fn head(&mut self, method: &str, path: &str, content_type: &str, body: &str) -> Result<(u16, Option<usize>), LoadError> {
        let kind = if content_type.is_empty() { String::new() } else { format!("Content-Type: {content_type}\r\n") };
        let head = format!("{method} {}{path} HTTP/1.1\r\nHost: {}\r\n{kind}Content-Length: {}\r\n\r\n{body}", self.prefix, self.host, body.len());
        self.stream.write_all(head.as_bytes()).await?;
        let status = self.line().await?;
        let code = status.split(' ').nth(1).and_then(|c| c.parse().ok()).ok_or_else(|| LoadError::Answer(status.clone()))?;
        let (mut length, mut chunked) = (0usize, false);
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((code, (!chunked).then_some(length)));
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| LoadError::Answer(line.clone()))?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
    }

    /// The next piece of an answer in pieces; false at its end.
    async fn piece(&mut self, keep: Option<&mut Vec<u8>>) -> Result<bool, LoadError> {
        let line = self.line().await?;
        let size = usize::from_str_radix(line.split(';').next().unwrap_or("").trim(), 16).map_err(|_| LoadError::Answer(line.clone()))?;
        self.take(size, keep).await?;
        self.take(2, None).await?;
        Ok(size > 0)
    }

    async fn ask(&mut self, method: &str, path: &str, content_type: &str, body: &str) -> Result<u16, LoadError> {
        let (code, length) = self.head(method, path, content_type, body).await?;
        match length {
            Some(length) => self.take(length, None).await?,
            None => while self.piece(None).await? {},
        }
        Ok(code)
    }
}

const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
const MERGE: &str = "application/merge-patch+json";
static NEXT: AtomicU64 = AtomicU64::new(0);

fn object(name: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"k":"{}"}}}}"#, "x".repeat(700))
}

/// Makes the namespace and the objects that are read and changed.
pub async fn prepare(target: &Target, clients: usize) -> Result<(), LoadError> {
    let mut connection = target.open().await?;
    connection.ask("POST", "/api/v1/namespaces", "application/json", r#"{"metadata":{"name":"bench"}}"#).await?;
    for n in 0..clients.max(1) {
        connection.ask("POST", MAPS, "application/json", &object(&format!("one-{n}"))).await?;
    }
    while !made(&mut connection, 500).await? {
        let name = format!("first-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        connection.ask("POST", MAPS, "application/json", &object(&name)).await?;
    }
    Ok(())
}

/// Whether the namespace holds this many objects.
async fn made(connection: &mut Connection, wanted: u64) -> Result<bool, LoadError> {
    let (_, length) = connection.head("GET", &format!("{MAPS}?limit=1"), "", "").await?;
    let mut body = Vec::new();
    match length {
        Some(length) => connection.take(length, Some(&mut body)).await?,
        None => while connection.piece(Some(&mut body)).await? {},
    }
    let list: Value = serde_json::from_slice(&body).unwrap_or_default();
    let here = list["items"].as_array().map_or(0, Vec::len) as u64;
    Ok(here + list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0) >= wanted)
}

/// Makes objects until there are this many, with 50 clients.
pub async fn fill(target: &Target, objects: u64) -> Result<(), LoadError> {
    let run = NEXT.fetch_add(1, Ordering::Relaxed);
    loop {
        if made(&mut target.open().await?, objects).await? {
            return Ok(());
        }
        let tasks = (0..50u64).map(|client| {
            let target = target.clone();
            async move {
                let mut connection = target.open().await?;
                for _ in 0..20 {
                    let n = NEXT.fetch_add(1, Ordering::Relaxed);
                    connection.ask("POST", MAPS, "application/json", &object(&format!("fill-{run}-{client}-{n}"))).await?;
                }
                Ok::<_, LoadError>(())
            }
        });
        futures::future::try_join_all(tasks).await?;
    }
}

async fn one(connection: &mut Connection, what: What, client: usize, run: u64) -> Result<u16, LoadError> {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    match what {
        What::Get => connection.ask("GET", &format!("{MAPS}/one-0"), "", "").await,
        What::List => connection.ask("GET", &format!("{MAPS}?limit=500"), "", "").await,
        What::Create => connection.ask("POST", MAPS, "application/json", &object(&format!("c{run}-{n}"))).await,
        What::Patch | What::Watch => connection.ask("PATCH", &format!("{MAPS}/one-{client}"), MERGE, &format!(r#"{{"data":{{"n":"{n}"}}}}"#)).await,
    }
}

/// Measures one thing for a time. `run` makes the names of new objects differ from those of other runs.
pub async fn measure(target: &Target, what: What, clients: usize, time: Duration, run: u64) -> Result<Row, LoadError> {
    let (mut times, failed) = if what == What::Watch { watches(target, clients, time).await? } else { requests(target, what, clients, time, run).await? };
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).map_or(0.0, |t| t.as_secs_f64() * 1000.0);
    #[expect(clippy::cast_precision_loss, reason = "counts of answers are small")]
    let per_second = times.len() as f64 / time.as_secs_f64();
    Ok(Row { what, clients, per_second, p50_ms: at(50), p99_ms: at(99), failed })
}

async fn requests(target: &Target, what: What, clients: usize, time: Duration, run: u64) -> Result<(Vec<Duration>, u64), LoadError> {
    // All connections are there before the clock runs.
    let connections = futures::future::try_join_all((0..clients).map(|_| target.open())).await?;
    let end = Instant::now() + time;
    let tasks = connections.into_iter().enumerate().map(|(client, mut connection)| {
        tokio::spawn(async move {
            let (mut times, mut failed) = (Vec::new(), 0u64);
            while Instant::now() < end {
                let start = Instant::now();
                let code = one(&mut connection, what, client, run).await?;
                times.push(start.elapsed());
                failed += u64::from(code >= 300);
            }
            Ok::<_, LoadError>((times, failed))
        })
    });
    let (mut times, mut failed) = (Vec::new(), 0);
    for task in tasks.collect::<Vec<_>>() {
        let (more, bad) = task.await.map_err(|e| LoadError::Answer(e.to_string()))??;
        times.extend(more);
        failed += bad;
    }
    Ok((times, failed))
}

/// The instant in an event, as the writer put it in.
fn stamp(line: &[u8]) -> Option<u64> {
    let key = b"\"at\":\"";
    let start = line.windows(key.len()).position(|w| w == key)? + key.len();
    let digits: Vec<u8> = line[start..].iter().copied().take_while(u8::is_ascii_digit).collect();
    String::from_utf8(digits).ok()?.parse().ok()
}

async fn watches(target: &Target, clients: usize, time: Duration) -> Result<(Vec<Duration>, u64), LoadError> {
    let zero = Instant::now();
    let seconds = time.as_secs() + 3;
    let open = (0..clients).map(|_| async move {
        let mut connection = target.open().await?;
        let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Done-0&timeoutSeconds={seconds}");
        connection.head("GET", &path, "", "").await?;
        Ok::<_, LoadError>(connection)
    });
    let connections = futures::future::try_join_all(open).await?;
    let end = Instant::now() + time;
    let watchers: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            tokio::spawn(async move {
                let (mut times, mut text) = (Vec::new(), Vec::new());
                while connection.piece(Some(&mut text)).await? {
                    let now = u64::try_from(zero.elapsed().as_nanos()).unwrap_or(u64::MAX);
                    let Some(last) = text.iter().rposition(|b| *b == b'\n') else { continue };
                    let whole: Vec<u8> = text.drain(..=last).collect();
                    times.extend(whole.split(|b| *b == b'\n').filter_map(stamp).map(|at| Duration::from_nanos(now.saturating_sub(at))));
                }
                Ok::<_, LoadError>(times)
            })
        })
        .collect();
    let mut writer = target.open().await?;
    let mut failed = 0;
    while Instant::now() < end {
        let body = format!(r#"{{"data":{{"at":"{}"}}}}"#, zero.elapsed().as_nanos());
        failed += u64::from(writer.ask("PATCH", &format!("{MAPS}/one-0"), MERGE, &body).await? >= 300);
    }
    // So that the object does not carry an instant into the next run.
    writer.ask("PATCH", &format!("{MAPS}/one-0"), MERGE, r#"{"data":{"at":null}}"#).await?;
    let mut times = Vec::new();
    for watcher in watchers {
        times.extend(watcher.await.map_err(|e| LoadError::Answer(e.to_string()))??);
    }
    Ok((times, failed))
}
