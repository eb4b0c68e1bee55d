//! Controllers: registration, life cycle, deploy pipeline, overrides, status, branch writer.
