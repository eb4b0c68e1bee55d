//! Tables for the module of this name.
