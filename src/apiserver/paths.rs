//! Everything outside the resource API: health, version, metrics, discovery, OpenAPI.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};

use crate::accept::Encoding;
use crate::auth::Identity;
use crate::body::{self, Body};
use crate::core::{Core, page_not_found};
use crate::exposition::{Family, Kind};
use crate::query::Query;
use crate::respond;
use crate::status::ApiError;

pub(crate) async fn serve(core: &Arc<Core>, who: &Identity, path: &str, query: &Query, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let accept = body::header_text(request.headers(), "accept").map(str::to_owned);
    let accept = accept.as_deref();
    let first = path.trim_start_matches('/').split('/').next().unwrap_or("");
    if !matches!(*request.method(), Method::GET | Method::HEAD | Method::POST) {
        return Err(ApiError::method_not_allowed());
    }
    match first {
        "" => Ok(root(core)),
        "healthz" | "livez" | "readyz" => Ok(health(core, path, query)),
        "version" => Ok(body::response(StatusCode::OK, "application/json", body::full(version(core)))),
        "metrics" => match path.trim_end_matches('/') {
            "/metrics" => Ok(crate::exposition::answer(&core.metrics.families(core), accept)),
            "/metrics/slis" => Ok(crate::exposition::answer(&[health_family(core)], accept)),
            _ => Ok(page_not_found()),
        },
        "api" | "apis" => Ok(crate::discovery::serve(core, path, accept)?.unwrap_or_else(page_not_found)),
        "openapi" => match crate::aggregate::document(core, who, path, request).await {
            Ok(response) => Ok(response),
            Err(request) => crate::openapi::serve(core, path, query, request.headers()).await,
        },
        ".well-known" | "openid" => Ok(crate::reviews::openid(core, path).unwrap_or_else(page_not_found)),
        _ => Ok(page_not_found()),
    }
}

fn root(core: &Core) -> Response<Body> {
    let mut paths: Vec<String> = [
        "/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/", "/healthz", "/healthz/etcd", "/healthz/log", "/healthz/ping", "/livez", "/livez/etcd",
        "/livez/log", "/livez/ping", "/metrics", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openid/v1/jwks", "/readyz", "/readyz/etcd", "/readyz/informer-sync",
        "/readyz/log", "/readyz/ping", "/readyz/shutdown", "/version",
    ]
    .map(str::to_owned)
    .to_vec();
    for group in core.routes.load().groups.iter().filter(|g| !g.name.is_empty()) {
        paths.push(format!("/apis/{}", group.name));
        paths.extend(group.versions.iter().map(|v| format!("/apis/{}/{v}", group.name)));
    }
    paths.sort();
    respond::value(StatusCode::OK, &json!({ "paths": paths }), Encoding::Json, true)
}

/// What `/version` says, in the order and form of a real server: people read it raw. The git version is that of the
/// Kubernetes release whose API is served.
fn version(core: &Core) -> String {
    let git = &core.options.version;
    let mut parts = git.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or("1"), parts.next().unwrap_or("37"));
    let oldest = minor.parse::<u32>().map_or(36, |minor| minor.saturating_sub(1));
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let lines = [
        ("major", major),
        ("minor", minor),
        ("emulationMajor", major),
        ("emulationMinor", minor),
        ("minCompatibilityMajor", major),
        ("minCompatibilityMinor", &oldest.to_string()),
        ("gitVersion", git),
        ("gitCommit", ""),
        ("gitTreeState", "clean"),
        ("buildDate", "1970-01-01T00:00:00Z"),
        ("goVersion", "go1.26"),
        ("compiler", "rustc"),
        ("platform", &format!("{}/{machine}", std::env::consts::OS)),
    ];
    let lines: Vec<String> = lines.iter().map(|(name, value)| format!("  \"{name}\": {}", json!(value))).collect();
    format!("{{\n{}\n}}", lines.join(",\n"))
}

fn checks(core: &Core, kind: &str) -> Vec<(&'static str, bool)> {
    let started = core.ready.load(Ordering::Acquire);
    let store = core.store.healthy();
    let mut all = vec![("ping", true), ("log", true), ("etcd", store || kind == "livez")];
    if kind == "readyz" {
        all.push(("etcd-readiness", store));
        all.push(("informer-sync", started));
    }
    for name in [
        "poststarthook/start-apiserver-admission-initializer",
        "poststarthook/generic-apiserver-start-informers",
        "poststarthook/priority-and-fairness-config-consumer",
        "poststarthook/priority-and-fairness-filter",
        "poststarthook/storage-object-count-tracker-hook",
        "poststarthook/start-apiextensions-informers",
        "poststarthook/start-apiextensions-controllers",
        "poststarthook/crd-informer-synced",
        "poststarthook/start-system-namespaces-controller",
        "poststarthook/peer-endpoint-reconciler-controller",
        "poststarthook/start-cluster-authentication-info-controller",
        "poststarthook/start-kube-apiserver-identity-lease-controller",
        "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
        "poststarthook/storage-readiness",
        "poststarthook/start-legacy-token-tracking-controller",
        "poststarthook/start-service-ip-repair-controllers",
        "poststarthook/rbac/bootstrap-roles",
        "poststarthook/scheduling/bootstrap-system-priority-classes",
        "poststarthook/priority-and-fairness-config-producer",
        "poststarthook/bootstrap-controller",
        "poststarthook/start-kubernetes-service-cidr-controller",
        "poststarthook/aggregator-reload-proxy-client-cert",
        "poststarthook/start-kube-aggregator-informers",
        "poststarthook/apiservice-status-local-available-controller",
        "poststarthook/apiservice-status-remote-available-controller",
        "poststarthook/apiservice-registration-controller",
        "poststarthook/apiservice-discovery-controller",
        "poststarthook/kube-apiserver-autoregistration",
    ] {
        all.push((name, started));
    }
    all.push(("autoregister-completion", started));
    all.push(("poststarthook/apiservice-openapi-controller", started));
    all.push(("poststarthook/apiservice-openapiv3-controller", started));
    if kind == "readyz" {
        all.push(("shutdown", !core.options.shutdown.is_cancelled()));
    }
    all
}

fn health(core: &Core, path: &str, query: &Query) -> Response<Body> {
    let path = path.trim_matches('/');
    let (kind, one) = path.split_once('/').unwrap_or((path, ""));
    let checks = checks(core, kind);
    if !one.is_empty() {
        return match checks.iter().find(|(name, _)| *name == one) {
            Some((_, true)) => body::plain(StatusCode::OK, "ok"),
            Some((_, false)) => body::plain(StatusCode::INTERNAL_SERVER_ERROR, "internal server error: not ready\n"),
            None => page_not_found(),
        };
    }
    let mut text = String::new();
    let mut failed = false;
    for (name, fine) in &checks {
        if query.get("exclude").is_some_and(|e| e == *name) {
            text.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if *fine {
            text.push_str(&format!("[+]{name} ok\n"));
        } else {
            failed = true;
            text.push_str(&format!("[-]{name} failed: reason withheld\n"));
        }
    }
    if failed {
        text.push_str(&format!("{kind} check failed\n"));
        return body::plain(StatusCode::INTERNAL_SERVER_ERROR, text);
    }
    if query.get("verbose").is_some() {
        text.push_str(&format!("{kind} check passed\n"));
        return body::plain(StatusCode::OK, text);
    }
    body::plain(StatusCode::OK, "ok")
}

/// The health checks as a metric.
fn health_family(core: &Core) -> Family {
    let mut family = Family::new("kubernetes_healthcheck", "This metric records the result of a single healthcheck.", Kind::Gauge);
    for kind in ["healthz", "livez", "readyz"] {
        for (name, fine) in checks(core, kind) {
            family.add(vec![("name", name.to_owned()), ("type", kind.to_owned())], u64::from(fine));
        }
    }
    family
}

/// The old view of the control plane's health.
pub(crate) fn component_statuses(core: &Core) -> Vec<Value> {
    ["controller-manager", "scheduler", "etcd-0"].iter().filter_map(|name| component_status(core, name)).collect()
}

pub(crate) fn component_status(core: &Core, name: &str) -> Option<Value> {
    if !matches!(name, "controller-manager" | "scheduler" | "etcd-0") {
        return None;
    }
    let fine = name != "etcd-0" || core.store.healthy();
    Some(json!({
        "apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name, "creationTimestamp": null},
        "conditions": [{"type": "Healthy", "status": if fine { "True" } else { "False" }, "message": if fine { "ok" } else { "the store takes no writes" }}],
    }))
}
