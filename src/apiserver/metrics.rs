//! Counters of the server, in the names of kube-apiserver and in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

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
}

/// Counters of one server.
#[derive(Debug, Default)]
pub struct Metrics {
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
    pub(crate) fn count(&self, label: Label, code: u16, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut requests = self.requests.lock();
        let label = if requests.len() >= MAX_RESOURCES && !requests.contains_key(&label) {
            Label { verb: label.verb, group: String::new(), version: String::new(), resource: String::new(), subresource: String::new() }
        } else {
            label
        };
        let series = requests.entry(label).or_default();
        *series.codes.entry(code).or_default() += 1;
        series.count += 1;
        series.sum += seconds;
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

    /// Everything, as Prometheus reads it.
    #[must_use]
    pub fn text(&self, store: &store::Store) -> String {
        let mut out = String::new();
        // Writing into a string cannot fail.
        let _ = self.write(&mut out, store);
        out
    }

    fn write(&self, out: &mut String, store: &store::Store) -> std::fmt::Result {
        let requests = self.requests.lock().clone();
        writeln!(out, "# HELP apiserver_request_total Counter of requests by verb, resource and HTTP code.\n# TYPE apiserver_request_total counter")?;
        for (label, series) in &requests {
            for (code, count) in &series.codes {
                writeln!(out, "apiserver_request_total{{code=\"{code}\",{}}} {count}", labels(label))?;
            }
        }
        for name in ["apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"] {
            writeln!(out, "# HELP {name} Response latency in seconds by verb and resource.\n# TYPE {name} histogram")?;
            for (label, series) in &requests {
                let labels = labels(label);
                let mut sum = 0;
                for (bound, count) in BOUNDS.iter().zip(series.buckets) {
                    sum += count;
                    writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {sum}")?;
                }
                writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", series.count)?;
                writeln!(out, "{name}_sum{{{labels}}} {}\n{name}_count{{{labels}}} {}", series.sum, series.count)?;
            }
        }
        writeln!(out, "# HELP apiserver_longrunning_requests Watches that are open.\n# TYPE apiserver_longrunning_requests gauge")?;
        for (table, count) in &*self.watchers.lock() {
            let (group, resource) = table.split_once('/').unwrap_or(("", table));
            writeln!(out, "apiserver_longrunning_requests{{group=\"{group}\",resource=\"{resource}\",verb=\"WATCH\"}} {}", count.load(Ordering::Relaxed))?;
        }
        writeln!(out, "# HELP apiserver_storage_objects Number of stored objects by resource.\n# TYPE apiserver_storage_objects gauge")?;
        for (table, count) in store.tables() {
            let (group, resource) = table.split_once('/').unwrap_or(("", &table));
            writeln!(out, "apiserver_storage_objects{{resource=\"{}\"}} {count}", crate::status::qualified(group, resource))?;
        }
        writeln!(out, "# HELP anabranch_store_revision Newest revision.\n# TYPE anabranch_store_revision counter\nanabranch_store_revision {}", store.revision())?;
        writeln!(out, "# HELP anabranch_store_commits_total Commits to the file.\n# TYPE anabranch_store_commits_total counter\nanabranch_store_commits_total {}", store.commits())?;
        Ok(())
    }
}

fn labels(label: &Label) -> String {
    format!(
        "group=\"{}\",resource=\"{}\",scope=\"\",subresource=\"{}\",verb=\"{}\",version=\"{}\"",
        label.group, label.resource, label.subresource, label.verb, label.version
    )
}
