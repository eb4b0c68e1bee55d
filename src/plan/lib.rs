//! Decisions: snapshot in, plan out; one module per controller, plus placement and health.


// The deploy pipeline.

pub mod aggregate;
pub mod change;
pub mod delivery;
pub mod descriptions;
pub mod feeds;
pub mod health;
pub mod inventory;
pub mod kinds;
pub mod lifecycle;
pub mod lost;
pub mod overrides;
pub mod placement;
pub mod quantity;
pub mod predict;
pub mod preview;
pub mod registration;
pub mod releases;
pub mod rendered;
pub mod render;
pub mod shadow;
pub mod shares;
pub mod source;
pub mod step;
pub mod subscription;
pub mod tree;
pub mod sync;
