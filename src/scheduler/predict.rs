//! Asks the clusters' predictors: through the tunnel or directly, bounded in time, cached until capacity changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::apps::ReplicaRequirements;
use api::predictor::{UNSCHEDULED_PATH, UnscheduledResponse};
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
    replicas: i32,
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
        let asks = clusters.into_iter().map(|(number, cluster)| {
            let requirements = &requirements;
            async move {
                let mut replicas = Vec::with_capacity(requirements.len());
                for (hash, body) in requirements {
                    match self.ask(&cluster, *hash, body).await {
                        Ok(count) => replicas.push(count),
                        Err(fault) => return (number, Err(fault)),
                    }
                }
                (number, Ok(replicas))
            }
        });
        let answers: Vec<_> = futures::stream::iter(asks).buffer_unordered(AT_ONCE).collect().await;
        for (number, answer) in answers {
            pending.answer(number, answer);
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
            return Ok(known.replicas);
        }
        let replicas = self.ways.total(place(cluster, predictor), body.to_vec(), self.timeout).await?;
        let entry =
            Known { capacity_mark: cluster.capacity_mark, address: predictor.address.clone(), until: now + LIFE, replicas };
        let mut known = self.known.lock();
        if known.len() >= REMEMBERED {
            known.retain(|_, known| known.until > now);
            if known.len() >= REMEMBERED {
                known.clear();
            }
        }
        known.insert(key, entry);
        Ok(replicas)
    }

    /// Which replicas of each feed a cluster cannot schedule.
    pub async fn unscheduled(&self, cluster: &ClusterInfo) -> Result<UnscheduledResponse, String> {
        let Some(predictor) = &cluster.predictor else { return Err("has no predictor".to_owned()) };
        self.ways.ask(place(cluster, predictor), http::Method::GET, UNSCHEDULED_PATH, Vec::new(), self.timeout).await
    }
}

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
