//! The side door every part opens: health, readiness, metrics, log filter.
