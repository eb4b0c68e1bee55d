//! The server in process: what a client relies on, from creating to resuming a watch.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod aggregate;
pub(crate) mod basics;
mod conversion;
mod kinds;
mod webhooks;
mod mended;
mod openapi;
