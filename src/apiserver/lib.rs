//! Kubernetes-style REST over store: strategies, watch, discovery, OpenAPI, admission, authentication and authorization.

pub mod auth;
pub mod controllers;
