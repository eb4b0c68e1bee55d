//! A repository somewhere, as the product uses it: resolve, bring, read, write, push. All blocking work runs on bounded threads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::error::{CommitError, FetchError, ReadError, ResolveError, TransportError};
use crate::fetch::{self, Advert, Ask, Greeting};
use crate::id::{ObjectId, ObjectKind};
use crate::native;
use crate::objects::Objects;
use crate::pack::Packer;
use crate::push::{self, RefOutcome, RefUpdate};
use crate::revision::{self, Revision, Selector};
use crate::transport::{Link, Service};
use crate::tree::{self, Filter, Listing};
use crate::url::Url;
use crate::write::{self, Draft, Written};

/// How the room works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where mirrors of remote repositories are kept.
    pub directory: PathBuf,
    /// How many threads work on this machine's disks at once.
    pub local_threads: usize,
    /// How many threads wait for remote hosts at once.
    pub network_threads: usize,
}

/// All repositories of a process; cheap to clone. One mirror and one set of connections per address and access, however many ask.
#[derive(Clone)]
pub struct Git {
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    local: Arc<Semaphore>,
    network: Arc<Semaphore>,
    remotes: Mutex<BTreeMap<(Url, Access), Weak<Inner>>>,
}

/// One repository; cheap to clone.
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
    git: Arc<Shared>,
}

struct Inner {
    url: Url,
    access: Access,
    objects: Objects,
    link: Link,
    /// What the host can do, once it was asked; lets stateless requests skip the greeting.
    capabilities: Mutex<Option<Vec<String>>>,
    received: Arc<AtomicU64>,
    /// Packs that were added since the process began.
    added: AtomicU64,
}

/// So many additions, and the repository is packed anew: many small packs make every lookup slow.
const TIDY_EVERY: u64 = 64;

/// What a fetch cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fetched {
    /// Bytes that came over the network; 0 when all was here, or the repository is local.
    pub bytes: u64,
}

impl Git {
    /// Keeps mirrors under `options.directory`, which is made when needed.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            shared: Arc::new(Shared {
                directory: options.directory,
                local: Arc::new(Semaphore::new(options.local_threads.max(1))),
                network: Arc::new(Semaphore::new(options.network_threads.max(1))),
                remotes: Mutex::new(BTreeMap::new()),
            }),
        }
    }

    /// The repository at this address; nothing is contacted yet.
    ///
    /// # Errors
    /// When the access is unusable for the address (certificates, proxy, a credential over plain http) or the mirror cannot be made.
    pub async fn remote(&self, url: &Url, access: &Access) -> Result<Remote, TransportError> {
        let key = (url.clone(), access.clone());
        if let Some(inner) = self.shared.remotes.lock().get(&key).and_then(Weak::upgrade) {
            return Ok(Remote { inner, git: self.shared.clone() });
        }
        let shared = self.shared.clone();
        let inner = run(&self.shared.local, move || {
            let mut remotes = shared.remotes.lock();
            if let Some(inner) = remotes.get(&key).and_then(Weak::upgrade) {
                return Ok(inner);
            }
            let inner = Arc::new(Inner::new(&key.0, &key.1, &shared.directory)?);
            remotes.retain(|_, inner| inner.strong_count() > 0);
            remotes.insert(key, Arc::downgrade(&inner));
            Ok::<_, TransportError>(inner)
        })
        .await?;
        Ok(Remote { inner, git: self.shared.clone() })
    }
}

/// Runs blocking work when a place is free.
async fn run<T: Send + 'static, E: From<TransportError> + Send + 'static>(places: &Arc<Semaphore>, work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E> {
    let place = places.clone().acquire_owned().await.map_err(|_| TransportError::Stopping)?;
    let done = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    match done.await {
        Ok(out) => out,
        Err(_) => Err(TransportError::Stopping.into()),
    }
}

impl Inner {
    fn new(url: &Url, access: &Access, directory: &Path) -> Result<Self, TransportError> {
        let received = Arc::new(AtomicU64::new(0));
        let objects = match url.local_path() {
            Some(path) => Objects::existing(path),
            None => {
                // The credential is part of the name: what one may read must not be served to another.
                let name = ObjectId::hash(ObjectKind::Blob, format!("{url}\n{}", fingerprint(access)).as_bytes());
                Objects::mirror(&directory.join(format!("{name}.git")))?
            }
        };
        let link = Link::new(url, access, directory, received.clone())?;
        Ok(Self { url: url.clone(), access: access.clone(), objects, link, capabilities: Mutex::new(None), received, added: AtomicU64::new(0) })
    }

    fn is_local(&self) -> bool {
        self.url.local_path().is_some()
    }

    /// Has `git` pack the repository now and then, as `git` itself does after pushes and fetches; without `git` it only gets slower.
    ///
    /// A mirror has no references, so there everything is kept; in a local repository `git` judges by its own settings.
    fn tidy(&self) {
        if (self.added.fetch_add(1, Ordering::Relaxed) + 1) % TIDY_EVERY != 0 {
            return;
        }
        let (path, local) = (self.objects.path().to_path_buf(), self.is_local());
        std::thread::spawn(move || {
            use std::process::{Command, Stdio};
            let mut command = Command::new("git");
            command.arg("-C").arg(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if local {
                command.args(["gc", "--auto", "--quiet"]);
            } else {
                command.args(["repack", "-a", "-d", "-k", "-q"]);
            }
            if let Err(error) = command.status() {
                tracing::debug!(path = %path.display(), error = %error, "cannot pack a repository");
            }
        });
    }

    /// Greets the host, or takes its capabilities from memory where each request stands alone.
    fn greeting(&self, session: &mut crate::transport::Session<'_>) -> Result<Greeting, TransportError> {
        if self.link.is_stateless()
            && let Some(known) = self.capabilities.lock().clone()
        {
            return Ok(Greeting::Second(known));
        }
        let greeting = fetch::greeting(session)?;
        if let Greeting::Second(capabilities) = &greeting {
            *self.capabilities.lock() = Some(capabilities.clone());
        }
        Ok(greeting)
    }

    fn refs(&self, prefixes: &[String]) -> Result<Advert, TransportError> {
        if self.is_local() {
            return self.objects.with(|r| native::refs(r, prefixes));
        }
        let mut session = self.link.open(Service::Upload)?;
        let greeting = self.greeting(&mut session)?;
        let out = fetch::list(&mut session, greeting, prefixes)?;
        session.finish();
        Ok(out)
    }

    fn fetch(&self, wants: &[ObjectId], haves: &[ObjectId]) -> Result<Fetched, FetchError> {
        let mut missing = Vec::new();
        for want in wants {
            if !self.objects.has(*want)? {
                missing.push(*want);
            }
        }
        if missing.is_empty() {
            return Ok(Fetched::default());
        }
        if self.is_local() {
            return Err(FetchError::Gone(missing[0]));
        }
        let mut here = Vec::new();
        for have in haves {
            if self.objects.has(*have)? {
                here.push(*have);
            }
        }
        let before = self.received.load(Ordering::Relaxed);
        let mut session = self.link.open(Service::Upload)?;
        let greeting = self.greeting(&mut session)?;
        self.objects.with::<_, FetchError>(|repository| {
            let odb = repository.odb().map_err(TransportError::from)?;
            let mut sink = Sink { head: Vec::new(), total: 0, limit: self.access.max_fetch, writer: odb.packwriter().map_err(TransportError::from)? };
            fetch::fetch(&mut session, &greeting, &Ask { wants: &missing, haves: &here }, &mut sink)?;
            let empty = sink.head.get(8..12).is_none_or(|n| n == [0; 4]);
            if !empty {
                sink.writer.commit().map_err(TransportError::from)?;
            }
            odb.refresh().map_err(TransportError::from)?;
            Ok(())
        })?;
        session.finish();
        self.tidy();
        for want in &missing {
            if !self.objects.has(*want)? {
                return Err(FetchError::Gone(*want));
            }
        }
        Ok(Fetched { bytes: self.received.load(Ordering::Relaxed) - before })
    }

    fn push(&self, updates: &[RefUpdate]) -> Result<BTreeMap<String, RefOutcome>, TransportError> {
        if self.is_local()
            && let Some(out) = self.objects.with::<_, TransportError>(|r| native::push(r, updates))?
        {
            self.tidy();
            return Ok(out);
        }
        let mut session = self.link.open(Service::Receive)?;
        let advert = push::greeting(&mut session)?;
        let mut out = BTreeMap::new();
        let mut send = Vec::new();
        for update in updates {
            let found = advert.refs.get(&update.name).copied().unwrap_or(ObjectId::ZERO);
            if found == update.new {
                out.insert(update.name.clone(), RefOutcome::Done);
            } else if found == update.old {
                send.push(update.clone());
            } else {
                let found = (!found.is_zero()).then_some(found);
                out.insert(update.name.clone(), RefOutcome::Lost { found });
            }
        }
        if send.is_empty() {
            return Ok(out);
        }
        let needed: BTreeSet<ObjectId> = send.iter().flat_map(|u| u.objects.iter().copied()).collect();
        let pack = if needed.is_empty() { Packer::new().finish() } else { self.objects.pack(needed.into_iter())? };
        out.extend(push::push(&mut session, &advert, &send, &pack)?);
        Ok(out)
    }
}

/// Takes the pack into the object database, within the bound.
struct Sink<'r> {
    head: Vec<u8>,
    total: u64,
    limit: u64,
    writer: git2::OdbPackwriter<'r>,
}

impl std::io::Write for Sink<'_> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.total += buf.len() as u64;
        if self.total > self.limit {
            return Err(std::io::Error::other(TransportError::TooLarge { limit: self.limit }));
        }
        if self.head.len() < 12 {
            let n = (12 - self.head.len()).min(buf.len());
            self.head.extend_from_slice(&buf[..n]);
        }
        self.writer.write_all(buf)?;
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Tells accesses apart without holding their secrets.
fn fingerprint(access: &Access) -> ObjectId {
    use crate::access::Credential;
    let text = match &access.credential {
        None => String::new(),
        Some(Credential::Basic { user, password }) => format!("basic\n{user}\n{}", password.reveal()),
        Some(Credential::Bearer(token)) => format!("bearer\n{}", token.reveal()),
        Some(Credential::SshKey { key, .. }) => format!("ssh\n{}", key.reveal()),
    };
    ObjectId::hash(ObjectKind::Blob, text.as_bytes())
}

impl Remote {
    /// The address.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.inner.url
    }

    /// Whether the repository is a directory of this machine, which can be watched instead of polled.
    #[must_use]
    pub fn local_path(&self) -> Option<&Path> {
        self.inner.url.local_path()
    }

    /// All bytes that came over the network for this repository since the process began (of a local one: bytes of objects read).
    #[must_use]
    pub fn bytes_received(&self) -> u64 {
        self.inner.received.load(Ordering::Relaxed) + self.inner.objects.read.load(Ordering::Relaxed)
    }

    fn places(&self) -> &Arc<Semaphore> {
        if self.inner.is_local() { &self.git.local } else { &self.git.network }
    }

    async fn work<T: Send + 'static, E: From<TransportError> + Send + 'static>(&self, places: &Arc<Semaphore>, work: impl FnOnce(&Inner) -> Result<T, E> + Send + 'static) -> Result<T, E> {
        let inner = self.inner.clone();
        run(places, move || work(&inner)).await
    }

    /// The revision that is meant now, with one round trip.
    ///
    /// # Errors
    /// When the host cannot be asked or has no such revision.
    pub async fn resolve(&self, selector: &Selector) -> Result<Revision, ResolveError> {
        let prefixes = selector.prefixes()?;
        if let Selector::Commit(commit) = selector {
            return Ok(Revision { name: String::new(), commit: *commit });
        }
        let selector = selector.clone();
        self.work(self.places(), move |inner| {
            let refs = inner.refs(&prefixes)?;
            selector.pick(&refs)
        })
        .await
    }

    /// The commit that any form of revision names (`HEAD~2`, a short id), in a local repository; `None` for remote ones.
    ///
    /// # Errors
    /// When the repository has no such revision.
    pub async fn parse(&self, text: &str) -> Result<Option<ObjectId>, ResolveError> {
        if !self.inner.is_local() {
            return Ok(None);
        }
        let text = text.to_owned();
        self.work(&self.git.local, move |inner| {
            inner.objects.with(|repository| {
                let found = repository.revparse_single(&text).and_then(|o| o.peel_to_commit());
                let commit = found.map_err(|_| ResolveError::Missing(format!("revision `{text}`")))?;
                Ok(Some(ObjectId::from_oid(commit.id())))
            })
        })
        .await
    }

    /// The tips of all branches whose names begin with `prefix` (without `refs/heads/`).
    ///
    /// # Errors
    /// When the host cannot be asked.
    pub async fn branches(&self, prefix: &str) -> Result<BTreeMap<String, ObjectId>, TransportError> {
        let full = format!("refs/heads/{prefix}");
        self.work(self.places(), move |inner| {
            let refs = inner.refs(std::slice::from_ref(&full))?;
            let pick = |(name, id): (String, ObjectId)| name.starts_with(&full).then(|| (revision::short(&name).to_owned(), id));
            Ok(refs.refs.into_iter().filter_map(pick).collect())
        })
        .await
    }

    /// Brings these commits with their trees, without history; what `haves` name is not sent again.
    ///
    /// # Errors
    /// When the host cannot be asked, does not have one of them, or would send too much.
    pub async fn fetch(&self, wants: &[ObjectId], haves: &[ObjectId]) -> Result<Fetched, FetchError> {
        let (wants, haves) = (wants.to_vec(), haves.to_vec());
        self.work(self.places(), move |inner| inner.fetch(&wants, &haves)).await
    }

    /// Lists the files of a commit that is here.
    ///
    /// # Errors
    /// When it is not here, or exceeds the bounds of the filter.
    pub async fn list(&self, commit: ObjectId, filter: &Filter) -> Result<Listing, ReadError> {
        let filter = filter.clone();
        self.work(&self.git.local, move |inner| inner.objects.with(|r| tree::list(&inner.objects, r, commit, &filter))).await
    }

    /// Reads blobs that are here, each at most `limit` bytes; one answer per id, in order.
    ///
    /// # Errors
    /// When the repository cannot be opened; what is wrong with one blob is in its own answer.
    pub async fn read(&self, blobs: &[ObjectId], limit: u64) -> Result<Vec<Result<Vec<u8>, ReadError>>, TransportError> {
        let blobs = blobs.to_vec();
        self.work(&self.git.local, move |inner| {
            inner.objects.with(|r| Ok(blobs.iter().map(|id| inner.objects.object(r, *id, ObjectKind::Blob, limit)).collect()))
        })
        .await
    }

    /// Reads one file of several commits that are here; `None` where a commit has no such file or it is larger than `limit` bytes.
    ///
    /// # Errors
    /// When a commit is not here.
    pub async fn file_of(&self, commits: &[ObjectId], path: &str, limit: u64) -> Result<Vec<Option<Vec<u8>>>, ReadError> {
        let (commits, path) = (commits.to_vec(), path.to_owned());
        self.work(&self.git.local, move |inner| {
            inner.objects.with(|r| {
                let one = |commit: &ObjectId| {
                    let mut at = inner.objects.tree_of(r, *commit)?;
                    let mut parts = path.split('/').peekable();
                    while let Some(part) = parts.next() {
                        let found = tree::entries(&inner.objects, r, at)?.into_iter().find(|e| e.name == part.as_bytes());
                        let Some(entry) = found.filter(|e| (e.mode == tree::DIRECTORY) == parts.peek().is_some()) else { return Ok(None) };
                        at = entry.id;
                    }
                    match inner.objects.object(r, at, ObjectKind::Blob, limit) {
                        Ok(bytes) => Ok(Some(bytes)),
                        Err(ReadError::TooLarge { .. }) => Ok(None),
                        Err(error) => Err(error),
                    }
                };
                commits.iter().map(one).collect()
            })
        })
        .await
    }

    /// Writes the commits of these drafts into the object database; [`Remote::push`] then sets the branches. Parents must be here.
    ///
    /// # Errors
    /// When the object database fails; what is wrong with one draft is in its own answer, in order.
    pub async fn write(&self, drafts: Vec<Draft>) -> Result<Vec<Result<Written, CommitError>>, TransportError> {
        self.work(&self.git.local, move |inner| write::write(&inner.objects, &drafts)).await
    }

    /// Sets many references at once; one outcome per name. An update whose reference has the new value already is done.
    ///
    /// # Errors
    /// When the host cannot be asked or the answer is lost; then it is unknown what was done, and the tips must be read again.
    pub async fn push(&self, updates: Vec<RefUpdate>) -> Result<BTreeMap<String, RefOutcome>, TransportError> {
        if updates.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.work(self.places(), move |inner| inner.push(&updates)).await
    }

    /// Makes an empty bare repository at the local path, when there is none.
    ///
    /// # Errors
    /// When the address is not local, or the directory cannot be made.
    pub async fn init(&self) -> Result<(), TransportError> {
        self.work(&self.git.local, |inner| {
            let Some(path) = inner.url.local_path() else {
                return Err(TransportError::NoRepository { url: inner.url.to_string() });
            };
            native::init(path)
        })
        .await
    }

    /// Of a local repository: the directories whose changes may mean new commits, and whether those below them count.
    ///
    /// # Errors
    /// When there is no repository.
    pub async fn watch_points(&self) -> Result<Vec<(PathBuf, bool)>, TransportError> {
        if !self.inner.is_local() {
            return Ok(Vec::new());
        }
        self.work(&self.git.local, |inner| {
            inner.objects.with(|repository| {
                let common = repository.commondir().to_path_buf();
                let mut out = vec![(common.join("refs"), true), (common, false)];
                if repository.path() != repository.commondir() {
                    out.push((repository.path().to_path_buf(), false));
                }
                Ok(out)
            })
        })
        .await
    }

    /// The directory that holds the objects.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.inner.objects.path()
    }
}
