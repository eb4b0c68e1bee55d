//! WebSocket transport that drives wire.
