//! YAML and JSON documents: parse with positions, emit, order, patch, override, diff, hash.
