//! `anabranch bench`: figures as tables, or as one JSON object a row.

pub(crate) mod api;
mod path;
mod schedule;

use std::process::ExitCode;

use crate::args::{Bench, BenchArgs};

/// Measures and prints.
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.what {
        Bench::Schedule(args) => schedule::run(&args),
        Bench::Path(args) => crate::run(None, path::run(args)),
        Bench::Api(args) => crate::run(None, api::run(args)),
        Bench::Serve(args) => crate::run(None, api::serve(args)),
    }
}
