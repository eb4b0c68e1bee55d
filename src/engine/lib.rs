//! How turns are taken: queue, cache, back-off, lease, clock, the observe-check-decide-perform-settle loop, the ports.
