//! What a conversation with a remote needs besides its address: credentials, certificates, proxy, limits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Bytes or text that must never reach a log; compared and hashed, but not printed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// How to prove who asks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// User name and password (or token as password), for http and https.
    Basic {
        /// The user name.
        user: String,
        /// The password or token.
        password: Secret,
    },
    /// A bearer token, for http and https.
    Bearer(Secret),
    /// A private key in OpenSSH or PEM form, for ssh.
    SshKey {
        /// The key's text.
        key: Secret,
        /// The lines of `known_hosts`; without a matching one no connection is made.
        known_hosts: String,
    },
}

/// Everything about reaching a remote that is not its address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Access {
    /// How to prove who asks.
    pub credential: Option<Credential>,
    /// Certificates (PEM) that alone are trusted; the system's when absent.
    pub authority: Option<String>,
    /// `http://[user:password@]host:port` of a proxy for http and https.
    pub proxy: Option<Secret>,
    /// The longest time one whole operation may take.
    pub timeout: Duration,
    /// The most bytes one fetch may bring.
    pub max_fetch: u64,
}

impl Access {
    /// Nobody in particular: no credential, the system's certificates, one minute, 2 GiB.
    #[must_use]
    pub fn anonymous() -> Self {
        Self { credential: None, authority: None, proxy: None, timeout: Duration::from_secs(60), max_fetch: 2 << 30 }
    }
}
