//! Why a release could not be brought to where it should be.

use cluster::discovery::Unresolved;

/// Why.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeployError {
    /// The chart could not be had.
    #[error("fetch chart {chart}")]
    Chart {
        /// Name of the chart.
        chart: String,
        #[source]
        source: registry::Error,
    },
    /// The pull secret could not be read.
    #[error("read the pull secret {name}")]
    PullSecret {
        /// Name.
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// The values are no JSON object.
    #[error("read the values: {0}")]
    Values(String),
    /// The templates fail.
    #[error("render chart {chart}")]
    Render {
        /// Name of the chart.
        chart: String,
        #[source]
        source: chart::Error,
    },
    /// The chart was not rendered for the branch.
    #[error("{0}")]
    Unrendered(String),
    /// A rendered document is no object.
    #[error("read {what}: {problem}")]
    Document {
        /// Which.
        what: String,
        /// What is wrong.
        problem: String,
    },
    /// The kind is not there.
    #[error("{0}")]
    Kind(#[from] Unresolved),
    /// The child's server refused.
    #[error("{verb} {what}")]
    Refused {
        /// What was tried.
        verb: &'static str,
        /// With which object.
        what: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// An object belongs to somebody else.
    #[error("Unable to continue with {action}: {what} exists and cannot be imported into the current release: invalid ownership metadata; {problem}")]
    Foreign {
        /// `install` or `update`.
        action: &'static str,
        /// Which.
        what: String,
        /// What is wrong with its labels and annotations.
        problem: String,
    },
    /// A hook did not succeed.
    #[error("failed {event}: {hook}: {why}")]
    Hook {
        /// Event.
        event: &'static str,
        /// Kind and name.
        hook: String,
        /// Why.
        why: String,
    },
    /// Something did not get ready.
    #[error("{what} is not ready: {why}")]
    NotReady {
        /// Kind and name.
        what: String,
        /// Why.
        why: String,
    },
    /// The time is up.
    #[error("timed out waiting for {0}")]
    Timeout(String),
    /// A record in the child is none.
    #[error("read the revision in the Secret {secret}; what was deployed stays until it can be read or is gone")]
    Unreadable {
        /// Namespace and name.
        secret: String,
        #[source]
        source: chart::helm::record::RecordError,
    },
    /// A record cannot be written.
    #[error(transparent)]
    Record(#[from] chart::helm::record::RecordError),
    /// Somebody else leads now.
    #[error("another replica of the agent took over")]
    Deposed,
    /// An action failed, and so did taking it back.
    #[error("{first}; {verb} failed too")]
    Twice {
        /// What failed first.
        first: String,
        /// What was tried then.
        verb: &'static str,
        #[source]
        source: Box<DeployError>,
    },
}

impl DeployError {
    /// A refusal of the child's server.
    pub(super) fn refused(verb: &'static str, what: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let what = what.into();
        move |source| Self::Refused { verb, what, source: Box::new(source) }
    }
}
