//! Embedded object store: revisions, watch log, durable file.
