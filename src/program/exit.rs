//! Exit codes, and how an error is told.

use std::io::Write as _;
use std::process::ExitCode;

/// A fault of the arguments; `plan` also answers it for "something changes".
pub const USAGE: u8 = 2;
/// Something failed.
pub const FAILED: u8 = 1;
/// A server cannot be reached.
pub const UNREACHABLE: u8 = 3;

/// An error with a command that helps.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Hinted {
    /// What failed.
    pub message: String,
    /// What to run or change.
    pub hint: String,
}

/// Writes data to stdout; a closed pipe is no error.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever closed the pipe has read enough.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes talk to stderr.
pub fn say(text: &str) {
    let mut err = std::io::stderr().lock();
    let _ = writeln!(err, "{text}");
}

/// Tells an error and finds its exit code.
pub fn conclude(result: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match result {
        Ok(code) => return code,
        Err(error) => error,
    };
    if error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)) {
        return ExitCode::SUCCESS;
    }
    say(&format!("error: {}", cluster::error::chain(error.as_ref())));
    // As a context it is no link of the chain, but found among the contexts.
    if let Some(hinted) = error.downcast_ref::<Hinted>() {
        say(&format!("\nhint: {}", hinted.hint));
    }
    let unreachable = error.chain().any(|cause| {
        cause.downcast_ref::<kube::Error>().is_some_and(|e| matches!(e, kube::Error::Service(_) | kube::Error::HyperError(_)))
            || cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    ExitCode::from(if unreachable { UNREACHABLE } else { FAILED })
}
