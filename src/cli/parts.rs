//! The parts, each alone against a parent: hub, scheduler, controllers, source.

use std::process::ExitCode;

use anyhow::Result;
use engine::{CancellationToken, Tasks};
use kube::Client;
use program::part::{child_of, finish, open_door};

use crate::args::{ControllersArgs, PartArgs, SchedulerArgs};

struct Part {
    client: Client,
    shutdown: CancellationToken,
    tasks: Tasks,
}

async fn part(name: &'static str, args: &PartArgs, filter: Option<admin::LogFilter>, metrics: &engine::Registry) -> Result<Part> {
    let shutdown = CancellationToken::new();
    let tasks = Tasks::new(&shutdown);
    let reached = child_of(args.kubeconfig.as_deref()).await?;
    let door = admin::Door::default();
    let registry = metrics.clone();
    door.metrics(move || registry.render());
    open_door(name, door, args.admin, filter, &tasks).await?;
    Ok(Part { client: reached.client, shutdown, tasks })
}

/// Who this process is in leader elections.
pub(crate) fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), rand::random::<u64>())
}

/// Runs `lead` while this process holds the component's Lease.
async fn elected<F, Fut>(args: &PartArgs, part: &Part, component: &str, lead: F)
where
    F: Fn(CancellationToken) -> Fut,
    Fut: Future<Output = ()>,
{
    if args.no_leader_election {
        lead(part.tasks.token().clone()).await;
        return;
    }
    let options = engine::LeaseOptions::usual(api::known::namespace::SYSTEM, component, &identity());
    engine::Elector::new(part.client.clone(), options, engine::RealClock::shared()).run(part.tasks.token().clone(), lead).await;
}

fn git(args: &PartArgs) -> git::Git {
    git::Git::new(git::Options { directory: args.data_dir.join("git"), local_threads: 4, network_threads: 8 })
}

/// Runs the scheduler.
pub(crate) async fn scheduler(args: SchedulerArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let mut options = scheduler::Options::new(&identity());
    options.framework = crate::schedule::framework(args.config.as_deref())?;
    let args = args.part;
    options.leader_elect = !args.no_leader_election;
    let part = part("scheduler", &args, filter, &options.metrics).await?;
    let run = scheduler::run(part.client, options, part.tasks.token().clone());
    finish(Box::pin(run), &part.shutdown, &part.tasks).await
}

/// Runs the controllers.
pub(crate) async fn controllers(args: ControllersArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let mut options = controllers::Options::standard();
    options.chart_pool = Some(registry::Pool::shared());
    options.git = Some(git(&args.part));
    let part = part("controllers", &args.part, filter, &options.metrics).await?;
    let (client, shutdown, tasks) = (part.client.clone(), part.shutdown.clone(), part.tasks.clone());
    if args.bootstrap_token {
        let client = client.clone();
        tasks.spawn_until_stopped("bootstrap token", async move { crate::embedded::ensure_bootstrap_token(&client).await });
    }
    let run = async {
        elected(&args.part, &part, api::known::component::CONTROLLER_MANAGER, |term| controllers::run(client.clone(), options.clone(), term)).await;
        Ok::<(), std::convert::Infallible>(())
    };
    finish(run, &shutdown, &tasks).await
}

/// Runs the source controller.
pub(crate) async fn source(args: PartArgs, filter: Option<admin::LogFilter>) -> Result<ExitCode> {
    let options = source::Options::usual(git(&args));
    let part = part("source", &args, filter, &options.metrics).await?;
    let (client, shutdown, tasks) = (part.client.clone(), part.shutdown.clone(), part.tasks.clone());
    let run = async {
        elected(&args, &part, "anabranch-source", |term| {
            let (client, options) = (client.clone(), options.clone());
            async move {
                if let Err(error) = source::run(client, options, term).await {
                    tracing::error!(%error, "the source controller ended");
                }
            }
        })
        .await;
        Ok::<(), std::convert::Infallible>(())
    };
    finish(run, &shutdown, &tasks).await
}
