//! Tables for authentication, RBAC, reviews and certificates.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::CertificateDer;
use serde_json::{json, Value};

use super::authenticate::{token_file, Options};
use super::der::AltName;
use super::pki::{Authority, Key, Pki};
use super::{defaults, escalation, impersonate, jwt, reviews, signer, text};
use super::{Attributes, Authenticator, Authorizer, Identity, Objects};

/// Objects in a map.
#[derive(Default)]
pub(crate) struct World(RwLock<BTreeMap<(String, String, String, String), Arc<Value>>>);

impl World {
    pub(crate) fn put(&self, group: &str, plural: &str, object: Value) {
        let key = |field: &str| text(&object, &["metadata", field]).to_owned();
        let key = (group.to_owned(), plural.to_owned(), key("namespace"), key("name"));
        self.0.write().insert(key, Arc::new(object));
    }

    fn remove(&self, group: &str, plural: &str, namespace: &str, name: &str) {
        self.0.write().remove(&(group.into(), plural.into(), namespace.into(), name.into()));
    }
}

impl Objects for World {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.0.read().get(&(group.into(), plural.into(), namespace.into(), name.into())).cloned()
    }

    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let all = self.0.read();
        all.iter()
            .filter(|((g, p, ns, _), _)| g == group && p == plural && namespace.is_none_or(|wanted| wanted == ns))
            .map(|(_, object)| object.clone())
            .collect()
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn now() -> Timestamp {
    at("2026-11-29T12:00:00Z")
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, value) in list {
        out.append(http::HeaderName::from_bytes(name.as_bytes()).expect("a name"), value.parse().expect("a value"));
    }
    out
}

fn user(name: &str, groups: &[&str]) -> Identity {
    Identity { user: name.into(), groups: groups.iter().map(|g| (*g).to_owned()).collect(), ..Identity::default() }
}

fn data(pairs: &[(&str, &str)]) -> Value {
    Value::Object(pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(STANDARD.encode(value)))).collect())
}

fn bootstrap_secret(changes: &[(&str, &str)]) -> Value {
    let mut all = BTreeMap::from([
        ("token-id", "07401b"),
        ("token-secret", "f395accd246ae52d"),
        ("usage-bootstrap-authentication", "true"),
        ("auth-extra-groups", "system:bootstrappers:clusternet:register-cluster-token"),
    ]);
    all.extend(changes.iter().copied());
    let pairs: Vec<(&str, &str)> = all.into_iter().collect();
    json!({
        "metadata": {"namespace": "kube-system", "name": "bootstrap-token-07401b"},
        "type": "bootstrap.kubernetes.io/token", "data": data(&pairs),
    })
}

#[test]
fn bootstrap_tokens() {
    let token = "07401b.f395accd246ae52d";
    let cases: &[(&[(&str, &str)], &str, bool)] = &[
        (&[], token, true),
        (&[], "07401b.0000000000000000", false),
        (&[], "07401b.f395accd246ae52", false),
        (&[("expiration", "2026-11-29T12:00:01Z")], token, true),
        (&[("expiration", "2026-11-29T12:00:00Z")], token, false),
        (&[("expiration", "tomorrow")], token, false),
        (&[("usage-bootstrap-authentication", "false")], token, false),
        (&[("auth-extra-groups", "system:masters")], token, false),
        (&[("token-id", "111111")], token, false),
    ];
    for (changes, token, good) in cases {
        let world = Arc::new(World::default());
        world.put("", "secrets", bootstrap_secret(changes));
        let authenticator = Authenticator::new(Options::default(), world);
        let answer = authenticator.authenticate(&headers(&[("authorization", &format!("Bearer {token}"))]), &[], now());
        assert_eq!(answer.is_ok(), *good, "{changes:?} {token}");
        if let Ok(identity) = answer {
            assert_eq!(identity.user, "system:bootstrap:07401b");
            assert_eq!(
                identity.groups,
                [
                    "system:bootstrappers",
                    "system:bootstrappers:clusternet:register-cluster-token",
                    "system:authenticated"
                ]
            );
        }
    }
}

fn account(uid: &str) -> Value {
    json!({"metadata": {"namespace": "orchard", "name": "picker", "uid": uid}})
}

#[test]
fn service_account_tokens() {
    let world = Arc::new(World::default());
    world.put("", "serviceaccounts", account("u1"));
    world.put("", "pods", json!({
        "metadata": {"namespace": "orchard", "name": "p", "uid": "pod-1"},
        "spec": {"serviceAccountName": "picker", "nodeName": "n1"},
    }));
    let issuer = Arc::new(jwt::Issuer::new(Key::generate().expect("a key")));
    let body = json!({"spec": {"audiences": [], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let made = reviews::token_request(&issuer, world.as_ref(), "orchard", "picker", &body, "id-1", now()).expect("a token");
    assert_eq!(made["status"]["expirationTimestamp"], "2026-11-29T13:00:00Z");
    let token = text(&made, &["status", "token"]).to_owned();
    let options = Options { service_accounts: Some(issuer.clone()), anonymous: true, ..Options::default() };
    let authenticator = Authenticator::new(options, world.clone());
    let ask = |token: &str, now| authenticator.token(token, &[], now).map(|verified| verified.identity);
    let identity = ask(&token, now()).expect("good");
    assert_eq!(identity.user, "system:serviceaccount:orchard:picker");
    assert_eq!(identity.groups, ["system:serviceaccounts", "system:serviceaccounts:orchard", "system:authenticated"]);
    assert_eq!(identity.extra["authentication.kubernetes.io/pod-name"], ["p"]);
    assert_eq!(identity.extra["authentication.kubernetes.io/node-name"], ["n1"]);
    assert_eq!(identity.extra["authentication.kubernetes.io/credential-id"], ["JTI=id-1"]);
    assert!(ask(&token, now() + SignedDuration::from_hours(1)).is_err(), "expired");
    let mut broken = token.clone();
    broken.insert(token.rfind('.').expect("a dot"), 'A');
    assert!(ask(&broken, now()).is_err(), "payload changed");
    assert!(authenticator.token(&token, &["vault".into()], now()).is_err(), "other audience");
    world.remove("", "pods", "orchard", "p");
    assert!(ask(&token, now()).is_err(), "pod gone");
    world.put("", "pods", json!({"metadata": {"namespace": "orchard", "name": "p", "uid": "pod-1"}}));
    assert!(ask(&token, now()).is_ok());
    world.put("", "serviceaccounts", account("u2"));
    assert!(ask(&token, now()).is_err(), "another account of that name");

    let legacy = issuer.issue_legacy("orchard", "picker", "u2", "s").expect("a token");
    assert!(ask(&legacy, now()).is_err(), "no secret");
    world.put("", "secrets", json!({
        "metadata": {"namespace": "orchard", "name": "s"}, "data": data(&[("token", &legacy)]),
    }));
    assert_eq!(ask(&legacy, now()).expect("good").user, "system:serviceaccount:orchard:picker");
    let stranger = jwt::Issuer::new(Key::generate().expect("a key"));
    let forged = stranger.issue_legacy("orchard", "picker", "u2", "s").expect("a token");
    assert!(ask(&forged, now()).is_err(), "forged");
}

#[test]
fn token_request_faults() {
    let world = World::default();
    world.put("", "serviceaccounts", account("u1"));
    let issuer = jwt::Issuer::new(Key::generate().expect("a key"));
    let cases = [
        ("picker", json!({"spec": {"expirationSeconds": 60}}), 422,
         "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 60: may not specify a duration less than 10 minutes"),
        ("nobody", json!({}), 404, "serviceaccounts \"nobody\" not found"),
        ("picker", json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "x"}}}), 404, "pods \"x\" not found"),
        ("picker", json!({"spec": {"boundObjectRef": {"kind": "Job", "apiVersion": "batch/v1", "name": "x"}}}), 400,
         "cannot bind token to object of type batch/v1, Kind=Job"),
    ];
    for (name, body, code, message) in cases {
        let fault = reviews::token_request(&issuer, &world, "orchard", name, &body, "id", now()).expect_err("a fault");
        let status = fault.to_status();
        assert_eq!((status["code"].clone(), status["message"].clone()), (json!(code), json!(message)));
    }
}

#[test]
fn client_certificates() {
    let pki = Pki::ephemeral(&[AltName::Dns("parent.example".into())], now()).expect("keys");
    let options = Options {
        client_ca: vec![pki.ca.certificate()],
        front_proxy_ca: vec![pki.front_proxy_ca.certificate()],
        front_proxy_names: vec!["front-proxy-client".into()],
        anonymous: true,
        ..Options::default()
    };
    let authenticator = Authenticator::new(options, Arc::new(World::default()));
    let none = HeaderMap::new();
    assert_eq!(authenticator.authenticate(&none, &[], now()).expect("anonymous"), Identity::anonymous());
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("pem");
    let admin = [certificate(&pki.admin.0)];
    let identity = authenticator.authenticate(&none, &admin, now()).expect("admin");
    assert_eq!((identity.user.as_str(), identity.is_master()), ("kubernetes-admin", true));
    let later = now() + SignedDuration::from_hours(24 * 366);
    assert!(authenticator.authenticate(&none, &admin, later).is_err(), "expired, though remembered");
    let other = Authority::generate("kubernetes", now()).expect("keys");
    let stranger = other.client("kubernetes-admin", &["system:masters".into()], now()).expect("keys");
    assert!(authenticator.authenticate(&none, &[certificate(&stranger.0)], now()).is_err(), "another authority");
    // An organization that repeats keeps all its values.
    let groups: Vec<String> = ["b", "a", "c"].map(str::to_owned).to_vec();
    let many = pki.ca.client("many", &groups, now()).expect("keys");
    let mut identity = authenticator.authenticate(&none, &[certificate(&many.0)], now()).expect("many");
    identity.groups.sort();
    assert_eq!(identity.groups, ["a", "b", "c", "system:authenticated"]);

    let remote = headers(&[
        ("x-remote-user", "wren"),
        ("x-remote-group", "birds"),
        ("x-remote-extra-example.com%2Fscope", "deep"),
    ]);
    let proxy = [certificate(&pki.front_proxy_client.0)];
    let identity = authenticator.authenticate(&remote, &proxy, now()).expect("wren");
    assert_eq!((identity.user.as_str(), identity.groups.as_slice()), ("wren", &["birds".to_owned(), "system:authenticated".into()][..]));
    assert_eq!(identity.extra["example.com/scope"], ["deep"]);
    // The headers of anybody else are not believed.
    assert_eq!(authenticator.authenticate(&remote, &admin, now()).expect("admin").user, "kubernetes-admin");
    assert_eq!(authenticator.authenticate(&remote, &[], now()).expect("anonymous"), Identity::anonymous());
    let other = pki.front_proxy_ca.client("somebody", &[], now()).expect("keys");
    assert!(authenticator.authenticate(&remote, &[certificate(&other.0)], now()).is_err());
    pki.server_config().expect("TLS");
}

#[test]
fn keys_on_disk_stay() {
    let folder = tempfile();
    let names = [AltName::Ip([192, 0, 2, 7].into())];
    let first = Pki::open(&folder, &names, now()).expect("made");
    let again = Pki::open(&folder, &names, now()).expect("read");
    assert_eq!(first.admin.0, again.admin.0);
    assert_eq!(first.ca.pem(), again.ca.pem());
    let more = Pki::open(&folder, &[AltName::Dns("new.example".into())], now()).expect("read");
    assert_eq!(first.admin.0, more.admin.0, "a new name renews only the serving certificate");
    let late = Pki::open(&folder, &names, now() + SignedDuration::from_hours(24 * 340)).expect("read");
    assert_ne!(first.admin.0, late.admin.0, "runs out soon");
    assert_eq!(first.ca.pem(), late.ca.pem());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        for name in ["ca.key", "sa.key", "admin.key", "apiserver.key"] {
            let mode = std::fs::metadata(folder.join(name)).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
    std::fs::write(folder.join("ca.key"), "broken").expect("written");
    assert!(Pki::open(&folder, &names, now()).is_err(), "never made anew over a broken one");
    std::fs::remove_dir_all(&folder).expect("removed");
}

fn tempfile() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("anabranch-pki-{}", uuid::Uuid::new_v4()))
}

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    json!({"kind": kind, "metadata": {"namespace": namespace, "name": name}, "rules": rules})
}

fn bind(namespace: &str, name: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "roleRef": {"kind": kind, "name": role}, "subjects": subjects})
}

fn authorizer() -> Authorizer {
    let out = Authorizer::new();
    for default in defaults::objects() {
        out.put(default.plural, &default.object);
    }
    out.put("roles", &role("orchard", "reader", json!([
        {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]},
        {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["update"]},
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"], "verbs": ["get"]},
    ])));
    out.put("rolebindings", &bind("orchard", "readers", "Role", "reader", json!([
        {"kind": "Group", "name": "pickers"}, {"kind": "ServiceAccount", "name": "picker"},
    ])));
    out.put("rolebindings", &bind("orchard", "viewers", "ClusterRole", "view", json!([{"kind": "User", "name": "vera"}])));
    out.put("clusterrolebindings", &bind("", "lost", "ClusterRole", "gone", json!([{"kind": "User", "name": "luke"}])));
    out
}

#[test]
fn rules_decide() {
    let authorizer = authorizer();
    let picker = user("paul", &["pickers"]);
    let account = Identity::service_account("orchard", "picker", "");
    let sub = |verb: &str, group: &str, resource: &str, sub: &str, ns: &str| Attributes {
        subresource: sub.into(),
        ..Attributes::resource(verb, group, resource, ns, "x")
    };
    let cases = [
        (&picker, sub("get", "", "pods", "", "orchard"), true),
        (&account, sub("get", "", "pods", "log", "orchard"), true),
        (&picker, sub("get", "", "pods", "", "meadow"), false),
        (&picker, sub("get", "", "pods", "", ""), false),
        (&picker, sub("delete", "", "pods", "", "orchard"), false),
        (&picker, sub("get", "", "pods", "exec", "orchard"), false),
        (&picker, sub("update", "apps", "deployments", "scale", "orchard"), true),
        (&picker, sub("update", "apps", "deployments", "", "orchard"), false),
        (&picker, Attributes::resource("get", "", "configmaps", "orchard", "one"), true),
        (&picker, Attributes::resource("get", "", "configmaps", "orchard", "two"), false),
        (&picker, Attributes::resource("list", "", "configmaps", "orchard", ""), false),
    ];
    for (who, asked, allowed) in &cases {
        assert_eq!(authorizer.allowed(who, asked).allow, *allowed, "{asked:?}");
    }
    let path = |who: &Identity, path: &str| authorizer.allowed(who, &Attributes::path("get", path)).allow;
    assert!(path(&Identity::anonymous(), "/version") && path(&Identity::anonymous(), "/healthz"));
    assert!(!path(&Identity::anonymous(), "/api") && path(&user("x", &["system:authenticated"]), "/apis/apps/v1"));
    let vera = user("vera", &["system:authenticated"]);
    let granted = authorizer.allowed(&vera, &sub("list", "apps", "deployments", "", "orchard"));
    assert_eq!(granted.reason, "RBAC: allowed by RoleBinding \"viewers/orchard\" of ClusterRole \"view\" to User \"vera\"");
    assert!(!authorizer.allowed(&vera, &sub("get", "", "secrets", "", "orchard")).allow);
    authorizer.remove("rolebindings", "orchard", "viewers");
    assert!(!authorizer.allowed(&vera, &sub("list", "apps", "deployments", "", "orchard")).allow);
}

#[test]
fn refusals_are_worded_as_kubernetes_words_them() {
    let authorizer = authorizer();
    let luke = user("luke", &[]);
    let say = |asked: Attributes| asked.forbidden(&luke, &authorizer.allowed(&luke, &asked).reason).message;
    assert_eq!(
        say(Attributes::resource("list", "", "pods", "orchard", "")),
        "pods is forbidden: User \"luke\" cannot list resource \"pods\" in API group \"\" in the namespace \"orchard\": \
         RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"
    );
    authorizer.remove("clusterrolebindings", "", "lost");
    let scale = Attributes { subresource: "scale".into(), ..Attributes::resource("update", "apps", "deployments", "", "web") };
    assert_eq!(
        say(scale),
        "deployments.apps \"web\" is forbidden: User \"luke\" cannot update resource \"deployments/scale\" in API group \"apps\" at the cluster scope"
    );
    assert_eq!(say(Attributes::path("get", "/metrics")), "forbidden: User \"luke\" cannot get path \"/metrics\"");
}

#[test]
fn defaults_are_whole() {
    let all = defaults::objects();
    let count = |plural: &str| all.iter().filter(|default| default.plural == plural).count();
    assert_eq!((count("clusterroles"), count("roles"), count("rolebindings")), (73, 7, 7));
    assert_eq!(count("clusterrolebindings"), 13 + 41);
    let admin = all.iter().find(|default| default.name == "admin").expect("admin");
    let rules = admin.object["rules"].as_array().expect("rules");
    let (view, edit) = (json!(["configmaps"]), "pods/eviction");
    assert!(rules.iter().any(|rule| rule["resources"].as_array().is_some_and(|r| r.contains(&view[0]))));
    assert!(rules.iter().any(|rule| rule["resources"][0] == edit));
    for default in &all {
        assert!(default.object.get("roleRef").is_some() || default.object["rules"].is_array(), "{}", default.name);
    }
}

#[test]
fn nobody_grants_more_than_they_hold() {
    let authorizer = authorizer();
    let paul = user("paul", &["pickers"]);
    let small = role("orchard", "r", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]));
    assert_eq!(escalation::check(&authorizer, &paul, "roles", &small, None), Ok(()));
    let big = role("orchard", "r", json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete", "watch"]}]));
    assert_eq!(
        escalation::check(&authorizer, &paul, "roles", &big, None).expect_err("refused"),
        "user \"paul\" (groups=[\"pickers\"]) is attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\" \"watch\"]}"
    );
    assert_eq!(escalation::check(&authorizer, &paul, "roles", &big, Some(&big)), Ok(()), "rules stay");
    let binding = bind("orchard", "b", "ClusterRole", "view", json!([{"kind": "User", "name": "x"}]));
    assert!(escalation::check(&authorizer, &paul, "rolebindings", &binding, None).is_err());
    assert_eq!(escalation::check(&authorizer, &Identity::master("root"), "rolebindings", &binding, None), Ok(()));
    authorizer.put("clusterroles", &role("", "binder", json!([
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["view"], "verbs": ["bind"]},
    ])));
    authorizer.put("clusterrolebindings", &bind("", "binder", "ClusterRole", "binder", json!([{"kind": "User", "name": "paul"}])));
    assert_eq!(escalation::check(&authorizer, &paul, "rolebindings", &binding, None), Ok(()), "may bind it");
    let everything = json!({"metadata": {"name": "a"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    assert_eq!(
        escalation::check(&authorizer, &paul, "clusterroles", &everything, None).expect_err("refused"),
        "must have cluster-admin privileges to use the aggregationRule"
    );
}

#[test]
fn impersonation() {
    let authorizer = authorizer();
    let root = Identity::master("root");
    let act = |who: &Identity, list: &[(&str, &str)]| impersonate::act_as(&authorizer, who, &headers(list));
    let wren = act(&root, &[("impersonate-user", "wren"), ("impersonate-group", "birds"), ("impersonate-extra-a%2fb", "c")]);
    let wren = wren.expect("allowed");
    assert_eq!((wren.user.as_str(), wren.groups.join(",").as_str()), ("wren", "birds,system:authenticated"));
    assert_eq!(wren.extra["a/b"], ["c"]);
    let picker = act(&root, &[("impersonate-user", "system:serviceaccount:orchard:picker")]).expect("allowed");
    assert_eq!(picker.groups, ["system:serviceaccounts", "system:serviceaccounts:orchard", "system:authenticated"]);
    let anonymous = act(&root, &[("impersonate-user", "system:anonymous")]).expect("allowed");
    assert_eq!(anonymous, Identity::anonymous());
    let refused = act(&user("paul", &[]), &[("impersonate-user", "wren")]).expect_err("refused").to_string();
    assert_eq!(refused, "users \"wren\" is forbidden: User \"paul\" cannot impersonate resource \"users\" in API group \"\" at the cluster scope");
    assert!(matches!(act(&root, &[("impersonate-group", "birds")]), Err(impersonate::ImpersonateError::NoUser(_))));
    assert_eq!(act(&root, &[]).expect("itself"), root);
}

#[test]
fn access_reviews() {
    let authorizer = authorizer();
    let authenticator = Authenticator::new(Options::default(), Arc::new(World::default()));
    let paul = user("paul", &["pickers"]);
    let ask = |kind: &str, namespace: &str, body: Value| {
        reviews::answer(&authenticator, &authorizer, &paul, kind, namespace, &body, now()).expect("a review")
    };
    let pods = |ns: &str| json!({"verb": "get", "resource": "pods", "namespace": ns});
    let own = ask("SelfSubjectAccessReview", "", json!({"spec": {"resourceAttributes": pods("orchard")}})).expect("answer");
    assert_eq!(own["status"]["allowed"], true);
    assert_eq!(own["status"]["reason"], "RBAC: allowed by RoleBinding \"readers/orchard\" of Role \"reader\" to Group \"pickers\"");
    let other = ask("SubjectAccessReview", "", json!({"spec": {"user": "x", "resourceAttributes": pods("orchard")}})).expect("answer");
    assert_eq!(other["status"], json!({"allowed": false}));
    let cases = [
        ("SelfSubjectAccessReview", "", json!({"spec": {}}),
         "SelfSubjectAccessReview.authorization.k8s.io \"\" is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ("SubjectAccessReview", "", json!({"spec": {"resourceAttributes": pods("")}}),
         "SubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified"),
        ("LocalSubjectAccessReview", "meadow", json!({"spec": {"user": "x", "resourceAttributes": pods("orchard")}}),
         "LocalSubjectAccessReview.authorization.k8s.io \"\" is invalid: spec.resourceAttributes.namespace: Invalid value: \"orchard\": must match metadata.namespace"),
        ("SelfSubjectRulesReview", "", json!({"spec": {}}), "no namespace on request"),
        ("TokenReview", "", json!({"spec": {}}), "token is required for TokenReview in authentication"),
    ];
    for (kind, namespace, body, message) in cases {
        assert_eq!(ask(kind, namespace, body).expect_err("a fault").to_string(), message);
    }
    let rules = ask("SelfSubjectRulesReview", "", json!({"spec": {"namespace": "orchard"}})).expect("answer");
    assert_eq!(rules["status"]["resourceRules"].as_array().map(Vec::len), Some(3));
    let me = ask("SelfSubjectReview", "", json!({})).expect("answer");
    assert_eq!(me["status"]["userInfo"], json!({"username": "paul", "groups": ["pickers"]}));
    let bad = ask("TokenReview", "", json!({"spec": {"token": "x"}})).expect("answer");
    assert_eq!(bad["status"]["error"], "[invalid bearer token, unknown]");
}

fn signing_request(signer: &str, usages: &[&str], pem: &str, more: Value) -> Value {
    let mut out = json!({
        "metadata": {"name": "r"},
        "spec": {"request": STANDARD.encode(pem), "signerName": signer, "usages": usages},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    });
    if let (Some(spec), Some(more)) = (out["spec"].as_object_mut(), more.as_object()) {
        spec.extend(more.clone());
    }
    out
}

#[test]
fn signing() {
    let pki = Pki::ephemeral(&[], now()).expect("keys");
    let key = Key::generate().expect("a key");
    let request = |name: &str, organizations: &[&str], names: &[AltName]| {
        let organizations: Vec<String> = organizations.iter().map(|o| (*o).to_owned()).collect();
        key.request(name, &organizations, names).expect("a request")
    };
    let agent = request("agent", &["x", "y"], &[]);
    let node = request("system:node:n", &["system:nodes"], &[]);
    let serving = request("system:node:n", &["system:nodes"], &[AltName::Dns("n".into())]);
    let client = ["digital signature", "client auth"];
    let server = ["digital signature", "key encipherment", "server auth"];
    let cases: &[(&str, &[&str], &str, Option<&str>)] = &[
        (signer::CLIENT, &client, &agent, None),
        (signer::CLIENT, &["server auth"], &agent, Some("invalid usage for client certificate: server auth")),
        (signer::CLIENT, &["digital signature"], &agent, Some("missing required usage for client certificate: client auth")),
        (signer::KUBELET_CLIENT, &client, &node, None),
        (signer::KUBELET_CLIENT, &client, &agent, Some("subject organization is not system:nodes")),
        (signer::KUBELET_CLIENT, &client, &serving, Some("DNS subjectAltNames are not allowed")),
        (signer::KUBELET_CLIENT, &server, &node, Some("usages did not match [client auth digital signature key encipherment]")),
        (signer::KUBELET_SERVING, &server, &serving, None),
        (signer::KUBELET_SERVING, &server, &node, Some("DNS or IP subjectAltName is required")),
    ];
    for (name, usages, pem, fault) in cases {
        match (signer::sign(&pki.ca, &signing_request(name, usages, pem, json!({})), now()), fault) {
            (signer::Outcome::Signed(_), None) => {}
            (signer::Outcome::Failed(said), Some(fault)) => assert_eq!(said, *fault),
            (other, _) => panic!("{name} {usages:?}: {other:?}"),
        }
    }
    let mut pending = signing_request(signer::CLIENT, &client, &agent, json!({}));
    pending["status"] = json!({});
    assert_eq!(signer::sign(&pki.ca, &pending, now()), signer::Outcome::Leave);
    let foreign = signing_request("example.com/own", &client, &agent, json!({}));
    assert_eq!(signer::sign(&pki.ca, &foreign, now()), signer::Outcome::Leave);

    // What was signed is taken by the authenticator, with all organizations, for the life that was asked.
    let asked = signing_request(signer::CLIENT, &client, &agent, json!({"expirationSeconds": 3600}));
    let signer::Outcome::Signed(encoded) = signer::sign(&pki.ca, &asked, now()) else { panic!("not signed") };
    let pem = STANDARD.decode(encoded).expect("base64");
    let certificate = CertificateDer::from_pem_slice(&pem).expect("pem");
    let options = Options { client_ca: vec![pki.ca.certificate()], ..Options::default() };
    let authenticator = Authenticator::new(options, Arc::new(World::default()));
    let ask = |now| authenticator.authenticate(&HeaderMap::new(), std::slice::from_ref(&certificate), now);
    assert_eq!(ask(now()).expect("agent").groups, ["x", "y", "system:authenticated"]);
    assert!(ask(now() + SignedDuration::from_mins(61)).is_err());
    let masters = request("eve", &["system:masters"], &[]);
    let refused = signer::restricted_subject(&signing_request(signer::CLIENT, &client, &masters, json!({})));
    assert_eq!(
        refused.expect_err("refused"),
        "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    );
    assert!(signer::permitted(&authorizer(), &user("paul", &[]), "approve", signer::CLIENT).is_err());
    assert_eq!(signer::request_fault(&asked), None);
    assert!(signer::request_fault(&json!({"spec": {"request": "eA=="}})).is_some());
}

#[test]
fn token_files() {
    let tokens = token_file("# people\n\nsesame,ali,7,\"cave,forty\"\nplain,bob,8\n").expect("good");
    assert_eq!(tokens.len(), 2);
    assert_eq!(tokens[0].identity.groups, ["cave", "forty"]);
    assert_eq!(token_file("a,b,c\nbroken\n").map(|tokens| tokens.len()), Err(2));
    let options = Options { static_tokens: tokens, ..Options::default() };
    let authenticator = Authenticator::new(options, Arc::new(World::default()));
    let ask = |value: &str| authenticator.authenticate(&headers(&[("authorization", value)]), &[], now());
    assert_eq!(ask("Bearer sesame").expect("ali").groups, ["cave", "forty", "system:authenticated"]);
    assert!(ask("Bearer wrong").is_err());
    assert!(ask("Basic c2VzYW1l").is_err(), "no credential of ours, and anonymous is off");
}
