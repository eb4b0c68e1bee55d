//! Helm charts: load from a map of bytes, values, render on minijinja, the same text as Helm.
