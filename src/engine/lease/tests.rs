//! Two candidates on clocks that the test moves, over an API server in this process.
#![allow(clippy::unwrap_used, reason = "tests fail loudly")]

use apiserver::{ApiServer, Identity};
use store::Store;

use super::*;
use crate::clock::FakeClock;

struct Candidate {
    clock: FakeClock,
    leadership: Leadership,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Candidate {
    fn new(client: &Client, identity: &str) -> Self {
        let clock = FakeClock::at(jiff::Timestamp::from_second(1_000_000).unwrap());
        let elector = Elector::new(client.clone(), LeaseOptions::usual("kube-system", "part", identity), Arc::new(clock.clone()));
        let (leadership, stop) = (elector.leadership(), CancellationToken::new());
        let task = tokio::spawn(elector.run(stop.clone(), |term| async move { term.cancelled().await }));
        Self { clock, leadership, stop, task }
    }

    /// Lets time pass for this candidate alone, a retry period at a time.
    async fn lives(&self, seconds: u64) {
        for _ in 0..seconds {
            until("a candidate that waits", || self.clock.sleepers() > 0).await;
            self.clock.advance(Duration::from_secs(1));
        }
    }
}

async fn until(what: &str, mut level: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    while !level() {
        assert!(tokio::time::Instant::now() < end, "{what} did not happen");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn parent() -> Client {
    let server = ApiServer::build(apiserver::Options::new(Store::memory())).await;
    cluster::in_process(server.service(Identity::master("test")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_leads_and_the_other_takes_over_when_it_is_silent() {
    let client = parent().await;
    let first = Candidate::new(&client, "first");
    until("the first leads", || first.leadership.holds()).await;
    let second = Candidate::new(&client, "second");
    second.lives(10).await;
    first.lives(4).await;
    assert!(first.leadership.holds() && !second.leadership.holds());
    assert_eq!(first.leadership.lease_uid(), second.leadership.lease_uid());
    // The first is cut off: its clock stands. Not before the lease has run out does the second lead.
    second.lives(12).await;
    assert!(!second.leadership.holds(), "the lease still runs");
    second.lives(12).await;
    until("the second leads", || second.leadership.holds()).await;
    // The first comes back, and learns it before it writes anything.
    first.lives(3).await;
    until("the first has given up", || !first.leadership.holds()).await;
    let lease: Lease = Api::<Lease>::namespaced(client, "kube-system").get("part").await.unwrap();
    let spec = lease.spec.unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("second"), Some(1)));
    for candidate in [first, second] {
        candidate.stop.cancel();
        candidate.task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_given_back_is_taken_at_once() {
    let client = parent().await;
    let first = Candidate::new(&client, "first");
    until("the first leads", || first.leadership.holds()).await;
    first.stop.cancel();
    first.task.await.unwrap();
    assert!(!first.leadership.holds());
    let second = Candidate::new(&client, "second");
    until("the second leads", || second.leadership.holds()).await;
    second.stop.cancel();
    second.task.await.unwrap();
}
