//! A Git service as a program: `ssh` for remotes, `git` for local repositories that have hooks.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::access::{Access, Credential};
use crate::error::TransportError;
use crate::transport::Service;

/// How much of a program's complaint is kept.
const KEEP: usize = 16 * 1024;

/// A running program and the three ends of it.
pub(crate) struct Process {
    host: String,
    url: String,
    limit: Duration,
    child: Arc<Mutex<Child>>,
    input: Option<ChildStdin>,
    output: Counted,
    complaint: Arc<Mutex<Vec<u8>>>,
    expired: Arc<AtomicBool>,
    /// Dropped to call the watchdog off.
    watchdog: Option<mpsc::Sender<()>>,
    reader: Option<std::thread::JoinHandle<()>>,
    /// Key and known hosts, removed with the session.
    _secrets: Option<SecretFiles>,
}

struct Counted {
    from: ChildStdout,
    received: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buf)?;
        self.received.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Files with secrets, readable by their owner only, gone when dropped.
struct SecretFiles {
    directory: std::path::PathBuf,
}

impl SecretFiles {
    fn new(scratch: &Path, key: &str, known_hosts: &str) -> io::Result<Self> {
        use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let directory = scratch.join(format!("ssh-{}-{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let made = Self { directory };
        let write = |name: &str, text: &str| {
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(made.directory.join(name))?;
            file.write_all(text.as_bytes())?;
            if text.ends_with('\n') { Ok(()) } else { file.write_all(b"\n") }
        };
        write("key", key)?;
        write("known_hosts", known_hosts)?;
        Ok(made)
    }
}

impl Drop for SecretFiles {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Process {
    /// Starts `git upload-pack` or `git receive-pack` in a local repository.
    pub(crate) fn local(path: &Path, service: Service, access: &Access, received: Arc<AtomicU64>) -> Result<Self, TransportError> {
        let mut command = Command::new("git");
        command.arg(service.program().trim_start_matches("git-")).arg("--").arg(path);
        if service == Service::Receive {
            // `receive-pack` knows no `--`.
            command = Command::new("git");
            command.arg("receive-pack").arg(path);
        }
        Self::start(command, "git", "git".to_owned(), path.display().to_string(), service, access, received, None)
    }

    /// Starts the service at the other end of an ssh connection.
    #[expect(clippy::too_many_arguments, reason = "the parts of one address")]
    pub(crate) fn ssh(
        scratch: &Path,
        user: Option<&str>,
        host: &str,
        port: Option<u16>,
        path: &str,
        service: Service,
        access: &Access,
        received: Arc<AtomicU64>,
    ) -> Result<Self, TransportError> {
        let mut command = Command::new("ssh");
        command.args(["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "SendEnv=GIT_PROTOCOL", "-T"]);
        command.arg("-o").arg(format!("ConnectTimeout={}", access.timeout.as_secs().clamp(1, 30)));
        let secrets = match &access.credential {
            Some(Credential::SshKey { key, known_hosts }) => {
                let files = SecretFiles::new(scratch, key.reveal(), known_hosts).map_err(|source| TransportError::Directory { source })?;
                command.args(["-F", "/dev/null", "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "GlobalKnownHostsFile=/dev/null"]);
                command.arg("-o").arg(format!("UserKnownHostsFile={}", files.directory.join("known_hosts").display()));
                command.arg("-i").arg(files.directory.join("key"));
                Some(files)
            }
            // Without a key of its own the call is a person's: their agent and known hosts serve.
            Some(Credential::Basic { .. } | Credential::Bearer(_)) | None => None,
        };
        if let Some(port) = port {
            command.arg("-p").arg(port.to_string());
        }
        let place = match user {
            Some(user) => format!("{user}@{host}"),
            None => host.to_owned(),
        };
        command.arg("--").arg(place).arg(format!("{} '{}'", service.program(), path.replace('\'', "'\\''")));
        Self::start(command, "ssh", host.to_owned(), format!("ssh://{host}{path}"), service, access, received, secrets)
    }

    #[expect(clippy::too_many_arguments, reason = "private, two callers")]
    fn start(
        mut command: Command,
        program: &'static str,
        host: String,
        url: String,
        service: Service,
        access: &Access,
        received: Arc<AtomicU64>,
        secrets: Option<SecretFiles>,
    ) -> Result<Self, TransportError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE"] {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C").env("GIT_TERMINAL_PROMPT", "0");
        if service == Service::Upload {
            command.env("GIT_PROTOCOL", "version=2");
        }
        let mut child = command.spawn().map_err(|source| TransportError::Program { program, source })?;
        let taken = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(input), Some(output), Some(mut errors)) = taken else {
            return Err(TransportError::Program { program, source: io::Error::other("no pipes") });
        };
        let child = Arc::new(Mutex::new(child));
        let complaint = Arc::new(Mutex::new(Vec::new()));
        let kept = complaint.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n) = errors.read(&mut buffer) {
                if n == 0 {
                    break;
                }
                let mut kept = kept.lock();
                let room = KEEP.saturating_sub(kept.len());
                kept.extend_from_slice(&buffer[..n.min(room)]);
            }
        });
        let (watchdog, called_off) = mpsc::channel::<()>();
        let expired = Arc::new(AtomicBool::new(false));
        let (limit, victim, mark) = (access.timeout, child.clone(), expired.clone());
        std::thread::spawn(move || {
            if called_off.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                mark.store(true, Ordering::Relaxed);
                let _ = victim.lock().kill();
            }
        });
        Ok(Self {
            host,
            url,
            limit,
            child,
            input: Some(input),
            output: Counted { from: output, received },
            complaint,
            expired,
            watchdog: Some(watchdog),
            reader: Some(reader),
            _secrets: secrets,
        })
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Where the answers come from.
    pub(crate) fn output(&mut self) -> &mut dyn Read {
        &mut self.output
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self.input.as_mut() {
            Some(input) => {
                input.write_all(bytes)?;
                input.flush()
            }
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Closes the program's input and waits for its end; what it complained about is returned.
    pub(crate) fn finish(&mut self) -> String {
        self.input = None;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        self.watchdog = None;
        let _ = self.child.lock().wait();
        String::from_utf8_lossy(&self.complaint.lock()).trim().to_owned()
    }

    /// What a broken conversation means, judged by what the program complained about.
    pub(crate) fn explain(&mut self, error: io::Error) -> TransportError {
        let host = self.host.clone();
        if self.expired.load(Ordering::Relaxed) {
            return TransportError::Timeout { host, limit: self.limit };
        }
        if error.kind() == io::ErrorKind::InvalidData || error.kind() == io::ErrorKind::Other {
            return TransportError::Protocol { host, text: error.to_string() };
        }
        let text = self.finish();
        if self.expired.load(Ordering::Relaxed) {
            return TransportError::Timeout { host, limit: self.limit };
        }
        let has = |part: &str| text.to_ascii_lowercase().contains(part);
        if has("permission denied (") || has("no supported authentication") || has("load key") {
            TransportError::Credential { host }
        } else if has("host key verification failed") || has("remote host identification has changed") {
            TransportError::Denied { host, text: "the host's key is not among the known hosts".to_owned() }
        } else if has("does not appear to be a git repository") || has("not a git repository") || has("repository not found") || has("no such file or directory") {
            TransportError::NoRepository { url: self.url.clone() }
        } else if has("could not resolve") || has("connection refused") || has("connection timed out") || has("connection closed") || has("no route") {
            TransportError::Reach { host, source: io::Error::other(last_line(&text)) }
        } else if text.is_empty() {
            TransportError::Reach { host, source: error }
        } else {
            TransportError::Denied { host, text: last_line(&text) }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        self.watchdog = None;
        let mut child = self.child.lock();
        if !matches!(child.try_wait(), Ok(Some(_))) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn last_line(text: &str) -> String {
    text.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("").trim().to_owned()
}
