//! Decisions: snapshot in, plan out; one module per controller, plus placement and health.
