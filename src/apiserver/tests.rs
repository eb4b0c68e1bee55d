//! The server in process.
