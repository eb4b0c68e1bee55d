//! Group `apps.clusternet.io/v1alpha1`: what is distributed, where to, and how it is changed on the way.

mod deploy;
mod feed;
mod helm;
mod overrides;
mod spec_hash;
mod subscription;

pub use deploy::{
    Base, BaseSpec, ChartReference, DeployerType, Description, DescriptionPhase, DescriptionSpec, DescriptionStatus, Manifest,
    ManifestStatus,
};
pub use feed::{Feed, FeedInventory, FeedInventorySpec, FeedOrder, ReplicaRequirements};
pub use helm::{
    HelmChart, HelmChartPhase, HelmChartSpec, HelmChartStatus, HelmOptions, HelmRelease, HelmReleaseSpec, HelmReleaseStatus,
    SecretRef,
};
pub use overrides::{
    FieldFormat, Globalization, GlobalizationSpec, Localization, LocalizationSpec, OverrideConfig, OverridePolicy, OverrideType,
};
pub use subscription::{
    AggregatedStatus, DividingScheduling, DividingStrategy, DividingType, DynamicDividing, FeedStatus, FeedStatusPerCluster,
    PreemptionPolicy, ReplicaStatus, SchedulingStrategy, SubGroupStrategy, Subscriber, Subscription, SubscriptionSpec,
    SubscriptionStatus,
};
