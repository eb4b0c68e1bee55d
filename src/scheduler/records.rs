//! A decision in words, for `anabranch schedule`. None is kept: the conditions hold the last one, and `explain` takes it anew.

use plan::placement::{Decision, Explain};
use serde::Serialize;

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
