//! One conversation with a Git service, over HTTP requests or over a program's pipes.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::access::Access;
use crate::error::TransportError;
use crate::http::{Base, Body, Client};
use crate::process::Process;
use crate::url::{Kind, Url};

/// Which of the two services is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Reading.
    Upload,
    /// Writing.
    Receive,
}

impl Service {
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Upload => "git-upload-pack",
            Self::Receive => "git-receive-pack",
        }
    }
}

/// How a remote is reached; made once per remote, so that connections can be kept.
pub(crate) enum Link {
    Http(Client),
    Ssh { user: Option<String>, host: String, port: Option<u16>, path: String, scratch: PathBuf, access: Access, received: Arc<AtomicU64> },
    Local { path: PathBuf, access: Access, received: Arc<AtomicU64> },
}

impl Link {
    pub(crate) fn new(url: &Url, access: &Access, scratch: &Path, received: Arc<AtomicU64>) -> Result<Self, TransportError> {
        Ok(match url.kind() {
            Kind::Path(path) => Self::Local { path: path.clone(), access: access.clone(), received },
            Kind::Http { tls, host, port, path, user, password } => {
                let base = Base { tls: *tls, host: host.clone(), port: *port, path: path.clone() };
                let info = user.as_deref().map(|u| (u, password.as_deref()));
                Self::Http(Client::new(base, info, access, received)?)
            }
            Kind::Ssh { user, host, port, path } => Self::Ssh {
                user: user.clone(),
                host: host.clone(),
                port: *port,
                path: path.clone(),
                scratch: scratch.to_path_buf(),
                access: access.clone(),
                received,
            },
        })
    }

    /// Whether each request stands alone, so that the greeting can be skipped once it is known.
    pub(crate) fn is_stateless(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    pub(crate) fn open(&self, service: Service) -> Result<Session<'_>, TransportError> {
        Ok(match self {
            Self::Http(client) => Session::Http { client, service, body: None },
            Self::Ssh { user, host, port, path, scratch, access, received } => {
                Session::Process(Process::ssh(scratch, user.as_deref(), host, *port, path, service, access, received.clone())?)
            }
            Self::Local { path, access, received } => Session::Process(Process::local(path, service, access, received.clone())?),
        })
    }
}

/// A conversation under way.
pub(crate) enum Session<'l> {
    Http { client: &'l Client, service: Service, body: Option<Body> },
    Process(Process),
}

impl Session<'_> {
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Http { client, .. } => client.host(),
            Self::Process(process) => process.host(),
        }
    }

    /// Starts the conversation: afterwards [`Session::answer`] reads the greeting, whose first line is returned when it was already read.
    pub(crate) fn greet(&mut self) -> Result<Option<String>, TransportError> {
        match self {
            Self::Http { client, service, body } => {
                let mut headers = vec![("Accept", "*/*")];
                if *service == Service::Upload {
                    headers.push(("Git-Protocol", "version=2"));
                }
                let program = service.program();
                let mut answer = client.send("GET", &format!("/info/refs?service={program}"), &headers, &[])?;
                let wanted = format!("application/x-{program}-advertisement");
                if answer.header("content-type").is_none_or(|t| t != wanted) {
                    return Err(TransportError::Protocol { host: client.host().to_owned(), text: "it does not speak the smart protocol".to_owned() });
                }
                let host = client.host().to_owned();
                let broken = |e: io::Error| TransportError::Protocol { host: host.clone(), text: e.to_string() };
                // Version 2 leaves the service line out; then the greeting begins at once.
                let first = crate::pkt::read_line(&mut answer.body).map_err(&broken)?;
                let first = match first {
                    Some(line) if line.starts_with("# service=") => {
                        crate::pkt::read(&mut answer.body).map_err(&broken)?;
                        None
                    }
                    Some(line) => Some(line),
                    None => return Err(TransportError::Protocol { host, text: "the greeting is malformed".to_owned() }),
                };
                *body = Some(answer.body);
                Ok(first)
            }
            Self::Process(_) => Ok(None),
        }
    }

    /// Sends a request; afterwards [`Session::answer`] reads its answer.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<(), TransportError> {
        match self {
            Self::Http { client, service, body } => {
                drain(body.take());
                let program = service.program();
                let kind = format!("application/x-{program}-request");
                let accept = format!("application/x-{program}-result");
                let mut headers = vec![("Content-Type", kind.as_str()), ("Accept", accept.as_str())];
                if *service == Service::Upload {
                    headers.push(("Git-Protocol", "version=2"));
                }
                let answer = client.send("POST", &format!("/{program}"), &headers, request)?;
                *body = Some(answer.body);
                Ok(())
            }
            Self::Process(process) => {
                if let Err(error) = process.send(request) {
                    return Err(process.explain(error));
                }
                Ok(())
            }
        }
    }

    /// Where the current answer is read from.
    pub(crate) fn answer(&mut self) -> &mut dyn Read {
        match self {
            Self::Http { body: Some(body), .. } => body,
            Self::Http { body, .. } => body.insert(Body::empty()),
            Self::Process(process) => process.output(),
        }
    }

    /// What a failed read of an answer means.
    pub(crate) fn explain(&mut self, error: io::Error) -> TransportError {
        match self {
            Self::Http { client, .. } => match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => TransportError::Timeout { host: client.host().to_owned(), limit: client.timeout() },
                io::ErrorKind::InvalidData | io::ErrorKind::Other => TransportError::Protocol { host: client.host().to_owned(), text: error.to_string() },
                _ => TransportError::Reach { host: client.host().to_owned(), source: error },
            },
            Self::Process(process) => process.explain(error),
        }
    }

    /// Ends the conversation in good order; what the other side complained about is returned.
    pub(crate) fn finish(&mut self) -> String {
        match self {
            Self::Http { body, .. } => {
                drain(body.take());
                String::new()
            }
            Self::Process(process) => process.finish(),
        }
    }
}

/// Reads the little that may follow the last packet, so that the connection can be kept.
fn drain(body: Option<Body>) {
    if let Some(mut body) = body {
        body.text(4096);
    }
}
