//! The last decision about each Subscription, a bounded number of them, for explanations.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use plan::placement::{Decision, Explain};
use serde::Serialize;

/// Decisions that are kept.
const KEPT: usize = 2048;

/// A decision in words.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// One word.
    pub reason: &'static str,
    /// One line.
    pub message: String,
    /// What should be known although it is bound.
    pub warnings: Vec<String>,
    /// The details.
    pub explain: Explain,
}

impl From<&Decision> for Record {
    fn from(decision: &Decision) -> Self {
        Self {
            reason: decision.reason.as_str(),
            message: decision.message.clone(),
            warnings: decision.warnings.iter().map(|(_, text)| text.clone()).collect(),
            explain: decision.explain.clone(),
        }
    }
}

#[derive(Default)]
struct Kept {
    by_key: BTreeMap<Arc<str>, Arc<Record>>,
    order: VecDeque<Arc<str>>,
}

/// The records. Cloning shares them.
#[derive(Clone, Default)]
pub struct Records(Arc<Mutex<Kept>>);

impl Records {
    /// The last decision about a Subscription (`namespace/name`), if it is among the kept ones.
    pub fn get(&self, key: &str) -> Option<Arc<Record>> {
        self.0.lock().by_key.get(key).cloned()
    }

    /// Keeps a decision; the oldest one makes room.
    pub fn keep(&self, key: &Arc<str>, decision: &Decision) {
        let record = Arc::new(Record::from(decision));
        let mut kept = self.0.lock();
        if kept.by_key.insert(Arc::clone(key), record).is_none() {
            kept.order.push_back(Arc::clone(key));
            if kept.order.len() > KEPT
                && let Some(oldest) = kept.order.pop_front()
            {
                kept.by_key.remove(&oldest);
            }
        }
    }
}
