//! Load on an API server, ours or a real one: `load KUBECONFIG [SECONDS]` prints requests per second and latencies of get,
//! create, patch of one object and list of 500, at 1, 10 and 100 connections.
#![allow(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

type Fault = Box<dyn std::error::Error + Send + Sync>;

struct Target {
    host: String,
    connector: tokio_rustls::TlsConnector,
}

fn material(entry: &Value, name: &str) -> Result<Vec<u8>, Fault> {
    if let Some(data) = entry.get(format!("{name}-data")).and_then(Value::as_str) {
        return Ok(base64::engine::general_purpose::STANDARD.decode(data)?);
    }
    Ok(std::fs::read(entry.get(name).and_then(Value::as_str).ok_or("the kubeconfig lacks a certificate")?)?)
}

fn target(path: &str) -> Result<Target, Fault> {
    let config = manifest::parse(&std::fs::read_to_string(path)?, &manifest::Limits::FILE).map_err(|e| e.to_string())?;
    let cluster = config.pointer("/clusters/0/cluster").ok_or("no cluster")?;
    let user = config.pointer("/users/0/user").ok_or("no user")?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&material(cluster, "certificate-authority")?) {
        roots.add(certificate?)?;
    }
    let certificates = CertificateDer::pem_slice_iter(&material(user, "client-certificate")?).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&material(user, "client-key")?)?;
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates, key)?;
    let server = cluster.get("server").and_then(Value::as_str).unwrap_or_default();
    Ok(Target { host: server.trim_start_matches("https://").to_owned(), connector: tokio_rustls::TlsConnector::from(Arc::new(tls)) })
}

struct Connection {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
    host: String,
}

impl Connection {
    async fn open(target: &Target) -> Result<Self, Fault> {
        let tcp = TcpStream::connect(&target.host).await?;
        tcp.set_nodelay(true)?;
        let stream = target.connector.connect(ServerName::try_from("localhost")?, tcp).await?;
        Ok(Self { stream, buffer: Vec::new(), host: target.host.clone() })
    }

    async fn more(&mut self) -> Result<(), Fault> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(())
    }

    async fn line(&mut self) -> Result<String, Fault> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
                self.buffer.drain(..end + 2);
                return Ok(line);
            }
            self.more().await?;
        }
    }

    async fn skip(&mut self, count: usize) -> Result<(), Fault> {
        while self.buffer.len() < count {
            self.more().await?;
        }
        self.buffer.drain(..count);
        Ok(())
    }

    async fn ask(&mut self, method: &str, path: &str, content_type: &str, body: &str) -> Result<u16, Fault> {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}", self.host, body.len());
        self.stream.write_all(head.as_bytes()).await?;
        let status = self.line().await?;
        let code = status.split(' ').nth(1).and_then(|c| c.parse().ok()).ok_or("no status")?;
        let (mut length, mut chunked) = (0usize, false);
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            chunked |= line.starts_with("transfer-encoding:") && line.contains("chunked");
        }
        if chunked {
            loop {
                let size = usize::from_str_radix(self.line().await?.trim(), 16)?;
                self.skip(size + 2).await?;
                if size == 0 {
                    break;
                }
            }
        } else {
            self.skip(length).await?;
        }
        Ok(code)
    }
}

const MAPS: &str = "/api/v1/namespaces/bench/configmaps";
static NEXT: AtomicU64 = AtomicU64::new(0);

async fn one(connection: &mut Connection, what: &str, run: u64) -> Result<u16, Fault> {
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    match what {
        "get" => connection.ask("GET", &format!("{MAPS}/one"), "", "").await,
        "list500" => connection.ask("GET", &format!("{MAPS}?limit=500"), "", "").await,
        "create" => {
            let body = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"c{run}-{n}","labels":{{"app":"bench"}}}},"data":{{"k":"{}"}}}}"#, "x".repeat(700));
            connection.ask("POST", MAPS, "application/json", &body).await
        }
        _ => connection.ask("PATCH", &format!("{MAPS}/one"), "application/merge-patch+json", &format!(r#"{{"data":{{"n":"{n}"}}}}"#)).await,
    }
}

#[tokio::main]
async fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("load KUBECONFIG [SECONDS]")?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |s| s.parse())?;
    let target = Arc::new(target(&path)?);
    let run = jiff::Timestamp::now().as_millisecond().unsigned_abs();
    let mut first = Connection::open(&target).await?;
    first.ask("POST", "/api/v1/namespaces", "application/json", r#"{"metadata":{"name":"bench"}}"#).await?;
    first.ask("POST", MAPS, "application/json", r#"{"metadata":{"name":"one"},"data":{"a":"b"}}"#).await?;
    println!("{:<12}{:>12}{:>12}{:>10}{:>10}{:>8}", "what", "connections", "requests/s", "p50 ms", "p99 ms", "failed");
    for connections in [1usize, 10, 100] {
        for what in ["get", "create", "patch", "list500"] {
            let end = Instant::now() + Duration::from_secs(seconds);
            let tasks: Vec<_> = (0..connections)
                .map(|_| {
                    let target = target.clone();
                    tokio::spawn(async move {
                        let mut connection = Connection::open(&target).await?;
                        let (mut times, mut failed) = (Vec::new(), 0u64);
                        while Instant::now() < end {
                            let start = Instant::now();
                            let code = one(&mut connection, what, run).await?;
                            times.push(start.elapsed());
                            failed += u64::from(code >= 300);
                        }
                        Ok::<_, Fault>((times, failed))
                    })
                })
                .collect();
            let (mut times, mut failed) = (Vec::new(), 0);
            for task in tasks {
                let (more, bad) = task.await??;
                times.extend(more);
                failed += bad;
            }
            times.sort();
            let at = |part: usize| times.get(times.len() * part / 100).map_or(0.0, |t| t.as_secs_f64() * 1000.0);
            println!("{what:<12}{connections:>12}{:>12}{:>10.2}{:>10.2}{failed:>8}", times.len() as u64 / seconds, at(50), at(99));
        }
    }
    Ok(())
}
