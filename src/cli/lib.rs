//! What people type: arguments, configuration, logging, the subcommands, exit codes.
//!
//! Nothing is decided here. A subcommand turns arguments into the options of parts and runs them, or calls a pure room and
//! prints what it answers. Data goes to stdout, talk to stderr; [`exit`] says what the exit codes mean.

mod agent;
mod args;
mod bench;
mod config;
mod demo;
pub mod embedded;
mod exit;
mod hub;
mod log;
mod parts;
mod review;
mod review_charts;
mod schedule;
mod template;
mod up;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Command};

/// Runs the program with the arguments of the process and returns its exit code.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are data; everything else is a usage error. A closed pipe ends quietly.
            let usage = error.use_stderr();
            let _ = error.print();
            return if usage { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let runs_on = matches!(args.command, Command::Up(_) | Command::Agent(_) | Command::Hub(_) | Command::Scheduler(_) | Command::Controllers(_) | Command::Source(_));
    let filter = log::start(&args.log, if runs_on { "info" } else { "warn" });
    let result = match args.command {
        Command::Demo(args) => run(args.threads, demo::run(args)),
        Command::Up(args) => run(None, up::run(args, filter)),
        Command::Agent(args) => run(args.threads, agent::run(args, filter)),
        Command::Hub(args) => run(None, hub::run(args, filter)),
        Command::Scheduler(args) => run(None, parts::scheduler(args, filter)),
        Command::Controllers(args) => run(None, parts::controllers(args, filter)),
        Command::Source(args) => run(None, parts::source(args, filter)),
        Command::Plan(args) => run(None, review::run(args)),
        Command::Schedule(args) => run(None, schedule::run(args)),
        Command::Template(args) => template::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Version => {
            exit::print(&format!("anabranch {}\n", env!("CARGO_PKG_VERSION")));
            Ok(ExitCode::SUCCESS)
        }
    };
    exit::conclude(result)
}

/// Runs a future to its end on a runtime of its own. Blocking work left behind does not hold up the exit.
fn run(threads: Option<usize>, future: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.max(1));
    }
    let runtime = builder.enable_all().build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}
