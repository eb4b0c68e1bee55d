//! WebSocket transport that drives `wire`: streams through a tunnel as ordinary asynchronous byte streams.
//!
//! One task per session pumps the socket; streams share its state behind a short lock, so that a stream costs no task and
//! no channel. Nothing here decides: limits and deadlines are `wire`'s.

mod connect;
mod driver;
mod stream;
#[cfg(test)]
mod tests;

pub use connect::{connect, ConnectError, Transport};
pub use driver::{session, Acceptor, SessionError, Tunnel};
pub use stream::Stream;
pub use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
pub use tokio_tungstenite::WebSocketStream;
pub use wire::{Limits, Target};

/// SHA-1, which the WebSocket handshake is made of (RFC 6455); not for anything else.
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    use sha1::Digest as _;
    sha1::Sha1::digest(bytes).into()
}
