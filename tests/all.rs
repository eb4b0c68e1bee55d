//! The one test binary: every test file is declared here (`tidy` checks it).
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests fail loudly, and say what they skip")]

mod bench;
mod compat;
mod deploy;
mod e2e;
mod exposition;
mod kills;
mod kube;
mod plan;
mod replay;
mod suites;
mod tidy;
mod tour;
