//! What cases need from outside: a repository of charts and a predictor, served on loopback until the tasks end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use engine::Tasks;
use serde_json::Value;
use sha2::Digest as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The chart folders in a folder as a repository: an index and one archive per chart, by their path.
pub fn repository(charts: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut entries: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let folders = match std::fs::read_dir(charts) {
        Ok(folders) => folders,
        Err(_) => return Ok(files),
    };
    for folder in folders {
        let path = folder?.path();
        let Ok(text) = std::fs::read_to_string(path.join("Chart.yaml")) else { continue };
        let head = manifest::read::parse(&text, &manifest::read::Limits::FILE).map_err(|f| anyhow::anyhow!("{f}")).context("Chart.yaml")?;
        let (name, version) = (head["name"].as_str().unwrap_or_default(), head["version"].as_str().unwrap_or_default());
        let mut packed = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        packed.append_dir_all(name, &path)?;
        let archive = packed.into_inner()?.finish()?;
        let file = format!("{name}-{version}.tgz");
        entries.entry(name.to_owned()).or_default().push(serde_json::json!({
            "apiVersion": head["apiVersion"], "name": name, "version": version, "digest": hex::encode(sha2::Sha256::digest(&archive)), "urls": [file],
        }));
        files.insert(format!("/{file}"), archive);
    }
    let index = serde_json::json!({"apiVersion": "v1", "entries": entries});
    files.insert("/index.yaml".to_owned(), serde_json::to_vec(&index)?);
    Ok(files)
}

/// Serves files, and a predictor as the recorder had it: `/cap/N/replicas/predict` answers N, everything else fails. Returns the URL.
pub async fn serve(files: Arc<BTreeMap<String, Vec<u8>>>, tasks: &Tasks) -> Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listen for the predictor")?;
    let url = format!("http://{}", listener.local_addr()?);
    let inner = tasks.clone();
    tasks.spawn_until_stopped("predictor", async move {
        while let Ok((stream, _)) = listener.accept().await {
            let files = files.clone();
            inner.spawn_until_stopped("predictor request", async move {
                // A caller that leaves early is its own affair.
                let _ = answer(stream, &files).await;
            });
        }
    });
    Ok(url)
}

async fn answer(mut stream: TcpStream, files: &BTreeMap<String, Vec<u8>>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    let (head, length) = loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .and_then(|(_, value)| value.trim().parse::<usize>().ok())
                .unwrap_or(0);
            break (head, (end + 4 + length).saturating_sub(bytes.len()));
        }
    };
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    let path = head.split_whitespace().nth(1).unwrap_or("/");
    let capacity = path.strip_prefix("/cap/").and_then(|rest| rest.split('/').next()).and_then(|text| text.parse::<i64>().ok());
    let (code, body) = match capacity {
        Some(capacity) => ("200 OK", format!("{{\"replicas\":{{\"default\":{capacity}}}}}").into_bytes()),
        None if path.starts_with("/fail/") => ("500 Internal Server Error", b"no capacity today".to_vec()),
        None => match files.get(path) {
            Some(file) => ("200 OK", file.clone()),
            None => ("404 Not Found", Vec::new()),
        },
    };
    let text = format!("HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    stream.write_all(text.as_bytes()).await?;
    stream.write_all(&body).await
}
