//! Addresses of repositories; what is secret in them is never printed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a repository lives. `Display` and `Debug` leave out user information and queries.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Url {
    kind: Kind,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// A directory of this machine.
    Path(PathBuf),
    /// `http://` or `https://`.
    Http { tls: bool, host: String, port: u16, path: String, user: Option<String>, password: Option<String> },
    /// `ssh://` or `user@host:path`.
    Ssh { user: Option<String>, host: String, port: Option<u16>, path: String },
}

/// Why a text is no address of a repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Nothing was given.
    #[error("read repository address: it is empty")]
    Empty,
    /// The scheme is not one of those spoken here.
    #[error("read repository address: scheme `{0}` is not one of file, http, https, ssh")]
    Scheme(String),
    /// The host is missing or could be taken for an option of a program.
    #[error("read repository address: the host is missing or malformed")]
    Host,
    /// The port is no number from 1 to 65535.
    #[error("read repository address: the port is no number from 1 to 65535")]
    Port,
    /// The path is missing or could be taken for an option of a program.
    #[error("read repository address: the path is missing or malformed")]
    Path,
    /// A `file://` address that names another machine.
    #[error("read repository address: a file address cannot name a host")]
    FileHost,
    /// Control characters would allow to smuggle header lines.
    #[error("read repository address: it holds control characters")]
    Control,
}

impl Url {
    /// The directory, when this is a local repository.
    #[must_use]
    pub fn local_path(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Path(path) => Some(path),
            Kind::Http { .. } | Kind::Ssh { .. } => None,
        }
    }

    /// The host, when this is a remote repository.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        match &self.kind {
            Kind::Path(_) => None,
            Kind::Http { host, .. } | Kind::Ssh { host, .. } => Some(host),
        }
    }

    pub(crate) fn kind(&self) -> &Kind {
        &self.kind
    }
}

impl From<&Path> for Url {
    fn from(path: &Path) -> Self {
        Self { kind: Kind::Path(path.to_path_buf()) }
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(UrlError::Empty);
        }
        if text.chars().any(char::is_control) {
            return Err(UrlError::Control);
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return match scheme.to_ascii_lowercase().as_str() {
                "file" => file(rest),
                "http" => http(false, rest),
                "https" => http(true, rest),
                "ssh" | "git+ssh" | "ssh+git" => ssh(rest),
                other => Err(UrlError::Scheme(other.to_owned())),
            };
        }
        // `host:path` is ssh, as in git, when no slash stands before the colon.
        if let Some((before, path)) = text.split_once(':')
            && !before.contains('/')
            && !before.is_empty()
        {
            let (user, host) = match before.rsplit_once('@') {
                Some((user, host)) => (Some(user.to_owned()), host),
                None => (None, before),
            };
            return checked_ssh(user, host, None, path);
        }
        Ok(Self { kind: Kind::Path(PathBuf::from(text)) })
    }
}

fn file(rest: &str) -> Result<Url, UrlError> {
    let path = match rest.strip_prefix("localhost/") {
        Some(path) => format!("/{path}"),
        None if rest.starts_with('/') => rest.to_owned(),
        None => return Err(UrlError::FileHost),
    };
    Ok(Url { kind: Kind::Path(PathBuf::from(percent_decode(&path))) })
}

fn http(tls: bool, rest: &str) -> Result<Url, UrlError> {
    let (authority, path) = match rest.find('/') {
        Some(at) => (&rest[..at], &rest[at..]),
        None => (rest, "/"),
    };
    let (info, host_port) = match authority.rsplit_once('@') {
        Some((info, host)) => (Some(info), host),
        None => (None, authority),
    };
    let (user, password) = match info {
        None => (None, None),
        Some(info) => match info.split_once(':') {
            Some((user, password)) => (Some(percent_decode(user)), Some(percent_decode(password))),
            None => (Some(percent_decode(info)), None),
        },
    };
    let (host, port) = split_port(host_port)?;
    let path = path.split(['?', '#']).next().unwrap_or("/").trim_end_matches('/').to_owned();
    if path.contains(' ') {
        return Err(UrlError::Path);
    }
    let host = checked_host(&host)?;
    Ok(Url { kind: Kind::Http { tls, host, port: port.unwrap_or(if tls { 443 } else { 80 }), path, user, password } })
}

fn ssh(rest: &str) -> Result<Url, UrlError> {
    let (authority, path) = rest.split_once('/').ok_or(UrlError::Path)?;
    let (user, host_port) = match authority.rsplit_once('@') {
        // A password in an ssh address is dropped: ssh itself would ask a person for it.
        Some((info, host)) => (info.split(':').next().map(percent_decode), host),
        None => (None, authority),
    };
    let (host, port) = split_port(host_port)?;
    let path = percent_decode(path);
    let path = if path.starts_with('~') { path } else { format!("/{path}") };
    checked_ssh(user, &host, port, &path)
}

fn checked_ssh(user: Option<String>, host: &str, port: Option<u16>, path: &str) -> Result<Url, UrlError> {
    let host = checked_host(host)?;
    if path.is_empty() || path.starts_with('-') {
        return Err(UrlError::Path);
    }
    if user.as_deref().is_some_and(|u| u.starts_with('-') || u.is_empty()) {
        return Err(UrlError::Host);
    }
    Ok(Url { kind: Kind::Ssh { user, host, port, path: path.to_owned() } })
}

fn checked_host(host: &str) -> Result<String, UrlError> {
    let fine = !host.is_empty()
        && !host.starts_with('-')
        && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':'));
    if fine { Ok(host.to_ascii_lowercase()) } else { Err(UrlError::Host) }
}

fn split_port(text: &str) -> Result<(String, Option<u16>), UrlError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or(UrlError::Host)?;
        let port = match after.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None => None,
        };
        return Ok((host.to_owned(), port));
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((host.to_owned(), Some(parse_port(port)?))),
        None => Ok((text.to_owned(), None)),
    }
}

fn parse_port(text: &str) -> Result<u16, UrlError> {
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(UrlError::Port),
    }
}

/// Turns `%2F` into `/`; a lone `%` stays as it is.
pub(crate) fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%'
            && let Some(pair) = bytes.get(at + 1..at + 3)
            && let Ok(pair) = std::str::from_utf8(pair)
            && let Ok(byte) = u8::from_str_radix(pair, 16)
        {
            out.push(byte);
            at += 3;
            continue;
        }
        out.push(bytes[at]);
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A host as it stands in a URL: IPv6 addresses in brackets.
pub(crate) fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Path(path) => write!(f, "{}", path.display()),
            Kind::Http { tls, host, port, path, .. } => {
                let scheme = if *tls { "https" } else { "http" };
                let usual = if *tls { 443 } else { 80 };
                if *port == usual {
                    write!(f, "{scheme}://{}{path}", bracketed(host))
                } else {
                    write!(f, "{scheme}://{}:{port}{path}", bracketed(host))
                }
            }
            Kind::Ssh { user, host, port, path } => {
                f.write_str("ssh://")?;
                if let Some(user) = user {
                    write!(f, "{user}@")?;
                }
                f.write_str(&bracketed(host))?;
                if let Some(port) = port {
                    write!(f, ":{port}")?;
                }
                if !path.starts_with('/') {
                    f.write_str("/")?;
                }
                f.write_str(path)
            }
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str) {
        match text.parse::<Url>() {
            Ok(url) => assert_eq!(url.to_string(), shown),
            Err(error) => assert_eq!(error.to_string(), shown),
        }
    }

    #[test]
    fn addresses() {
        check("/srv/a.git", "/srv/a.git");
        check("./a.git", "./a.git");
        check("file:///srv/a%20b.git", "/srv/a b.git");
        check("file://localhost/srv/a.git", "/srv/a.git");
        check("file://elsewhere/a", "read repository address: a file address cannot name a host");
        check("https://someone:secret@Example.org/a/b.git", "https://example.org/a/b.git");
        check("https://example.org:8443/a/b.git/?token=x", "https://example.org:8443/a/b.git");
        check("http://[::1]:80/a", "http://[::1]/a");
        check("git@example.org:team/app.git", "ssh://git@example.org/team/app.git");
        check("ssh://git:pw@example.org:2222/team/app.git", "ssh://git@example.org:2222/team/app.git");
        check("ssh://-oProxyCommand=x/y", "read repository address: the host is missing or malformed");
        check("-oProxyCommand=x:y", "read repository address: the host is missing or malformed");
        check("git@example.org:-x", "read repository address: the path is missing or malformed");
        check("ftp://a/b", "read repository address: scheme `ftp` is not one of file, http, https, ssh");
        check("https://a:99999/b", "read repository address: the port is no number from 1 to 65535");
        check("https://a\r\nX: y/b", "read repository address: it holds control characters");
        check("", "read repository address: it is empty");
    }

    #[test]
    fn secrets_stay_inside() {
        let url: Url = "https://someone:hunter2@example.org/a".parse().expect("parses");
        assert!(!format!("{url} {url:?}").contains("hunter2"));
    }
}
