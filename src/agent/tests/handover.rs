//! A branch that cannot be read: the parent gets the cluster, and gives it back on request; never two writers.

use kube::api::{Patch, PatchParams};
use plan::sync::Holder;

use super::*;

async fn holder(world: &World, wanted: Holder) {
    eventually("the cluster in other hands", || async {
        let found = Holder::of(&world.cluster().await);
        if found == wanted { Ok(()) } else { Err(found) }
    })
    .await;
}

async fn annotate(world: &World, annotations: Value) {
    let clusters: Api<ManagedCluster> = Api::namespaced(world.parent.clone(), NAMESPACE);
    let patch = json!({"metadata": {"annotations": annotations}});
    clusters.patch("harbor", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

async fn told_of_nothing(world: &World) {
    annotate(
        world,
        json!({"gitops.anabranch.io/delivery-url": world.dir.path().join("nowhere.git").to_str().unwrap(),
            "gitops.anabranch.io/delivery-branch": "clusters/harbor", "gitops.anabranch.io/delivery-commit": "1".repeat(40)}),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_parent_applies_while_the_branch_cannot_be_read() {
    let world = World::new().await;
    world.placed().await;
    told_of_nothing(&world).await;
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "one")]).await;
    let mut options = world.options();
    options.app_pusher = true;
    options.give_up_after = Duration::ZERO;
    let agent = world.agent(options);
    holder(&world, Holder::Parent).await;
    let maps = kind("v1", "ConfigMap");
    assert!(world.in_child(&maps, "yard", "a").await.is_none(), "what the branch does not say is not applied by the agent");

    // The parent's own writer has the same engine.
    let stop = CancellationToken::new();
    let pushing = tokio::spawn({
        let (parent, child, options, stop) = (world.parent.clone(), world.child.clone(), world.options(), stop.clone());
        async move { Box::pin(crate::push(parent, child, NAMESPACE, "harbor", options, stop)).await }
    });
    world.told("pots-generic", |s| s.phase == Some(api::apps::DescriptionPhase::Success)).await;
    assert_eq!(world.in_child(&maps, "yard", "a").await.unwrap()["data"]["mode"], "one");

    // Without a branch there is nothing that cannot be read: the agent asks, the parent's writer ends, the agent goes on.
    annotate(&world, json!({"gitops.anabranch.io/delivery-url": null, "gitops.anabranch.io/delivery-commit": null})).await;
    holder(&world, Holder::AgentAsks).await;
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "two")]).await;
    world.told("pots-generic", |s| s.phase == Some(api::apps::DescriptionPhase::Success)).await;
    stop.cancel();
    pushing.await.unwrap();
    annotate(&world, json!({"gitops.anabranch.io/applier": null})).await;
    world.describe("pots-generic", &[namespace("yard"), config("yard", "a", "three")]).await;
    eventually("the agent at work again", || async {
        let found = world.in_child(&maps, "yard", "a").await.unwrap()["data"]["mode"].clone();
        if found == "three" { Ok(()) } else { Err(found) }
    })
    .await;
    agent.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_that_lets_nobody_in_stays_with_its_agent() {
    let world = World::new().await;
    world.placed().await;
    told_of_nothing(&world).await;
    let mut options = world.options();
    options.give_up_after = Duration::ZERO;
    let agent = world.agent(options);
    annotate(&world, json!({"gitops.anabranch.io/applier": "parent-asks"})).await;
    // A Description directly after: the agent takes a turn, cannot read, and does not give away what the child does not offer.
    world.describe("pots-generic", &[namespace("yard")]).await;
    eventually("a heartbeat", || async {
        let status = world.cluster().await.status;
        if status.as_ref().is_some_and(|s| s.last_observed_time.is_some()) { Ok(()) } else { Err(status) }
    })
    .await;
    assert_eq!(Holder::of(&world.cluster().await), Holder::ParentAsks);
    // The branch is readable again, here: there is none. The agent declines.
    annotate(&world, json!({"gitops.anabranch.io/delivery-url": null, "gitops.anabranch.io/delivery-commit": null})).await;
    world.told("pots-generic", |s| s.phase == Some(api::apps::DescriptionPhase::Success)).await;
    agent.stop().await;
}
