//! kubectl plugin: the fleet at a glance, and a Subscription down to its objects and their health.
//!
//! Data on stdout, talk on stderr. It only reads, with the caller's own kubeconfig.

mod explain;
mod status;
mod tree;

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

/// Looks at a fleet that Anabranch drives
#[derive(Debug, Parser)]
#[command(name = "kubectl anabranch", version, about, disable_help_subcommand = true)]
struct Args {
    /// Kubeconfig of the parent
    #[arg(long, global = true, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<std::path::PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print every cluster with its branch, its commits and its health
    Status,
    /// Print why a Subscription is where it is: what the scheduler wrote, and its decision as a table
    Explain {
        /// The Subscription, `sub/NAME` or `NAME`
        name: String,
        /// Its namespace
        #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
        namespace: String,
        /// Configuration of the scheduler, when it has one (the file that it is given itself)
        #[arg(long, value_name = "FILE")]
        config: Option<std::path::PathBuf>,
    },
    /// Print a Subscription down to the objects and their health
    Tree {
        /// Name of the Subscription
        name: String,
        /// Its namespace
        #[arg(long, short, default_value = "default", value_name = "NAMESPACE")]
        namespace: String,
    },
}

/// Runs the program with the arguments of the process and returns its exit code.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let usage = error.use_stderr();
            // A closed pipe ends quietly.
            let _ = error.print();
            return if usage { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return told(&anyhow::Error::new(error)),
    };
    match runtime.block_on(run(args)) {
        Ok(text) => {
            // Whoever closed the pipe has read enough.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => told(&error),
    }
}

fn told(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr().lock(), "error: {}", cluster::error::chain(error.as_ref()));
    ExitCode::FAILURE
}

async fn run(args: Args) -> Result<String> {
    let kubeconfig = cluster::client::read_kubeconfig(args.kubeconfig.as_deref())?;
    let kubeconfig = kubeconfig.context("find the parent: there is no ~/.kube/config; set KUBECONFIG or give --kubeconfig")?;
    let client = cluster::client::of_kubeconfig(kubeconfig, None).await?;
    match args.command {
        Command::Status => status::text(&client).await,
        Command::Explain { name, namespace, config } => {
            let framework = explain::framework(config.as_deref())?;
            explain::text(&client, &namespace, explain::name(&name)?, framework.as_ref()).await
        }
        Command::Tree { name, namespace } => tree::text(&client, &namespace, explain::name(&name)?).await,
    }
}

/// Columns three blanks apart, as kubectl prints them.
fn table(rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            match widths.get_mut(at) {
                Some(width) => *width = (*width).max(cell.chars().count()),
                None => widths.push(cell.chars().count()),
            }
        }
    }
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(cells.join("   ").trim_end());
        out.push('\n');
    }
    out
}
