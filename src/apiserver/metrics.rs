//! Counters of the server, in the names of kube-apiserver.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::core::Core;
use crate::exposition::{Family, Histogram, Kind, Sample, Sparse, Value};
use crate::mount::MountedGroup;
use crate::path::Info;

/// Upper bounds of the latency histogram, in seconds.
const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Resources beyond this many are counted together: labels must not grow without bound.
const MAX_RESOURCES: usize = 512;

/// What requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
}

impl Label {
    pub(crate) fn of(info: &Info, path: &str) -> Self {
        if info.resource.is_empty() {
            let first = path.trim_start_matches('/').split('/').next().unwrap_or("");
            let known = matches!(first, "healthz" | "livez" | "readyz" | "metrics" | "version" | "openapi" | "api" | "apis");
            let sub = if known { format!("/{first}") } else { String::new() };
            return Self { verb: upper(info.verb), group: String::new(), version: String::new(), resource: String::new(), subresource: sub };
        }
        Self { verb: upper(info.verb), group: info.group.clone(), version: info.version.clone(), resource: info.resource.clone(), subresource: info.subresource.clone() }
    }

    /// The one label of everything that is not served here.
    fn other(self) -> Self {
        Self { verb: self.verb, group: String::new(), version: String::new(), resource: String::new(), subresource: String::new() }
    }

    /// Whether what it names is served: a path is whatever a stranger writes, and each new label would stay for ever.
    fn is_served(&self, core: &Core, code: u16) -> bool {
        if self.resource.is_empty() {
            return true;
        }
        if let Some(resource) = core.routes.load().find(&self.group, &self.version, &self.resource) {
            return self.subresource.is_empty() || resource.has(&self.subresource);
        }
        // Whoever is not let in at all shall not make us look through what others serve.
        if matches!(code, 401 | 403) {
            return false;
        }
        let listed = |group: &MountedGroup| {
            let names = || group.resources.iter().filter_map(|resource| resource.get("name").and_then(serde_json::Value::as_str));
            let own = |name: &str| match name.strip_prefix(self.resource.as_str()) {
                Some(rest) if self.subresource.is_empty() => rest.is_empty(),
                Some(rest) => rest.strip_prefix('/') == Some(self.subresource.as_str()),
                None => false,
            };
            group.group == self.group && group.version == self.version && names().any(own)
        };
        core.mounts.read().iter().any(|mount| mount.groups().iter().any(listed)) || core.remotes.groups().iter().any(listed)
    }
}

impl Label {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        vec![
            ("group", self.group.clone()),
            ("resource", self.resource.clone()),
            ("scope", String::new()),
            ("subresource", self.subresource.clone()),
            ("verb", self.verb.to_owned()),
            ("version", self.version.clone()),
        ]
    }
}

fn upper(verb: &str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "OTHER",
    }
}

#[derive(Debug, Default, Clone)]
struct Series {
    codes: BTreeMap<u16, u64>,
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
    sparse: Sparse,
}

/// Counters of one server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<Label, Series>>,
    watchers: Mutex<BTreeMap<String, Arc<AtomicI64>>>,
}

/// A watcher that is counted while it lives.
pub(crate) struct Watching(Arc<AtomicI64>);

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn count(&self, core: &Core, label: Label, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        // What was counted once need not be looked for again.
        let counted = self.requests.lock().contains_key(&label);
        let label = if counted || label.is_served(core, code) { label } else { label.other() };
        let mut requests = self.requests.lock();
        let label = if requests.len() >= MAX_RESOURCES && !requests.contains_key(&label) { label.other() } else { label };
        let series = requests.entry(label).or_default();
        *series.codes.entry(code).or_default() += 1;
        series.count += 1;
        series.sum += seconds;
        series.sparse.observe(seconds);
        if let Some(bucket) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            series.buckets[bucket] += 1;
        }
    }

    pub(crate) fn watcher(&self, table: &str) -> Watching {
        let mut watchers = self.watchers.lock();
        let count = watchers.entry(table.to_owned()).or_default().clone();
        count.fetch_add(1, Ordering::Relaxed);
        Watching(count)
    }

    /// Everything that is counted.
    pub(crate) fn families(&self, core: &Core) -> Vec<Family> {
        let store = &core.store;
        let requests = self.requests.lock().clone();
        let mut total = Family::new("apiserver_request_total", "Counter of requests by verb, resource and HTTP code.", Kind::Counter);
        let mut duration = Family::new("apiserver_request_duration_seconds", "Response latency in seconds by verb and resource.", Kind::Histogram);
        let mut sli = Family::new("apiserver_request_sli_duration_seconds", "Response latency in seconds by verb and resource.", Kind::Histogram);
        for (label, series) in &requests {
            for (code, count) in &series.codes {
                let mut labels = vec![("code", code.to_string())];
                labels.extend(label.pairs());
                total.add(labels, *count);
            }
            let mut sum = 0;
            let buckets = BOUNDS.iter().zip(series.buckets).map(|(bound, count)| {
                sum += count;
                (*bound, sum)
            });
            let mut histogram = Histogram { buckets: buckets.collect(), count: series.count, sum: series.sum, sparse: Some(series.sparse.clone()) };
            duration.samples.push(Sample { labels: label.pairs(), value: Value::Histogram(histogram.clone()) });
            histogram.sparse = None;
            sli.samples.push(Sample { labels: label.pairs(), value: Value::Histogram(histogram) });
        }
        let mut watches = Family::new("apiserver_longrunning_requests", "Watches that are open.", Kind::Gauge);
        for (table, count) in &*self.watchers.lock() {
            let (group, resource) = table.split_once('/').unwrap_or(("", table));
            let count = u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0);
            watches.add(vec![("group", group.to_owned()), ("resource", resource.to_owned()), ("verb", "WATCH".to_owned())], count);
        }
        let mut objects = Family::new("apiserver_storage_objects", "Number of stored objects by resource.", Kind::Gauge);
        for (table, count) in store.tables() {
            let (group, resource) = table.split_once('/').unwrap_or(("", &table));
            objects.add(vec![("resource", crate::status::qualified(group, resource))], u64::try_from(count).unwrap_or(0));
        }
        let mut seats = Family::new("apiserver_flowcontrol_nominal_limit_seats", "Nominal number of execution seats configured for each priority level.", Kind::Gauge);
        let mut taken = Family::new("apiserver_flowcontrol_current_executing_seats", "Seats taken by requests under way, by priority level.", Kind::Gauge);
        let mut waiting = Family::new("apiserver_flowcontrol_current_inqueue_requests", "Requests that wait for a seat, by priority level.", Kind::Gauge);
        for level in core.flows.standing() {
            let labels = || vec![("priority_level", level.name.clone())];
            seats.add(labels(), level.seats);
            taken.add(labels(), level.used);
            waiting.add(labels(), level.waiting);
        }
        let mut refused = Family::new("apiserver_flowcontrol_rejected_requests_total", "Requests refused for want of seats.", Kind::Counter);
        for ((schema, level, why), count) in core.flows.refused() {
            refused.add(vec![("flow_schema", schema), ("priority_level", level), ("reason", why.reason().to_owned())], count);
        }
        let mut revision = Family::new("anabranch_store_revision", "Newest revision.", Kind::Gauge);
        revision.add(Vec::new(), store.revision());
        let mut commits = Family::new("anabranch_store_commits_total", "Commits to the file.", Kind::Counter);
        commits.add(Vec::new(), store.commits());
        vec![total, duration, sli, watches, objects, seats, taken, waiting, refused, revision, commits]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use crate::tests::basics::Bench;

    #[tokio::test]
    async fn only_what_is_served_becomes_a_label() {
        let bench = Bench::new().await;
        bench.0.secure(None, Vec::new()).await;
        let stranger = || crate::Identity::anonymous();
        for n in 0..9 {
            for path in [
                format!("/apis/strange{n}.io/v1/things"),
                format!("/apis/apps/strange{n}/deployments"),
                format!("/api/v1/strange{n}"),
                format!("/api/v1/namespaces/default/pods/p/strange{n}"),
                format!("/strange{n}"),
            ] {
                let request = http::Request::get(&path).body(crate::body::full("")).unwrap();
                assert!(bench.0.request(stranger(), request).await.status().is_client_error(), "{path}");
                assert_eq!(bench.get(&path).await.0, 404, "{path}");
            }
        }
        bench.get("/api/v1/namespaces/default/pods/p/log").await;
        let (_, text) = bench.get("/metrics").await;
        let text = text.as_str().unwrap();
        assert!(!text.contains("strange"), "{text}");
        assert!(text.contains(r#"apiserver_request_total{code="404",group="",resource="pods",scope="",subresource="log",verb="GET",version="v1"} 1"#), "{text}");
    }
}
