//! The deploy pipeline: Subscription to Base to Description to HelmRelease, overrides, feeds, aggregated status.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use engine::{CancellationToken, Queue, Settled, Tasks, TurnError, turn, work};
use kube::Client;

use crate::Options;
use crate::world::World;

/// How long turns under way may take after shutdown was asked for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the pipeline until shutdown.
pub async fn run(client: Client, options: Options, shutdown: CancellationToken) {
    let tasks = Tasks::new(&shutdown);
    let world = World::start(&client, &options, &tasks);
    tokio::select! {
        () = world.synced() => {}
        () = shutdown.cancelled() => {
            tasks.stop(PATIENCE).await;
            return;
        }
    }
    tracing::debug!("caches of the deploy pipeline are filled");
    if let Some(git) = options.git.clone() {
        let recorder = world.recorder.clone();
        let context = crate::delivery::Context {
            client,
            git,
            descriptions: world.descriptions.clone(),
            renders: world.renders.clone(),
            clusters: world.clusters.clone(),
            subscriptions: world.subscriptions.clone(),
            clock: options.clock.clone(),
            metrics: options.metrics.clone(),
            recorder,
        };
        tasks.spawn("delivery", crate::delivery::run(context, tasks.token().clone()));
    }
    let workers = options.workers.max(1);
    let queues = &world.queues;
    start(&world, "subscription", &queues.subscriptions, workers, &tasks, |world, key| async move { world.subscription_turn(&key).await });
    start(&world, "base", &queues.bases, workers, &tasks, |world, key| async move { world.base_turn(&key).await });
    start(&world, "feed", &queues.feeds, workers, &tasks, |world, key| async move { world.feed_turn(&key).await });
    start(&world, "override", &queues.overrides, workers, &tasks, |world, key| async move { world.override_turn(&key).await });
    start(&world, "helm", &queues.helm, workers, &tasks, |world, key| async move { world.helm_turn(&key).await });
    start(&world, "leaving", &queues.leaving, workers, &tasks, |world, key| async move { world.leaving_turn(&key).await });
    start(&world, "status", &queues.statuses, workers, &tasks, |world, key| async move { world.status_turn(&key).await });
    if let Some(lookup) = options.charts.clone() {
        start(&world, "chart", &queues.charts, workers, &tasks, move |world, key| {
            let lookup = lookup.clone();
            async move { world.chart_turn(&key, lookup.as_ref()).await }
        });
    }
    tasks.run_until_stopped(PATIENCE).await;
}

/// Gives turns to the keys of a queue until the tasks stop.
fn start<K, F, Fut>(world: &Arc<World>, name: &'static str, queue: &Queue<K>, workers: usize, tasks: &Tasks, take: F)
where
    K: Ord + Clone + Send + Sync + std::fmt::Debug + 'static,
    F: Fn(Arc<World>, K) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Settled, TurnError>> + Send + 'static,
{
    let world = world.clone();
    let token = tasks.token().clone();
    tasks.spawn(
        name,
        work(queue.clone(), workers, token, move |key: K| {
            let world = world.clone();
            let turn = take(world.clone(), key.clone());
            async move {
                let began = world.clock.monotonic();
                let ended = turn.await;
                world.metrics.observe("turn_seconds", &[("controller", name)], world.clock.monotonic().saturating_sub(began));
                turn::conclude(name, &format!("{key:?}"), ended.as_ref().map(Clone::clone), &world.metrics)
            }
        }),
    );
}

#[cfg(test)]
mod tests;
