//! `anabranch bench`: figures as tables, or as one JSON object a row.

pub(crate) mod api;
pub(crate) mod chart;
mod path;
mod schedule;
mod tunnel;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use program::exit::say;

use crate::args::{Bench, BenchArgs};

/// Measures and prints.
pub(crate) fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    match args.what {
        Bench::Chart(args) => chart::run(&args),
        Bench::Schedule(args) => schedule::run(&args),
        Bench::Path(args) => crate::run(None, path::run(args)),
        Bench::Tunnel(args) => crate::run(None, tunnel::run(args)),
        Bench::Api(args) => crate::run(None, api::run(args)),
        Bench::Serve(args) => crate::run(None, api::serve(args)),
    }
}

/// A figure of a process (`self` or its number) in kiB, as `/proc` has it; nothing where the system does not tell.
fn status_kib(process: &str, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let rest = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Kibibytes as mebibytes.
#[expect(clippy::cast_precision_loss, reason = "memory for a table")]
fn mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

/// A folder that goes with the bench.
struct Scratch(PathBuf);

impl Scratch {
    fn new(within: Option<&Path>, what: &str) -> Result<Self> {
        let within = within.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = within.join(format!("anabranch-bench-{what}-{:08x}", rand::random::<u32>()));
        std::fs::create_dir_all(&path).with_context(|| format!("make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            say(&format!("left {} behind: {error}", self.0.display()));
        }
    }
}
