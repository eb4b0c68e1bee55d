//! Bench: builders, model world, fake clock, hermetic git, in-process API server client, wait_for, golden helper.
