//! What is remembered of a GitSource between turns; losing it costs time, never correctness.

use std::collections::BTreeMap;
use std::sync::Arc;

use git::ObjectId;
use plan::source::Parsed;

/// Parsed files by path and blob: a push that touches one file parses one file.
pub(crate) type Files = BTreeMap<(String, ObjectId), Arc<Parsed>>;

/// Memory of one GitSource.
#[derive(Default)]
pub(crate) struct State {
    /// Holds the repository open between turns.
    pub(crate) remote: Option<git::Remote>,
    /// The commit that was read last, whose objects are here.
    pub(crate) commit: Option<ObjectId>,
    /// Its files.
    pub(crate) files: Files,
    /// What the last turn ended with, when it ended well: generation and commit.
    pub(crate) settled: Option<(i64, ObjectId, String)>,
    /// When everything was applied last, changed or not, on the monotonic clock.
    pub(crate) applied_all: Option<std::time::Duration>,
}
