//! One protocol message: its header of varints and its body, encoded and decoded.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The number of a stream inside one session, chosen by the end that opens it.
pub type StreamId = i64;

/// The largest message this end accepts, in bytes. Peers send at most 64 KiB of data at once; the rest is slack.
pub const MAX_MESSAGE: usize = 1 << 20;

/// A field that old peers read as a deadline in milliseconds; always this value.
const LEGACY_DEADLINE: i64 = 15_000;

/// A message of the tunnel protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Serial number; peers only print it.
    pub id: i64,
    /// The stream it belongs to; 0 for messages about the session.
    pub stream: StreamId,
    /// What it says.
    pub body: Body,
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Bytes of a stream.
    Data(Bytes),
    /// Asks the peer to dial `network/address` and to join it to this stream.
    Connect {
        /// `tcp`, `unix`, or `<cluster id>::tcp` between hub replicas.
        network: String,
        /// `host:port`.
        address: String,
    },
    /// The stream has ended; `EOF` is the clean end.
    Error(String),
    /// A client session became reachable through this peer (`<client>/<session>`).
    AddClient(String),
    /// A client session is gone.
    RemoveClient(String),
    /// The receiver's buffer is full: send no more data on this stream.
    Pause,
    /// The receiver has room again.
    Resume,
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header ends early or a varint is too long.
    #[error("decode tunnel message: the header is cut short")]
    Header,
    /// The message type is not one of 1 to 7.
    #[error("decode tunnel message: type {0} is unknown")]
    UnknownType(i64),
    /// A text body is not UTF-8 or lacks its `/`.
    #[error("decode tunnel message: the body of a {0} message is malformed")]
    Body(&'static str),
    /// Larger than [`MAX_MESSAGE`].
    #[error("decode tunnel message: {0} bytes are more than the limit of {MAX_MESSAGE}")]
    TooLarge(usize),
}

impl Message {
    /// Encodes the message as one binary WebSocket message.
    pub fn encode(&self) -> Bytes {
        let (kind, text): (i64, &[u8]) = match &self.body {
            Body::Data(data) => (1, data),
            Body::Connect { .. } => (2, b""),
            Body::Error(text) => (3, text.as_bytes()),
            Body::AddClient(name) => (4, name.as_bytes()),
            Body::RemoveClient(name) => (5, name.as_bytes()),
            Body::Pause => (6, b""),
            Body::Resume => (7, b""),
        };
        let mut out = BytesMut::with_capacity(40 + text.len());
        put_varint(&mut out, self.id);
        put_varint(&mut out, self.stream);
        put_varint(&mut out, kind);
        if kind <= 2 {
            put_varint(&mut out, LEGACY_DEADLINE);
        }
        if let Body::Connect { network, address } = &self.body {
            out.put_slice(network.as_bytes());
            out.put_u8(b'/');
            out.put_slice(address.as_bytes());
        } else {
            out.put_slice(text);
        }
        out.freeze()
    }

    /// Decodes one binary WebSocket message. Data bodies share the given buffer.
    ///
    /// # Errors
    /// [`DecodeError`] says what is malformed; the session must then end.
    pub fn decode(mut bytes: Bytes) -> Result<Message, DecodeError> {
        if bytes.len() > MAX_MESSAGE {
            return Err(DecodeError::TooLarge(bytes.len()));
        }
        let id = get_varint(&mut bytes)?;
        let stream = get_varint(&mut bytes)?;
        let kind = get_varint(&mut bytes)?;
        if kind == 1 || kind == 2 {
            get_varint(&mut bytes)?;
        }
        let text = |bytes: &Bytes, what| {
            std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::Body(what))
        };
        let body = match kind {
            1 => Body::Data(bytes),
            2 => {
                let body = text(&bytes, "connect")?;
                let (network, address) = body.split_once('/').ok_or(DecodeError::Body("connect"))?;
                Body::Connect { network: network.to_owned(), address: address.to_owned() }
            }
            3 => Body::Error(String::from_utf8_lossy(&bytes).into_owned()),
            4 => Body::AddClient(text(&bytes, "add client")?),
            5 => Body::RemoveClient(text(&bytes, "remove client")?),
            6 => Body::Pause,
            7 => Body::Resume,
            other => return Err(DecodeError::UnknownType(other)),
        };
        Ok(Message { id, stream, body })
    }
}

fn put_varint(out: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8((rest as u8) | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}

fn get_varint(bytes: &mut Bytes) -> Result<i64, DecodeError> {
    let mut value: u64 = 0;
    for shift in (0..64).step_by(7) {
        if !bytes.has_remaining() {
            return Err(DecodeError::Header);
        }
        let byte = bytes.get_u8();
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(((value >> 1) as i64) ^ -((value & 1) as i64));
        }
    }
    Err(DecodeError::Header)
}
