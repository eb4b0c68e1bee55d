//! Kubernetes-style REST over store: strategies, watch, discovery, OpenAPI, admission, authentication and authorization.
