//! Taints that are borne for a while: which bound clusters are left when, in words that can be read back.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::known::taint;
use api::reason::Reason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;

use super::cluster::{Patience, patience};
use super::cycle::Cycle;

/// Waits that are named; the others are counted.
const NAMED: usize = 20;

/// When a taint without `timeAdded` was first seen, by cluster and by key, value and effect of the taint.
pub type Seen = BTreeMap<(Arc<str>, String), Timestamp>;

/// The name of a taint in one word.
pub fn taint_name(taint: &Taint) -> String {
    match taint.value.as_deref().filter(|value| !value.is_empty()) {
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
        None => format!("{}:{}", taint.key, taint.effect),
    }
}

impl Cycle {
    /// Says which bound clusters are left when.
    pub(super) fn warn_of_taints(&mut self) {
        let tolerations = &self.request.subject.spec.cluster_tolerations;
        if tolerations.iter().all(|toleration| toleration.toleration_seconds.is_none()) {
            return;
        }
        let mut waits = Vec::new();
        for candidate in self.candidates.iter().filter(|candidate| candidate.bound.is_some() && !candidate.info.taints.is_empty()) {
            for have in candidate.info.taints.iter().filter(|have| have.effect == taint::NO_EXECUTE) {
                let (key, name) = (&candidate.info.key, taint_name(have));
                match (patience(tolerations, have), &have.time_added) {
                    (Patience::Until(end), Some(since)) if end > self.request.now => {
                        waits.push(format!("{key} has taint {name} since {} and is left at {end}", since.0));
                    }
                    (Patience::Unknown(seconds), _) => {
                        waits.push(format!("{key} has taint {name} without timeAdded and is left {seconds} s after the scheduler saw it first"));
                    }
                    _ => {}
                }
            }
        }
        if waits.is_empty() {
            return;
        }
        let more = waits.len().saturating_sub(NAMED);
        waits.truncate(NAMED);
        let more = if more > 0 { format!("; {more} more are left later") } else { String::new() };
        self.warn(Reason::FailingOver, waits.join("; ") + &more);
    }
}

/// Reads back since when clusters have their taints, from the message of a condition.
pub fn read_back(message: &str) -> impl Iterator<Item = ((Arc<str>, String), Timestamp)> {
    message.split("; ").filter_map(|part| {
        let (cluster, rest) = part.split_once(" has taint ")?;
        let (name, rest) = rest.split_once(" since ")?;
        let since = rest.split_once(" and is left at ")?.0.parse().ok()?;
        Some(((Arc::from(cluster), name.to_owned()), since))
    })
}
