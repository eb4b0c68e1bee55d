//! Asks the clusters' predictors: through the tunnel or directly, bounded in time, cached until capacity changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::apps::ReplicaRequirements;
use cluster::predictor::Place;
use futures::StreamExt as _;
use kube::Client;
use parking_lot::Mutex;
use plan::placement::cluster::Predictor;
use plan::placement::{ClusterInfo, Pending, Request};

/// Predictors that are asked at once, over all cycles.
const AT_ONCE: usize = 256;
/// Answers that are remembered.
const REMEMBERED: usize = 65_536;
/// Longest life of an answer: Pods come and go without a word from the cluster.
const LIFE: Duration = Duration::from_secs(30);
/// How long the last ones are waited for when half have answered.
const STRAGGLERS: Duration = Duration::from_secs(5);

/// Asks predictors.
pub struct Predictors {
    ways: cluster::predictor::Predictors,
    timeout: Duration,
    known: Mutex<BTreeMap<(Arc<str>, u64), Known>>,
    clock: Arc<dyn engine::Clock>,
}

struct Known {
    capacity_mark: u64,
    address: String,
    until: Duration,
    replicas: Result<i32, String>,
}

impl Predictors {
    /// Asks through this parent, each question at most this long.
    pub fn new(parent: Client, timeout: Duration, clock: Arc<dyn engine::Clock>) -> Self {
        Self { ways: cluster::predictor::Predictors::new(parent), timeout, known: Mutex::default(), clock }
    }

    /// Answers all questions of a cycle; a cluster that cannot answer says why.
    pub async fn ask_all(&self, pending: &mut Pending) {
        let clusters: Vec<(usize, Arc<ClusterInfo>)> = pending.clusters().map(|(number, info)| (number, Arc::clone(info))).collect();
        let requirements = requirements(pending.request(), &pending.feeds());
        let mut open: BTreeMap<usize, Arc<ClusterInfo>> = clusters.iter().map(|(number, info)| (*number, Arc::clone(info))).collect();
        let total = open.len();
        let asks = clusters.into_iter().map(|(number, cluster)| {
            let requirements = &requirements;
            async move {
                let asks = requirements.iter().map(|(hash, body)| self.ask(&cluster, *hash, body));
                (number, futures::future::try_join_all(asks).await)
            }
        });
        let mut answers = futures::stream::iter(asks).buffer_unordered(AT_ONCE);
        let begun = self.clock.monotonic();
        loop {
            // One bound for all of them; once half have answered, the last ones hold up nobody for long.
            let most = if 2 * open.len() <= total { self.timeout.min(STRAGGLERS) } else { self.timeout };
            let left = most.saturating_sub(self.clock.monotonic().saturating_sub(begun));
            let Some(answer) = ({
                tokio::select! {
                    biased;
                    answer = answers.next() => answer,
                    () = self.clock.sleep(left) => {
                        let waited = self.clock.monotonic().saturating_sub(begun);
                        // The bound may have become shorter while this one was waited for, never longer.
                        let why = format!("predictor did not answer within {} s", waited.as_secs());
                        for (number, cluster) in &open {
                            self.note_silence(cluster, &requirements, &why);
                            pending.answer(*number, Err(why.clone()));
                        }
                        None
                    }
                }
            }) else { break };
            open.remove(&answer.0);
            pending.answer(answer.0, answer.1);
        }
    }

    /// Who was silent is not waited for again by the very next cycles.
    fn note_silence(&self, cluster: &ClusterInfo, requirements: &[(u64, Vec<u8>)], why: &str) {
        let Some(predictor) = &cluster.predictor else { return };
        let until = self.clock.monotonic() + LIFE;
        for (hash, _) in requirements {
            self.remember((Arc::clone(&cluster.key), *hash), Known {
                capacity_mark: cluster.capacity_mark,
                address: predictor.address.clone(),
                until,
                replicas: Err(why.to_owned()),
            });
        }
    }

    /// Forgets what was said about clusters: replicas were just placed there.
    pub fn forget<'a>(&self, clusters: impl Iterator<Item = &'a Arc<str>>) {
        let mut known = self.known.lock();
        for cluster in clusters {
            let keys: Vec<_> = known.range((Arc::clone(cluster), 0)..=(Arc::clone(cluster), u64::MAX)).map(|(key, _)| key.clone()).collect();
            for key in keys {
                known.remove(&key);
            }
        }
    }

    async fn ask(&self, cluster: &ClusterInfo, hash: u64, body: &[u8]) -> Result<i32, String> {
        let Some(predictor) = &cluster.predictor else { return Err("has no predictor".to_owned()) };
        let key = (Arc::clone(&cluster.key), hash);
        let now = self.clock.monotonic();
        if let Some(known) = self.known.lock().get(&key)
            && known.capacity_mark == cluster.capacity_mark
            && known.address == predictor.address
            && known.until > now
        {
            return known.replicas.clone();
        }
        let replicas = self.ways.total(place(cluster, predictor), body.to_vec(), self.timeout).await?;
        let entry =
            Known { capacity_mark: cluster.capacity_mark, address: predictor.address.clone(), until: now + LIFE, replicas: Ok(replicas) };
        self.remember(key, entry);
        Ok(replicas)
    }

    fn remember(&self, key: (Arc<str>, u64), entry: Known) {
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, known| known.until > now);
            if known.len() >= REMEMBERED {
                known.clear();
            }
        }
        known.insert(key, entry);
    }
}

// The query for unschedulable replicas is served by the agents and asked by nobody here, as in Clusternet: what a cluster cannot
// schedule shows in its free replicas and in the aggregated status.

fn place<'a>(cluster: &'a ClusterInfo, predictor: &'a Predictor) -> Place<'a> {
    Place { cluster_id: &cluster.id, address: &predictor.address, direct: predictor.direct, tunnel: cluster.tunnel }
}

/// Requirements of each feed, as JSON with a hash of it.
fn requirements(request: &Request, feeds: &[usize]) -> Vec<(u64, Vec<u8>)> {
    let orders: BTreeMap<String, &ReplicaRequirements> = request
        .inventory
        .iter()
        .flat_map(|inventory| &inventory.feeds)
        .map(|order| (order.feed.key(), &order.replica_requirements))
        .collect();
    feeds
        .iter()
        .map(|feed| {
            let wanted = request.subject.feed_keys.get(*feed).and_then(|key| orders.get(key));
            let json = wanted.and_then(|wanted| serde_json::to_string(wanted).ok()).unwrap_or_else(|| "{}".to_owned());
            (api::names::stable_hash(&[&json]), json.into_bytes())
        })
        .collect()
}
