//! libgit2: mirror, resolve, read tree, write commit, push; owns the blocking pool for it.
