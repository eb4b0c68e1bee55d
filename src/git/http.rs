//! A small blocking HTTP/1.1 client for the smart protocol: one host, TLS by rustls, deadlines, bounded reads.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::access::{Access, Credential, Secret};
use crate::error::TransportError;
use crate::url::{bracketed, percent_decode};

/// The longest head of an answer.
const MAX_HEAD: usize = 64 * 1024;
/// How many times an answer may point elsewhere.
const MAX_REDIRECTS: usize = 5;

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) path: String,
}

/// A client of one repository.
pub(crate) struct Client {
    /// As configured: the only place that gets the credential.
    origin: Base,
    /// Where the host sent us, if it did.
    moved: Mutex<Option<Base>>,
    authorization: Option<Secret>,
    proxy: Option<Proxy>,
    tls: Arc<ClientConfig>,
    timeout: Duration,
    idle: Arc<Mutex<Option<(Base, Conn)>>>,
    received: Arc<AtomicU64>,
}

struct Proxy {
    host: String,
    port: u16,
    authorization: Option<Secret>,
}

/// One answer; its body must be read to the end for the connection to be used again.
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Body,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }
}

type Conn = BufReader<Wire>;

/// A socket that counts and keeps a deadline.
struct Wire {
    stream: Stream,
    deadline: Instant,
    received: Arc<AtomicU64>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    fn arm(&mut self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let socket = match &self.stream {
            Stream::Plain(s) => s,
            Stream::Tls(s) => &s.sock,
        };
        socket.set_read_timeout(Some(left))?;
        socket.set_write_timeout(Some(left))
    }
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.arm()?;
        let n = match &mut self.stream {
            Stream::Plain(s) => s.read(buf)?,
            Stream::Tls(s) => match s.read(buf) {
                // Some hosts end without close_notify; the length of the body says whether anything is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                other => other?,
            },
        };
        self.received.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.arm()?;
        match &mut self.stream {
            Stream::Plain(s) => s.write(buf),
            Stream::Tls(s) => s.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(s) => s.flush(),
            Stream::Tls(s) => s.flush(),
        }
    }
}

/// The body of an answer.
pub(crate) struct Body {
    conn: Option<Conn>,
    left: Left,
    home: Option<(Base, Arc<Mutex<Option<(Base, Conn)>>>)>,
}

enum Left {
    Length(u64),
    /// Bytes left of the current chunk; `None` before its size line.
    Chunk(Option<u64>),
    ToEnd,
    Nothing,
}

impl Read for Body {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some(conn) = self.conn.as_mut() else { return Ok(0) };
        if buf.is_empty() {
            return Ok(0);
        }
        loop {
            match &mut self.left {
                Left::Nothing => return Ok(0),
                Left::ToEnd => return conn.read(buf),
                Left::Length(0) => {
                    self.done();
                    return Ok(0);
                }
                Left::Length(left) => {
                    let most = buf.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let n = conn.read(&mut buf[..most])?;
                    if n == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    *left -= n as u64;
                    if *left == 0 {
                        self.done();
                    }
                    return Ok(n);
                }
                Left::Chunk(None) => {
                    let line = head_line(conn)?;
                    let size = line.split(';').next().unwrap_or("").trim();
                    let size = u64::from_str_radix(size, 16).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "malformed chunk"))?;
                    if size == 0 {
                        while !head_line(conn)?.is_empty() {}
                        self.done();
                        return Ok(0);
                    }
                    self.left = Left::Chunk(Some(size));
                }
                Left::Chunk(Some(0)) => {
                    head_line(conn)?;
                    self.left = Left::Chunk(None);
                }
                Left::Chunk(Some(left)) => {
                    let most = buf.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    let n = conn.read(&mut buf[..most])?;
                    if n == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    *left -= n as u64;
                    return Ok(n);
                }
            }
        }
    }
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self { conn: None, left: Left::Nothing, home: None }
    }

    /// The body is read: the connection goes back for the next request.
    fn done(&mut self) {
        self.left = Left::Nothing;
        if let (Some(conn), Some((base, home))) = (self.conn.take(), self.home.take()) {
            *home.lock() = Some((base, conn));
        }
    }

    /// Reads what is left, at most this many bytes, as text for people.
    pub(crate) fn text(&mut self, most: usize) -> String {
        let mut out = Vec::new();
        // What could not be read of an error text is no error of its own.
        let _ = self.take(most as u64).read_to_end(&mut out);
        String::from_utf8_lossy(&out).trim().to_owned()
    }
}

fn head_line(from: &mut Conn) -> io::Result<String> {
    let mut line = Vec::new();
    from.by_ref().take(MAX_HEAD as u64).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    while matches!(line.last(), Some(b'\n' | b'\r')) {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

impl Client {
    pub(crate) fn new(origin: Base, url_user: Option<(&str, Option<&str>)>, access: &Access, received: Arc<AtomicU64>) -> Result<Self, TransportError> {
        let authorization = match (&access.credential, url_user) {
            (Some(Credential::Basic { user, password }), _) => Some(basic(user, password.reveal())),
            (Some(Credential::Bearer(token)), _) => Some(Secret::new(format!("Bearer {}", token.reveal()))),
            (Some(Credential::SshKey { .. }) | None, Some((user, password))) => Some(basic(user, password.unwrap_or(""))),
            (Some(Credential::SshKey { .. }) | None, None) => None,
        };
        let loopback = matches!(origin.host.as_str(), "localhost" | "127.0.0.1" | "::1");
        if authorization.is_some() && !origin.tls && !loopback {
            return Err(TransportError::Plain { host: origin.host });
        }
        Ok(Self {
            origin,
            moved: Mutex::new(None),
            authorization,
            proxy: access.proxy.as_ref().map(parse_proxy).transpose()?,
            tls: tls(access)?,
            timeout: access.timeout,
            idle: Arc::new(Mutex::new(None)),
            received,
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.origin.host
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request below the repository's path, follows where a GET is sent, and maps failures of HTTP.
    pub(crate) fn send(&self, method: &str, suffix: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, TransportError> {
        let deadline = Instant::now() + self.timeout;
        let mut base = self.moved.lock().clone().unwrap_or_else(|| self.origin.clone());
        for _ in 0..=MAX_REDIRECTS {
            let mut answer = self.once(&base, deadline, method, suffix, headers, body)?;
            if matches!(answer.status, 301 | 302 | 303 | 307 | 308) && method == "GET" {
                let target = answer.header("location").map(str::to_owned);
                answer.body.text(MAX_HEAD);
                base = self.follow(&base, target.as_deref(), suffix)?;
                *self.moved.lock() = Some(base.clone());
                continue;
            }
            return self.checked(answer);
        }
        Err(self.protocol("it redirects without end"))
    }

    fn protocol(&self, text: &str) -> TransportError {
        TransportError::Protocol { host: self.origin.host.clone(), text: text.to_owned() }
    }

    fn checked(&self, mut answer: Answer) -> Result<Answer, TransportError> {
        let host = self.origin.host.clone();
        let after = answer.header("retry-after").and_then(|t| t.trim().parse::<u64>().ok()).map(Duration::from_secs);
        let spent = answer.header("x-ratelimit-remaining").is_some_and(|t| t.trim() == "0");
        match answer.status {
            200 => Ok(answer),
            401 => Err(TransportError::Credential { host }),
            429 => Err(TransportError::RateLimited { host, after }),
            403 if after.is_some() || spent => Err(TransportError::RateLimited { host, after }),
            403 => Err(TransportError::Denied { host, text: answer.body.text(512) }),
            404 | 410 => Err(TransportError::NoRepository { url: self.shown() }),
            503 if after.is_some() => Err(TransportError::RateLimited { host, after }),
            status => Err(TransportError::Server { host, status, text: answer.body.text(512) }),
        }
    }

    fn shown(&self) -> String {
        let scheme = if self.origin.tls { "https" } else { "http" };
        format!("{scheme}://{}:{}{}", bracketed(&self.origin.host), self.origin.port, self.origin.path)
    }

    /// The base that `location` points to: it must end as the request did, and may not leave TLS.
    fn follow(&self, from: &Base, location: Option<&str>, suffix: &str) -> Result<Base, TransportError> {
        let location = location.ok_or_else(|| self.protocol("it redirects to nowhere"))?;
        let whole = if let Some(path) = location.strip_prefix('/') {
            let scheme = if from.tls { "https" } else { "http" };
            format!("{scheme}://{}:{}/{path}", bracketed(&from.host), from.port)
        } else {
            location.to_owned()
        };
        let bare = suffix.split('?').next().unwrap_or(suffix);
        let end = whole.split('?').next().unwrap_or("");
        let root = end.strip_suffix(bare).ok_or_else(|| self.protocol("it redirects to something that is no repository"))?;
        let url: crate::url::Url = root.parse().map_err(|_| self.protocol("it redirects to a malformed address"))?;
        match url.kind() {
            crate::url::Kind::Http { tls, host, port, path, .. } if *tls || !from.tls => {
                Ok(Base { tls: *tls, host: host.clone(), port: *port, path: path.clone() })
            }
            _ => Err(self.protocol("it redirects away from https")),
        }
    }

    fn once(&self, base: &Base, deadline: Instant, method: &str, suffix: &str, headers: &[(&str, &str)], body: &[u8]) -> Result<Answer, TransportError> {
        let reach = |source: io::Error| match source.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => TransportError::Timeout { host: base.host.clone(), limit: self.timeout },
            _ => TransportError::Reach { host: base.host.clone(), source },
        };
        let mut head = String::with_capacity(512);
        let absolute = self.proxy.is_some() && !base.tls;
        let prefix = if absolute { format!("http://{}:{}", bracketed(&base.host), base.port) } else { String::new() };
        let usual = if base.tls { 443 } else { 80 };
        let authority = if base.port == usual { bracketed(&base.host) } else { format!("{}:{}", bracketed(&base.host), base.port) };
        head.push_str(&format!("{method} {prefix}{}{suffix} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: git/2.0 (anabranch)\r\n", base.path));
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let same_place = base.host == self.origin.host && base.port == self.origin.port && base.tls == self.origin.tls;
        if let Some(authorization) = self.authorization.as_ref().filter(|_| same_place) {
            head.push_str(&format!("Authorization: {}\r\n", authorization.reveal()));
        }
        if let Some(authorization) = self.proxy.as_ref().filter(|_| absolute).and_then(|p| p.authorization.as_ref()) {
            head.push_str(&format!("Proxy-Authorization: {}\r\n", authorization.reveal()));
        }
        if method == "POST" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");

        // A kept connection may have been closed by the host meanwhile: then one fresh try.
        let kept = self.idle.lock().take().filter(|(b, _)| b == base).map(|(_, c)| c);
        if let Some(mut conn) = kept {
            conn.get_mut().deadline = deadline;
            if let Ok(answer) = exchange(conn, &head, body, base, &self.idle) {
                return Ok(answer);
            }
        }
        let conn = self.dial(base, deadline).map_err(|error| match error {
            Dial::Io(source) => reach(source),
            Dial::Said(error) => error,
        })?;
        exchange(conn, &head, body, base, &self.idle).map_err(reach)
    }

    fn dial(&self, base: &Base, deadline: Instant) -> Result<Conn, Dial> {
        let (host, port) = match &self.proxy {
            Some(proxy) => (proxy.host.as_str(), proxy.port),
            None => (base.host.as_str(), base.port),
        };
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let mut socket = None;
        for address in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left.min(Duration::from_secs(15))) {
                Ok(found) => {
                    socket = Some(found);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let socket = socket.ok_or(last)?;
        socket.set_nodelay(true)?;
        let mut wire = Wire { stream: Stream::Plain(socket), deadline, received: self.received.clone() };
        if base.tls {
            if let Some(proxy) = &self.proxy {
                wire = self.connect(wire, base, proxy)?;
            }
            let Stream::Plain(socket) = wire.stream else { return Err(io::Error::other("tls twice").into()) };
            let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            socket.set_read_timeout(Some(left))?;
            socket.set_write_timeout(Some(left))?;
            let name = ServerName::try_from(base.host.clone()).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "malformed host name"))?;
            let client = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
            let mut stream = StreamOwned::new(client, socket);
            stream.conn.complete_io(&mut stream.sock)?;
            wire.stream = Stream::Tls(Box::new(stream));
        }
        Ok(BufReader::with_capacity(32 * 1024, wire))
    }

    /// Asks the proxy for a tunnel.
    fn connect(&self, mut wire: Wire, base: &Base, proxy: &Proxy) -> Result<Wire, Dial> {
        let place = format!("{}:{}", bracketed(&base.host), base.port);
        let mut head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(authorization) = &proxy.authorization {
            head.push_str(&format!("Proxy-Authorization: {}\r\n", authorization.reveal()));
        }
        head.push_str("\r\n");
        wire.write_all(head.as_bytes())?;
        // Byte by byte, since what follows the head belongs to TLS.
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if seen.len() > MAX_HEAD || wire.read(&mut byte)? == 0 {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the proxy closed").into());
            }
            seen.push(byte[0]);
        }
        let text = String::from_utf8_lossy(&seen);
        match text.split_whitespace().nth(1) {
            Some("200") => Ok(wire),
            Some("407") => Err(Dial::Said(TransportError::Credential { host: proxy.host.clone() })),
            status => Err(io::Error::new(io::ErrorKind::ConnectionRefused, format!("the proxy answered {}", status.unwrap_or("nothing"))).into()),
        }
    }
}

enum Dial {
    Io(io::Error),
    Said(TransportError),
}

impl From<io::Error> for Dial {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn exchange(mut conn: Conn, head: &str, body: &[u8], base: &Base, idle: &Arc<Mutex<Option<(Base, Conn)>>>) -> io::Result<Answer> {
    let wire = conn.get_mut();
    wire.write_all(head.as_bytes())?;
    wire.write_all(body)?;
    wire.flush()?;
    loop {
        let line = head_line(&mut conn)?;
        let mut words = line.split_whitespace();
        let version = words.next().unwrap_or("").to_owned();
        let status: u16 = words.next().and_then(|w| w.parse().ok()).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no HTTP"))?;
        let mut headers = Vec::new();
        let mut size = 0;
        loop {
            let line = head_line(&mut conn)?;
            if line.is_empty() {
                break;
            }
            size += line.len();
            if size > MAX_HEAD {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "head too long"));
            }
            if let Some((name, value)) = line.split_once(':') {
                headers.push((name.trim().to_owned(), value.trim().to_owned()));
            }
        }
        if (100..200).contains(&status) {
            continue;
        }
        let find = |name: &str| headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.to_ascii_lowercase());
        let keep = version == "HTTP/1.1" && find("connection").is_none_or(|v| v != "close");
        let (left, keep) = if find("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
            (Left::Chunk(None), keep)
        } else if let Some(length) = find("content-length") {
            let length = length.parse().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "malformed length"))?;
            (Left::Length(length), keep)
        } else if status == 204 || status == 304 {
            (Left::Length(0), keep)
        } else {
            (Left::ToEnd, false)
        };
        let home = keep.then(|| (base.clone(), idle.clone()));
        return Ok(Answer { status, headers, body: Body { conn: Some(conn), left, home } });
    }
}

fn basic(user: &str, password: &str) -> Secret {
    Secret::new(format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))))
}

fn parse_proxy(text: &Secret) -> Result<Proxy, TransportError> {
    let rest = text.reveal().trim_end_matches('/').strip_prefix("http://").ok_or(TransportError::Proxy)?;
    let (info, place) = match rest.rsplit_once('@') {
        Some((info, place)) => (Some(info), place),
        None => (None, rest),
    };
    let (host, port) = place.rsplit_once(':').ok_or(TransportError::Proxy)?;
    let authorization = info.map(|info| {
        let (user, password) = info.split_once(':').unwrap_or((info, ""));
        basic(&percent_decode(user), &percent_decode(password))
    });
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(Proxy { host, port: port.parse().map_err(|_| TransportError::Proxy)?, authorization })
}

/// Reading the system's certificates takes milliseconds, so that is done once for all remotes without their own.
fn tls(access: &Access) -> Result<Arc<ClientConfig>, TransportError> {
    static SYSTEM: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let Some(pem) = &access.authority else {
        if let Some(config) = SYSTEM.get() {
            return Ok(config.clone());
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let config = Arc::new(config(roots)?);
        return Ok(SYSTEM.get_or_init(|| config).clone());
    };
    let mut roots = RootCertStore::empty();
    for certificate in rustls_pemfile::certs(&mut pem.as_bytes()) {
        let certificate = certificate.map_err(|e| TransportError::Certificates(e.to_string()))?;
        roots.add(certificate).map_err(|e| TransportError::Certificates(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(TransportError::Certificates("no certificate in the text".to_owned()));
    }
    Ok(Arc::new(config(roots)?))
}

fn config(roots: RootCertStore) -> Result<ClientConfig, TransportError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| TransportError::Certificates(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
