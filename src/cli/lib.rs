//! Arguments, configuration, logging set-up, server subcommands, demo, exit codes.

/// Runs the program with the arguments of the process and returns its exit code.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
