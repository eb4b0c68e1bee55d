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
