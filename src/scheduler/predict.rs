//! Asks the clusters' predictors: through the tunnel or directly, bounded in time, cached until capacity changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::apps::ReplicaRequirements;
use api::predictor::{CLUSTER_ID_HEADER, DEFAULT_KEY, PREDICT_PATH, ReplicasResponse, UNSCHEDULED_PATH, UnscheduledResponse};
use cluster::Endpoint;
use futures::StreamExt as _;
use kube::Client;
use parking_lot::Mutex;
use plan::placement::{ClusterInfo, Pending, Request};
use serde::de::DeserializeOwned;

/// Predictors that are asked at once, over all cycles.
const AT_ONCE: usize = 256;
/// Answers that are remembered.
const REMEMBERED: usize = 65_536;
/// Longest life of an answer: Pods come and go without a word from the cluster.
const LIFE: Duration = Duration::from_secs(30);

/// Asks predictors.
pub struct Predictors {
    parent: Client,
    timeout: Duration,
    direct: Mutex<BTreeMap<String, Client>>,
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
        Self { parent, timeout, direct: Mutex::default(), known: Mutex::default(), clock }
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
        let answer: ReplicasResponse = self.call(cluster, http::Method::POST, PREDICT_PATH, body.to_vec()).await?;
        let replicas = answer.replicas.get(DEFAULT_KEY).copied().ok_or_else(|| "predictor answered without a total".to_owned())?;
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
        self.call(cluster, http::Method::GET, UNSCHEDULED_PATH, Vec::new()).await
    }

    async fn call<T: DeserializeOwned>(&self, cluster: &ClusterInfo, method: http::Method, path: &str, body: Vec<u8>) -> Result<T, String> {
        let Some(predictor) = &cluster.predictor else { return Err("has no predictor".to_owned()) };
        let (client, url) = if predictor.direct {
            let (base, prefix) = split(&predictor.address);
            (self.direct_client(&base)?, format!("{prefix}{path}"))
        } else if cluster.tunnel {
            let address = predictor.address.trim_start_matches("http://").trim_start_matches("https://").trim_end_matches('/');
            (self.parent.clone(), format!("{}{path}", api::proxies::http_path(&cluster.id, address)))
        } else {
            return Err("predictor is only reached through the tunnel, which the cluster does not use".to_owned());
        };
        let request = http::Request::builder()
            .method(method)
            .uri(url)
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(CLUSTER_ID_HEADER, &cluster.id)
            .body(body)
            .map_err(|error| format!("predictor address is no URL: {error}"))?;
        match tokio::time::timeout(self.timeout, client.request::<T>(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(format!("predictor answered {}", status.code)),
            Ok(Err(kube::Error::SerdeError(_))) => Err("predictor answered something else than JSON".to_owned()),
            Ok(Err(error)) => Err(format!("predictor cannot be asked: {}", cluster::error::message(&error))),
            Err(_) => Err(format!("predictor did not answer within {} s", self.timeout.as_secs())),
        }
    }

    fn direct_client(&self, base: &str) -> Result<Client, String> {
        if let Some(client) = self.direct.lock().get(base) {
            return Ok(client.clone());
        }
        let endpoint = Endpoint { url: base.to_owned(), ..Endpoint::default() };
        let client = endpoint.client().map_err(|error| format!("predictor address cannot be used: {error}"))?;
        self.direct.lock().insert(base.to_owned(), client.clone());
        Ok(client)
    }
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

/// Server and path of an address; a bare `host:port` is HTTP.
fn split(address: &str) -> (String, String) {
    let address = address.trim_end_matches('/');
    let full = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let authority = full.find("://").map_or(0, |at| at + 3);
    match full[authority..].find('/') {
        Some(at) => (full[..authority + at].to_owned(), full[authority + at..].to_owned()),
        None => (full, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (address, base, path) in [
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080", ""),
            ("http://10.0.0.1:8080/cap/3/", "http://10.0.0.1:8080", "/cap/3"),
            ("localhost:8080", "http://localhost:8080", ""),
            ("https://predict.example/x", "https://predict.example", "/x"),
        ] {
            assert_eq!(split(address), (base.to_owned(), path.to_owned()));
        }
    }
}
