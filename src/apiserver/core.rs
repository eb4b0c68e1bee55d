//! The heart of one server: its store, its routes, its locks, and the order in which a request passes through it.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use parking_lot::{Mutex, MutexGuard, RwLock};
use serde_json::Value;
use store::{Entry, Expect, Store, Ticket, WriteError};

use crate::accept::{self, Accept, Form};
use crate::auth::Identity;
use crate::body::{self, Body};
use crate::mount::Mount;
use crate::object::{self, Encoded};
use crate::path::{self, Info};
use crate::query::Query;
use crate::resource::{Resource, Routes};
use crate::status::ApiError;
use crate::{Options, guard::Guard, metrics::Metrics};

/// Locks for read-modify-write cycles: as many as make a chance meeting of two objects rare.
const STRIPES: usize = 64;

/// One server's state.
pub struct Core {
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) routes: ArcSwap<Routes>,
    pub(crate) mounts: RwLock<Vec<Arc<dyn Mount>>>,
    pub(crate) guard: RwLock<Option<Arc<Guard>>>,
    pub(crate) admission: RwLock<Vec<Arc<dyn crate::admission::Admission>>>,
    pub(crate) services: Mutex<crate::services::Allocator>,
    pub(crate) metrics: Metrics,
    pub(crate) ready: AtomicBool,
    pub(crate) crds: crate::crd::Definitions,
    pub(crate) openapi: crate::openapi::Documents,
    pub(crate) flows: crate::flowcontrol::Flows,
    pub(crate) webhooks: crate::webhooks::Webhooks,
    pub(crate) conversions: crate::conversion::Conversions,
    pub(crate) remotes: crate::aggregate::Remotes,
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
    this: std::sync::Weak<Core>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").field("revision", &self.store.revision()).finish_non_exhaustive()
    }
}

/// What a handler needs to know of a request.
pub(crate) struct Call {
    pub(crate) core: Arc<Core>,
    pub(crate) who: Identity,
    pub(crate) info: Info,
    pub(crate) query: Query,
    pub(crate) resource: Arc<Resource>,
    pub(crate) accept: Accept,
    pub(crate) content_type: Option<String>,
    pub(crate) agent: Option<String>,
    pub(crate) warnings: Vec<String>,
}

impl Core {
    pub(crate) fn new(options: Options) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            store: options.store.clone(),
            routes: ArcSwap::new(crate::resource::native_routes()),
            mounts: RwLock::default(),
            guard: RwLock::default(),
            admission: RwLock::new(vec![crate::policies::step(), crate::pod_security::step()]),
            services: Mutex::new(crate::services::Allocator::new(options.service_range)),
            metrics: Metrics::default(),
            ready: AtomicBool::new(false),
            crds: crate::crd::Definitions::default(),
            openapi: crate::openapi::Documents::default(),
            flows: crate::flowcontrol::Flows::default(),
            webhooks: crate::webhooks::Webhooks::default(),
            conversions: crate::conversion::Conversions::default(),
            remotes: crate::aggregate::Remotes::default(),
            locks: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::new(),
            options,
        })
    }

    /// The shared handle to itself, while the server lives.
    pub(crate) fn own(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Holds off other read-modify-write cycles on the same object. Never held across an await.
    pub(crate) fn lock(&self, table: &str, key: &str) -> MutexGuard<'_, ()> {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(table.as_bytes());
        hasher.write(key.as_bytes());
        let stripe = usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or(0);
        self.locks[stripe].lock()
    }

    /// The instant that goes into objects.
    pub(crate) fn now(&self) -> jiff::Timestamp {
        (self.options.now)()
    }

    /// Stores an encoded object.
    pub(crate) fn put(&self, resource: &Resource, key: &str, expect: Expect, value: &Value) -> Result<Ticket, WriteError> {
        let encoded = Encoded::new(value);
        self.store.put(&resource.table, key, expect, &mut |revision| encoded.at(revision))
    }

    /// Removes an object, leaving its last form to watchers.
    pub(crate) fn drop_object(&self, resource: &Resource, entry: &Entry, last: &Value) -> Result<Ticket, WriteError> {
        let encoded = Encoded::new(last);
        self.store.remove(&resource.table, &entry.key, Expect::Revision(entry.revision), &mut |revision| encoded.at(revision))
    }

    /// Serves one request of a known caller.
    pub(crate) fn serve(self: Arc<Self>, who: Identity, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        // Boxed here, once: the future is large, and its type would otherwise grow into every caller's.
        Box::pin(self.answer(who, request))
    }

    async fn answer(self: Arc<Self>, who: Identity, request: Request<Body>) -> Response<Body> {
        let started = std::time::Instant::now();
        let path = request.uri().path().to_owned();
        let query = Query::parse(request.uri().query());
        let info = path::parse(request.method(), &path, query.flag("watch"));
        let label = crate::metrics::Label::of(&info, &path);
        let accept_header = body::header_text(request.headers(), "accept").map(str::to_owned);
        let head = request.method() == Method::HEAD;
        let mut flow = None;
        let result = self.clone().pass(who, info, query, &path, request, &mut flow).await;
        let mut response = result.unwrap_or_else(|error| refuse(&error, accept_header.as_deref()));
        if let Some(flow) = flow {
            flow.tell(response.headers_mut());
        }
        if head {
            *response.body_mut() = body::full(bytes::Bytes::new());
        }
        self.metrics.count(&self, label, response.status().as_u16(), started.elapsed());
        response
    }

    async fn pass(self: Arc<Self>, who: Identity, info: Info, query: Query, path: &str, request: Request<Body>, flow: &mut Option<Arc<crate::flowcontrol::Flow>>) -> Result<Response<Body>, ApiError> {
        let guard = self.guard.read().clone();
        let mut seats = None;
        let who = match &guard {
            Some(guard) => {
                let who = guard.act_as(who, request.headers())?;
                *flow = self.flows.of(&who, &info, path);
                if let Some(flow) = flow {
                    match crate::flowcontrol::enter(&self, flow, &who, &info, &query).await {
                        Ok(permit) => seats = permit,
                        Err(_) => return Ok(too_many()),
                    }
                }
                guard.check(&who, &info, path)?;
                who
            }
            None => who,
        };
        if info.verb != "watch"
            && let Some(text) = query.text("timeout")
            && crate::protobuf::parse_duration(text).is_none()
        {
            return Err(ApiError::bad_request(format!("invalid timeout specified in the request URL - time: invalid duration {text:?}")));
        }
        let mount = self.mounts.read().iter().find(|m| crate::mount::covers(m.as_ref(), path)).cloned();
        if let Some(mount) = mount {
            return Ok(mount.call(who, info, request).await);
        }
        let routes = self.routes.load_full();
        let request = match crate::aggregate::pass_on(&self, &routes, &who, path, request).await {
            Ok(response) => return Ok(response),
            Err(own) => own,
        };
        if info.resource.is_empty() {
            return crate::paths::serve(&self, &who, path, &query, request).await;
        }
        let Some(resource) = routes.find(&info.group, &info.version, &info.resource).cloned() else {
            let known = routes.groups.iter().any(|g| g.name == info.group && g.versions.contains(&info.version));
            return if known || crate::aggregate::known(&self, &info.group, &info.version) { Err(ApiError::no_route()) } else { Ok(page_not_found()) };
        };
        let headers = request.headers();
        let forms = info.subresource.is_empty() || info.subresource == "status";
        let accept = accept::negotiate(body::header_text(headers, "accept"), forms && resource.allows("get"), resource.native.is_some())?;
        if let Form::Discovery(_) = accept.form {
            return Err(ApiError::not_acceptable(&accept::TYPES));
        }
        let accept = Accept { pretty: accept.pretty || query.flag("pretty"), ..accept };
        let mut call = Call {
            content_type: body::header_text(headers, "content-type").map(str::to_owned),
            agent: body::header_text(headers, "user-agent").map(str::to_owned),
            core: self,
            who,
            info,
            query,
            resource,
            accept,
            warnings: Vec::new(),
        };
        if let Some(warning) = deprecation(&call.resource) {
            call.warnings.push(warning);
        }
        let (parts, body) = request.into_parts();
        let answer = crate::rest::dispatch(&mut call, parts, body).await;
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                let mut response = crate::respond::refusal(&error, call.accept.encoding);
                add_retry(&mut response, &error);
                response
            }
        };
        for warning in &call.warnings {
            body::warn(response.headers_mut(), warning);
        }
        // A watch has begun, everything else is done.
        drop(seats);
        Ok(response)
    }

    /// The committed object, as stored.
    #[must_use]
    pub fn read(&self, resource: &Resource, namespace: &str, name: &str) -> Option<Value> {
        self.store.get(&resource.table, &object::key(resource.namespaced, namespace, name)).map(|e| object::decode(&e.value))
    }

    /// The committed object of a built-in resource.
    #[must_use]
    pub fn read_native(&self, table: &str, key: &str) -> Option<Value> {
        self.store.get(table, key).map(|e| object::decode(&e.value))
    }

    /// Whether the server finished starting and its store takes writes.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && self.store.healthy()
    }
}

/// A refusal outside the resource API, or before the resource was found.
fn refuse(error: &ApiError, accept: Option<&str>) -> Response<Body> {
    let encoding = accept::negotiate(accept, false, true).map_or(accept::Encoding::Json, |a| a.encoding);
    let mut response = crate::respond::refusal(error, encoding);
    add_retry(&mut response, error);
    response
}

fn add_retry(response: &mut Response<Body>, error: &ApiError) {
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert("retry-after", http::HeaderValue::from(seconds));
    }
}

/// A refusal for want of seats, as Kubernetes words it.
fn too_many() -> Response<Body> {
    let mut response = body::plain(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.\n");
    response.headers_mut().insert("retry-after", http::HeaderValue::from(1));
    response
}

/// What Go's multiplexer says of an unknown path.
pub(crate) fn page_not_found() -> Response<Body> {
    body::plain(StatusCode::NOT_FOUND, "404 page not found\n")
}

/// What users of a resource are warned of: its definition says it, or Kubernetes does of a built-in kind.
fn deprecation(resource: &Resource) -> Option<String> {
    if let Some(custom) = &resource.custom {
        return custom.deprecation.clone();
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()),
        ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+".to_owned()),
        _ => None,
    }
}
