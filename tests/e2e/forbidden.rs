//! What no part may do: each account of `deploy/`, with its own token, tries to become more than it is.
//!
//! RBAC alone cannot hold them: it knows neither dry runs nor what is in an object. The table is of deeds, not of rules, so that a
//! rule that gives too much fails here whoever wrote it where.

use kube::{Client, Error};
use serde_json::{Value, json};

use super::deploy;
use crate::bench::{apply_all, documents, until};
use crate::kube::{self as plane, ControlPlane};

/// A namespace of a cluster, and one of a user.
const CLUSTER: &str = "clusternet-aaaaa";
const USERS: &str = "shop";

/// CN=system:kube-controller-manager.
const CONTROLLER_MANAGER: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlHb01Gd0NBUUF3S1RFbk1DVUdBMVVFQXd3ZWMzbHpkR1Z0T210MVltVXRZMjl1ZEhKdmJHeGxjaTF0WVc1aApaMlZ5TUNvd0JRWURLMlZ3QXlFQVc0cjdqWUdUb0pZN0tBTEZ5cFViZWM5R2VFTnhtNVp4b2luTWVyL3djQXVnCkFEQUZCZ01yWlhBRFFRRDRNK1RvZ1F4RWpqa0RybUdrQTNFK2w5YjV5c2ZHWldINlBLSHdUYWRyNmFaKzN1aDAKN2xSNDFEQTEyWklDUFJORnY4WGNqTGhScG1xb3NsUk1VV0lQCi0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo=";
/// What an agent sends.
const AGENT: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkhEQ0J3Z0lCQURCZ01Sd3dHZ1lEVlFRS0RCTmpiSFZ6ZEdWeWJtVjBPbU5zZFhOMFpYSnpNVUF3UGdZRApWUVFERERkamJIVnpkR1Z5Ym1WME9tTnNkWE4wWlhJNk1USXpORFUyTnpndE1USXpOQzB4TWpNMExURXlNelF0Ck1USXpORFUyTnpnNVlXSmpNRmt3RXdZSEtvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUUyOFE4RWJmVmxTK3MKSC9zSTdvaC9sUHY5Qngza1BtdUVVeHlSYW12Rmo4TkV2VTFCMEdmRXNZaklobUpMaHdtazlvOG50Wlo2MU1EQQo0QVFRMExvRVQ2QUFNQW9HQ0NxR1NNNDlCQU1DQTBrQU1FWUNJUUROaVNXL0Exb2d2RlgvQ01HaFZzYzBHd2d2CjlDdlZHd0xkdmxscWJRUFplZ0loQUp3ekJwTEJFQ1NzVlVRdkU0YkVnSTN0UWR0SzhQYUN2SmsrODdpQU51UTMKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
/// The beginning of what an agent sends, and then the other: the first block cannot be read, so the second would be taken.
const TWO: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkhEQ0J3Z0lCQURCZ01Sd3dHZ1lEVlFRS0RCTmpiSFZ6ZEdWeWJtVjBPbU5zZFhOMFpYSnpNVUF3UGdZRApWUVFERERkamJIVnpkR1Z5Ym1WME9tTnNkWE4wWlhJNk1USXpORFUyTnpndE1USXpOQzB4TWpNMExURXlNelF0Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQotLS0tLUJFR0lOIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQpNSUdvTUZ3Q0FRQXdLVEVuTUNVR0ExVUVBd3dlYzNsemRHVnRPbXQxWW1VdFkyOXVkSEp2Ykd4bGNpMXRZVzVoCloyVnlNQ293QlFZREsyVndBeUVBVzRyN2pZR1RvSlk3S0FMRnlwVWJlYzlHZUVOeG01WnhvaW5NZXIvd2NBdWcKQURBRkJnTXJaWEFEUVFENE0rVG9nUXhFamprRHJtR2tBM0UrbDliNXlzZkdaV0g2UEtId1RhZHI2YVorM3VoMAo3bFI0MURBMTJaSUNQUk5GdjhYY2pMaFJwbXFvc2xSTVVXSVAKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";

/// One deed: verb of HTTP, path, body. A PATCH is an apply, which can create as well.
type Deed = (&'static str, String, Value);

fn post(path: &str, body: Value) -> Deed {
    ("POST", path.to_owned(), body)
}

fn apply(path: &str, body: Value) -> Deed {
    ("PATCH", format!("{path}?fieldManager=test&force=true"), body)
}

fn other(verb: &'static str, path: &str) -> Deed {
    (verb, path.to_owned(), Value::Null)
}

fn object(api_version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

const CORE: &str = "/api/v1/namespaces";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// A Secret that Kubernetes fills with the token of an account.
fn token_of(name: &str, account: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": account}}})
}

fn role(kind: &str, name: &str, rule: Value) -> Value {
    object("rbac.authorization.k8s.io/v1", kind, name, json!({"rules": [rule]}))
}

fn binding(kind: &str, name: &str, to: (&str, &str), subject: &str) -> Value {
    let (role, target) = to;
    object("rbac.authorization.k8s.io/v1", kind, name, json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": target},
        "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": "clusternet-system"}],
    }))
}

fn all() -> Value {
    json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]})
}

/// Ways that are open to whoever has too much, for every part.
fn everybody() -> Vec<Deed> {
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let system = |what: &str| format!("{CORE}/kube-system/{what}");
    let account = system("serviceaccounts/clusterrole-aggregation-controller/token");
    let pod = object("v1", "Pod", "x", json!({"spec": {"containers": [{"name": "x", "image": "x"}]}}));
    vec![
        post(&account, token.clone()),
        post(&format!("{account}?dryRun=All"), token.clone()),
        post(&format!("{CORE}/clusternet-system/serviceaccounts/clusternet-controller-manager/token"), token),
        post(&system("pods"), pod.clone()),
        post(&format!("{CORE}/{CLUSTER}/pods"), pod),
        post(&system("pods/x/eviction"), object("policy/v1", "Eviction", "x", json!({}))),
        post(&system("pods/x/binding"), object("v1", "Binding", "x", json!({"target": {"name": "n"}}))),
        post(&system("bindings"), object("v1", "Binding", "x", json!({"target": {"name": "n"}}))),
        other("POST", &system("pods/x/exec?command=sh")),
        other("GET", &system("pods/x/exec?command=sh")),
        other("POST", &system("pods/x/attach")),
        other("POST", &system("pods/x/portforward")),
        other("POST", &system("services/x/proxy/")),
        other("POST", "/api/v1/nodes/x/proxy/"),
        other("GET", "/api/v1/secrets"),
        other("DELETE", &format!("{CORE}/{USERS}")),
        other("DELETE", &format!("{CORE}/clusternet-system")),
        other("DELETE", &system("secrets/x")),
        post(&system("secrets"), token_of("x", "clusterrole-aggregation-controller")),
        apply(&system("secrets/x"), token_of("x", "clusterrole-aggregation-controller")),
        post(&format!("{CORE}/clusternet-system/secrets"), token_of("x", "clusternet-controller-manager")),
        post(&format!("{CORE}/clusternet-system/secrets"), token_of("clusternet-hub-ca", "clusternet-controller-manager")),
        post(&system("serviceaccounts"), object("v1", "ServiceAccount", "x", json!({}))),
        post(&system("configmaps"), object("v1", "ConfigMap", "x", json!({}))),
        apply(&format!("{CORE}/kube-system"), object("v1", "Namespace", "kube-system", json!({"metadata": {"name": "kube-system", "labels": {"clusters.clusternet.io/cluster-id": "x"}}}))),
        apply(&format!("{CORE}/{USERS}"), object("v1", "Namespace", USERS, json!({"metadata": {"name": USERS, "labels": {"clusters.clusternet.io/cluster-id": "x"}}}))),
        apply("/apis/apps/v1/namespaces/clusternet-system/deployments/clusternet-hub", object("apps/v1", "Deployment", "clusternet-hub", json!({"spec": {"replicas": 0}}))),
        post(&format!("{RBAC}/clusterroles"), role("ClusterRole", "x", all())),
        apply(&format!("{RBAC}/clusterroles/clusternet:hub"), role("ClusterRole", "clusternet:hub", all())),
        post(&format!("{RBAC}/clusterrolebindings"), binding("ClusterRoleBinding", "x", ("ClusterRole", "cluster-admin"), "clusternet-hub")),
        post(&format!("{RBAC}/clusterrolebindings"), binding("ClusterRoleBinding", "x", ("ClusterRole", "clusternet:controllers"), "clusternet-hub")),
        post(&format!("{RBAC}/namespaces/kube-system/roles"), role("Role", "clusternet-managedcluster-role", all())),
        apply(&format!("{RBAC}/namespaces/kube-system/roles/clusternet-managedcluster-role"), role("Role", "clusternet-managedcluster-role", all())),
        post(&format!("{RBAC}/namespaces/kube-system/rolebindings"), binding("RoleBinding", "x", ("ClusterRole", "clusternet:controllers"), "clusternet-hub")),
        post(&format!("{POLICIES}/validatingadmissionpolicies?dryRun=All"), object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "x", json!({"spec": {}}))),
        post(&format!("{POLICIES}/mutatingadmissionpolicies"), object("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", "x", json!({"spec": {}}))),
        post(&format!("{POLICIES}/mutatingwebhookconfigurations"), object("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "x", json!({}))),
        other("DELETE", &format!("{POLICIES}/validatingadmissionpolicybindings/anabranch-hub-tries-only")),
    ]
}

/// Ways that only the rights of one part lead to.
fn own(account: &str) -> Vec<Deed> {
    let cluster_role = "clusternet-11111111-2222-3333-4444-555555555555";
    let bootstrap = |name: &str, group: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token", "metadata": {"name": name}, "stringData": {"token-id": &name[16..], "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true", "auth-extra-groups": group}})
    };
    let ours = "system:bootstrappers:clusternet:register-cluster-token";
    let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "create"]});
    let approvals = json!({"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"], "verbs": ["update"]});
    let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]});
    let roles = format!("{RBAC}/namespaces/{CLUSTER}/roles/clusternet-managedcluster-role");
    match account {
        "clusternet-controller-manager" => vec![
            post(&format!("{CORE}/kube-system/secrets"), bootstrap("bootstrap-token-anabra", "system:bootstrappers:kubeadm:default-node-token")),
            post(&format!("{CORE}/kube-system/secrets"), bootstrap("bootstrap-token-others", ours)),
            post(&format!("{CORE}/{USERS}/secrets"), object("v1", "Secret", "x", json!({}))),
            post(CORE, object("v1", "Namespace", "x", json!({}))),
            post(&format!("{RBAC}/clusterroles"), role("ClusterRole", cluster_role, secrets)),
            post(&format!("{RBAC}/clusterroles"), role("ClusterRole", cluster_role, approvals)),
            post(&format!("{RBAC}/clusterrolebindings"), binding("ClusterRoleBinding", cluster_role, ("ClusterRole", "clusternet:controllers"), "clusternet-hub")),
            apply(&roles, role("Role", "clusternet-managedcluster-role", all())),
            apply(&roles, role("Role", "clusternet-managedcluster-role", pods)),
            post(&format!("{RBAC}/namespaces/{CLUSTER}/rolebindings"), binding("RoleBinding", "x", ("ClusterRole", "clusternet:controllers"), "clusternet-hub")),
        ],
        "anabranch-source" => vec![
            post(CORE, object("v1", "Namespace", "x", json!({"metadata": {"name": "x", "labels": {"clusters.clusternet.io/cluster-id": "x"}}}))),
            post("/apis/clusters.clusternet.io/v1beta1/clusterregistrationrequests", object("clusters.clusternet.io/v1beta1", "ClusterRegistrationRequest", "x", json!({}))),
            post(&format!("/apis/apps.clusternet.io/v1alpha1/namespaces/{CLUSTER}/descriptions"), object("apps.clusternet.io/v1alpha1", "Description", "x", json!({}))),
            other("GET", &format!("{CORE}/{USERS}/secrets/x")),
        ],
        "clusternet-scheduler" => vec![
            other("GET", &format!("{CORE}/{USERS}/secrets/x")),
            post(&format!("/apis/apps.clusternet.io/v1alpha1/namespaces/{USERS}/subscriptions"), object("apps.clusternet.io/v1alpha1", "Subscription", "x", json!({}))),
            apply(&format!("/apis/clusters.clusternet.io/v1beta1/namespaces/{CLUSTER}/managedclusters/x"), object("clusters.clusternet.io/v1beta1", "ManagedCluster", "x", json!({}))),
        ],
        _ => Vec::new(),
    }
}

/// What each must be able to do, so that a refusal above is one of the deed and not of everything.
fn allowed(account: &str) -> Vec<Deed> {
    match account {
        "clusternet-hub" => vec![
            post(&format!("{CORE}/kube-system/configmaps?dryRun=All"), object("v1", "ConfigMap", "x", json!({}))),
            post(&format!("{RBAC}/clusterroles?dryRun=All"), role("ClusterRole", "x", all())),
            post("/apis/coordination.k8s.io/v1/namespaces/clusternet-reserved/leases?dryRun=All", object("coordination.k8s.io/v1", "Lease", "x", json!({"spec": {}}))),
        ],
        "clusternet-controller-manager" => vec![
            post(&format!("{CORE}/{CLUSTER}/serviceaccounts"), object("v1", "ServiceAccount", "clusternet-agent-x", json!({}))),
            post(&format!("{CORE}/{CLUSTER}/secrets"), token_of("clusternet-agent-x", "clusternet-agent-x")),
            post(&format!("{CORE}/clusternet-reserved/secrets"), object("v1", "Secret", "x", json!({}))),
        ],
        "anabranch-source" => vec![
            post(CORE, object("v1", "Namespace", "from-git", json!({"metadata": {"name": "from-git", "labels": {"gitops.anabranch.io/source": "x"}}}))),
            other("DELETE", &format!("{CORE}/from-git")),
        ],
        _ => vec![other("GET", "/apis/apps.clusternet.io/v1alpha1/subscriptions")],
    }
}

async fn does(client: &Client, (verb, path, body): &Deed) -> Result<Value, Error> {
    let content = if *verb == "PATCH" { "application/apply-patch+yaml" } else { "application/json" };
    let body = (!body.is_null()).then_some(body);
    cluster::Dynamic::new(client.clone()).call(verb, path, body.map(|_| content), body).await
}

/// A deed that was not refused as such.
fn refused(done: &Result<Value, Error>) -> Result<(), String> {
    match done {
        Err(Error::Api(status)) if status.code == 403 => Ok(()),
        Err(error) => Err(cluster::error::message(error)),
        Ok(_) => Err("done".to_owned()),
    }
}

/// Has requests for certificates approved, as the controllers would.
async fn certificates(admin: &Client, controllers: &Client) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, request, fine) in [("manager", CONTROLLER_MANAGER, false), ("agent", AGENT, true), ("two", TWO, false)] {
        let spec = json!({"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]});
        let asked = object("certificates.k8s.io/v1", "CertificateSigningRequest", name, json!({"spec": spec}));
        // One that the server itself cannot read is none.
        let Ok(mut made) = does(admin, &post(REQUESTS, asked)).await else { continue };
        made["status"] = json!({"conditions": [{"type": "Approved", "status": "True", "reason": "test", "message": "test"}]});
        let done = does(controllers, &("PUT", format!("{REQUESTS}/{name}/approval"), made)).await;
        match (fine, &done) {
            (true, Err(error)) => faults.push(format!("controllers: the certificate of an agent: {}", cluster::error::message(error))),
            (false, _) => faults.extend(refused(&done).err().map(|why| format!("controllers: approve {name}: {why}"))),
            _ => {}
        }
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_part_becomes_more_than_it_is() {
    let Some(assets) = plane::assets() else { return };
    let _one = super::ONE.lock().await;
    let plane = ControlPlane::start(assets).await;
    let mut objects = documents(&deploy().join("parent/namespace.yaml"));
    objects.extend(documents(&deploy().join("parent/crds.yaml")));
    // The parts do not run: nobody would answer for their APIServices.
    objects.extend(documents(&deploy().join("parent/install.yaml")).into_iter().filter(|one| one["kind"] != "Deployment" && one["kind"] != "APIService"));
    objects.push(object("v1", "Namespace", CLUSTER, json!({"metadata": {"name": CLUSTER, "labels": {"clusters.clusternet.io/cluster-id": "11111111-2222-3333-4444-555555555555"}}})));
    objects.push(object("v1", "Namespace", USERS, json!({})));
    apply_all(&plane.admin, &objects).await;
    let mut faults = Vec::new();
    for account in ["clusternet-hub", "clusternet-controller-manager", "anabranch-source", "clusternet-scheduler"] {
        let kubeconfig = std::fs::read_to_string(plane.account(account).await).unwrap();
        let client = cluster::client::from_kubeconfig(&kubeconfig, None).await.unwrap();
        // Rules and policies take a moment to be known: what is allowed first, then one deed that only a policy forbids.
        for deed in allowed(account) {
            until(&format!("{account} may {} {}", deed.0, deed.1), || async { does(&client, &deed).await.ok() }).await;
        }
        let forbidden: Vec<Deed> = everybody().into_iter().chain(own(account)).collect();
        // Deeds that only policies forbid; what is done before they are known harms nobody.
        let mut probes = vec![post(&format!("{CORE}/kube-system/configmaps"), object("v1", "ConfigMap", "probe", json!({})))];
        if account == "clusternet-controller-manager" {
            probes.push(post(&format!("{CORE}/{USERS}/secrets?dryRun=All"), object("v1", "Secret", "probe", json!({}))));
        }
        for probe in &probes {
            until("the policies are known", || async { refused(&does(&client, probe).await).ok() }).await;
        }
        for deed in &forbidden {
            let said = refused(&does(&client, deed).await).err();
            faults.extend(said.map(|why| format!("{account}: {} {}: {why}", deed.0, deed.1)));
        }
        for (user, groups) in [("admin", vec!["system:masters".to_owned()]), ("system:serviceaccount:kube-system:clusterrole-aggregation-controller", Vec::new())] {
            let somebody = cluster::client::impersonating(&client, user, &groups);
            let done = does(&somebody, &other("GET", "/api/v1/namespaces/default")).await;
            faults.extend(refused(&done).err().map(|why| format!("{account}: as {user}: {why}")));
        }
        if account == "clusternet-controller-manager" {
            faults.extend(certificates(&plane.admin, &client).await);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
