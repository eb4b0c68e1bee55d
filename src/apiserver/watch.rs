//! Watches: a stream of events, encoded once and shared by all watchers that want the plain form.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{Response, StatusCode};
use serde_json::{Value, json};
use store::{Entry, Event, EventKind, Scope, Watch};
use tokio::time::Instant;

use crate::accept::{Encoding, Form};
use crate::body::{self, Body};
use crate::core::Call;
use crate::kinds;
use crate::object;
use crate::read::Selection;
use crate::respond;
use crate::status::ApiError;

/// How often a quiet watcher hears how far the server is.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Watches without a time limit end after this (up to twice as long, at random).
const MIN_TIMEOUT: Duration = Duration::from_secs(1800);
/// Bytes of events that are sent in one piece.
const PIECE: usize = 64 * 1024;

struct Stream {
    call: Call,
    selection: Selection,
    /// What was there at the start, to be told as additions.
    initial: std::vec::IntoIter<Arc<Entry>>,
    /// The end of the initial events is to be told, at this revision.
    end_of_initial: Option<u64>,
    watch: Watch,
    bookmarks: bool,
    deadline: Pin<Box<tokio::time::Sleep>>,
    bookmark: Pin<Box<tokio::time::Sleep>>,
    shutdown: tokio_util::sync::CancellationToken,
    first: bool,
    done: bool,
}

pub(crate) fn watch(call: &mut Call) -> Result<Response<Body>, ApiError> {
    let selection = Selection::of(call)?;
    let query = &call.query;
    let bookmarks = query.flag("allowWatchBookmarks");
    let initial = query.maybe_flag("sendInitialEvents");
    let matching = query.text("resourceVersionMatch");
    let forbid = |field: &str, message: &str| Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![crate::rest::fault("FieldValueForbidden", field, message)]));
    match (initial, matching) {
        (None, Some(_)) => return forbid("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
        (Some(_), None) => return forbid("resourceVersionMatch", "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (Some(_), Some(other)) if other != "NotOlderThan" => {
            let text = format!("Unsupported value: \"{other}\": supported values: \"NotOlderThan\"");
            return Err(ApiError::invalid("meta.k8s.io", "ListOptions", "", vec![crate::rest::fault("FieldValueNotSupported", "resourceVersionMatch", text)]));
        }
        _ => {}
    }
    let asked = query.revision("resourceVersion")?;
    let timeout = match query.number("timeoutSeconds")? {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
        _ => MIN_TIMEOUT + MIN_TIMEOUT.mul_f64(rand::random::<f64>()),
    };
    let newest = call.core.store.revision();
    if let Some(asked) = asked
        && asked > newest
        && initial != Some(true)
    {
        // A watch from a revision to come would wait for it; an agent that outlived a lost server must learn it at once.
        return Err(ApiError::too_new(asked, newest));
    }
    let scope = match &selection.name {
        Some(name) if !call.resource.namespaced => Scope::Key(name.as_str().into()),
        Some(name) if !selection.namespace.is_empty() => Scope::Key(format!("{}/{name}", selection.namespace).into()),
        _ if !selection.namespace.is_empty() => Scope::Under(selection.namespace.as_str().into()),
        _ => Scope::Table,
    };
    let from_now = matches!(asked, None | Some(0));
    let wants_state = match initial {
        Some(wants) => wants,
        None => from_now,
    };
    let (entries, start) = if wants_state {
        let prefix = if selection.namespace.is_empty() { String::new() } else { format!("{}/", selection.namespace) };
        let page = call.core.store.list(&call.resource.table, &prefix, None, 0, None).map_err(|e| ApiError::internal(e.to_string()))?;
        if let Some(asked) = asked
            && asked > page.revision
        {
            return Err(ApiError::too_new(asked, page.revision));
        }
        let kept: Vec<Arc<Entry>> = page.entries.into_iter().filter(|e| selection.holds(call, e)).collect();
        (kept, page.revision)
    } else if from_now {
        (Vec::new(), newest)
    } else {
        (Vec::new(), asked.unwrap_or(newest))
    };
    let stream_type = match (call.accept.encoding, call.accept.form) {
        (Encoding::Protobuf, _) => call.accept.encoding.stream_type(),
        _ => "application/json",
    };
    let watch = match call.core.store.watch(&call.resource.table, scope, start) {
        Ok(watch) => watch,
        Err(store::WatchError::Compacted { asked, oldest }) => {
            // Kubernetes tells this within the stream, with HTTP code 200.
            let error = ApiError::expired(format!("too old resource version: {asked} ({oldest})"));
            let event = encode_event(call, "ERROR", error.to_status());
            return Ok(body::response(StatusCode::OK, stream_type, body::full(event)));
        }
    };
    let core = call.core.clone();
    let owned = Call {
        core: core.clone(),
        who: call.who.clone(),
        info: call.info.clone(),
        query: call.query.clone(),
        resource: call.resource.clone(),
        accept: call.accept,
        content_type: None,
        agent: None,
        warnings: Vec::new(),
    };
    let stream = Stream {
        call: owned,
        selection,
        initial: entries.into_iter(),
        end_of_initial: (initial == Some(true) && bookmarks).then_some(start),
        watch,
        bookmarks,
        deadline: Box::pin(tokio::time::sleep(timeout)),
        bookmark: Box::pin(tokio::time::sleep(BOOKMARK_EVERY)),
        shutdown: core.options.shutdown.clone(),
        first: true,
        done: false,
    };
    let count = core.metrics.watcher(&call.resource.table);
    let pieces = stream::unfold((stream, count), |(mut stream, count)| async move {
        let piece = stream.piece().await?;
        Some((piece, (stream, count)))
    });
    Ok(body::response(StatusCode::OK, stream_type, body::streamed(pieces)))
}

impl Stream {
    /// The next bytes; none at the end.
    async fn piece(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        let mut out = BytesMut::new();
        if let Err(error) = self.fill(&mut out).await {
            // An object that cannot be converted cannot be told: the client lists again, and is told why.
            self.done = true;
            out.extend_from_slice(&encode_event(&self.call, "ERROR", error.to_status()));
        }
        (!out.is_empty()).then(|| out.freeze())
    }

    /// Waits until there is something to tell; without it at the end.
    async fn fill(&mut self, out: &mut BytesMut) -> Result<(), ApiError> {
        loop {
            if self.initial(out).await? || self.ready(out).await? || !out.is_empty() {
                return Ok(());
            }
            tokio::select! {
                event = self.watch.next() => match event {
                    Some(event) => self.event(&event, out).await?,
                    // Too slow, or the server ends: the client lists again or resumes.
                    None => {
                        self.done = true;
                        return Ok(());
                    }
                },
                () = &mut self.bookmark => {
                    self.bookmark.as_mut().reset(Instant::now() + BOOKMARK_EVERY);
                    if self.bookmarks {
                        self.tell_revision(out).await?;
                    }
                }
                () = &mut self.deadline => {
                    self.done = true;
                    if self.bookmarks {
                        self.tell_revision(out).await?;
                    }
                    return Ok(());
                }
                () = self.shutdown.cancelled() => {
                    self.done = true;
                    return Ok(());
                }
            }
        }
    }

    /// Initial events; true when a piece is full.
    async fn initial(&mut self, out: &mut BytesMut) -> Result<bool, ApiError> {
        if self.call.resource.converts() && self.initial.len() > 0 {
            let stored = self.initial.by_ref().map(|entry| object::decode(&entry.value)).collect();
            for value in self.call.routed(stored).await? {
                if self.selection.fits(&self.call, &value) {
                    let shaped = respond::shape(&self.call, value, std::mem::take(&mut self.first));
                    out.extend_from_slice(&encode_event(&self.call, "ADDED", shaped));
                }
            }
        }
        for entry in self.initial.by_ref() {
            let bytes = if plain(&self.call) && self.call.resource.shows(&entry) {
                framed("ADDED", &entry.value)
            } else {
                let value = kinds::to_route(&self.call.resource, object::decode(&entry.value));
                let shaped = respond::shape(&self.call, value, std::mem::take(&mut self.first));
                encode_event(&self.call, "ADDED", shaped)
            };
            out.extend_from_slice(&bytes);
            if out.len() >= PIECE {
                return Ok(true);
            }
        }
        if let Some(revision) = self.end_of_initial.take() {
            let bookmark = bookmark(&self.call, revision, true);
            out.extend_from_slice(&bookmark);
        }
        Ok(false)
    }

    /// Events that are there already; true when a piece is full.
    async fn ready(&mut self, out: &mut BytesMut) -> Result<bool, ApiError> {
        while let Some(event) = self.watch.try_next() {
            self.event(&event, out).await?;
            if out.len() >= PIECE {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an object that a webhook converts has the fields that are selected.
    async fn fits(&self, entry: &Entry) -> Result<bool, ApiError> {
        let value = self.call.routed_shared(entry, object::decode(&entry.value)).await?;
        Ok(self.selection.fits(&self.call, &value))
    }

    async fn event(&mut self, event: &Event, out: &mut BytesMut) -> Result<(), ApiError> {
        let call = &self.call;
        let (mut is, mut was) = if self.selection.is_all() {
            (event.kind != EventKind::Deleted, event.previous.is_some())
        } else {
            let was = event.previous.as_ref().is_some_and(|p| self.selection.holds(call, p));
            (event.kind != EventKind::Deleted && self.selection.holds(call, &event.entry), was)
        };
        if call.resource.converts() && !self.selection.names_only() {
            is = is && self.fits(&event.entry).await?;
            was = match &event.previous {
                Some(previous) if was => self.fits(previous).await?,
                _ => false,
            };
        }
        let kind = match (was, is) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return Ok(()),
        };
        // An object that stopped matching is told in its old form, with the new revision, as Kubernetes does.
        let left = kind == "DELETED" && event.kind != EventKind::Deleted;
        if plain(call) && !left && call.resource.shows(&event.entry) {
            let shared = event.derived(|event| {
                let own = match event.kind {
                    EventKind::Added => "ADDED",
                    EventKind::Modified => "MODIFIED",
                    EventKind::Deleted => "DELETED",
                };
                (own, framed(own, &event.entry.value))
            });
            match shared {
                Some((own, bytes)) if *own == kind => out.extend_from_slice(bytes),
                _ => out.extend_from_slice(&framed(kind, &event.entry.value)),
            }
            return Ok(());
        }
        let entry = if left { event.previous.as_ref().unwrap_or(&event.entry) } else { &event.entry };
        let mut value = object::decode(&entry.value);
        if left {
            object::metadata(&mut value).insert("resourceVersion".into(), json!(event.revision.to_string()));
        }
        let value = call.routed_shared(entry, value).await?;
        let shaped = respond::shape(call, value, std::mem::take(&mut self.first));
        out.extend_from_slice(&encode_event(call, kind, shaped));
        Ok(())
    }

    async fn tell_revision(&mut self, out: &mut BytesMut) -> Result<(), ApiError> {
        // First the revision, then what is there: all events up to it are told before it.
        let revision = self.call.core.store.revision();
        self.ready(out).await?;
        out.extend_from_slice(&bookmark(&self.call, revision, false));
        Ok(())
    }
}

fn plain(call: &Call) -> bool {
    call.accept.form == Form::Whole && call.accept.encoding != Encoding::Protobuf && call.resource.as_stored()
}

fn framed(kind: &str, object: &Bytes) -> Bytes {
    let mut out = BytesMut::with_capacity(object.len() + 40);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object);
    out.extend_from_slice(b"}\n");
    out.freeze()
}

fn encode_event(call: &Call, kind: &str, object: Value) -> Bytes {
    if call.accept.encoding == Encoding::Protobuf
        && let Ok(bytes) = crate::protobuf::encode_event(kind, &object)
    {
        return Bytes::from(bytes);
    }
    framed(kind, &respond::to_json(&object))
}

fn bookmark(call: &Call, revision: u64, end_of_initial: bool) -> Bytes {
    let mut metadata = json!({ "resourceVersion": revision.to_string() });
    if end_of_initial {
        metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
    }
    let object = match call.accept.form {
        Form::Partial(version) => json!({ "apiVersion": version, "kind": "PartialObjectMetadata", "metadata": metadata }),
        Form::Table(version) => {
            let row = json!({ "apiVersion": call.resource.api_version(), "kind": call.resource.kind, "metadata": metadata });
            crate::table::table(call, version, json!({ "resourceVersion": revision.to_string() }), vec![row], false)
        }
        _ => json!({ "apiVersion": call.resource.api_version(), "kind": call.resource.kind, "metadata": metadata }),
    };
    encode_event(call, "BOOKMARK", object)
}

