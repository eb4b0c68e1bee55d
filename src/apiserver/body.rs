//! Bodies: reading a request's with a limit, building a response's from bytes, pieces or a stream.

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};

use crate::status::ApiError;

/// Any error a body can end with.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of requests and responses inside the server.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Largest request body, as in Kubernetes.
pub const MAX_REQUEST: usize = 3 * 1024 * 1024;
/// A request body must be there within this time.
const READ_WITHIN: std::time::Duration = std::time::Duration::from_secs(60);
/// Above this size a response is sent in pieces.
const WHOLE: usize = 128 * 1024;

/// A body of these bytes.
#[must_use]
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body that is produced as it is read.
pub fn streamed(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Body {
    BodyExt::boxed_unsync(StreamBody::new(pieces.map(|bytes| Ok::<_, BoxError>(Frame::data(bytes)))))
}

/// A body of many pieces: small ones are joined, so that a small response has a length.
#[must_use]
pub fn pieces(all: Vec<Bytes>) -> Body {
    let total: usize = all.iter().map(Bytes::len).sum();
    if total <= WHOLE {
        let mut out = BytesMut::with_capacity(total);
        all.iter().for_each(|piece| out.extend_from_slice(piece));
        return full(out.freeze());
    }
    let mut rest = all.into_iter().peekable();
    streamed(stream::iter(std::iter::from_fn(move || {
        rest.peek()?;
        let mut out = BytesMut::with_capacity(WHOLE);
        while let Some(piece) = rest.next_if(|piece| out.is_empty() || out.len() + piece.len() <= WHOLE) {
            out.extend_from_slice(&piece);
        }
        Some(out.freeze())
    })))
}

/// Reads a request's body up to the limit.
pub async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    let deadline = tokio::time::Instant::now() + READ_WITHIN;
    loop {
        let frame = match tokio::time::timeout_at(deadline, body.frame()).await {
            Ok(Some(frame)) => frame,
            Ok(None) => break,
            Err(_) => return Err(ApiError::bad_request("read the request body: it did not come in time")),
        };
        let frame = frame.map_err(|error| ApiError::bad_request(format!("read the request body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + more.len() + data.len() > MAX_REQUEST {
            return Err(ApiError::too_large(format!("Request entity too large: limit is {MAX_REQUEST}")));
        }
        if first.is_empty() && more.is_empty() {
            first = data;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&std::mem::take(&mut first));
            }
            more.extend_from_slice(&data);
        }
    }
    Ok(if more.is_empty() { first } else { more.freeze() })
}

/// A response with a content type.
#[must_use]
pub fn response(code: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A plain text response.
#[must_use]
pub fn plain(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = response(code, "text/plain; charset=utf-8", full(text));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// A header as text.
#[must_use]
pub fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

/// Adds a `Warning` header (RFC 7234, code 299), as Kubernetes writes it.
pub fn warn(headers: &mut HeaderMap, text: &str) {
    let quoted: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().replace('\\', "\\\\").replace('"', "\\\"");
    if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()) {
        headers.append("warning", value);
    }
}
