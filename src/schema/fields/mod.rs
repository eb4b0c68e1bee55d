//! Field ownership: sets of field paths, typed walks over objects, server-side apply and tracking of every other write.

mod apply;
mod managed;
mod set;
mod walk;

pub use apply::{ApplyError, Conflict, Write, apply, track_update};
pub use managed::{Managed, ManagedError, Manager, Operation};
pub use set::{Element, Set, SetError};
pub(crate) use set::{equal, order};
pub use walk::{Comparison, compare, merge, remove_items, to_set, validate};

#[cfg(test)]
mod tests;
