//! `status.specHash`: Clusternet's hash over a Subscription's spec, so that a take-over re-schedules nothing.
//!
//! FNV-1a (32 bit) over the text `([]uint8)[b0 b1 ...]`, where b are the decimal bytes of the spec as Go's
//! encoding/json writes it: struct field order, `omitempty`, `<`, `>` and `&` escaped.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, PreferredSchedulingTerm, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;

use super::{DividingScheduling, Feed, Subscriber, SubscriptionSpec};

/// Hash of a spec, a 32-bit number in a 64-bit field.
pub(crate) fn spec_hash(spec: &SubscriptionSpec) -> u64 {
    let json = go_json(spec);
    let mut hash: u32 = 0x811c_9dc5;
    let mut eat = |text: &[u8]| {
        for byte in text {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    eat(b"([]uint8)[");
    let mut digits = [0u8; 3];
    for (index, byte) in json.bytes().enumerate() {
        if index > 0 {
            eat(b" ");
        }
        eat(decimal(byte, &mut digits));
    }
    eat(b"]");
    u64::from(hash)
}

fn decimal(byte: u8, digits: &mut [u8; 3]) -> &[u8] {
    let mut at = 3;
    let mut rest = byte;
    loop {
        at -= 1;
        digits[at] = b'0' + rest % 10;
        rest /= 10;
        if rest == 0 {
            return &digits[at..];
        }
    }
}

/// A JSON object whose members keep the order in which they were put.
#[derive(Default)]
struct Members(String);

impl Members {
    fn put_raw(mut self, key: &str, json: &str) -> Self {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.0.push_str(&go_text(key));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    fn put(self, key: &str, value: &impl Serialize) -> Self {
        let json = serde_json::to_string(value).unwrap_or_default();
        self.put_raw(key, &escape(&json))
    }

    fn put_some(self, key: &str, value: &Option<impl Serialize>) -> Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    fn put_text(self, key: &str, value: &str) -> Self {
        if value.is_empty() { self } else { self.put(key, &value) }
    }

    fn put_list<T>(self, key: &str, items: &[T], write: impl Fn(&T) -> String) -> Self {
        if items.is_empty() { self } else { self.put_raw(key, &list(items, write)) }
    }

    fn end(mut self) -> String {
        if self.0.is_empty() {
            self.0.push('{');
        }
        self.0.push('}');
        self.0
    }
}

fn list<T>(items: &[T], write: impl Fn(&T) -> String) -> String {
    let items: Vec<String> = items.iter().map(write).collect();
    format!("[{}]", items.join(","))
}

fn go_text(text: &str) -> String {
    escape(&serde_json::to_string(text).unwrap_or_default())
}

/// What Go's encoder escapes beyond JSON's own needs; only ever inside strings, so a plain replacement is right.
fn escape(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

fn go_json(spec: &SubscriptionSpec) -> String {
    Members::default()
        .put_text("schedulerName", &spec.scheduler_name)
        .put_some("schedulingBySubGroup", &spec.scheduling_by_sub_group)
        .put("schedulingStrategy", &spec.scheduling_strategy)
        .put_dividing(spec.dividing_scheduling.as_ref())
        .put_some("priority", &spec.priority)
        .put_some("preemptionPolicy", &spec.preemption_policy)
        .put_raw("subscribers", &list(&spec.subscribers, subscriber))
        .put_list("clusterTolerations", &spec.cluster_tolerations, toleration)
        .put_raw("feeds", &list(&spec.feeds, feed))
        .end()
}

impl Members {
    fn put_dividing(self, dividing: Option<&DividingScheduling>) -> Self {
        let Some(dividing) = dividing else { return self };
        let mut out = Self::default().put("type", &dividing.kind);
        if let Some(dynamic) = &dividing.dynamic_dividing {
            let inner = Self::default()
                .put("strategy", &dynamic.strategy)
                .put_list("topologySpreadConstraints", &dynamic.topology_spread_constraints, spread)
                .put_list("preferredClusters", &dynamic.preferred_clusters, preferred)
                .put_some("minClusters", &dynamic.min_clusters)
                .put_some("maxClusters", &dynamic.max_clusters);
            out = out.put_raw("dynamicDividing", &inner.end());
        }
        self.put_raw("dividingScheduling", &out.end())
    }
}

fn subscriber(subscriber: &Subscriber) -> String {
    let mut out = Members::default().put_raw("clusterAffinity", &selector(&subscriber.cluster_affinity));
    if subscriber.weight != 0 {
        out = out.put("weight", &subscriber.weight);
    }
    if let Some(strategy) = &subscriber.sub_group_strategy {
        let mut inner = Members::default();
        if strategy.min_clusters != 0 {
            inner = inner.put("minClusters", &strategy.min_clusters);
        }
        out = out.put_raw("subGroupStrategy", &inner.end());
    }
    out.end()
}

fn selector(selector: &LabelSelector) -> String {
    let mut out = Members::default();
    if let Some(labels) = selector.match_labels.as_ref().filter(|labels| !labels.is_empty()) {
        out = out.put("matchLabels", labels);
    }
    out.put_list("matchExpressions", selector.match_expressions.as_deref().unwrap_or_default(), |r| {
        let values = r.values.as_ref().filter(|values| !values.is_empty());
        Members::default().put("key", &r.key).put("operator", &r.operator).put_some("values", &values).end()
    })
    .end()
}

fn toleration(toleration: &Toleration) -> String {
    Members::default()
        .put_text("key", toleration.key.as_deref().unwrap_or_default())
        .put_text("operator", toleration.operator.as_deref().unwrap_or_default())
        .put_text("value", toleration.value.as_deref().unwrap_or_default())
        .put_text("effect", toleration.effect.as_deref().unwrap_or_default())
        .put_some("tolerationSeconds", &toleration.toleration_seconds)
        .end()
}

fn feed(feed: &Feed) -> String {
    Members::default()
        .put("kind", &feed.kind)
        .put("apiVersion", &feed.api_version)
        .put_text("namespace", &feed.namespace)
        .put("name", &feed.name)
        .end()
}

fn spread(spread: &TopologySpreadConstraint) -> String {
    let mut out = Members::default()
        .put("maxSkew", &spread.max_skew)
        .put("topologyKey", &spread.topology_key)
        .put("whenUnsatisfiable", &spread.when_unsatisfiable);
    if let Some(labels) = &spread.label_selector {
        out = out.put_raw("labelSelector", &selector(labels));
    }
    let keys = spread.match_label_keys.as_ref().filter(|keys| !keys.is_empty());
    out.put_some("minDomains", &spread.min_domains)
        .put_some("nodeAffinityPolicy", &spread.node_affinity_policy)
        .put_some("nodeTaintsPolicy", &spread.node_taints_policy)
        .put_some("matchLabelKeys", &keys)
        .end()
}

fn preferred(term: &PreferredSchedulingTerm) -> String {
    let requirement = |r: &NodeSelectorRequirement| {
        let values = r.values.as_ref().filter(|values| !values.is_empty());
        Members::default().put("key", &r.key).put("operator", &r.operator).put_some("values", &values).end()
    };
    let preference = Members::default()
        .put_list("matchExpressions", term.preference.match_expressions.as_deref().unwrap_or_default(), requirement)
        .put_list("matchFields", term.preference.match_fields.as_deref().unwrap_or_default(), requirement)
        .end();
    Members::default().put("weight", &term.weight).put_raw("preference", &preference).end()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Vector {
        hash: u64,
        spec: SubscriptionSpec,
    }

    #[test]
    fn recorded_hashes() {
        // What Clusternet's scheduler wrote for these specs on a real control plane.
        let vectors: Vec<Vector> = serde_json::from_str(include_str!("spec_hash_vectors.json")).expect("vectors");
        assert!(vectors.len() > 100);
        for Vector { hash, spec } in vectors {
            assert_eq!(spec.hash(), hash, "{}", go_json(&spec));
        }
    }

    #[test]
    fn clusternets_own_vector() {
        assert_eq!(go_text("a<b>&\u{2028}\""), "\"a\\u003cb\\u003e\\u0026\\u2028\\\"\"");
    }
}
