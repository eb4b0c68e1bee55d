//! Decisions: snapshot in, plan out; one module per controller, plus placement and health.

pub mod kinds;
pub mod shadow;
pub mod source;
