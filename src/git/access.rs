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

    /// `scheme user:secret@rest` with both escaped, as the address of a proxy is written.
    #[must_use]
    pub fn in_url(&self, scheme: &str, user: &str, rest: &str) -> String {
        let escape = |text: &str| text.bytes().map(|b| if b.is_ascii_alphanumeric() || b"-._~".contains(&b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect::<String>();
        format!("{scheme}{}:{}@{rest}", escape(user), escape(self.reveal()))
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

/// Why the entries of a Secret are no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// An entry is no text.
    #[error("read credential: `{0}` is no text")]
    Text(&'static str),
    /// Only one half of a pair is there.
    #[error("read credential: `{0}` is missing")]
    Missing(&'static str),
    /// No known entry is there.
    #[error("read credential: there is neither `password`, nor `bearerToken`, nor `identity`")]
    Nothing,
}

impl Credential {
    /// Reads the entries of a Secret: `username` and `password`, or `bearerToken`, or `identity` and `known_hosts`.
    ///
    /// # Errors
    /// When none of these is there, or half of a pair.
    pub fn from_entries(entries: &std::collections::BTreeMap<String, Vec<u8>>) -> Result<Self, AccessError> {
        let get = |key: &'static str| match entries.get(key) {
            None => Ok(None),
            Some(bytes) => String::from_utf8(bytes.clone()).map(Some).map_err(|_| AccessError::Text(key)),
        };
        if let Some(key) = get("identity")? {
            let known_hosts = get("known_hosts")?.ok_or(AccessError::Missing("known_hosts"))?;
            return Ok(Self::SshKey { key: Secret::new(key), known_hosts });
        }
        if let Some(token) = get("bearerToken")? {
            return Ok(Self::Bearer(Secret::new(token.trim())));
        }
        match (get("username")?, get("password")?) {
            (user, Some(password)) => Ok(Self::Basic { user: user.unwrap_or_else(|| "git".to_owned()).trim().to_owned(), password: Secret::new(password.trim_end_matches(['\n', '\r'])) }),
            (Some(_), None) => Err(AccessError::Missing("password")),
            (None, None) => Err(AccessError::Nothing),
        }
    }
}
