//! Charts for many askers: one client per way to speak to a repository, one fetch per chart however many want it.
//!
//! Invariants: what was fetched with credentials is only given to those who bring the same ones; the number of kept charts is
//! bounded; an exact version is taken to be the same chart for ever, as repositories promise.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use chart::Chart;
use chart::func::semver::Version;
use parking_lot::Mutex;
use sha2::Digest as _;

use crate::{Client, Credentials, Error, Options, Reference, Resolved};

/// Charts kept in memory.
const KEPT: usize = 64;

/// A chart, and how its repository is spoken to.
#[derive(Clone, Debug)]
pub struct Source {
    /// Which.
    pub reference: Reference,
    /// With these credentials.
    pub credentials: Option<Credentials>,
    /// OCI over plain HTTP.
    pub plain_http: bool,
}

/// A chart as it was fetched.
#[derive(Debug)]
pub struct Loaded {
    /// Its version.
    pub version: String,
    /// sha256 of the archive in hexadecimal.
    pub digest: String,
    /// The chart.
    pub chart: Chart,
}

/// How a repository is spoken to: digest of the credentials, plain HTTP.
type Way = ([u8; 32], bool);
/// A chart of a repository at a version.
type Name = (Way, String, String, String);

#[derive(Default)]
struct Kept {
    charts: BTreeMap<Name, (u64, Arc<Loaded>)>,
    turn: u64,
}

#[derive(Default)]
struct Inner {
    clients: Mutex<BTreeMap<Way, Arc<Client>>>,
    kept: Mutex<Kept>,
    under_way: Mutex<HashMap<Name, Arc<tokio::sync::Mutex<()>>>>,
}

/// A pool; clones share it.
#[derive(Clone, Default)]
pub struct Pool(Arc<Inner>);

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} charts)", self.0.kept.lock().charts.len())
    }
}

impl Pool {
    /// The pool of this process.
    pub fn shared() -> Self {
        static SHARED: LazyLock<Pool> = LazyLock::new(Pool::default);
        SHARED.clone()
    }

    fn client(&self, source: &Source) -> Result<(Way, Arc<Client>), Error> {
        let print = source.credentials.as_ref().map_or([0; 32], |c| {
            let mut hash = sha2::Sha256::new();
            hash.update((c.username.len() as u64).to_be_bytes());
            hash.update(c.username.as_bytes());
            hash.update(c.password.expose().as_bytes());
            hash.finalize().into()
        });
        let way = (print, source.plain_http);
        let mut clients = self.0.clients.lock();
        if let Some(client) = clients.get(&way) {
            return Ok((way, client.clone()));
        }
        // Credentials come and go; clients are cheap to make again.
        if clients.len() >= KEPT {
            clients.clear();
        }
        let client = Arc::new(Client::new(Options { credentials: source.credentials.clone(), plain_http: source.plain_http, ..Options::default() })?);
        clients.insert(way, client.clone());
        Ok((way, client))
    }

    /// Finds the version that a source asks for, and makes sure that the repository has it.
    ///
    /// # Errors
    /// When it is not there, or the repository does not answer.
    pub async fn find(&self, source: &Source) -> Result<Resolved, Error> {
        let (_, client) = self.client(source)?;
        let found = client.resolve(&source.reference).await?;
        if source.reference.repository.starts_with("oci://") {
            client.oci_manifest(&source.reference, &found).await?;
        }
        Ok(found)
    }

    fn known(&self, name: &Name) -> Option<Arc<Loaded>> {
        let mut kept = self.0.kept.lock();
        kept.turn += 1;
        let turn = kept.turn;
        let (used, loaded) = kept.charts.get_mut(name)?;
        *used = turn;
        Some(loaded.clone())
    }

    fn keep(&self, name: Name, loaded: Arc<Loaded>) {
        let mut kept = self.0.kept.lock();
        kept.turn += 1;
        let turn = kept.turn;
        kept.charts.insert(name, (turn, loaded));
        while kept.charts.len() > KEPT {
            let Some(oldest) = kept.charts.iter().min_by_key(|(_, (used, _))| *used).map(|(name, _)| name.clone()) else { return };
            kept.charts.remove(&oldest);
        }
    }

    /// Fetches and loads a chart.
    ///
    /// # Errors
    /// When it is not there, the repository does not answer, or it is no chart.
    pub async fn load(&self, source: &Source) -> Result<Arc<Loaded>, Error> {
        let (way, client) = self.client(source)?;
        let of = |version: &str| (way, source.reference.repository.clone(), source.reference.chart.clone(), version.to_owned());
        let asked = of(&source.reference.version);
        let gate = self.0.under_way.lock().entry(asked.clone()).or_default().clone();
        let one = gate.lock().await;
        let loaded = async {
            if is_exact(&source.reference.version)
                && let Some(loaded) = self.known(&asked)
            {
                return Ok(loaded);
            }
            let found = client.resolve(&source.reference).await?;
            if let Some(loaded) = self.known(&of(&found.version)).filter(|l| found.digest.as_ref().is_none_or(|d| d.eq_ignore_ascii_case(&l.digest))) {
                return Ok(loaded);
            }
            let pulled = client.pull_found(&source.reference, &found).await?;
            let archive = pulled.archive;
            // Unpacking and parsing a large chart takes a while.
            let read = tokio::task::spawn_blocking(move || chart::load_archive(&archive).map_err(|e| e.to_string()));
            let chart = match read.await {
                Ok(Ok(chart)) => chart,
                Ok(Err(problem)) => return Err(Error::Format { what: "chart", url: source.reference.repository.clone(), problem }),
                Err(error) => return Err(Error::Format { what: "chart", url: source.reference.repository.clone(), problem: error.to_string() }),
            };
            let loaded = Arc::new(Loaded { version: pulled.version, digest: pulled.digest, chart });
            self.keep(of(&loaded.version), loaded.clone());
            Ok(loaded)
        }
        .await;
        drop(one);
        let mut under_way = self.0.under_way.lock();
        if under_way.get(&asked).is_some_and(|gate| Arc::strong_count(gate) <= 2) {
            under_way.remove(&asked);
        }
        loaded
    }
}

/// Whether a version names one chart and no range.
pub fn is_exact(version: &str) -> bool {
    Version::parse(version).is_ok_and(|v| v.original.trim_start_matches('v').split(['-', '+']).next().is_some_and(|core| core.split('.').count() == 3))
}

/// Whether a version is one that `wanted` (a version, a range, or nothing) allows.
pub fn allows(wanted: &str, version: &str) -> bool {
    if is_exact(wanted) {
        return wanted == version;
    }
    let one = Resolved { version: version.to_owned(), url: String::new(), digest: None };
    crate::choose(&[one], wanted).is_some()
}
