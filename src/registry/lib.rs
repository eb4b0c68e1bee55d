//! Chart repositories: HTTP index and OCI, fetched with credentials that never leave the host they are for.
//!
//! A [`Client`] finds the version of a chart that a range asks for, fetches the archive and checks its digest. It never writes
//! files, and never follows a redirect to another host with credentials.

mod http;
mod oci;
pub mod pool;
pub mod provenance;
mod repository;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use chart::func::semver::{Constraints, Version};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use http::Tls;
pub use pool::Pool;

/// A text that is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(s: impl Into<String>) -> Self {
        Self(s.into())
    }
    /// The text, for the wire only.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Name and password for one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub username: String,
    /// Password or token.
    pub password: Secret,
}

/// How a repository is spoken to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Credentials for the repository's host.
    pub credentials: Option<Credentials>,
    /// TLS.
    pub tls: Tls,
    /// OCI over plain HTTP.
    pub plain_http: bool,
    /// For one request, headers to last byte.
    pub timeout: Duration,
    /// Largest archive, in bytes.
    pub max_archive: usize,
    /// Largest index, in bytes; it is read in pieces.
    pub max_index: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { credentials: None, tls: Tls::default(), plain_http: false, timeout: Duration::from_secs(60), max_archive: 100 << 20, max_index: 512 << 20 }
    }
}

/// A chart in a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `https://…`, `http://…` or `oci://…`.
    pub repository: String,
    /// Name of the chart.
    pub chart: String,
    /// Version or range; empty takes the newest release.
    pub version: String,
}

/// A version that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Version.
    pub version: String,
    /// Where the archive is.
    pub url: String,
    /// sha256 of the archive in hexadecimal, if the repository tells.
    pub digest: Option<String>,
}

/// A fetched chart.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// Version.
    pub version: String,
    /// sha256 of the archive in hexadecimal.
    pub digest: String,
    /// The archive (.tgz).
    pub archive: Bytes,
}

/// Whether a chart is where it should be, as HelmChart's status says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is.
    Found,
    /// It is not.
    NotFound,
}

/// Why a chart could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be used.
    #[error("parse address {url}: {problem}")]
    Address {
        /// Address without credentials.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// No connection, or it broke.
    #[error("reach {host}: {problem}")]
    Connect {
        /// Host and port.
        host: String,
        /// What the network said.
        problem: String,
    },
    /// The server took too long.
    #[error("wait for {host}")]
    Timeout {
        /// Host and port.
        host: String,
    },
    /// An answer that is no success.
    #[error("fetch {url}: status {status}")]
    Status {
        /// Address without credentials.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// An answer larger than allowed.
    #[error("fetch {url}: larger than {limit} bytes")]
    TooLarge {
        /// Address without credentials.
        url: String,
        /// Bound in bytes.
        limit: usize,
    },
    /// An answer that cannot be read.
    #[error("read {what} of {url}: {problem}")]
    Format {
        /// Index, manifest, token.
        what: &'static str,
        /// Address without credentials.
        url: String,
        /// What is wrong.
        problem: String,
    },
    /// No such chart.
    #[error("find chart {chart} in {repository}")]
    NoChart {
        /// Chart.
        chart: String,
        /// Repository.
        repository: String,
    },
    /// No version in the range.
    #[error("find version {version:?} of chart {chart}")]
    NoVersion {
        /// Chart.
        chart: String,
        /// Range.
        version: String,
    },
    /// The archive is not the one the repository speaks of.
    #[error("check digest of {url}: want {want}, have {have}")]
    Digest {
        /// Address without credentials.
        url: String,
        /// Expected sha256.
        want: String,
        /// Actual sha256.
        have: String,
    },
    /// TLS material that cannot be used.
    #[error("load TLS options: {0}")]
    Tls(String),
}

impl Error {
    /// CamelCase reason for conditions and events.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::NoChart { .. } | Error::NoVersion { .. } => "ChartNotFound",
            Error::Status { status: 401 | 403, .. } => "ChartForbidden",
            Error::Digest { .. } => "ChartDigestMismatch",
            Error::Address { .. } | Error::Tls(_) => "ChartAddressInvalid",
            Error::Format { .. } | Error::TooLarge { .. } => "ChartRepositoryInvalid",
            Error::Connect { .. } | Error::Timeout { .. } | Error::Status { .. } => "ChartRepositoryUnreachable",
        }
    }
    /// May the same request succeed later without a change by the user?
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Connect { .. } | Error::Timeout { .. }) || matches!(self, Error::Status { status, .. } if *status >= 500 || *status == 429)
    }
}

/// Versions of one chart remembered with the validators of the index they came from.
#[derive(Clone, Debug)]
struct Remembered {
    etag: Option<String>,
    modified: Option<String>,
    versions: Arc<Vec<Resolved>>,
}

/// A client of one repository host.
#[derive(Debug)]
pub struct Client {
    http: http::Http,
    options: Options,
    indexes: parking_lot::Mutex<HashMap<(String, String), Remembered>>,
}

impl Client {
    /// A client.
    pub fn new(options: Options) -> Result<Self, Error> {
        Ok(Self { http: http::Http::new(&options)?, options, indexes: parking_lot::Mutex::default() })
    }

    /// All versions of a chart, in the repository's order.
    pub async fn versions(&self, r: &Reference) -> Result<Vec<Resolved>, Error> {
        if r.repository.starts_with("oci://") { self.oci_versions(r).await } else { self.index_versions(r).await.map(|v| v.to_vec()) }
    }

    /// The version a reference asks for.
    pub async fn resolve(&self, r: &Reference) -> Result<Resolved, Error> {
        // An exact tag of an OCI repository needs no listing.
        if r.repository.starts_with("oci://") && Version::parse(&r.version).is_ok_and(|v| v.original.split('.').count() >= 3) {
            return self.oci_exact(r);
        }
        let all = self.versions(r).await?;
        choose(&all, &r.version).cloned().ok_or_else(|| Error::NoVersion { chart: r.chart.clone(), version: r.version.clone() })
    }

    /// Fetches the archive a reference asks for.
    pub async fn pull(&self, r: &Reference) -> Result<Pulled, Error> {
        let found = self.resolve(r).await?;
        self.pull_found(r, &found).await
    }

    /// Fetches the archive of a version that was found.
    pub async fn pull_found(&self, r: &Reference, found: &Resolved) -> Result<Pulled, Error> {
        if r.repository.starts_with("oci://") { self.oci_pull(r, found).await } else { self.index_pull(r, found).await }
    }

    /// Fetches the provenance of a version that was found, and the name of the archive in it.
    pub async fn provenance(&self, r: &Reference, found: &Resolved) -> Result<(Bytes, String), Error> {
        if r.repository.starts_with("oci://") {
            let name = r.chart.rsplit('/').next().unwrap_or_default();
            return Ok((self.oci_provenance(r, found).await?, format!("{name}-{}.tgz", found.version)));
        }
        let file = found.url.split(['?', '#']).next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        Ok((self.index_provenance(r, found).await?, file.to_owned()))
    }

    /// Is the chart there? Faults that say nothing about it are given back.
    pub async fn verify(&self, r: &Reference) -> Result<Phase, Error> {
        match self.resolve(r).await {
            Ok(found) if r.repository.starts_with("oci://") => match self.oci_manifest(r, &found).await {
                Ok(_) => Ok(Phase::Found),
                Err(Error::Status { status: 404, .. } | Error::NoChart { .. }) => Ok(Phase::NotFound),
                Err(e) => Err(e),
            },
            Ok(_) => Ok(Phase::Found),
            Err(Error::NoChart { .. } | Error::NoVersion { .. } | Error::Status { status: 404, .. }) => Ok(Phase::NotFound),
            Err(e) => Err(e),
        }
    }
}

/// The newest version in a range; an exact version wins as it is written; nothing asks for the newest release.
pub fn choose<'v>(all: &'v [Resolved], range: &str) -> Option<&'v Resolved> {
    let range = range.trim();
    if let Some(v) = all.iter().find(|v| v.version == range) {
        return Some(v);
    }
    let c = Constraints::parse(if range.is_empty() { "*" } else { range }).ok()?;
    all.iter().filter_map(|r| Version::parse(&r.version).ok().filter(|v| c.check(v)).map(|v| (v, r))).max_by(|a, b| a.0.order(&b.0)).map(|(_, r)| r)
}
