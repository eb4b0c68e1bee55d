//! Clients of real API servers: discovery, server-side apply, watch.
