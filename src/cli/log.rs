//! Logging set-up: to stderr, text for terminals, JSON for machines, filter changeable through the admin door.

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, reload};

use crate::args::{LogArgs, LogFormat};

/// Starts logging. The handle changes the filter at run time.
pub(crate) fn start(args: &LogArgs) -> Option<admin::LogFilter> {
    let filter = EnvFilter::try_new(&args.log_filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let (filter, handle) = reload::Layer::new(filter);
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    let started = match args.log_format {
        LogFormat::Text => registry.with(layer.with_target(false)).try_init(),
        LogFormat::Json => registry.with(layer.json()).try_init(),
    };
    started.ok().map(|()| handle)
}
