//! The configuration file of `anabranch up`: read, checked as a whole, every fault told at once.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use program::exit::Hinted;

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

/// Makes a relative path whole, from the folder of the file that names it; says what is wrong with anything that is no repository.
fn locate(url: &mut String, base: &Path) -> Result<(), String> {
    let is_path = url.starts_with('.') || (!url.is_empty() && !url.contains(':') && base.join(&*url).is_dir());
    if is_path {
        *url = std::path::absolute(base.join(&*url)).map_err(|error| error.to_string())?.display().to_string();
    }
    url.parse::<git::Url>().map(|_| ()).map_err(|error| error.to_string())
}

/// Reads a configuration file.
pub(crate) fn read(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        anyhow::Error::new(error).context(Hinted {
            message: format!("read the configuration file {}", path.display()),
            hint: "write `source: {url: …}` and `delivery: {url: …}` into it, or name another with --config".to_owned(),
        })
    })?;
    let mut config: Config = serde_yaml::from_str(&text).with_context(|| format!("read the configuration file {}", path.display()))?;
    let mut faults = Vec::new();
    let base = path.parent().unwrap_or(Path::new(""));
    for (field, url) in [("source.url", &mut config.source.url), ("delivery.url", &mut config.delivery.url)] {
        if let Err(why) = locate(url, base) {
            faults.push(format!("{field}: {why}"));
        }
    }
    if let Some(interval) = config.source.interval.as_deref().filter(|interval| !regex::Regex::new(api::duration::PATTERN).is_ok_and(|pattern| pattern.is_match(interval))) {
        faults.push(format!("source.interval: {interval:?} is no duration; write for example 30s, 5m or 1h"));
    }
    let of_cluster = config.delivery.branch.as_deref().unwrap_or_default().replace("{cluster}", "x");
    for (field, branch) in [("source.branch", config.source.branch.as_str()), ("delivery.branch", &of_cluster)] {
        if !branch.is_empty() && !git::is_branch_name(branch) {
            faults.push(format!("{field}: {branch:?} cannot be the name of a branch"));
        }
    }
    let same = |url: &str| url.trim_end_matches('/').trim_end_matches(".git").to_owned();
    if same(&config.source.url) == same(&config.delivery.url) {
        faults.push("source.url and delivery.url are the same: branches of clusters must not go where people push".to_owned());
    }
    if config.delivery.branch.as_deref().is_some_and(|branch| !branch.contains("{cluster}")) {
        faults.push("delivery.branch lacks {cluster}: all clusters would share one branch".to_owned());
    }
    anyhow::ensure!(faults.is_empty(), "{}: {}", path.display(), faults.join("; "));
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Config, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("fleet")).unwrap();
        let file = folder.path().join("anabranch.yaml");
        std::fs::write(&file, text).unwrap();
        read(&file).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_up_would_stumble_over_is_said_before() {
        let good = "source: {url: 'https://example.org/a.git', interval: 1m30s}\ndelivery: {url: 'git@example.org:b.git'}\n";
        assert!(of(good).is_ok());
        for (from, to, words) in [
            ("https://example.org/a.git", "htp://x y", "source.url: "),
            ("https://example.org/a.git", "", "source.url: read repository address: it is empty"),
            ("git@example.org:b.git", "https://example.org/a/", "the same"),
            ("1m30s", "5parsecs", "source.interval: \"5parsecs\" is no duration"),
            ("1m30s", "s", "is no duration"),
            ("1m30s", "5", "is no duration"),
            ("interval", "branch: a..b, interval", "source.branch: \"a..b\" cannot be"),
            ("interval", "intervall", "unknown field"),
        ] {
            let said = of(&good.replace(from, to).replace("a.git', i", "a', i")).unwrap_err();
            assert!(said.contains(words), "{to}: {said}");
        }
    }

    #[test]
    fn relative_paths_are_from_the_file() {
        for path in ["./fleet", "fleet"] {
            let config = of(&format!("source: {{url: {path}}}\ndelivery: {{url: /b.git}}\n")).unwrap();
            assert!(config.source.url.starts_with('/') && config.source.url.ends_with("/fleet"), "{}", config.source.url);
        }
        assert!(of("source: {url: ./fleet}\ndelivery: {url: fleet/}\n").unwrap_err().contains("the same"));
    }
}
