//! The closed list of reasons: of conditions, of events, and of metric labels.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Why something is as it is; one word for people and machines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason { $($(#[$doc])* $name),* }

        impl Reason {
            /// All reasons.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The word in the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),* }
            }
        }
    };
}

reasons! {
    // kstatus and GitOps
    /// Everything is as wanted.
    Succeeded,
    /// Work is under way.
    Progressing,
    /// It is suspended by its spec.
    Suspended,
    /// The spec cannot mean anything.
    InvalidSpec,
    /// Reading from Git failed.
    FetchFailed,
    /// Authentication or authorisation at the remote failed.
    AuthenticationFailed,
    /// The remote has no such branch, tag or commit.
    RevisionNotFound,
    /// The signature of a commit or tag does not hold.
    VerificationFailed,
    /// Some files cannot be used.
    FaultyFiles,
    /// Applying some objects failed.
    ApplyFailed,
    /// Deleting would exceed the budget.
    PruneRefused,
    /// Two GitSources claim one object.
    OwnedByAnother,
    /// Rendering failed.
    RenderFailed,
    /// The push was refused by the remote.
    PushRefused,
    /// The remote asks to slow down.
    RateLimited,
    /// Branches were pushed.
    Pushed,
    /// Waits for a person.
    WaitingForApproval,
    /// Waits for clusters to be healthy.
    WaitingForHealth,
    /// Waits for the bake time of a wave.
    Baking,
    /// The rollout is held.
    Paused,
    /// The rollout went back to what was before.
    RolledBack,
    /// A dependency is absent.
    DependencyMissing,
    /// The API server cannot be reached or answers with an error.
    ServerUnavailable,
    /// An answer that means a defect of ours.
    InternalError,

    // scheduling
    /// The Subscription is bound.
    Scheduled,
    /// The Subscription cannot be bound.
    FailedScheduling,
    /// No cluster fits.
    NoFeasibleCluster,
    /// The parent has no cluster yet.
    NoClusters,
    /// A label selector of the Subscription is invalid.
    InvalidSelector,
    /// The FeedInventory is not there, or is of an older spec.
    WaitingForFeedInventory,
    /// Fewer replicas fit than are wanted.
    InsufficientCapacity,
    /// Predictors cannot be asked.
    PredictorUnavailable,
    /// All weights are zero, so replicas are divided evenly.
    ZeroWeights,
    /// A constraint cannot be met.
    ConstraintNotMet,
    /// A lower priority was displaced.
    Preempted,
    /// Another plugin waits with permission.
    WaitingOnPermit,
    /// Replicas are being moved away from a lost cluster.
    FailingOver,
    /// Nothing to be warned of.
    NoWarning,

    // Clusternet's events
    /// A finalizer was added.
    FinalizerInjected,
    /// A finalizer could not be added.
    FailedInjectingFinalizer,
    /// All is synced.
    Synced,
    /// Syncing failed.
    FailedSynced,
    /// A Base was made.
    BaseCreated,
    /// A Base was changed.
    BaseUpdated,
    /// A Base could not be written.
    FailedSyncingBase,
    /// One cluster has several Bases of one Subscription.
    MultipleBases,
    /// One feed has several generated Localizations.
    MultipleLocalizations,
    /// A generated Localization could not be written.
    FailedSyncingLocalization,
    /// The replicas do not fit the bindings.
    BadSchedulingResult,
    /// Feeds whose replicas cannot be read.
    UnParseableFeeds,
    /// The FeedInventory is in place.
    FeedInventorySynced,
    /// The FeedInventory could not be written.
    FeedInventoryNotSynced,
    /// The FeedInventory lacks the path of the replicas.
    ReplicaJsonPathUnset,
    /// A Description was made.
    DescriptionCreated,
    /// A Description was changed.
    DescriptionUpdated,
    /// A Description could not be written.
    FailedSyncingDescription,
    /// An override failed.
    FailedApplyingOverrides,
    /// An override matched nothing.
    OverrideMatchedNothing,
    /// A feed could not be read.
    FailedRetrievingObjects,
    /// A feed does not exist.
    FeedNotFound,
    /// A chart is being looked for.
    VerifyingHelmChart,
    /// The chart does not exist.
    HelmChartNotFound,
    /// A chart could not be fetched.
    ChartLocateFailure,
    /// A Description was deployed.
    SuccessfullyDeployed,
    /// A Description could not be deployed.
    UnSuccessfullyDeployed,
    /// A Description could not be deleted.
    FailedDeletingDescription,
    /// The ManagedCluster is absent.
    ManagedClusterNotFound,
    /// An object was pruned.
    SuccessfullyPruningFeed,
    /// An object could not be pruned.
    UnsuccessfullyPruningFeed,
    /// HelmReleases were made.
    HelmReleasesCreated,
    /// A HelmRelease was changed.
    HelmReleaseUpdated,
    /// A HelmRelease failed.
    HelmReleaseFailure,
    /// Lists of a Description differ in length.
    UnequalLengths,
    /// An override has an unknown policy.
    InvalidOverridePolicy,
    /// Status of the clusters was summed up.
    AggregateStatus,
    /// Deletion waits, since the feed is in use.
    FeedInUse,

    // clusters
    /// The agent reports a healthy API server.
    ManagedClusterReady,
    /// The agent reports an API server that is not ready.
    ManagedClusterNotReady,
    /// The agent never reported.
    ClusterStatusNeverUpdated,
    /// The agent stopped reporting.
    ClusterStatusUnknown,
    /// Initialisation is not wanted.
    ClusterInitDisabled,
    /// Initialisation is under way.
    ClusterInitWaiting,
    /// Initialisation is done.
    ClusterInitDone,
    /// The cluster may join.
    ClusterApproved,
    /// The cluster may not join.
    ClusterDenied,

    // health of objects
    /// Works as wanted.
    Healthy,
    /// Does not work.
    Degraded,
    /// Is not there.
    Missing,
    /// Someone else changed it.
    Drifted,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
