//! `anabranch hub`: the hub alone, as an aggregated API server of a real parent.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use ::hub::serving::{Files, Options, run as serve};
use engine::{CancellationToken, Tasks};
use program::exit::say;
use program::part::{child_of, finish, open_door};

use crate::args::HubArgs;

use crate::parts::identity;

/// Runs a hub until it is told to stop.
pub(crate) async fn run(args: HubArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    let parent = child_of(args.kubeconfig.as_deref()).await?.client;
    let git = git::Git::new(git::Options { directory: args.data_dir.join("git"), local_threads: 4, network_threads: 8 });
    let hub_options = ::hub::Options { pusher: Some(Arc::new(crate::embedded::Pushing { git })), ..::hub::Options::default() };
    let hub = ::hub::Hub::start(parent.clone(), hub_options, tasks.token());
    let running = hub.clone();
    tasks.spawn("hub", async move { running.run().await });
    let files = match (args.tls_cert, args.tls_key) {
        (Some(certificate), Some(key)) => Some(Files { certificate, key, ca: args.tls_ca }),
        _ => None,
    };
    let options = Options {
        listen: args.listen,
        peer_listen: args.peer_listen,
        peer_address: args.peer_address,
        namespace: api::known::namespace::SYSTEM.to_owned(),
        service: args.service,
        names: args.tls_names,
        files,
        identity: identity(),
    };
    let door = admin::Door::default();
    let serving = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (clusters, listening) = (hub.clone(), serving.clone());
    door.check("clusters", move || if clusters.ready() { Ok(()) } else { Err("the parent's clusters are not known yet".to_owned()) });
    door.check("serving", move || if listening.load(std::sync::atomic::Ordering::Acquire) { Ok(()) } else { Err("the API is not served yet".to_owned()) });
    let metrics = hub.metrics().clone();
    door.metrics(move || metrics.render());
    open_door("hub", door, args.admin, filter, &tasks).await?;
    let served = serve(hub, parent, options, tasks.token().clone(), move |address| {
        serving.store(true, std::sync::atomic::Ordering::Release);
        say(&format!("the hub serves at https://{address}"));
    });
    finish(served, &shutdown, &tasks).await
}
