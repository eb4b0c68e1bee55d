//! Group versions that are served elsewhere: by mounts, and by the Services that APIServices name.
//!
//! The table of APIServices is rebuilt when one of them is written. Each that names a Service is watched over by a task of its
//! own, which asks for the group version again and again, tells in the status whether it is there, and keeps what it said.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::auth::Identity;
use crate::body::{self, Body};
use crate::core::Core;
use crate::internal;
use crate::mount::MountedGroup;
use crate::object::{self, at, text};
use crate::remote::{Line, RemoteError};
use crate::resource::Routes;

const TABLE: &str = "apiregistration.k8s.io/apiservices";
/// How often a server that is there is asked again, and how soon one that is not.
const LOOK: Duration = Duration::from_secs(30);
const LOOK_SOON: Duration = Duration::from_secs(1);
/// How long the server may take to say what it serves.
const WITHIN: Duration = Duration::from_secs(5);

/// One APIService that names a Service.
#[derive(Debug)]
pub(crate) struct Remote {
    name: String,
    group: String,
    version: String,
    spec: Value,
    available: AtomicBool,
    /// What it serves, as it said last.
    resources: ArcSwapOption<Vec<Value>>,
    line: Line,
    stop: CancellationToken,
}

/// The APIServices of one server.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    all: ArcSwap<Vec<Arc<Remote>>>,
    building: Mutex<()>,
    /// A Service or its endpoints changed.
    moved: Notify,
}

impl Remotes {
    /// The server of a path.
    fn of(&self, path: &str) -> Option<Arc<Remote>> {
        let all = self.all.load();
        if all.is_empty() {
            return None;
        }
        let mut parts = path.strip_prefix("/apis/")?.split('/');
        let (group, version) = (parts.next()?, parts.next()?);
        all.iter().find(|remote| remote.group == group && remote.version == version).cloned()
    }

    /// The server of a group version.
    pub(crate) fn find(&self, group: &str, version: &str) -> Option<Arc<Remote>> {
        self.all.load().iter().find(|remote| remote.group == group && remote.version == version).cloned()
    }

    /// A Service or its endpoints changed: whoever stands behind it is asked at once.
    pub(crate) fn moved(&self) {
        self.moved.notify_waiters();
    }

    /// Group versions for discovery.
    pub(crate) fn groups(&self) -> Vec<MountedGroup> {
        let group = |remote: &Arc<Remote>| MountedGroup {
            group: remote.group.clone(),
            version: remote.version.clone(),
            resources: remote.resources.load().as_deref().cloned().unwrap_or_default(),
            stale: !remote.available.load(Ordering::Relaxed),
        };
        self.all.load().iter().map(group).collect()
    }
}

/// Whether a group version is served by a mount or another server.
pub(crate) fn known(core: &Core, group: &str, version: &str) -> bool {
    core.mounts.read().iter().any(|m| m.groups().iter().any(|g| g.group == group && g.version == version)) || core.remotes.find(group, version).is_some()
}

fn condition(status: bool, reason: &str, message: &str, now: &str) -> Value {
    let status = if status { "True" } else { "False" };
    json!({"type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": now})
}

/// Reads the APIServices again. Called when one of them was written, and at the start.
pub(crate) fn changed(core: &Arc<Core>) {
    let _building = core.remotes.building.lock();
    let old = core.remotes.all.load_full();
    let mut all = Vec::new();
    let mut local = Vec::new();
    core.store.scan(TABLE, "", &mut |entry| {
        let service = object::decode(&entry.value);
        let spec = service.get("spec").cloned().unwrap_or_default();
        let name = object::name(&service).to_owned();
        if at(&spec, &["service"]).is_none_or(Value::is_null) {
            local.push((name, service));
            return;
        }
        if let Some(same) = old.iter().find(|remote| remote.name == name && remote.spec == spec) {
            all.push(same.clone());
            return;
        }
        let available = conditions(&service).iter().any(|c| text(c, &["type"]) == "Available" && text(c, &["status"]) == "True");
        all.push(Arc::new(Remote {
            group: text(&spec, &["group"]).to_owned(),
            version: text(&spec, &["version"]).to_owned(),
            name,
            spec,
            available: AtomicBool::new(available),
            resources: ArcSwapOption::empty(),
            line: Line::default(),
            stop: core.options.shutdown.child_token(),
        }));
    });
    for gone in old.iter().filter(|remote| !all.iter().any(|kept| Arc::ptr_eq(kept, remote))) {
        gone.stop.cancel();
    }
    for remote in all.iter().filter(|remote| !old.iter().any(|known| Arc::ptr_eq(known, remote))) {
        tokio::spawn(watch_over(core.clone(), remote.clone()));
    }
    core.remotes.all.store(Arc::new(all));
    for (name, service) in local {
        if conditions(&service).is_empty() {
            let core = core.clone();
            tokio::spawn(async move { tell(&core, &name, true, "Local", "Local APIServices are always available").await });
        }
    }
}

fn conditions(service: &Value) -> &[Value] {
    at(service, &["status", "conditions"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Writes the condition of an APIService where it differs.
async fn tell(core: &Arc<Core>, name: &str, available: bool, reason: &str, message: &str) {
    let path = internal::path("apiregistration.k8s.io", "v1", "", "apiservices", name) + "/status?fieldManager=kube-apiserver";
    for _ in 0..4 {
        let Some(mut service) = core.read_native(TABLE, name) else { return };
        let fresh = condition(available, reason, message, &object::instant(core.now()));
        let old = conditions(&service).iter().find(|c| text(c, &["type"]) == "Available");
        let same = |old: &Value, field: &str| text(old, &[field]) == text(&fresh, &[field]);
        if old.is_some_and(|old| ["status", "reason", "message"].iter().all(|field| same(old, field))) {
            return;
        }
        crate::crd::set_condition(&mut service, "Available", text(&fresh, &["status"]), reason, message, text(&fresh, &["lastTransitionTime"]));
        match internal::request(core, &Identity::master("system:kube-aggregator"), Method::PUT, &path, "application/json", Some(&service)).await {
            Err(error) if error.reason == "Conflict" => {}
            Err(error) => return tracing::debug!(%error, name, "tell whether an APIService is available"),
            Ok(_) => return,
        }
    }
}

async fn watch_over(core: Arc<Core>, remote: Arc<Remote>) {
    loop {
        let moved = core.remotes.moved.notified();
        let verdict = look(&core, &remote).await;
        if remote.stop.is_cancelled() {
            return;
        }
        let fine = verdict.is_ok();
        remote.available.store(fine, Ordering::Relaxed);
        match verdict {
            Ok(resources) => {
                remote.resources.store(Some(Arc::new(resources)));
                tell(&core, &remote.name, true, "Passed", "all checks passed").await;
            }
            Err((reason, message)) => tell(&core, &remote.name, false, reason, &message).await,
        }
        tokio::select! {
            () = remote.stop.cancelled() => return,
            () = moved => {}
            () = tokio::time::sleep(if fine { LOOK } else { LOOK_SOON }) => {}
        }
    }
}

/// Whether the server behind an APIService is there, and what it serves; or what is wrong.
async fn look(core: &Core, remote: &Remote) -> Result<Vec<Value>, (&'static str, String)> {
    let (namespace, name) = (text(&remote.spec, &["service", "namespace"]), text(&remote.spec, &["service", "name"]));
    let port = at(&remote.spec, &["service", "port"]).and_then(Value::as_u64).unwrap_or(443);
    let whole = format!("service/{name} in \"{namespace}\"");
    let Some(service) = core.read_native("/services", &format!("{namespace}/{name}")) else { return Err(("ServiceNotFound", format!("{whole} is not present"))) };
    if matches!(text(&service, &["spec", "type"]), "" | "ClusterIP") {
        let ports = at(&service, &["spec", "ports"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let Some(wanted) = ports.iter().find(|p| p["port"].as_u64() == Some(port)) else {
            return Err(("ServicePortError", format!("{whole} is not listening on port {port}")));
        };
        let slices = crate::outbound::slices(core, namespace, name);
        if slices.is_empty() {
            return Err(("EndpointsNotFound", format!("cannot find endpointslices for {whole}")));
        }
        let port_name = text(wanted, &["name"]);
        if !slices.iter().any(|slice| crate::outbound::ready(slice, port_name).is_some()) {
            return Err(("MissingEndpoints", format!("endpointslices for {whole} have no addresses with port name \"{port_name}\"")));
        }
    }
    let path = format!("/apis/{}/{}", remote.group, remote.version);
    let failed = |why: String| ("FailedDiscoveryCheck", why);
    let request = Request::get(&path).header("accept", "application/json").body(body::full("")).map_err(|e| failed(e.to_string()))?;
    let who = Identity { user: "system:kube-aggregator".into(), groups: vec!["system:masters".into()], ..Identity::default() };
    let answer = tokio::time::timeout(WITHIN, async {
        let response = remote.line.send(core, &remote.spec, &who, request).await?;
        let code = response.status();
        let bytes = response.into_body().collect().await.map_err(|e| RemoteError::Talk(e.to_string()))?.to_bytes();
        Ok::<_, RemoteError>((code, bytes))
    });
    let place = remote.line.place(core, &remote.spec).unwrap_or_default();
    let missing = |why: &dyn std::fmt::Display| failed(format!("failing or missing response from https://{place}{path}: {why}"));
    match answer.await {
        Err(_) => Err(failed(format!("timed out waiting for https://{place}{path}"))),
        Ok(Err(error @ RemoteError::Place(_))) => Err(failed(error.to_string())),
        Ok(Err(error)) => Err(missing(&error)),
        Ok(Ok((code, _))) if !code.is_success() => Err(missing(&format_args!("bad status from https://{place}{path}: {}", code.as_u16()))),
        Ok(Ok((_, bytes))) => Ok(object::decode(&bytes)["resources"].as_array().cloned().unwrap_or_default()),
    }
}

fn refused(code: StatusCode, message: &str) -> Response<Body> {
    body::plain(code, format!("{message}\n"))
}

/// Answers a request through the server that an APIService names; gives it back when there is none.
pub(crate) async fn pass_on(core: &Arc<Core>, routes: &Routes, who: &Identity, path: &str, request: Request<Body>) -> Result<Response<Body>, Request<Body>> {
    let Some(remote) = core.remotes.of(path) else { return Err(request) };
    // What is served here is served here, whatever an APIService says.
    if routes.of(&remote.group, &remote.version).next().is_some() {
        return Err(request);
    }
    Ok(through(core, &remote, who, request).await)
}

/// Answers a request for a document of a group version that another server has.
pub(crate) async fn document(core: &Arc<Core>, who: &Identity, path: &str, request: Request<Body>) -> Result<Response<Body>, Request<Body>> {
    let place = path.trim_matches('/').strip_prefix("openapi/v3/apis/").and_then(|rest| rest.split_once('/'));
    match place.and_then(|(group, version)| core.remotes.find(group, version)) {
        Some(remote) => Ok(through(core, &remote, who, request).await),
        None => Err(request),
    }
}

async fn through(core: &Core, remote: &Remote, who: &Identity, request: Request<Body>) -> Response<Body> {
    if !remote.available.load(Ordering::Relaxed) {
        return refused(StatusCode::SERVICE_UNAVAILABLE, "service unavailable");
    }
    match remote.line.send(core, &remote.spec, who, request).await {
        Ok(response) => response,
        Err(RemoteError::Place(_)) => refused(StatusCode::SERVICE_UNAVAILABLE, "service unavailable"),
        Err(error) => refused(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}
