//! Every well-known label, annotation, finalizer, taint, namespace and name; nothing else may spell them out.

/// Labels.
pub mod label {
    /// Which part made an object. Agents watch objects in children by it.
    pub const CREATED_BY: &str = "clusternet.io/created-by";
    /// Which part asked for a registration.
    pub const REGISTERED_BY: &str = "clusters.clusternet.io/registered-by";
    /// Id of the cluster an object belongs to; the main lookup key.
    pub const CLUSTER_ID: &str = "clusters.clusternet.io/cluster-id";
    /// Name of the cluster an object belongs to.
    pub const CLUSTER_NAME: &str = "clusters.clusternet.io/cluster-name";
    /// Marks objects that were made automatically: see [`super::bootstrapping`].
    pub const BOOTSTRAPPING: &str = "clusters.clusternet.io/bootstrapping";
    /// Prefix of node labels that are summed up into labels of the ManagedCluster.
    pub const NODE_PREFIX: &str = "node.clusternet.io/";
    /// Group of the wrapped or owning object.
    pub const CONFIG_GROUP: &str = "apps.clusternet.io/config.group";
    /// Version of the wrapped or owning object.
    pub const CONFIG_VERSION: &str = "apps.clusternet.io/config.version";
    /// Kind of the wrapped or owning object.
    pub const CONFIG_KIND: &str = "apps.clusternet.io/config.kind";
    /// Name of the wrapped or owning object.
    pub const CONFIG_NAME: &str = "apps.clusternet.io/config.name";
    /// Namespace of the wrapped or owning object.
    pub const CONFIG_NAMESPACE: &str = "apps.clusternet.io/config.namespace";
    /// UID of the owning object.
    pub const CONFIG_UID: &str = "apps.clusternet.io/config.uid";
    /// UID of the owning Subscription.
    pub const SUBS_UID: &str = "apps.clusternet.io/subs.uid";
    /// Name of the owning Subscription.
    pub const SUBS_NAME: &str = "apps.clusternet.io/subs.name";
    /// Namespace of the owning Subscription.
    pub const SUBS_NAMESPACE: &str = "apps.clusternet.io/subs.namespace";
    /// Service of a multi-cluster service.
    pub const MCS_NAME: &str = "services.clusternet.io/multi-cluster-service-name";
    /// Namespace of a multi-cluster service.
    pub const MCS_NAMESPACE: &str = "services.clusternet.io/multi-cluster-service-namespace";
    /// GitSource that an object came from: `<namespace>.<name>`, hashed when too long.
    pub const SOURCE: &str = "gitops.anabranch.io/source";
}

/// Annotations.
pub mod annotation {
    /// An existing object is updated only when this is exactly `true`.
    pub const AUTO_UPDATE: &str = "clusternet.io/autoupdate";
    /// Why deletion of a feed is blocked.
    pub const FEED_PROTECTION: &str = "apps.clusternet.io/feed-protection";
    /// `true` skips validation in the shadow API.
    pub const SKIP_VALIDATING: &str = "apps.clusternet.io/skip-validating";
    /// Owner of an object in a child: `<namespace>.<description>`.
    pub const OWNED_BY_DESCRIPTION: &str = "apps.clusternet.io/owned-by-description";
    /// What Clusternet applied last in a child.
    pub const LAST_APPLIED: &str = "clusternet.io/last-applied-configuration";
    /// What kubectl applied last.
    pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
    /// `true` marks the workload that initialises new clusters.
    pub const IS_DEFAULT_CLUSTER_INIT: &str = "apps.clusternet.io/is-default-cluster-init";
    /// Base that initialises a cluster which has joined already.
    pub const CLUSTER_INIT_BASE: &str = "apps.clusternet.io/cluster-init-base";
    /// `true` skips the initialisation of a cluster.
    pub const SKIP_CLUSTER_INIT: &str = "clusters.clusternet.io/skip-cluster-init";
    /// On the agent's Lease: cluster id to use instead of its UID.
    pub const LEGACY_CLUSTER_ID: &str = "legacy-cluster-id";
    /// On a ManagedCluster: repository from which its agent fetches its branch.
    pub const DELIVERY_URL: &str = "gitops.anabranch.io/delivery-url";
    /// On a ManagedCluster: its branch.
    pub const DELIVERY_BRANCH: &str = "gitops.anabranch.io/delivery-branch";
    /// On a ManagedCluster: newest commit of its branch.
    pub const DELIVERY_COMMIT: &str = "gitops.anabranch.io/delivery-commit";
    /// On a ManagedCluster: Secret in its namespace with which to fetch.
    pub const DELIVERY_SECRET: &str = "gitops.anabranch.io/delivery-secret";
    /// On a registration request and its ManagedCluster: `sha256:<hex>` of the agent's public key (SubjectPublicKeyInfo).
    pub const AGENT_KEY: &str = "gitops.anabranch.io/agent-key";
    /// On a ManagedCluster: commit that its agent has applied.
    pub const APPLIED_COMMIT: &str = "gitops.anabranch.io/applied-commit";
    /// On a ManagedCluster in Pull: who applies while its branch cannot be synced (`plan::sync::Holder`); absent while the agent does.
    pub const APPLIER: &str = "gitops.anabranch.io/applier";
    /// On any kind of ours: look now; the value is any new text.
    pub const RECONCILE_REQUEST: &str = "gitops.anabranch.io/reconcile-requested-at";
    /// On a HelmChart (and its HelmReleases): `3` renders it by Helm 3's rules instead of Helm 4's.
    pub const HELM_RULES: &str = "gitops.anabranch.io/helm-rules";
    /// On a HelmChart from Git: directory of the chart in the same repository, from its root; `spec.repo` is then not asked.
    pub const CHART_PATH: &str = "gitops.anabranch.io/chart-path";
    /// On a HelmRelease: what its rendered files in the cluster's branch are of (`plan::rendered::Pin`).
    pub const RENDER: &str = "gitops.anabranch.io/render";
    /// On a HelmRelease: which of the pin's questions the agent has answered.
    pub const ANSWERED: &str = "gitops.anabranch.io/answered";
    /// On a HelmRelease: namespace and name of the release in the cluster, as its agent deployed it last.
    pub const DEPLOYED_AS: &str = "gitops.anabranch.io/deployed-as";
    /// On a HelmRelease: the wish that failed in the cluster, how often it did, and when it is tried again.
    pub const FAILED_WISH: &str = "gitops.anabranch.io/failed-wish";
    /// On a ManagedCluster: the kinds that it serves, as `<apiVersion>:<Kind>,...;...`, for charts that ask for them.
    pub const API_VERSIONS: &str = "gitops.anabranch.io/api-versions";
    /// On an object in Git: `disabled` keeps it when it disappears from Git.
    pub const PRUNE: &str = "gitops.anabranch.io/prune";
    /// On a Rollout: number or name of the wave up to which people approve.
    pub const APPROVED: &str = "gitops.anabranch.io/approved";
    /// On a Subscription: on failover, how to move: `graceful` keeps the old place until the new one is healthy.
    pub const FAILOVER: &str = "gitops.anabranch.io/failover";
    /// On a Subscription: `auto` lets replicas return by themselves to clusters that were left because they failed.
    pub const FAILBACK: &str = "gitops.anabranch.io/failback";
    /// On a workload: `true` has the totals of a Job or CronJob divided, `false` keeps those of any kind whole.
    pub const DIVIDE: &str = "gitops.anabranch.io/divide";
    /// On a Subscription: any new text asks for a fresh division, ignoring what runs where (failback).
    pub const REBALANCE: &str = "gitops.anabranch.io/rebalance-requested-at";
}

/// Finalizers.
pub mod finalizer {
    /// On everything of the pipeline.
    pub const APP: &str = "apps.clusternet.io/finalizer";
    /// On Manifests and HelmCharts that may be in use.
    pub const FEED_PROTECTION: &str = "apps.clusternet.io/feed-protection";
}

/// Taints of ManagedClusters, effect NoSchedule, value = reason of the condition.
pub mod taint {
    /// The Ready condition is False or Unknown.
    pub const UNSCHEDULABLE: &str = "clusters.clusternet.io/unschedulable";
    /// The cluster is not initialised yet.
    pub const INITIALIZATION: &str = "clusters.clusternet.io/initialization";
    /// Keeps away what does not tolerate it.
    pub const NO_SCHEDULE: &str = "NoSchedule";
    /// Keeps away softly.
    pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
    /// Keeps away and removes what is there.
    pub const NO_EXECUTE: &str = "NoExecute";
}

/// Namespaces.
pub mod namespace {
    /// System namespace of the parts, in parent and child.
    pub const SYSTEM: &str = "clusternet-system";
    /// Namespace of the Manifests.
    pub const RESERVED: &str = "clusternet-reserved";
    /// Prefix of dedicated namespaces and other generated names.
    pub const PREFIX: &str = "clusternet-";
}

/// Values of the label created-by, and names of the parts.
pub mod component {
    /// The agent.
    pub const AGENT: &str = "clusternet-agent";
    /// The hub, which is said to make what comes through the shadow API.
    pub const HUB: &str = "clusternet-hub";
    /// The controllers.
    pub const CONTROLLER_MANAGER: &str = "clusternet-controller-manager";
    /// The scheduler.
    pub const SCHEDULER: &str = "clusternet-scheduler";
}

/// Field managers, one per part.
pub mod manager {
    /// The source controller.
    pub const SOURCE: &str = "anabranch-source";
    /// The scheduler.
    pub const SCHEDULER: &str = "anabranch-scheduler";
    /// The controllers.
    pub const CONTROLLERS: &str = "anabranch-controllers";
    /// The agent and the hub, in children.
    pub const AGENT: &str = "anabranch-agent";
    /// The hub, in the parent.
    pub const HUB: &str = "anabranch-hub";
}

/// Values of the label bootstrapping.
pub mod bootstrapping {
    /// Credentials.
    pub const CREDENTIALS: &str = "credentials-auto";
    /// RBAC objects.
    pub const RBAC: &str = "rbac-defaults";
}

/// Secrets and their keys.
pub mod secret {
    /// In the reserved namespace: what random values of rendered charts are drawn from.
    /// In a child whose agent renders charts itself and was given no seeds: the same for those.
    pub const RENDER_SALT: &str = "anabranch-render-salt";
    /// In the child: the agent's credential of the parent.
    pub const PARENT_CLUSTER: &str = "parent-cluster";
    /// In the dedicated namespace: a credential of the child.
    pub const CHILD_DEPLOYER: &str = "child-cluster-deployer";
    /// CA bundle, PEM.
    pub const CA_CERT: &str = "ca.crt";
    /// Bearer token.
    pub const TOKEN: &str = "token";
    /// Namespace.
    pub const NAMESPACE: &str = "namespace";
    /// URL of the API server the credential is for.
    pub const SERVER_URL: &str = "apiserver-advertise-url";
    /// Name of the ServiceAccount of the credential.
    pub const SERVICE_ACCOUNT_NAME: &str = "service-account.name";
    /// UID of the ServiceAccount of the credential.
    pub const SERVICE_ACCOUNT_UID: &str = "service-account.uid";
    /// Type of bootstrap token Secrets, in `kube-system`.
    pub const BOOTSTRAP_TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
    /// Extra group of the bootstrap tokens with which clusters register.
    pub const BOOTSTRAP_GROUP: &str = "system:bootstrappers:clusternet:register-cluster-token";
}

/// ServiceAccounts.
pub mod service_account {
    /// In the child: what the parent applies as.
    pub const APP_DEPLOYER: &str = "clusternet-app-deployer";
    /// In the child: the agent.
    pub const AGENT: &str = "clusternet-agent";
    /// In the parent: requests through sockets.
    pub const HUB_PROXY: &str = "clusternet-hub-proxy";
}

/// Header names that carry a child's credential through the hub, as user extras.
pub mod extra {
    /// Bearer token, plain.
    pub const TOKEN: &str = "clusternet-token";
    /// Client certificate, base64 of PEM.
    pub const CERTIFICATE: &str = "clusternet-certificate";
    /// Private key, base64 of PEM.
    pub const PRIVATE_KEY: &str = "clusternet-privatekey";
    /// User that is impersonated to carry the extras.
    pub const USER: &str = "clusternet";
}

/// Condition types.
pub mod condition {
    /// The object is as wanted (kstatus).
    pub const READY: &str = "Ready";
    /// Work is under way (kstatus).
    pub const RECONCILING: &str = "Reconciling";
    /// Someone must act (kstatus).
    pub const STALLED: &str = "Stalled";
    /// A Subscription has its clusters.
    pub const SCHEDULED: &str = "Scheduled";
    /// Something about the decision should be known, but it stands.
    pub const SCHEDULING_WARNING: &str = "SchedulingWarning";
    /// The last wish for a fresh division that was done; the message is the wish.
    pub const REBALANCED: &str = "Rebalanced";
    /// Clusters that a divided Subscription left because they failed; the message names them. They take nothing again before
    /// someone asks for it.
    pub const FAILED_OVER: &str = "FailedOver";
    /// Feeds, Bases and Descriptions of a Subscription are made.
    pub const RENDERED: &str = "Rendered";
    /// Every override that names a feed of a Subscription had an effect.
    pub const OVERRIDES_APPLIED: &str = "OverridesApplied";
    /// A Subscription's objects are in place and healthy in every bound cluster.
    pub const AVAILABLE: &str = "Available";
    /// A ManagedCluster is initialised.
    pub const CLUSTER_INIT: &str = "ClusterInit";
}

/// Name of the Lease in a child whose UID is the cluster id.
pub const AGENT_LEASE: &str = "clusternet-agent";
/// Scheduler profile of Subscriptions that name none.
pub const DEFAULT_SCHEDULER_NAME: &str = "default";
/// Types of cluster.
pub const STANDARD_CLUSTER: &str = "StandardCluster";
/// Types of cluster.
pub const EDGE_CLUSTER: &str = "EdgeCluster";
/// Longest cluster name that the API takes.
pub const CLUSTER_NAME_MAX: usize = 30;
/// Longest note of an event, characters.
pub const EVENT_NOTE_MAX: usize = 1024;
/// Group of our own kinds.
pub const GITOPS_GROUP: &str = "gitops.anabranch.io";
/// Suffix of the groups of Clusternet's own kinds.
pub const CLUSTERNET_GROUP_SUFFIX: &str = ".clusternet.io";
/// URL prefix of the shadow API.
pub const SHADOW_PREFIX: &str = "/apis/shadow/v1alpha1";
/// File at the root of a cluster's branch that lists our files.
pub const LAYOUT_FILE: &str = ".anabranch.yaml";

/// True for the groups whose kinds live in the parent as themselves.
pub fn is_own_group(group: &str) -> bool {
    group == GITOPS_GROUP || group.ends_with(CLUSTERNET_GROUP_SUFFIX)
}
