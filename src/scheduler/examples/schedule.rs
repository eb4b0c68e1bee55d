//! Runs the scheduler alone against the parent of a kubeconfig: `cargo run -p anabranch-scheduler --example schedule -- KUBECONFIG [--clusternet] [--no-elect]`.

use std::error::Error;

use scheduler::{Options, Policy};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(std::io::stderr).init();
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("a kubeconfig is needed")?;
    let flags: Vec<String> = args.collect();
    let has = |flag: &str| flags.iter().any(|have| have == flag);
    cluster::client::install_tls_provider();
    let client = cluster::client::from_kubeconfig(&std::fs::read_to_string(path)?, None).await?;
    let mut options = Options::new("example");
    options.leader_elect = !has("--no-elect");
    if has("--clusternet") {
        options.framework = plan::placement::Framework::with_policy(Policy::clusternet());
    }
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    let ctrl_c = async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    };
    let (ended, ()) = tokio::join!(scheduler::run(client, options, shutdown), ctrl_c);
    Ok(ended?)
}
