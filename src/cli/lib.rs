//! What people type: arguments, configuration, the subcommands.
//!
//! Nothing is decided here. A subcommand turns arguments into the options of parts and runs them, or calls a pure room and
//! prints what it answers. Data goes to stdout, talk to stderr; [`program::exit`] says what the exit codes mean.

mod args;
mod bench;
mod config;
mod demo;
pub mod embedded;
mod hub;
mod parts;
mod review;
mod review_charts;
mod schedule;
mod template;
mod up;

use std::process::ExitCode;

use program::{exit, log, run};
use crate::args::{Args, Command};

/// Runs the program with the arguments of the process and returns its exit code.
pub fn main() -> ExitCode {
    let args: Args = match program::arguments() {
        Ok(args) => args,
        Err(code) => return code,
    };
    let runs_on = matches!(args.command, Command::Up(_) | Command::Agent(_) | Command::Hub(_) | Command::Scheduler(_) | Command::Controllers(_) | Command::Source(_));
    let filter = log::start(&args.log, if runs_on { "info" } else { "warn" });
    let result = match args.command {
        Command::Demo(args) => run(args.threads, demo::run(args)),
        Command::Up(args) => run(None, up::run(args, filter)),
        Command::Agent(args) => run(args.threads, program::agent::run(args, filter)),
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
