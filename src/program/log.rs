//! Logging set-up: to stderr, text for terminals, JSON for machines, filter changeable through the admin door.

use clap::{Args as ClapArgs, ValueEnum};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, reload};


/// How to log.
#[derive(Debug, ClapArgs)]
pub struct LogArgs {
    /// Log filter, such as `info` or `warn,source=debug`; `info` when left out for what runs on, else `warn`
    #[arg(long, global = true, env = "ANABRANCH_LOG", value_name = "FILTER", value_parser = filter)]
    pub log_filter: Option<String>,
    /// Log format
    #[arg(long, global = true, env = "ANABRANCH_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// Form of a log line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Starts logging; `usual` is the filter where none is named. The handle changes the filter at run time.
pub fn start(args: &LogArgs, usual: &str) -> Option<admin::LogFilter> {
    let filter = EnvFilter::new(quiet(args.log_filter.as_deref().unwrap_or(usual)));
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let started = match args.log_format {
        LogFormat::Text => registry.with(layer.with_target(false)).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    };
    started.ok().map(|()| handle)
}

/// The client logs every failed request itself, which whoever asked says better: it is heard only where the filter names it.
fn quiet(filter: &str) -> String {
    format!("kube_client=off,{filter}")
}

/// Takes a filter as it is, or says why it is none.
pub fn filter(text: &str) -> Result<String, String> {
    EnvFilter::try_new(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
