//! The configuration file of `anabranch up`: read, checked as a whole, every fault told at once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::exit::Hinted;

/// `anabranch.yaml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Config {
    /// Where all state lives.
    #[serde(default = "default_dir")]
    pub(crate) dir: PathBuf,
    /// Address of the parent's API server.
    #[serde(default = "default_listen")]
    pub(crate) listen: SocketAddr,
    /// Address for health and metrics.
    #[serde(default = "default_admin")]
    pub(crate) admin: SocketAddr,
    /// The repository that says what is wanted.
    pub(crate) source: Source,
    /// The repository that gets each cluster's branch.
    pub(crate) delivery: Delivery,
}

/// Where the source is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Source {
    /// `https://`, `ssh://`, `file://` or a path.
    pub(crate) url: String,
    /// Branch.
    #[serde(default = "default_branch")]
    pub(crate) branch: String,
    /// Folders to read; all when empty.
    #[serde(default)]
    pub(crate) paths: Vec<String>,
    /// Between two looks at a remote repository, such as `1m`.
    #[serde(default)]
    pub(crate) interval: Option<String>,
    /// Secret in `clusternet-system` with the credential.
    #[serde(default)]
    pub(crate) secret: Option<String>,
}

/// Where branches go.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Delivery {
    /// `https://`, `ssh://`, `file://` or a path.
    pub(crate) url: String,
    /// Name of a cluster's branch, with `{cluster}` in it.
    #[serde(default)]
    pub(crate) branch: Option<String>,
    /// Secret in `clusternet-system` with the credential.
    #[serde(default)]
    pub(crate) secret: Option<String>,
}

fn default_dir() -> PathBuf {
    PathBuf::from("anabranch-data")
}

fn default_listen() -> SocketAddr {
    // Where Kubernetes' own API servers listen.
    ([0, 0, 0, 0], 6443).into()
}

fn default_admin() -> SocketAddr {
    ([127, 0, 0, 1], 10660).into()
}

fn default_branch() -> String {
    "main".to_owned()
}

/// Reads a configuration file.
pub(crate) fn read(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        anyhow::Error::new(error).context(Hinted {
            message: format!("read the configuration file {}", path.display()),
            hint: "write `source: {url: …}` and `delivery: {url: …}` into it, or name another with --config".to_owned(),
        })
    })?;
    let config: Config = serde_yaml::from_str(&text).with_context(|| format!("read the configuration file {}", path.display()))?;
    let mut faults = Vec::new();
    if config.source.url.trim().is_empty() {
        faults.push("source.url is empty".to_owned());
    }
    if config.delivery.url.trim().is_empty() {
        faults.push("delivery.url is empty".to_owned());
    }
    if config.source.url == config.delivery.url {
        faults.push("source.url and delivery.url are the same: branches of clusters must not go where people push".to_owned());
    }
    if config.delivery.branch.as_deref().is_some_and(|branch| !branch.contains("{cluster}")) {
        faults.push("delivery.branch lacks {cluster}: all clusters would share one branch".to_owned());
    }
    anyhow::ensure!(faults.is_empty(), "{}: {}", path.display(), faults.join("; "));
    Ok(config)
}
