//! Predictor: says the parent's scheduler how many more replicas the child takes, in Clusternet's protocol.
//!
//! It is reached through the tunnel, without a port of its own, and on a port when one is asked for. Nodes and Pods are only
//! followed from the first question on, so an agent whose parent never asks pays nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::apps::ReplicaRequirements;
use api::predictor::{PREDICT_PATH, ReplicasResponse, UNSCHEDULED_PATH, UnscheduledResponse};
use cluster::Target;
use engine::{Cache, Tasks};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use parking_lot::Mutex;
use plan::predict::{self, Room};
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OnceCell, Semaphore};

/// The longest question.
const QUESTION: usize = 1 << 20;
/// How long the first question may wait for the nodes and Pods.
const PATIENCE: Duration = Duration::from_secs(15);
/// Connections to the port at once.
const CONNECTIONS: usize = 64;

/// Who predicts the child's free capacity, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictorOptions {
    /// Address that the parent is told, with a scheme: Clusternet's scheduler takes the cluster of a predictor without one for full.
    pub address: String,
    /// The parent asks that address itself, not through the tunnel.
    pub direct: bool,
    /// The agent predicts; otherwise somebody else does at that address.
    pub own: bool,
    /// A port on which the agent answers as well.
    pub listen: Option<SocketAddr>,
}

impl PredictorOptions {
    /// The agent's own, through the tunnel only. The address is Clusternet's.
    pub fn tunnelled() -> Self {
        Self { address: "localhost:8080".to_owned(), direct: false, own: true, listen: None }
    }
}

struct Caches {
    nodes: Cache<Node>,
    pods: Cache<Pod>,
}

/// The agent's own predictor.
pub struct Predictor {
    child: Client,
    tasks: Tasks,
    caches: OnceCell<Caches>,
    /// What is used where, until a node or Pod changes.
    rooms: Arc<Mutex<Option<Arc<BTreeMap<String, Room>>>>>,
}

impl Predictor {
    /// A predictor for a child; it works until the tasks stop.
    pub(crate) fn new(child: Client, tasks: Tasks) -> Arc<Self> {
        Arc::new(Self { child, tasks, caches: OnceCell::new(), rooms: Arc::default() })
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(self: Arc<Self>, connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let this = self.clone();
            async move { Ok::<_, Infallible>(this.respond(request).await) }
        });
        // Whoever asks may leave at any time.
        let _ = hyper::server::conn::http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(connection), service).await;
    }

    /// Answers on a port until the tasks stop.
    pub(crate) async fn listen(self: Arc<Self>, address: SocketAddr) {
        let listener = match TcpListener::bind(address).await {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%address, %error, "cannot listen for questions to the predictor");
                return;
            }
        };
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let this = self.clone();
                    self.tasks.spawn_until_stopped("predictor connection", async move {
                        this.serve(stream).await;
                        drop(slot);
                    });
                }
                // Out of descriptors, most likely; others are being closed meanwhile.
                Err(error) => {
                    tracing::debug!(%error, "cannot accept a connection to the predictor");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (method, path) = (request.method().clone(), request.uri().path().trim_end_matches('/').to_owned());
        match (method, path.as_str()) {
            (Method::POST, PREDICT_PATH) => {
                let body = match Limited::new(request.into_body(), QUESTION).collect().await {
                    Ok(body) => body.to_bytes(),
                    Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("read the question: {error}")),
                };
                let needs: ReplicaRequirements = match serde_json::from_slice(&body) {
                    Ok(needs) => needs,
                    Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("read the requirements: {error}")),
                };
                match self.caches().await {
                    Some(caches) => json(&ReplicasResponse::total(self.replicas(caches, &needs))),
                    None => refuse(StatusCode::SERVICE_UNAVAILABLE, "nodes and Pods of the cluster are not known yet"),
                }
            }
            (Method::GET, UNSCHEDULED_PATH) => match self.caches().await {
                Some(caches) => {
                    let pods = caches.pods.list();
                    json(&UnscheduledResponse { replicas: predict::unschedulable(pods.iter().map(|pod| &**pod)) })
                }
                None => refuse(StatusCode::SERVICE_UNAVAILABLE, "nodes and Pods of the cluster are not known yet"),
            },
            (_, PREDICT_PATH | UNSCHEDULED_PATH) => refuse(StatusCode::METHOD_NOT_ALLOWED, "not with this method"),
            _ => refuse(StatusCode::NOT_FOUND, "there is no such question"),
        }
    }

    fn replicas(&self, caches: &Caches, needs: &ReplicaRequirements) -> i32 {
        let nodes = caches.nodes.list();
        let known = self.rooms.lock().clone();
        let rooms = known.unwrap_or_else(|| {
            let pods = caches.pods.list();
            let rooms = Arc::new(predict::rooms(nodes.iter().map(|node| &**node), pods.iter().map(|pod| &**pod)));
            *self.rooms.lock() = Some(rooms.clone());
            rooms
        });
        predict::replicas(nodes.iter().map(|node| &**node), &rooms, needs)
    }

    async fn caches(&self) -> Option<&Caches> {
        let start = || async {
            let nodes = Cache::<Node>::builder()
                .keep(|node: &mut Node| {
                    node.metadata.managed_fields = None;
                    node.metadata.annotations = None;
                    if let Some(status) = &mut node.status {
                        status.images = None;
                    }
                    true
                })
                .build();
            let pods = Cache::<Pod>::builder()
                .keep(|pod: &mut Pod| {
                    predict::trim(pod);
                    true
                })
                .build();
            let (of_nodes, of_pods) = (self.rooms.clone(), self.rooms.clone());
            nodes.on_change(move |_| *of_nodes.lock() = None);
            pods.on_change(move |_| *of_pods.lock() = None);
            nodes.follow("nodes of the child", self.child.clone(), Target::of::<Node>(""), &self.tasks);
            pods.follow("pods of the child", self.child.clone(), Target::of::<Pod>(""), &self.tasks);
            Caches { nodes, pods }
        };
        let caches = self.caches.get_or_init(start).await;
        let synced = async {
            caches.nodes.synced().await;
            caches.pods.synced().await;
        };
        tokio::time::timeout(PATIENCE, synced).await.ok().map(|()| caches)
    }
}

fn json(answer: &impl Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec(answer) {
        Ok(body) => reply(StatusCode::OK, "application/json", body),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("write the answer: {error}")),
    }
}

fn refuse(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    reply(code, "text/plain; charset=utf-8", format!("{text}\n").into_bytes())
}

fn reply(code: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}
