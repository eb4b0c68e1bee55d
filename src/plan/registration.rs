//! May a cluster join, and what does it get: its namespace, its ManagedCluster, a credential that reaches no further.
//!
//! A cluster is its id *and* its agent's key. The first key seen for an id is kept (on the ManagedCluster); another key for
//! the same id is a cloned cluster or somebody else, and is denied until a person takes the annotation away. A name is only a
//! label: it never lets one cluster into another's namespace.

use std::collections::BTreeMap;

use api::clusters::{ClusterRegistrationRequest, ClusterRegistrationRequestStatus, ManagedCluster, result};
use api::known::{annotation, bootstrapping, component, label, namespace};
use api::names;
use serde_json::{Value, json};

/// Group of all agents' client certificates.
pub const AGENT_GROUP: &str = "clusternet:clusters";

/// User name in an agent's client certificate.
pub fn agent_user(cluster_id: &str) -> String {
    format!("clusternet:cluster:{cluster_id}")
}

/// The cluster id in an agent's user name.
pub fn cluster_of_user(user: &str) -> Option<&str> {
    user.strip_prefix("clusternet:cluster:").filter(|id| is_uuid(id))
}

/// Who may join without a person looking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Everyone who holds a bootstrap credential.
    #[default]
    All,
    /// Only requests with the annotation `gitops.anabranch.io/approved: "true"`.
    Manual,
}

/// A namespace that the request names or that carries its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNamespace {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// It is being deleted.
    pub terminating: bool,
}

/// Everything that the decision depends on.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The request.
    pub request: &'a ClusterRegistrationRequest,
    /// ManagedClusters with this id, then those with this name.
    pub clusters: Vec<&'a ManagedCluster>,
    /// Namespaces with this id, then the wanted one if it exists.
    pub namespaces: Vec<SeenNamespace>,
    /// Other cluster that reserved the name a moment ago, and has no ManagedCluster yet.
    pub reserved_by: Option<String>,
    /// Who may join.
    pub policy: Policy,
}

/// What to do about a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Nothing: it is approved and everything is there.
    Settled,
    /// Waits for a person, with the words for them.
    Waiting(String),
    /// It must not join, with the reason.
    Denied(String),
    /// It may join.
    Join(Box<Grant>),
}

/// What a joining cluster gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Id.
    pub cluster_id: String,
    /// Name.
    pub cluster_name: String,
    /// Dedicated namespace.
    pub namespace: String,
    /// The namespace, when it must be made. Made with *create*, so that two clusters never share one.
    pub make_namespace: Option<Value>,
    /// The ManagedCluster, when it must be made.
    pub make_cluster: Option<Value>,
    /// Annotations and labels to set on the ManagedCluster that exists.
    pub mend_cluster: Option<Value>,
    /// ServiceAccount whose token is the credential; none when the agent brought a key.
    pub service_account: Option<String>,
    /// Objects to apply: RBAC, and for token credentials the ServiceAccount and its Secret.
    pub objects: Vec<Value>,
}

/// Hexadecimal 8-4-4-4-12.
pub fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.len() == 5
        && groups.iter().zip([8, 4, 4, 4, 12]).all(|(g, n)| {
            g.len() == n && g.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        })
}

fn annotation_of<'a>(meta: &'a api::ObjectMeta, key: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The namespace that a request would get when nothing of it exists yet.
pub fn wanted_namespace(request: &ClusterRegistrationRequest) -> String {
    if request.spec.cluster_namespace.is_empty() {
        names::dedicated_namespace(&request.spec.cluster_id)
    } else {
        request.spec.cluster_namespace.clone()
    }
}

/// The name that the cluster would get.
pub fn wanted_name(request: &ClusterRegistrationRequest) -> String {
    if request.spec.cluster_name.is_empty() {
        names::with_suffix("clusternet-cluster", &[&request.spec.cluster_id], api::known::CLUSTER_NAME_MAX)
    } else {
        request.spec.cluster_name.clone()
    }
}

/// Decides.
pub fn decide(seen: &Seen<'_>) -> Decision {
    let request = seen.request;
    let spec = &request.spec;
    let id = spec.cluster_id.as_str();
    let name = request.metadata.name.as_deref().unwrap_or_default();
    if !is_uuid(id) {
        return Decision::Denied(format!("spec.clusterId {id:?} is not a UUID"));
    }
    if name != names::registration_request(id) {
        return Decision::Denied(format!("spec.clusterId {id} does not fit the name of the request, which must be {}", names::registration_request(id)));
    }
    let key = annotation_of(&request.metadata, annotation::AGENT_KEY);
    let ours: Vec<&&ManagedCluster> = seen.clusters.iter().filter(|c| c.spec.cluster_id == id).collect();
    let known = ours.first().copied().copied();
    if let Some(pinned) = known.and_then(|c| annotation_of(&c.metadata, annotation::AGENT_KEY))
        && key != Some(pinned)
    {
        return Decision::Denied(format!(
            "cluster {id} joined with another key: this is a copy of it, or its agent lost its key; remove the annotation {} from its ManagedCluster to accept a new one",
            annotation::AGENT_KEY
        ));
    }
    let cluster_name = known.and_then(|c| c.metadata.name.clone()).unwrap_or_else(|| wanted_name(request));
    if !names::is_dns_label(&cluster_name) || cluster_name.len() > api::known::CLUSTER_NAME_MAX {
        return Decision::Denied(format!("spec.clusterName {cluster_name:?} is not a DNS label of at most {} characters", api::known::CLUSTER_NAME_MAX));
    }
    if known.is_none() {
        let taken = seen
            .clusters
            .iter()
            .find(|c| c.metadata.name.as_deref() == Some(&cluster_name) && c.spec.cluster_id != id)
            .map(|c| c.spec.cluster_id.as_str())
            .or(seen.reserved_by.as_deref());
        if let Some(other) = taken {
            return Decision::Denied(format!("the name {cluster_name} belongs to cluster {other}; names are unique in a fleet"));
        }
    }
    let is_dedicated =
        |n: &SeenNamespace| n.labels.get(label::CLUSTER_ID).map(String::as_str) == Some(id);
    let dedicated = known
        .and_then(|c| c.metadata.namespace.clone())
        .or_else(|| seen.namespaces.iter().find(|n| is_dedicated(n) && !n.terminating).map(|n| n.name.clone()));
    let namespace_name = dedicated.clone().unwrap_or_else(|| wanted_namespace(request));
    if dedicated.is_none() {
        if !names::is_dns_label(&namespace_name) {
            return Decision::Denied(format!("spec.clusterNamespace {namespace_name:?} is not a DNS label"));
        }
        let reserved = [namespace::SYSTEM, namespace::RESERVED, "default"];
        if reserved.contains(&namespace_name.as_str()) || namespace_name.starts_with("kube-") {
            return Decision::Denied(format!("spec.clusterNamespace {namespace_name} is reserved"));
        }
        if let Some(existing) = seen.namespaces.iter().find(|n| n.name == namespace_name) {
            if existing.terminating {
                return Decision::Waiting(format!("namespace {namespace_name} is being deleted"));
            }
            // A namespace of somebody else would be opened to the agent.
            return Decision::Denied(format!("namespace {namespace_name} exists and is not marked with {}={id}", label::CLUSTER_ID));
        }
    }
    let status = request.status.clone().unwrap_or_default();
    let approved = status.result == result::APPROVED;
    if approved && known.is_some() && status.dedicated_namespace == namespace_name && status.managed_cluster_name == cluster_name {
        return Decision::Settled;
    }
    if seen.policy == Policy::Manual && !approved && annotation_of(&request.metadata, annotation::APPROVED) != Some("true") {
        return Decision::Waiting(format!("waits for the annotation {}: \"true\"", annotation::APPROVED));
    }
    let labels = reserved_labels(id, &cluster_name);
    let make_namespace = dedicated.is_none().then(|| {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_name, "labels": labels}})
    });
    let make_cluster = known.is_none().then(|| managed_cluster(request, &cluster_name, &namespace_name, key));
    let mend_cluster = match (known, key) {
        (Some(cluster), Some(key)) if annotation_of(&cluster.metadata, annotation::AGENT_KEY).is_none() => {
            Some(json!({"metadata": {"annotations": {annotation::AGENT_KEY: key}}}))
        }
        _ => None,
    };
    // An agent that brings no key needs a token; Clusternet's own agent reads it from the status.
    let service_account = key.is_none().then(|| names::with_suffix("clusternet", &["agent", id], 63));
    let mut objects = Vec::new();
    if let Some(account) = &service_account {
        objects.extend(token_objects(account, &namespace_name, &labels));
    }
    objects.extend(rbac(request, id, &cluster_name, &namespace_name, service_account.as_deref()));
    Decision::Join(Box::new(Grant {
        cluster_id: id.to_owned(),
        cluster_name,
        namespace: namespace_name,
        make_namespace,
        make_cluster,
        mend_cluster,
        service_account,
        objects,
    }))
}

/// Labels that say which cluster something belongs to. Nothing that an agent asks for may change them.
pub fn reserved_labels(cluster_id: &str, cluster_name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (label::CREATED_BY.to_owned(), component::AGENT.to_owned()),
        (label::CLUSTER_ID.to_owned(), cluster_id.to_owned()),
        (label::CLUSTER_NAME.to_owned(), cluster_name.to_owned()),
    ])
}

/// True for label keys that only the product itself sets.
pub fn is_reserved_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    domain == "clusternet.io"
        || domain.ends_with(".clusternet.io") && domain != "node.clusternet.io"
        || domain == api::known::GITOPS_GROUP
        || domain == "anabranch.io"
        || domain.ends_with(".anabranch.io")
}

/// Labels that an agent asks for, without those that it may not set and those that are not valid.
pub fn allowed_labels(asked: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    asked
        .iter()
        .filter(|(k, v)| !is_reserved_label(k) && names::is_label_key(k) && names::is_label_value(v))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

fn managed_cluster(request: &ClusterRegistrationRequest, name: &str, namespace: &str, key: Option<&str>) -> Value {
    let spec = &request.spec;
    let mut labels = allowed_labels(&spec.cluster_labels);
    labels.extend(reserved_labels(&spec.cluster_id, name));
    let mut metadata = json!({"name": name, "namespace": namespace, "labels": labels});
    if let Some(key) = key {
        metadata["annotations"] = json!({annotation::AGENT_KEY: key});
    }
    let mut cluster = json!({
        "apiVersion": "clusters.clusternet.io/v1beta1",
        "kind": "ManagedCluster",
        "metadata": metadata,
        "spec": {"clusterId": spec.cluster_id, "syncMode": spec.sync_mode},
    });
    if !spec.cluster_type.is_empty() {
        cluster["spec"]["clusterType"] = json!(spec.cluster_type);
    }
    cluster
}

fn token_objects(account: &str, namespace: &str, labels: &BTreeMap<String, String>) -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace, "labels": labels}}),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": account, "namespace": namespace, "labels": labels,
                "annotations": {"kubernetes.io/service-account.name": account},
            },
        }),
    ]
}

/// Name of the Role and RoleBinding in the dedicated namespace.
pub const ROLE: &str = "clusternet-managedcluster-role";

fn rbac(
    request: &ClusterRegistrationRequest,
    id: &str,
    cluster_name: &str,
    namespace: &str,
    account: Option<&str>,
) -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let cluster_wide = names::registration_request(id);
    let labels = json!({
        label::BOOTSTRAPPING: bootstrapping::RBAC,
        label::CREATED_BY: component::CONTROLLER_MANAGER,
        label::CLUSTER_ID: id,
    });
    let mut metadata = json!({"name": cluster_wide, "labels": labels, "annotations": {annotation::AUTO_UPDATE: "true"}});
    // Deleting the request takes the access away: the garbage collector does it.
    if let Some(uid) = &request.metadata.uid {
        metadata["ownerReferences"] = json!([{
            "apiVersion": "clusters.clusternet.io/v1beta1",
            "kind": "ClusterRegistrationRequest",
            "name": cluster_wide,
            "uid": uid,
        }]);
    }
    let mut in_namespace = metadata.clone();
    in_namespace["name"] = json!(ROLE);
    in_namespace["namespace"] = json!(namespace);
    let mut subjects = vec![json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": agent_user(id)})];
    if let Some(account) = account {
        subjects = vec![json!({"kind": "ServiceAccount", "name": account, "namespace": namespace})];
    }
    let binding = |kind: &str, metadata: &Value, role: &str, name: &str| {
        json!({
            "apiVersion": rbac, "kind": kind, "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
            "subjects": subjects,
        })
    };
    vec![
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": metadata, "rules": cluster_rules(id)}),
        binding("ClusterRoleBinding", &metadata, "ClusterRole", &cluster_wide),
        json!({"apiVersion": rbac, "kind": "Role", "metadata": in_namespace, "rules": namespace_rules(cluster_name)}),
        binding("RoleBinding", &in_namespace, "Role", ROLE),
    ]
}

/// What an agent may do outside its namespace: read its own request, renew its certificate, keep its own tunnel.
fn cluster_rules(id: &str) -> Value {
    json!([
        {"apiGroups": ["clusters.clusternet.io"], "resources": ["clusterregistrationrequests"], "verbs": ["create"]},
        {"apiGroups": ["clusters.clusternet.io"], "resources": ["clusterregistrationrequests"],
         "resourceNames": [names::registration_request(id)], "verbs": ["get"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"]},
        {"apiGroups": ["proxies.clusternet.io"], "resources": ["sockets", "sockets/proxy"], "resourceNames": [id], "verbs": ["*"]},
    ])
}

/// What an agent may do in its namespace. It may not write Bases, Localizations or anything that decides what it gets, and it
/// reads Secrets of this namespace only.
fn namespace_rules(cluster_name: &str) -> Value {
    json!([
        {"apiGroups": ["clusters.clusternet.io"], "resources": ["managedclusters"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": ["clusters.clusternet.io"], "resources": ["managedclusters", "managedclusters/status"],
         "resourceNames": [cluster_name], "verbs": ["update", "patch"]},
        {"apiGroups": ["apps.clusternet.io"], "resources": ["descriptions", "helmreleases", "helmcharts"], "verbs": ["get", "list", "watch"]},
        // Finalizers are dropped by whoever took the objects away, which in Pull is the agent.
        {"apiGroups": ["apps.clusternet.io"], "resources": ["descriptions", "descriptions/status", "helmreleases", "helmreleases/status"],
         "verbs": ["update", "patch"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
         "verbs": ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]},
    ])
}

/// RBAC for everyone who holds a bootstrap credential: ask to join, read the answer, have a certificate signed.
pub fn bootstrap_rbac() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let metadata = json!({
        "name": "clusternet:system:bootstrapping",
        "labels": {label::BOOTSTRAPPING: bootstrapping::RBAC, label::CREATED_BY: component::CONTROLLER_MANAGER},
        "annotations": {annotation::AUTO_UPDATE: "true"},
    });
    vec![
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": metadata, "rules": [
            {"apiGroups": ["clusters.clusternet.io"], "resources": ["clusterregistrationrequests"], "verbs": ["create", "get"]},
            {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"]},
        ]}),
        json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "clusternet:system:bootstrapping"},
            "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": api::known::secret::BOOTSTRAP_GROUP}]}),
    ]
}

/// The status of a denied request: no credential stays in it.
pub fn denied(why: &str) -> ClusterRegistrationRequestStatus {
    ClusterRegistrationRequestStatus {
        result: result::DENIED.to_owned(),
        error_message: why.to_owned(),
        ..ClusterRegistrationRequestStatus::default()
    }
}

/// A certificate signing request, as far as the decision needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SigningRequest {
    /// Who asks, as the API server knows them.
    pub username: String,
    /// Groups of who asks.
    pub groups: Vec<String>,
    /// Common name asked for.
    pub common_name: String,
    /// Organisations asked for.
    pub organizations: Vec<String>,
    /// Other names asked for (DNS, IP, mail, URI); an agent has none.
    pub other_names: usize,
    /// Usages asked for.
    pub usages: Vec<String>,
    /// `sha256:<hex>` of the public key.
    pub key: String,
}

/// What to do about a certificate signing request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signing {
    /// Not one of ours.
    Ignore,
    /// Its cluster has not joined yet; look again when it has.
    Wait,
    /// Sign it. With `repin`, the cluster's key changes to this one first.
    Approve {
        /// The new key is the cluster's key from now on.
        repin: bool,
    },
    /// Never sign it, with the reason.
    Deny(String),
}

/// Decides whether an agent's certificate is signed. `pinned` is the key on the ManagedCluster of that id, `None` without one.
pub fn decide_signing(asked: &SigningRequest, cluster: Option<&ManagedCluster>) -> Signing {
    let Some(id) = cluster_of_user(&asked.common_name) else { return Signing::Ignore };
    let renewal = asked.username == asked.common_name;
    let bootstrap = asked.groups.iter().any(|g| g == api::known::secret::BOOTSTRAP_GROUP)
        || asked.groups.iter().any(|g| g == "system:masters");
    if !renewal && !bootstrap {
        return Signing::Deny(format!("{} may not ask for a certificate of cluster {id}", asked.username));
    }
    if asked.organizations != [AGENT_GROUP] || asked.other_names != 0 {
        return Signing::Deny(format!("a certificate of cluster {id} is for the group {AGENT_GROUP} and nothing else"));
    }
    if asked.usages.iter().any(|u| !["client auth", "digital signature", "key encipherment"].contains(&u.as_str())) {
        return Signing::Deny(format!("a certificate of cluster {id} is for client authentication only"));
    }
    let Some(cluster) = cluster else { return Signing::Wait };
    match annotation_of(&cluster.metadata, annotation::AGENT_KEY) {
        Some(pinned) if pinned == asked.key => Signing::Approve { repin: false },
        // Whoever holds the present key may bring the next one.
        Some(_) if renewal => Signing::Approve { repin: true },
        Some(_) => Signing::Deny(format!("cluster {id} joined with another key")),
        None => Signing::Wait,
    }
}

#[cfg(test)]
#[path = "registration_tests.rs"]
mod tests;
