//! The one test binary: every test file is declared here (`tidy` checks it).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

mod tidy;
