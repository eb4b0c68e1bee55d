//! A running parent of theirs is switched to our parts in place, and back, and so is its agent: no workload in the child is written.

use serde_json::Value;

use super::app::{self, Charts};
use super::{Joins, joined, our_agent, our_parts, prepare_child, prepare_parent, ready_to_run, their_agent, their_parts};
use crate::kube::ControlPlane;

async fn take_over(mode: &str) {
    let Some((bin, assets)) = ready_to_run() else { return };
    let _one = crate::e2e::ONE.lock().await;
    let folder = tempfile::tempdir().unwrap();
    let (parent, child) = tokio::join!(ControlPlane::start(assets), ControlPlane::start(assets));
    prepare_parent(&parent).await;
    prepare_child(&child).await;
    let joins = Joins { parent: &parent, child: &child, folder: folder.path(), name: "one", mode };
    let parts = their_parts(&bin, &parent, folder.path()).await;
    let agent = their_agent(&bin, &joins);
    let cluster = joined(&parent, "one").await;
    let charts = Charts::serve(folder.path()).await;
    app::publish(&parent, &charts, &cluster).await;
    app::arrived(&parent, &child, &cluster, "autumn").await;
    let (before, made) = (app::versions(&child).await, app::made(&parent).await);
    // The parent's parts. They have looked at everything when a new Subscription has gone through.
    drop(parts);
    let parts = our_parts(&parent, folder.path()).await;
    app::publish_one(&parent, "first").await;
    app::has_one(&child, "first").await;
    // Their controllers at times make two Bases for one cluster. Of those one goes, and what the child has may change hands; it stays.
    let twins = made.iter().filter(|one| one.starts_with("bases")).count() > 4;
    let same = |then: &Value, now: &Value| if twins { then[2] == now[2] } else { then == now };
    let untouched = |then: &[Value], now: &[Value]| then.iter().zip(now).all(|(then, now)| same(then, now));
    let now = app::versions(&child).await;
    assert!(untouched(&before, &now), "switching the parent's parts wrote into the child: {before:?} {now:?} {made:?}");
    let before = now;
    let mut now: Vec<String> = app::made(&parent).await;
    now.retain(|one| !one.contains("/\"first"));
    if twins {
        assert!(now.iter().all(|one| made.contains(one)) && now.iter().filter(|one| one.starts_with("bases")).count() == 4, "{now:?} {made:?}");
    } else {
        assert_eq!(now, made, "switching the parent's parts made other objects");
    }
    // And the agent as well.
    drop(agent);
    let agent = our_agent(&joins);
    app::publish_one(&parent, "second").await;
    app::has_one(&child, "second").await;
    let now = app::versions(&child).await;
    assert!(untouched(&before, &now), "switching the agent wrote into the child: {before:?} {now:?}");
    let before = now;
    app::retheme(&parent, "winter").await;
    app::arrived(&parent, &child, &cluster, "winter").await;
    let winter = app::versions(&child).await;
    let same = |at: usize| winter[at] == before[at];
    assert!((0..winter.len()).all(|at| same(at) == (at != 1)), "a change of one object wrote others: {winter:?} {before:?}");
    // Back again: the parent's parts, then the agent.
    drop(parts);
    let _parts = their_parts(&bin, &parent, folder.path()).await;
    app::publish_one(&parent, "third").await;
    app::has_one(&child, "third").await;
    let back = app::versions(&child).await;
    // What we changed carries no record of theirs: who pushes writes it once.
    let same = |at: usize| back[at] == winter[at] || (mode == "Push" && at == 1 && back[at][2] == winter[at][2]);
    assert!((0..back.len()).all(same), "handing the parent back wrote into the child: {winter:?} {back:?}");
    drop(agent);
    let _agent = their_agent(&bin, &joins);
    app::publish_one(&parent, "fourth").await;
    app::has_one(&child, "fourth").await;
    app::retheme(&parent, "spring").await;
    app::arrived(&parent, &child, &cluster, "spring").await;
    let spring = app::versions(&child).await;
    assert!((0..spring.len()).all(|at| at == 1 || spring[at] == before[at]), "handing the agent back wrote others: {spring:?} {before:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_with_an_agent_that_pulls() {
    take_over("Pull").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_that_pushes() {
    take_over("Push").await;
}
