//! libgit2: mirror, resolve, read tree, write commit, push; owns the blocking pool for it.
//!
//! libgit2 serves as object and reference database. The smart protocol itself is spoken here, since libgit2 knows neither
//! protocol 2 (one round trip for one reference), nor a push with the expected old value, nor how to count bytes.
//!
//! Invariants: a tree is only read from the object database and never checked out; a link is never followed; a credential is
//! only sent to the host it was given for, and never printed; a branch is only set when it has the value that was read before.

mod access;
mod error;
mod fetch;
mod http;
mod id;
mod native;
mod objects;
mod pack;
mod pkt;
mod process;
mod push;
mod remote;
mod revision;
mod transport;
mod tree;
mod url;
mod write;

#[cfg(test)]
mod tests;

pub use access::{Access, AccessError, Credential, Secret};
pub use error::{CommitError, FetchError, ReadError, ResolveError, TransportError};
pub use id::{BadId, ObjectId, ObjectKind};
pub use push::{RefOutcome, RefUpdate, Refusal, classify};
pub use remote::{Fetched, Git, Options, Remote};
pub use revision::{Revision, Selector, is_branch_name};
pub use tree::{Filter, Listing, Mode, TreeFile};
pub use url::{Url, UrlError};
pub use write::{Changes, Content, Draft, Message, Ours, Signature, Written};
