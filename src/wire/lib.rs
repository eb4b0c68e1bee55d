//! The tunnel protocol as a state machine: bytes and now in, bytes and events out.
