//! Hub: tunnel endpoint, proxy into children, shadow API, the Push path.
