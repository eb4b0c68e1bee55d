//! Joining through the real registration controller.


use api::clusters::ClusterRegistrationRequest;
use controllers::registration;
use engine::{RealClock, Recorder, Registry, Tasks};

use super::*;

fn context(client: Client) -> registration::Context {
    registration::Context { client, clock: RealClock::shared(), recorder: Recorder::silent(), metrics: Registry::new() }
}

fn joining(world: &World, name: &str) -> Options {
    let mut options = world.options();
    options.join = Join::Register { bootstrap: cluster::Auth::Token("abcdef.0123456789abcdef".into()) };
    options.cluster_name = name.into();
    options.labels = [("tier".to_owned(), "edge".to_owned())].into();
    options
}

/// Gives the parent what a real one has: credentials are checked, certificates are signed.
async fn secure(world: &World, tasks: &Tasks) {
    let pki = std::sync::Arc::new(apiserver::auth::Pki::ephemeral(&[], k8s_openapi::jiff::Timestamp::now()).unwrap());
    let controllers = apiserver::controllers::built_in(Some(&pki));
    tasks.spawn("built-in controllers", apiserver::controllers::run_local(world.server.clone(), controllers, tasks.token().clone()));
    world.server.secure(Some(pki), Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_joins_and_its_copy_does_not() {
    let world = World::new().await;
    let stop = CancellationToken::new();
    let tasks = Tasks::new(&stop);
    let options = registration::Options { workers: 2, ..Default::default() };
    tasks.spawn("registration", registration::run(context(world.parent.clone()), options, tasks.token().clone()));
    secure(&world, &tasks).await;
    // In process everybody is an administrator, which counts as a bootstrap credential here.
    let agent = world.agent(joining(&world, "harbor"));
    let requests: Api<ClusterRegistrationRequest> = Api::all(world.parent.clone());
    let clusters: Api<ManagedCluster> = Api::all(world.parent.clone());
    eventually("the cluster's report", || async {
        let list = clusters.list(&Default::default()).await.unwrap().items;
        match list.as_slice() {
            [one] if one.status.as_ref().is_some_and(|s| s.healthz) => Ok(()),
            _ => {
                let signing: Api<k8s_openapi::api::certificates::v1::CertificateSigningRequest> = Api::all(world.parent.clone());
                Err((list, signing.list(&Default::default()).await.unwrap().items))
            }
        }
    })
    .await;
    let joined = clusters.list(&Default::default()).await.unwrap().items.remove(0);
    assert_eq!(joined.metadata.name.as_deref(), Some("harbor"));
    assert_eq!(joined.metadata.labels.as_ref().unwrap()["tier"], "edge");
    let key = joined.metadata.annotations.as_ref().unwrap()["gitops.anabranch.io/agent-key"].clone();
    let request = requests.list(&Default::default()).await.unwrap().items.remove(0);
    assert!(request.status.unwrap().dedicated_token.is_empty(), "no credential lies in the parent");
    let secret = world.in_child(&kind("v1", "Secret"), "clusternet-system", "parent-cluster").await.unwrap();
    assert!(secret["data"].get("tls.key").is_some());
    agent.stop().await;

    // The same cluster again, restarted: the same place.
    let agent = world.agent(joining(&world, "harbor"));
    let observed = joined.status.unwrap().last_observed_time;
    eventually("a report after the restart", || async {
        let now = clusters.list(&Default::default()).await.unwrap().items.remove(0).status.unwrap().last_observed_time;
        if now == observed { Err(now) } else { Ok(()) }
    })
    .await;
    agent.stop().await;

    // Another cluster that claims the same name is told why not.
    let other = World { child: admin(&server().await), ..world };
    let agent = other.agent(joining(&other, "harbor"));
    eventually("the refusal", || async {
        let list = requests.list(&Default::default()).await.unwrap().items;
        let refused = list.iter().filter_map(|r| r.status.as_ref()).any(|s| s.result == "Denied" && s.error_message.contains("the name harbor belongs to cluster"));
        if refused { Ok(()) } else { Err(list) }
    })
    .await;
    let still = clusters.list(&Default::default()).await.unwrap().items;
    assert_eq!(still.len(), 1);
    assert_eq!(still[0].metadata.annotations.as_ref().unwrap()["gitops.anabranch.io/agent-key"], key);
    agent.stop().await;
    tasks.stop(Duration::from_secs(5)).await;
}
