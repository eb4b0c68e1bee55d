//! Counters and histograms with bounded label sets, printed as Prometheus text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

/// Label names and values; values must come from closed sets.
pub type Labels<'a> = &'a [(&'static str, &'a str)];

/// Upper bounds of the buckets of our duration histograms, in seconds.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Upper bounds for a name. The histograms that Clusternet has keep its bounds, so that dashboards stay true.
fn bounds(name: &str) -> Vec<f64> {
    let doubling = |start: f64, factor: f64, count: i32| (0..count).map(|n| start * factor.powi(n)).collect();
    match name {
        "clusternet_socket_connections_duration_seconds" => doubling(60.0, 4.0, 8),
        "clusternet_scheduler_framework_extension_point_duration_seconds" => doubling(0.0001, 2.0, 12),
        "clusternet_scheduler_plugin_execution_duration_seconds" => doubling(0.00001, 1.5, 20),
        name if name.starts_with("clusternet_") => doubling(0.001, 2.0, 15),
        _ => BUCKETS.to_vec(),
    }
}

struct Histogram {
    bounds: Vec<f64>,
    buckets: Vec<AtomicU64>,
    count: AtomicU64,
    micros: AtomicU64,
}

impl Histogram {
    fn of(name: &str) -> Self {
        let bounds = bounds(name);
        Self { buckets: bounds.iter().map(|_| AtomicU64::new(0)).collect(), bounds, count: AtomicU64::new(0), micros: AtomicU64::new(0) }
    }
}

/// The name that the world sees: ours carry the product's name, Clusternet's are its own.
fn shown(name: &str) -> String {
    if ["clusternet_", "anabranch_", "process_"].iter().any(|prefix| name.starts_with(prefix)) { name.to_owned() } else { format!("anabranch_{name}") }
}

/// What a family says, for people. Names that are not in the table say it themselves.
fn help(name: &str) -> String {
    let known = match name {
        "turns_total" => "Turns of controllers by how they ended.",
        "turn_seconds" => "How long turns of controllers take.",
        "delivery_turn_seconds" => "How long it takes to write the branches that changed.",
        "delivery_pushes_total" => "Pushes to delivery repositories.",
        "delivery_faulty_branches" => "Branches that could not be written at the last look, by GitTarget.",
        "source_turn_seconds" => "How long it takes to bring a revision of a repository into the parent.",
        "objects_applied_total" => "Objects written into the child.",
        "apply_faults_total" => "Objects that the child refused, by reason.",
        "branch_errors_total" => "Failed looks at the cluster's branch.",
        "events_dropped_total" => "Events that were not written because too many waited.",
        "clusternet_socket_connections_count" => "Open tunnels of agents.",
        "clusternet_socket_connections_duration_seconds" => "How long tunnels were open.",
        "clusternet_scheduler_schedule_attempts_total" => "Attempts to schedule Subscriptions by result and profile.",
        "clusternet_scheduler_e2e_scheduling_duration_seconds" => "Time from the beginning of a scheduling attempt to its written result.",
        "clusternet_scheduler_scheduling_algorithm_duration_seconds" => "Time of the scheduling algorithm.",
        "clusternet_scheduler_framework_extension_point_duration_seconds" => "Time of an extension point, of one cycle in ten; of binding, of each.",
        "clusternet_scheduler_plugin_execution_duration_seconds" => "Time of a plugin at an extension point, of some of its calls.",
        "clusternet_scheduler_scheduler_goroutines" => "Tasks under way by the work they do.",
        "clusternet_scheduler_permit_wait_duration_seconds" => "Time that decisions waited for permission, by result.",
        "process_start_time_seconds" => "Start of the process in seconds since the epoch.",
        "process_resident_memory_bytes" => "Resident memory of the process in bytes.",
        _ => "",
    };
    if known.is_empty() { format!("{}.", name.replace('_', " ")) } else { known.to_owned() }
}

#[derive(Default)]
struct Series {
    counters: BTreeMap<(&'static str, String), Arc<AtomicU64>>,
    gauges: BTreeMap<(&'static str, String), Arc<AtomicI64>>,
    histograms: BTreeMap<(&'static str, String), Arc<Histogram>>,
}

/// All series of a process or part. Cloning shares it.
#[derive(Clone, Default)]
pub struct Registry {
    series: Arc<RwLock<Series>>,
}

fn key(labels: Labels<'_>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        let _ = write!(text, "{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"));
    }
    text
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds to a counter (name ends in `_total`).
    pub fn count(&self, name: &'static str, labels: Labels<'_>, by: u64) {
        let key = (name, key(labels));
        if let Some(counter) = self.series.read().counters.get(&key) {
            counter.fetch_add(by, Ordering::Relaxed);
            return;
        }
        self.series.write().counters.entry(key).or_default().fetch_add(by, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn gauge(&self, name: &'static str, labels: Labels<'_>, value: i64) {
        let key = (name, key(labels));
        if let Some(gauge) = self.series.read().gauges.get(&key) {
            gauge.store(value, Ordering::Relaxed);
            return;
        }
        self.series.write().gauges.entry(key).or_default().store(value, Ordering::Relaxed);
    }

    /// Moves a gauge.
    pub fn shift(&self, name: &'static str, labels: Labels<'_>, by: i64) {
        let key = (name, key(labels));
        if let Some(gauge) = self.series.read().gauges.get(&key) {
            gauge.fetch_add(by, Ordering::Relaxed);
            return;
        }
        self.series.write().gauges.entry(key).or_default().fetch_add(by, Ordering::Relaxed);
    }

    /// Observes a duration (name ends in `_seconds`).
    pub fn observe(&self, name: &'static str, labels: Labels<'_>, took: Duration) {
        let key = (name, key(labels));
        let existing = self.series.read().histograms.get(&key).cloned();
        let histogram = existing.unwrap_or_else(|| self.series.write().histograms.entry(key).or_insert_with(|| Arc::new(Histogram::of(name))).clone());
        let seconds = took.as_secs_f64();
        for (bound, bucket) in histogram.bounds.iter().zip(&histogram.buckets) {
            if seconds <= *bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
        histogram.count.fetch_add(1, Ordering::Relaxed);
        histogram.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Reads a counter; 0 when it was never touched.
    pub fn counter(&self, name: &'static str, labels: Labels<'_>) -> u64 {
        self.series.read().counters.get(&(name, key(labels))).map_or(0, |c| c.load(Ordering::Relaxed))
    }

    /// Everything in Prometheus' text format.
    pub fn render(&self) -> String {
        let series = self.series.read();
        let mut out = String::new();
        let mut last = "";
        let mut head = |out: &mut String, name: &'static str, kind: &str| {
            let shown = shown(name);
            if last != name {
                let _ = writeln!(out, "# HELP {shown} {}\n# TYPE {shown} {kind}", help(name));
                last = name;
            }
            shown
        };
        let braces = |labels: &str| if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        for ((name, labels), value) in &series.counters {
            let name = head(&mut out, name, "counter");
            let _ = writeln!(out, "{name}{} {}", braces(labels), value.load(Ordering::Relaxed));
        }
        for ((name, labels), value) in &series.gauges {
            let name = head(&mut out, name, "gauge");
            let _ = writeln!(out, "{name}{} {}", braces(labels), value.load(Ordering::Relaxed));
        }
        for ((name, labels), histogram) in &series.histograms {
            let name = head(&mut out, name, "histogram");
            let comma = if labels.is_empty() { "" } else { "," };
            for (bound, bucket) in histogram.bounds.iter().zip(&histogram.buckets) {
                let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {}", bucket.load(Ordering::Relaxed));
            }
            let count = histogram.count.load(Ordering::Relaxed);
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {count}");
            #[expect(clippy::cast_precision_loss, reason = "a sum for people to read")]
            let sum = histogram.micros.load(Ordering::Relaxed) as f64 / 1e6;
            let _ = writeln!(out, "{name}_sum{} {sum}", braces(labels));
            let _ = writeln!(out, "{name}_count{} {count}", braces(labels));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_what_was_counted() {
        let registry = Registry::new();
        registry.count("turns_total", &[("controller", "a\"b")], 2);
        registry.count("turns_total", &[("controller", "a\"b")], 1);
        registry.gauge("depth", &[], 7);
        registry.observe("turn_seconds", &[], Duration::from_millis(3));
        let text = registry.render();
        assert!(text.contains("anabranch_turns_total{controller=\"a\\\"b\"} 3"), "{text}");
        registry.shift("depth", &[], -2);
        registry.shift("rise", &[], 3);
        assert!(registry.render().contains("anabranch_depth 5") && registry.render().contains("anabranch_rise 3"));
        assert!(text.contains("anabranch_depth 7") && text.contains("turn_seconds_bucket{le=\"0.005\"} 1"), "{text}");
        assert!(text.contains("turn_seconds_bucket{le=\"0.0025\"} 0"), "{text}");
        assert!(text.contains("# HELP anabranch_turn_seconds How long"), "{text}");
        registry.observe("clusternet_socket_connections_duration_seconds", &[], Duration::from_secs(100));
        let text = registry.render();
        assert!(text.contains("clusternet_socket_connections_duration_seconds_bucket{le=\"240\"} 1"), "{text}");
    }
}
