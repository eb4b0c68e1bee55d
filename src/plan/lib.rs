//! Decisions: snapshot in, plan out; one module per controller, plus placement and health.

pub mod kinds;
pub mod shadow;
pub mod source;
pub mod health;
pub mod lifecycle;
pub mod registration;
