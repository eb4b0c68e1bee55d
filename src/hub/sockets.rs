//! The WebSocket endpoint that agents dial.

use std::sync::Arc;

use apiserver::body::{full, Body};
use base64::Engine as _;
use http::{header, HeaderValue, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tunnel::{Acceptor, Limits, Role, Stream, WebSocketStream};

use crate::reply::failure;
use crate::sessions::Sessions;

/// Answers an agent's dial: completes the handshake and keeps the session until it ends.
///
/// The caller has been authorised for `sockets` with this cluster's id as the resource name.
pub(crate) fn accept(sessions: &Sessions, tasks: &engine::Tasks, cluster_id: String, mut request: Request<Body>) -> Response<Body> {
    let headers = request.headers();
    let has = |name: header::HeaderName, word: &str| {
        headers.get_all(name).iter().any(|value| {
            value.to_str().is_ok_and(|text| text.split(',').any(|part| part.trim().eq_ignore_ascii_case(word)))
        })
    };
    let key = headers.get(header::SEC_WEBSOCKET_KEY).cloned();
    let wanted = has(header::UPGRADE, "websocket") && has(header::CONNECTION, "upgrade");
    let (true, Some(key)) = (wanted, key) else {
        return failure(StatusCode::BAD_REQUEST, "BadRequest", "this URL takes the WebSocket of a cluster's agent; to reach the cluster, add /proxy/direct/");
    };
    let on_upgrade = hyper::upgrade::on(&mut request);
    let sessions = sessions.clone();
    tasks.spawn_until_stopped("tunnel session", async move {
        let upgraded = match on_upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => {
                tracing::debug!(cluster = cluster_id, %error, "an agent left during the handshake");
                return;
            }
        };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        // Agents never open streams: a hub dials nothing on a child's behalf.
        let nobody: Acceptor = Arc::new(|_, stream: Stream| {
            Box::pin(async move { stream.refuse("the hub dials nothing for an agent") })
        });
        let (tunnel, run) = tunnel::session(socket, Limits::PEER, nobody);
        let serial = sessions.add(&cluster_id, tunnel);
        tracing::info!(cluster = cluster_id, "tunnel opened");
        let ended = run.await;
        sessions.remove(&cluster_id, serial);
        match ended {
            Ok(()) => tracing::info!(cluster = cluster_id, "tunnel closed"),
            Err(error) => tracing::info!(cluster = cluster_id, %error, "tunnel lost"),
        }
    });
    let mut response = Response::new(full(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Ok(accept) = HeaderValue::try_from(accept_key(key.as_bytes())) {
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    }
    response
}

/// RFC 6455 section 4.2.2: the proof that the server understood the handshake.
fn accept_key(key: &[u8]) -> String {
    let mut text = key.to_vec();
    text.extend_from_slice(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    base64::engine::general_purpose::STANDARD.encode(tunnel::sha1(&text))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_handshake_is_that_of_the_rfc() {
        assert_eq!(super::accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
