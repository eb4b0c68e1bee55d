//! What a kind's schema says: defaulting, pruning, validation, CEL, strategic merge, server-side apply.
