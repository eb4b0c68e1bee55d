//! Source controller: Git repositories into the parent.
