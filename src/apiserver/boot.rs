//! What every server has from its first moment: namespaces, its own Service, priority classes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::Method;
use serde_json::{Value, json};

use crate::auth::Identity;
use crate::core::Core;
use crate::internal;

/// Makes what is missing, then says that the server is ready.
pub(crate) async fn run(core: &Arc<Core>) {
    let who = Identity::master("system:apiserver");
    crate::crd::changed(core);
    crate::webhooks::changed(core);
    crate::aggregate::changed(core);
    let mut wanted: Vec<(String, Value)> = Vec::new();
    let put = |wanted: &mut Vec<(String, Value)>, group: &str, version: &str, namespace: &str, plural: &str, object: Value| {
        let name = crate::object::name(&object);
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        if core.store.get(&format!("{group}/{plural}"), &key).is_none() {
            wanted.push((internal::path(group, version, namespace, plural, ""), object));
        }
    };
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        put(&mut wanted, "", "v1", "", "namespaces", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }
    // Namespaces first; what is in them and the rest share one more commit.
    create_all(core, &who, std::mem::take(&mut wanted)).await;
    if core.options.own_service {
        let service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"type": "ClusterIP", "clusterIP": core.options.service_range.first().to_string(), "sessionAffinity": "None",
                "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": core.options.advertise.1}]},
        });
        put(&mut wanted, "", "v1", "default", "services", service);
        let address = core.options.advertise.0.to_string();
        let port = core.options.advertise.1;
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "kubernetes", "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": address}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
        });
        put(&mut wanted, "", "v1", "default", "endpoints", endpoints);
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4", "endpoints": [{"addresses": [address], "conditions": {"ready": true}}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        });
        put(&mut wanted, "discovery.k8s.io", "v1", "default", "endpointslices", slice);
        for (name, value, description) in [
            ("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
            ("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
        ] {
            let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value, "description": description});
            put(&mut wanted, "scheduling.k8s.io", "v1", "", "priorityclasses", class);
        }
        if core.options.full {
            let range = json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": [core.options.service_range.to_string()]},
            });
            put(&mut wanted, "networking.k8s.io", "v1", "", "servicecidrs", range);
            for (plural, object) in crate::flowcontrol::defaults() {
                put(&mut wanted, crate::flowcontrol::GROUP, "v1", "", plural, object);
            }
        }
        create_all(core, &who, wanted).await;
    }
    if core.options.full {
        crate::flowcontrol::changed(core);
    }
    core.ready.store(true, Ordering::Release);
}

/// Tells aggregated servers whose certificates to trust: clients', and that of our front proxy.
pub(crate) async fn front_proxy(core: &Arc<Core>, pki: &crate::auth::Pki) {
    const KEY: &str = "kube-system/extension-apiserver-authentication";
    let data = json!({
        "client-ca-file": pki.ca.pem(), "requestheader-client-ca-file": pki.front_proxy_ca.pem(), "requestheader-allowed-names": "[\"front-proxy-client\"]",
        "requestheader-username-headers": "[\"X-Remote-User\"]", "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
        "requestheader-group-headers": "[\"X-Remote-Group\"]", "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
    });
    let map = core.read_native("/configmaps", KEY);
    if map.as_ref().is_some_and(|map| map.get("data") == Some(&data)) {
        return;
    }
    let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extension-apiserver-authentication"}, "data": data});
    let path = internal::path("", "v1", "kube-system", "configmaps", if map.is_some() { "extension-apiserver-authentication" } else { "" });
    let method = if map.is_some() { Method::PUT } else { Method::POST };
    if let Err(error) = internal::request(core, &Identity::master("system:apiserver"), method, &path, "application/json", Some(&wanted)).await {
        tracing::error!(%error, "tell whose certificates aggregated servers trust");
    }
}

async fn create_all(core: &Arc<Core>, who: &Identity, wanted: Vec<(String, Value)>) {
    let calls = wanted.into_iter().map(|(path, object)| async move {
        if let Err(error) = internal::request(core, who, Method::POST, &path, "application/json", Some(&object)).await
            && error.reason != "AlreadyExists"
        {
            tracing::error!(%error, path, "make a default object");
        }
    });
    futures::future::join_all(calls).await;
}

/// Makes the default roles and bindings that are missing.
pub(crate) async fn roles(core: &Arc<Core>) {
    let who = Identity::master("system:apiserver");
    let mut wanted = Vec::new();
    for entry in crate::auth::defaults::objects() {
        let key = if entry.namespace.is_empty() { entry.name.clone() } else { format!("{}/{}", entry.namespace, entry.name) };
        if core.store.get(&format!("rbac.authorization.k8s.io/{}", entry.plural), &key).is_none() {
            wanted.push((internal::path("rbac.authorization.k8s.io", "v1", &entry.namespace, entry.plural, ""), entry.object));
        }
    }
    create_all(core, &who, wanted).await;
}
