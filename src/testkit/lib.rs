//! Bench: replay of recorded answers, in-process stages, hermetic git, golden helper. For tests and measurements only.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr, reason = "a bench fails loudly")]

pub mod replay;
pub mod serve;
