//! Words: kinds, validated names, selectors, conditions and reasons, defaulting, validation, schema export.
