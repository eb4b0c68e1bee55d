//! What a source repository asks of the parent: files in, objects to apply and to delete out.
//!
//! Invariant: nothing is deleted on a doubt. A file that cannot be read, an object that cannot be applied, an inventory that was not
//! listed to its end, or a revision that says nothing at all hold every deletion back.

mod assemble;
mod decide;
mod ignore;
mod read;
mod settle;
#[cfg(test)]
mod tests;

pub use assemble::{Desired, Place, Settings, Wanted, assemble, digest_of};
pub use decide::{Decision, Held, HeldBack, Inventory, decide};
pub use ignore::Ignore;
pub use read::{Body, ChartDirectories, Found, MAX_FILE, Parsed, is_wanted, keeps_itself, read};
pub use settle::{Report, settle};

/// Annotations that the source controller writes on what it applies.
pub mod annotation {
    /// Digest of what was applied; an equal one needs no request.
    pub const DIGEST: &str = "gitops.anabranch.io/source-digest";
    /// Revision at which the object's content last changed.
    pub const REVISION: &str = "gitops.anabranch.io/source-revision";
    /// File and line that the object came from at that revision.
    pub const PATH: &str = "gitops.anabranch.io/source-path";
}
