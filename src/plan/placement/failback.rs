//! Fail-back by choice: a cluster that was left because it failed takes no share again before someone asks.
//!
//! Static dividing follows the clusters there are, so without this a cluster that comes and goes would pull replicas to and fro.
//! A change of the spec or of a total, a rebalance, or the annotation `failback: auto` brings it back.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::known;

use super::cycle::Cycle;
use super::framework::Code;

/// Who says so in explanations.
const NAME: &str = "Failback";

impl Cycle {
    /// Notes which bound clusters were rejected, and leaves out those that were left earlier.
    pub(super) fn hold_back(&mut self, rejected: BTreeSet<Arc<str>>) {
        let subject = Arc::clone(&self.request.subject);
        if !self.policy.divide_on_join || !subject.divides() || subject.is_dynamic() || subject.failback {
            return;
        }
        let mut left = rejected;
        let before = Arc::clone(&self.request.previous.left);
        if !before.is_empty() && !self.request.is_fresh() {
            let stays: Vec<bool> = self.candidates.iter().map(|one| one.bound.is_some() || !before.contains(&one.info.key)).collect();
            // When there is nothing else, what was left is better than nothing.
            if stays.contains(&true) {
                for (candidate, _) in self.candidates.iter().zip(&stays).filter(|(_, stays)| !**stays) {
                    left.insert(Arc::clone(&candidate.info.key));
                }
                for key in left.iter().filter(|key| before.contains(*key)) {
                    let why = format!(
                        "was left earlier (it failed or was drained), and takes replicas again when the annotation {} gets a new text or {} is auto",
                        known::annotation::REBALANCE,
                        known::annotation::FAILBACK
                    );
                    self.explain.reject(key, NAME, Code::UnschedulableAndUnresolvable, why);
                }
                self.retain(&stays);
            }
        }
        self.left = Arc::new(left);
    }
}
