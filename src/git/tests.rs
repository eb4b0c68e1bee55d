//! The room against real `git`.
