//! Chart repositories: HTTP index, OCI.
