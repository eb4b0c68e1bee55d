//! The tunnel protocol as a state machine: messages and `now` in, messages and events out.
//!
//! The wire format is the one Clusternet's agents and hubs speak (remotedialer 0.3), so that either end may be theirs:
//! one protocol message per binary WebSocket message, a header of zig-zag varints, then the body. What this room adds is
//! strictness: every buffer is bounded, a peer that ignores `Pause` loses its stream and never the session, and silence
//! is noticed by an explicit deadline.
//!
//! This room only computes: it never reads a clock, opens a socket or starts a task. [`Session`] takes what came in and
//! hands out what must go out and what happened.

mod message;
mod session;
#[cfg(test)]
mod tests;

pub use message::{Body, DecodeError, Message, StreamId, MAX_MESSAGE};
pub use session::{Event, Limits, OpenError, Session, Target, WriteError};
