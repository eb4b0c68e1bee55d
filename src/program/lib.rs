//! What every program of ours begins and ends with (logging, the side door, signals, exit codes), and the agent as a program.

pub mod agent;
pub mod exit;
pub mod log;
pub mod part;

use std::process::ExitCode;

/// Reads the arguments of the process; what is wrong with them, help and version are printed, and the exit code is the answer.
///
/// # Errors
/// The exit code, when there is nothing left to do.
pub fn arguments<A: clap::Parser>() -> Result<A, ExitCode> {
    A::try_parse().map_err(|error| {
        // Help and version are data; everything else is a usage error. A closed pipe ends quietly.
        let usage = error.use_stderr();
        let _ = error.print();
        if usage { exit::USAGE.into() } else { ExitCode::SUCCESS }
    })
}

/// Runs a future to its end on a runtime of its own. Blocking work left behind does not hold up the exit.
///
/// # Errors
/// When there is no runtime to be had, and the future's own.
pub fn run(threads: Option<usize>, future: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads.max(1));
    }
    let runtime = builder.enable_all().build()?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    result
}
