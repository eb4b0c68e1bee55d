//! The one test binary: every test file is declared here.
