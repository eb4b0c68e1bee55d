//! Discovery: the legacy documents and the aggregated one.

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::accept::{self, Encoding, Form};
use crate::body::{self, Body};
use crate::core::Core;
use crate::mount::MountedGroup;
use crate::resource::{Group, Resource, Routes, api_version};
use crate::respond;
use crate::status::ApiError;

/// All groups, those of mounts among them.
fn groups(core: &Core, routes: &Routes) -> (Vec<Group>, Vec<MountedGroup>) {
    let mut mounted: Vec<MountedGroup> = core.mounts.read().iter().flat_map(|m| m.groups()).collect();
    let elsewhere = core.remotes.groups().into_iter().filter(|r| !mounted.iter().any(|m| m.group == r.group && m.version == r.version));
    mounted.extend(elsewhere.filter(|r| routes.of(&r.group, &r.version).next().is_none()).collect::<Vec<_>>());
    let mut groups = routes.groups.clone();
    for extra in &mounted {
        match groups.iter_mut().find(|g| g.name == extra.group) {
            Some(group) if group.versions.contains(&extra.version) => {}
            Some(group) => group.versions.push(extra.version.clone()),
            None => groups.push(Group { name: extra.group.clone(), versions: vec![extra.version.clone()] }),
        }
    }
    (groups, mounted)
}

fn api_group(group: &Group) -> Value {
    let versions: Vec<Value> = group.versions.iter().map(|v| json!({"groupVersion": api_version(&group.name, v), "version": v})).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first().cloned().unwrap_or_default()})
}

/// Answers `/api`, `/apis`, `/apis/<group>`, `/api/<version>`, `/apis/<group>/<version>`; nothing when the path is no discovery.
pub(crate) fn serve(core: &Core, path: &str, accept: Option<&str>) -> Result<Option<Response<Body>>, ApiError> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let routes = core.routes.load_full();
    let negotiated = accept::negotiate(accept, false, true)?;
    let send = |value: Value| {
        let mut response = respond::value(StatusCode::OK, &value, if negotiated.encoding == Encoding::Protobuf { Encoding::Json } else { negotiated.encoding }, negotiated.pretty);
        response.headers_mut().insert("vary", http::HeaderValue::from_static("Accept"));
        Ok(Some(response))
    };
    match parts.as_slice() {
        ["api"] | ["apis"] => {
            let core_group = parts[0] == "api";
            if let Form::Discovery(version) = negotiated.form {
                return Ok(Some(aggregated(core, &routes, core_group, version)));
            }
            if core_group {
                let address = format!("{}:{}", core.options.advertise.0, core.options.advertise.1);
                return send(json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]}));
            }
            let (groups, _) = groups(core, &routes);
            let list: Vec<Value> = groups.iter().filter(|g| !g.name.is_empty()).map(api_group).collect();
            send(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list}))
        }
        ["apis", name] => {
            let (groups, _) = groups(core, &routes);
            let Some(group) = groups.iter().find(|g| g.name == *name && !name.is_empty()) else { return Ok(Some(crate::core::page_not_found())) };
            let mut value = api_group(group);
            value["kind"] = json!("APIGroup");
            value["apiVersion"] = json!("v1");
            send(value)
        }
        ["api", version] => match resource_list(core, &routes, "", version) {
            Some(list) => send(list),
            None => Ok(Some(crate::core::page_not_found())),
        },
        ["apis", group, version] => match resource_list(core, &routes, group, version) {
            Some(list) => send(list),
            None => Ok(Some(crate::core::page_not_found())),
        },
        _ => Ok(None),
    }
}

/// A stable name for how a resource is stored; clients compare it to notice changes.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let (group, version) = crate::resource::split_api_version(&resource.storage_version);
    let digest = Sha256::digest(format!("{group}/{version}/{}", resource.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

fn resource_list(core: &Core, routes: &Routes, group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for resource in routes.of(group, version) {
        let mut entry = Map::new();
        entry.insert("name".into(), json!(resource.plural));
        entry.insert("singularName".into(), json!(resource.singular));
        entry.insert("namespaced".into(), json!(resource.namespaced));
        entry.insert("kind".into(), json!(resource.kind));
        entry.insert("verbs".into(), json!(sorted(&resource.verbs, resource.custom.is_some())));
        if !resource.short_names.is_empty() {
            entry.insert("shortNames".into(), json!(resource.short_names));
        }
        if !resource.categories.is_empty() {
            entry.insert("categories".into(), json!(resource.categories));
        }
        if resource.native.is_none_or(schema::catalog::Resource::stored) {
            entry.insert("storageVersionHash".into(), json!(storage_hash(resource)));
        }
        list.push(Value::Object(entry));
        for sub in &resource.subresources {
            let mut entry = Map::new();
            entry.insert("name".into(), json!(format!("{}/{}", resource.plural, sub.name)));
            entry.insert("singularName".into(), json!(""));
            entry.insert("namespaced".into(), json!(resource.namespaced));
            entry.insert("kind".into(), json!(sub.gvk.2));
            entry.insert("verbs".into(), json!(sub.verbs));
            if sub.gvk.0 != resource.group || sub.gvk.1 != resource.version {
                if !sub.gvk.0.is_empty() {
                    entry.insert("group".into(), json!(sub.gvk.0));
                }
                entry.insert("version".into(), json!(sub.gvk.1));
            }
            list.push(Value::Object(entry));
        }
    }
    for mount in core.mounts.read().iter() {
        for extra in mount.groups().into_iter().filter(|g| g.group == group && g.version == version) {
            list.extend(extra.resources);
        }
    }
    if list.is_empty() {
        return None;
    }
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version), "resources": list}))
}

/// Custom resources list their verbs in a fixed order, built-in ones by name.
fn sorted(verbs: &[String], custom: bool) -> Vec<String> {
    let mut verbs = verbs.to_vec();
    if !custom {
        verbs.sort();
    }
    verbs
}

fn aggregated_resource(resource: &Resource) -> Value {
    let mut entry = Map::new();
    entry.insert("resource".into(), json!(resource.plural));
    entry.insert("responseKind".into(), json!({"group": resource.group, "version": resource.version, "kind": resource.kind}));
    entry.insert("scope".into(), json!(if resource.namespaced { "Namespaced" } else { "Cluster" }));
    entry.insert("singularResource".into(), json!(resource.singular));
    entry.insert("verbs".into(), json!(sorted(&resource.verbs, resource.custom.is_some())));
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), json!(resource.categories));
    }
    let subs: Vec<Value> = resource
        .subresources
        .iter()
        .map(|s| json!({"subresource": s.name, "responseKind": {"group": s.gvk.0, "version": s.gvk.1, "kind": s.gvk.2}, "verbs": s.verbs}))
        .collect();
    if !subs.is_empty() {
        entry.insert("subresources".into(), Value::Array(subs));
    }
    Value::Object(entry)
}

/// A mount's resources, which it tells in the legacy form, in the aggregated one.
fn mounted_resources(group: &MountedGroup) -> Vec<Value> {
    let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
    let kind = |value: &Value| {
        let (g, v) = (text(value, "group"), text(value, "version"));
        let (g, v) = if v.is_empty() { (group.group.clone(), group.version.clone()) } else { (g, v) };
        json!({"group": g, "version": v, "kind": text(value, "kind")})
    };
    let mut out: Vec<Value> = Vec::new();
    for resource in &group.resources {
        let name = text(resource, "name");
        let verbs = resource.get("verbs").cloned().unwrap_or_else(|| json!([]));
        match name.split_once('/') {
            None => {
                let mut entry = json!({
                    "resource": name, "responseKind": kind(resource), "verbs": verbs, "singularResource": text(resource, "singularName"),
                    "scope": if resource.get("namespaced") == Some(&json!(true)) { "Namespaced" } else { "Cluster" },
                });
                for field in ["shortNames", "categories"] {
                    if let Some(list) = resource.get(field) {
                        entry[field] = list.clone();
                    }
                }
                out.push(entry);
            }
            Some((parent, sub)) => {
                let entry = json!({"subresource": sub, "responseKind": kind(resource), "verbs": verbs});
                if let Some(owner) = out.iter_mut().find(|r| r.get("resource").and_then(Value::as_str) == Some(parent)) {
                    let subs = crate::object::child_root(owner).entry("subresources").or_insert_with(|| json!([]));
                    if let Value::Array(list) = subs {
                        list.push(entry);
                    }
                }
            }
        }
    }
    out
}

fn aggregated(core: &Core, routes: &Routes, core_group: bool, version: &'static str) -> Response<Body> {
    let (groups, mounted) = groups(core, routes);
    let items: Vec<Value> = groups
        .iter()
        .filter(|g| g.name.is_empty() == core_group)
        .map(|group| {
            let versions: Vec<Value> = group
                .versions
                .iter()
                .map(|version| {
                    let mut resources: Vec<Value> = routes.of(&group.name, version).map(|r| aggregated_resource(r)).collect();
                    let extra = mounted.iter().filter(|m| m.group == group.name && m.version == *version);
                    let stale = extra.clone().any(|m| m.stale);
                    resources.extend(extra.flat_map(mounted_resources));
                    json!({"version": version, "resources": resources, "freshness": if stale { "Stale" } else { "Current" }})
                })
                .collect();
            let metadata = if group.name.is_empty() { json!({"creationTimestamp": null}) } else { json!({"name": group.name, "creationTimestamp": null}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let value = json!({"kind": "APIGroupDiscoveryList", "apiVersion": version, "metadata": {}, "items": items});
    let bytes = respond::to_json(&value);
    let etag = hex::encode_upper(Sha256::digest(&bytes));
    let content_type = if version.ends_with("/v2") {
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    } else {
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
    };
    let mut response = body::response(StatusCode::OK, content_type, body::full(bytes));
    let headers = response.headers_mut();
    headers.insert("cache-control", http::HeaderValue::from_static("public"));
    headers.insert("vary", http::HeaderValue::from_static("Accept"));
    if let Ok(tag) = http::HeaderValue::from_str(&format!("\"{etag}\"")) {
        headers.insert("etag", tag);
    }
    response
}
