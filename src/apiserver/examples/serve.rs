//! A server on a port of loopback, for trying kubectl and for benches: `serve --dir DIR --port PORT [--memory]`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to people")]

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use apiserver::auth::Pki;
use apiserver::{ApiServer, Options, services};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let started = std::time::Instant::now();
    let mut arguments = std::env::args().skip(1);
    let (mut dir, mut port, mut memory) = (PathBuf::from("."), 7600, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--dir" => dir = arguments.next().map(PathBuf::from).ok_or("--dir needs a folder")?,
            "--port" => port = arguments.next().and_then(|p| p.parse().ok()).ok_or("--port needs a number")?,
            "--memory" => memory = true,
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    std::fs::create_dir_all(&dir)?;
    let store = if memory { store::Store::memory_with(store::Options::durable()) } else { store::Store::open(&dir.join("store.db"), store::Options::durable())? };
    let pki = Arc::new(Pki::open(&dir.join("pki"), &[], jiff::Timestamp::now())?);
    let shutdown = CancellationToken::new();
    let options = Options {
        advertise: (IpAddr::from([127, 0, 0, 1]), port),
        service_range: services::Range::default(),
        service_accounts: true,
        own_service: true,
        full: true,
        shutdown: shutdown.clone(),
        ..Options::new(store)
    };
    let server = ApiServer::build(options).await;
    let guard = server.secure(Some(pki.clone()), Vec::new()).await;
    let url = format!("https://127.0.0.1:{port}");
    std::fs::write(dir.join("kubeconfig"), pki.admin_kubeconfig(&url, "kubernetes"))?;
    let controllers = apiserver::controllers::built_in::built_in(Some(&pki));
    tokio::spawn(apiserver::controllers::built_in::run_local(server.clone(), controllers, shutdown.clone()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("serving {url} after {:?}, KUBECONFIG={}", started.elapsed(), dir.join("kubeconfig").display());
    let tls = Arc::new(pki.server_config()?);
    let serving = tokio::spawn({
        let (server, guard) = (server.clone(), guard.clone());
        async move { server.serve(listener, Some(tls), guard).await }
    });
    tokio::signal::ctrl_c().await?;
    shutdown.cancel();
    serving.await?;
    Ok(())
}
