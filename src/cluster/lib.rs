//! Clients of real API servers: building them, discovery, dynamic requests, watch, server-side apply.
//!
//! Only this room and the parts' own `kube::Api` calls talk to an API server. The room never keeps a thread
//! and never decides what should exist: callers hand it desired objects, it reports an outcome for each.

pub mod apply;
pub mod client;
pub mod discovery;
pub mod dynamic;
pub mod error;
pub mod introduction;
pub mod predictor;
pub mod resource;
pub mod watch;

pub use client::{Auth, ClientError, Endpoint, in_process};
pub use discovery::Discovery;
pub use dynamic::Dynamic;
pub use error::{Trouble, trouble};
pub use kube::{self, Client};
pub use resource::Resource;
pub use watch::{Event, Item, Object, Target, follow};
