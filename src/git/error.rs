//! What can go wrong on the way to a remote and back.

use std::io;
use std::time::Duration;

/// Why a remote could not be talked with.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection, or it broke.
    #[error("reach {host}")]
    Reach {
        /// The host or program.
        host: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The time allowed for the whole operation is over.
    #[error("reach {host}: no answer within {} s", limit.as_secs())]
    Timeout {
        /// The host or program.
        host: String,
        /// The time that was allowed.
        limit: Duration,
    },
    /// The certificates given are unusable.
    #[error("read certificates: {0}")]
    Certificates(String),
    /// The remote wants a (different) credential.
    #[error("authenticate at {host}: the credential is missing, wrong or expired")]
    Credential {
        /// The host.
        host: String,
    },
    /// The remote knows who asks, and says no.
    #[error("use repository at {host}: access denied: {text}")]
    Denied {
        /// The host.
        host: String,
        /// Its words.
        text: String,
    },
    /// No repository there (or none that this credential may see).
    #[error("open repository {url}: it does not exist, or this credential may not see it")]
    NoRepository {
        /// The address without secrets.
        url: String,
    },
    /// The remote asks to come back later.
    #[error("reach {host}: the host limits the rate of requests")]
    RateLimited {
        /// The host.
        host: String,
        /// How long it asks to wait.
        after: Option<Duration>,
    },
    /// The remote failed.
    #[error("use repository at {host}: answer {status}: {text}")]
    Server {
        /// The host.
        host: String,
        /// The HTTP status.
        status: u16,
        /// The beginning of its words.
        text: String,
    },
    /// The remote said something that the protocol does not know.
    #[error("talk with {host}: {text}")]
    Protocol {
        /// The host or program.
        host: String,
        /// What was wrong.
        text: String,
    },
    /// A credential would have travelled in the clear.
    #[error("reach {host}: a credential is not sent over plain http")]
    Plain {
        /// The host.
        host: String,
    },
    /// A program that the transport needs is missing or does not start.
    #[error("start `{program}`")]
    Program {
        /// Its name.
        program: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The proxy's address is unusable.
    #[error("read proxy address: not of the form http://host:port")]
    Proxy,
    /// The local object database failed.
    #[error("use object database")]
    Objects {
        /// What libgit2 said.
        #[source]
        source: git2::Error,
    },
    /// The data directory failed.
    #[error("use directory of mirrors")]
    Directory {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// More bytes than allowed.
    #[error("fetch: more than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: u64,
    },
    /// The work was given up, since the process stops.
    #[error("finish: the process is stopping")]
    Stopping,
}

impl TransportError {
    /// Whether trying again without any change can help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Reach { .. } | Self::Timeout { .. } | Self::RateLimited { .. } | Self::Protocol { .. } | Self::Stopping => true,
            Self::Server { status, .. } => *status >= 500,
            Self::Objects { .. } | Self::Directory { .. } => true,
            Self::Certificates(_)
            | Self::Credential { .. }
            | Self::Denied { .. }
            | Self::NoRepository { .. }
            | Self::Plain { .. }
            | Self::Program { .. }
            | Self::Proxy
            | Self::TooLarge { .. } => false,
        }
    }

    /// The CamelCase word for conditions and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Reach { .. } | Self::Server { .. } | Self::Protocol { .. } | Self::Program { .. } | Self::Stopping => "GitOperationFailed",
            Self::Timeout { .. } => "Timeout",
            Self::Certificates(_) | Self::Proxy => "InvalidAccess",
            Self::Credential { .. } | Self::Denied { .. } | Self::Plain { .. } => "AuthenticationFailed",
            Self::NoRepository { .. } => "RepositoryNotFound",
            Self::RateLimited { .. } => "RateLimited",
            Self::Objects { .. } | Self::Directory { .. } => "StorageFailed",
            Self::TooLarge { .. } => "TooLarge",
        }
    }
}

impl From<git2::Error> for TransportError {
    fn from(source: git2::Error) -> Self {
        Self::Objects { source }
    }
}

/// Why a revision could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The remote could not be asked.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The repository has no commit at all.
    #[error("resolve revision: the repository is empty")]
    Empty,
    /// There is no such branch, tag or commit.
    #[error("resolve revision: there is no {0}")]
    Missing(String),
    /// The name is no name of a reference.
    #[error("resolve revision: `{0}` is not a valid name")]
    Name(String),
    /// The range is no range of versions.
    #[error("resolve revision: `{0}` is not a range of versions")]
    Range(String),
}

impl ResolveError {
    /// Whether trying again without any change can help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Transport(error) if error.is_transient())
    }

    /// The CamelCase word for conditions and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Transport(error) => error.reason(),
            Self::Empty => "EmptyRepository",
            Self::Missing(_) => "RevisionNotFound",
            Self::Name(_) | Self::Range(_) => "InvalidRevision",
        }
    }
}

/// Why objects could not be brought here.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The remote could not be asked, or the pack was unusable.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The remote does not have (or show) this commit any more.
    #[error("fetch: the repository has no commit {0}")]
    Gone(crate::ObjectId),
}

/// Why a tree or file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The object is not here, or damaged.
    #[error("read {what}")]
    Object {
        /// Which one.
        what: String,
        /// What libgit2 said.
        #[source]
        source: git2::Error,
    },
    /// The tree is larger than allowed.
    #[error("read tree: more than {limit} files")]
    TooMany {
        /// The bound.
        limit: usize,
    },
    /// The tree is deeper than allowed.
    #[error("read tree: deeper than {limit} directories")]
    TooDeep {
        /// The bound.
        limit: usize,
    },
    /// The file is larger than allowed.
    #[error("read file: {size} bytes, more than {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The bound.
        limit: u64,
    },
    /// The repository could not be opened.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// Why a commit could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A path that Git or a file system would not take.
    #[error("write tree: `{0}` is not a valid path")]
    Path(String),
    /// One path is wanted as a file and as a directory.
    #[error("write tree: `{0}` would be a file and a directory")]
    Conflict(String),
    /// A name or address in the signature is empty or malformed.
    #[error("write commit: the author or committer is malformed")]
    Signature,
    /// The parent could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The object database failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}
