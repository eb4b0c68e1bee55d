//! Releases rendered for the branches of clusters: charts are loaded, `plan` renders them with pinned facts, the branch writer takes
//! what came of it.
//!
//! Memory only: what is forgotten is rendered again from the pin on the HelmRelease, to the same bytes. While a release is not rendered,
//! or cannot be, the branch keeps the files that it has.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use api::apps::{Description, HelmRelease};
use api::known::{annotation, secret as secrets};
use api::reason::Reason;
use api::selector::Selector;
use engine::{Key, Next, TurnError};
use git::{Content, ObjectId};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use plan::rendered::{self, Facts, Found, Made, Pin};
use plan::tree::ObjectFile;
use registry::pool::Loaded;
use serde_json::json;
use tokio::sync::{OnceCell, Semaphore};

use crate::world::World;

/// A chart that could not be fetched is tried again after this long.
const AGAIN: Duration = Duration::from_secs(60);

/// A file of a rendered release: its text, and the same as content of a repository.
type File = (ObjectFile, Content);

/// One release.
struct Entry {
    /// What it was made from.
    input: String,
    found: Found,
    directory: String,
    /// None while it is not, or cannot be, rendered.
    files: Option<Arc<Vec<File>>>,
    /// It is worth another try although nothing changed.
    retry: bool,
}

/// What the branch writer shows of a Description's releases: by directory, their files; none where it keeps what is there.
pub(crate) type Shown = BTreeMap<String, Option<Arc<Vec<File>>>>;
/// Who hears of a namespace whose releases changed.
type Listener = Box<dyn Fn(&str) + Send + Sync>;

/// All rendered releases.
pub(crate) struct Renders {
    all: Mutex<BTreeMap<Key, BTreeMap<String, Entry>>>,
    /// Texts by content: clusters share what is equal.
    texts: Mutex<BTreeMap<ObjectId, Weak<str>>>,
    listeners: Mutex<Vec<Listener>>,
    salt: OnceCell<Vec<u8>>,
    /// Seeds that were handed to agents, by Description.
    seeded: Mutex<BTreeMap<Key, BTreeMap<String, ByteString>>>,
    /// Renders at a time: each takes a core and much memory.
    permits: Semaphore,
}

impl Default for Renders {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { all: Mutex::default(), texts: Mutex::default(), listeners: Mutex::default(), salt: OnceCell::new(), seeded: Mutex::default(), permits: Semaphore::new(cores) }
    }
}

impl Renders {
    /// Calls `heard` with each namespace whose releases changed.
    pub(crate) fn on_change(&self, heard: impl Fn(&str) + Send + Sync + 'static) {
        self.listeners.lock().push(Box::new(heard));
    }

    /// The releases of a Description; `None` when it was not looked at yet.
    pub(crate) fn of(&self, description: &Key) -> Option<Shown> {
        let all = self.all.lock();
        Some(all.get(description)?.values().map(|entry| (entry.directory.clone(), entry.files.clone())).collect())
    }

    fn found(&self, description: &Key) -> BTreeMap<String, Found> {
        self.all.lock().get(description).into_iter().flatten().map(|(name, entry)| (name.clone(), entry.found.clone())).collect()
    }

    /// Forgets a Description that is gone.
    pub(crate) fn forget(&self, description: &Key) {
        self.all.lock().remove(description);
        self.seeded.lock().remove(description);
    }

    fn hear(&self, namespace: &str) {
        for heard in self.listeners.lock().iter() {
            heard(namespace);
        }
    }

    /// Takes texts in, the same one for all who have it.
    fn share(&self, files: &[ObjectFile]) -> Vec<File> {
        let mut texts = self.texts.lock();
        let dead = texts.values().filter(|text| text.strong_count() == 0).count();
        if dead * 2 > texts.len() {
            texts.retain(|_, text| text.strong_count() > 0);
        }
        files
            .iter()
            .map(|file| {
                let id = ObjectId::hash(git::ObjectKind::Blob, file.text.as_bytes());
                let text = texts.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| file.text.clone());
                texts.insert(id, Arc::downgrade(&text));
                (ObjectFile { name: file.name.clone(), text: text.clone() }, Content::new(Arc::<[u8]>::from(text)))
            })
            .collect()
    }
}

pub(crate) fn failed(error: kube::Error) -> TurnError {
    TurnError::new(Reason::ChartLocateFailure.as_str(), engine::Class::Again, error)
}

/// Reads the salt of random values, or makes it.
async fn salt(client: &Client, namespace: &str) -> Result<Vec<u8>, kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let of = |secret: &Secret| secret.data.as_ref().and_then(|d| d.get("salt")).map(|b| b.0.clone());
    loop {
        if let Some(salt) = api.get_opt(secrets::RENDER_SALT).await?.as_ref().and_then(of) {
            return Ok(salt);
        }
        let mut fresh = Secret { data: Some([("salt".to_owned(), ByteString(rand::random::<[u8; 32]>().to_vec()))].into()), ..Secret::default() };
        fresh.metadata.name = Some(secrets::RENDER_SALT.to_owned());
        match api.create(&PostParams::default(), &fresh).await {
            Ok(made) => return Ok(of(&made).unwrap_or_default()),
            // Another replica was first.
            Err(error) if cluster::trouble(&error) == cluster::Trouble::AlreadyExists => {
                let parameters = PatchParams { field_manager: Some(api::known::manager::CONTROLLERS.to_owned()), ..PatchParams::default() };
                if api.get_opt(secrets::RENDER_SALT).await?.as_ref().and_then(of).is_none() {
                    api.patch(secrets::RENDER_SALT, &parameters, &Patch::Merge(&json!({"data": fresh.data}))).await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

impl World {
    /// What is known of the cluster of a namespace, when its releases are rendered for a branch: when a GitTarget writes one. What is not
    /// known yet is named, so that the release waits for its branch instead of being rendered by the agent. A target that is suspended
    /// still has the branch.
    pub(crate) fn render_facts(&self, namespace: &str) -> Option<Facts> {
        self.pool.as_ref()?;
        let clusters = self.clusters.in_namespace(namespace);
        let cluster = match clusters.as_slice() {
            [cluster] => cluster,
            _ => {
                let lacks = "the one cluster of its namespace".to_owned();
                return self.targets.list().iter().any(|t| t.metadata.deletion_timestamp.is_none()).then(|| Facts { lacks, ..Facts::default() });
            }
        };
        let labels = cluster.metadata.labels.clone().unwrap_or_default();
        let writes = |target: &api::gitops::GitTarget| match &target.spec.cluster_selector {
            _ if target.metadata.deletion_timestamp.is_some() => false,
            None => true,
            Some(selector) => Selector::from_label_selector(selector).is_ok_and(|s| s.matches(&labels)),
        };
        if !self.targets.list().iter().any(|t| writes(t)) {
            return None;
        }
        let api_versions = cluster.metadata.annotations.as_ref().and_then(|a| a.get(annotation::API_VERSIONS)).cloned();
        let kube = cluster.status.as_ref().map(|s| s.k8s_version.clone()).filter(|v| !v.is_empty());
        Some(match (api_versions, kube) {
            (Some(api_versions), Some(kube)) => Facts { kube, api_versions, now: self.clock.now().as_second(), lacks: String::new() },
            _ => Facts { lacks: "the version and the kinds of its cluster".to_owned(), ..Facts::default() },
        })
    }

    /// Puts the seeds of a Description's releases where the cluster's agent may read them, for a cluster without a branch: what its agent
    /// renders is what a branch would show. Nothing is told of clusters that have one, as only the hub renders for them.
    pub(crate) async fn share_seeds(&self, description: &Description) -> Result<(), TurnError> {
        let key = Key::of(description);
        if description.metadata.deletion_timestamp.is_some() || self.render_facts(&key.namespace).is_some() {
            return Ok(());
        }
        let client = &self.client;
        let salt = self.renders.salt.get_or_try_init(|| salt(client, self.reserved())).await.map_err(failed)?;
        let id = self.cluster_id(&key.namespace);
        let mut seeds = BTreeMap::new();
        for (chart, raw) in description.spec.charts.iter().zip(&description.spec.chart_raw) {
            let raw: serde_json::Value = serde_json::from_slice(&raw.0).unwrap_or_default();
            let mut release = HelmRelease::default();
            release.spec.target_namespace = raw["spec"]["targetNamespace"].as_str().unwrap_or_default().to_owned();
            release.spec.release_name = Some(chart.name.clone());
            let name = plan::releases::release_name(&key.name, &chart.namespace, &chart.name);
            seeds.insert(name, ByteString(rendered::seed(salt, &id, &release).to_string().into_bytes()));
        }
        if self.renders.seeded.lock().get(&key) == Some(&seeds) {
            return Ok(());
        }
        self.keep_secret(description, &rendered::seeds_name(&key.name), Some(&seeds)).await?;
        self.renders.seeded.lock().insert(key, seeds);
        Ok(())
    }

    fn cluster_id(&self, namespace: &str) -> String {
        self.clusters.in_namespace(namespace).first().map(|c| c.spec.cluster_id.clone()).unwrap_or_default()
    }

    /// What came of rendering the releases of a Description before.
    pub(crate) fn found_renders(&self, description: &Key) -> BTreeMap<String, Found> {
        self.renders.found(description)
    }

    /// Digests of the charts of a Description that lie in repositories beside their manifests, by HelmRelease; `None` while one is
    /// not known.
    pub(crate) fn chart_digests(&self, description: &Description) -> Option<BTreeMap<String, String>> {
        let name = description.metadata.name.as_deref().unwrap_or_default();
        let digests = self.git_charts.lock();
        let mut out = BTreeMap::new();
        for (chart, raw) in description.spec.charts.iter().zip(&description.spec.chart_raw) {
            let raw: serde_json::Value = serde_json::from_slice(&raw.0).unwrap_or_default();
            if api::object::annotation(&raw, annotation::CHART_PATH).is_some() {
                let loaded = digests.get(&Key::new(&chart.namespace, &chart.name))?;
                out.insert(plan::releases::release_name(name, &chart.namespace, &chart.name), loaded.digest.clone());
            }
        }
        Some(out)
    }

    /// Renders the releases of a Description that changed. True when a pin has something new to say.
    pub(crate) async fn render_releases(&self, key: &Key, description: &Description) -> Result<(bool, Next), TurnError> {
        let uid = description.metadata.uid.as_deref().unwrap_or_default();
        let releases = self.releases.by("description", uid);
        let pinned: Vec<(Arc<HelmRelease>, Pin)> =
            releases.into_iter().filter(|r| r.metadata.deletion_timestamp.is_none()).filter_map(|r| Pin::read(&r).map(|pin| (r, pin))).collect();
        let mut next = Next::Done;
        let mut news = false;
        let mut changed = self.renders.all.lock().get(key).is_none_or(|now| now.keys().any(|n| !pinned.iter().any(|(r, _)| r.metadata.name.as_deref() == Some(n))));
        for (release, pin) in &pinned {
            let name = release.metadata.name.clone().unwrap_or_default();
            let answered = release.metadata.annotations.as_ref().and_then(|a| a.get(annotation::ANSWERED)) == Some(&pin.answered());
            let input = format!("{}/{}/{}/{}/{answered}", pin.of, pin.at, pin.revision, pin.asks.len());
            let due = match self.renders.all.lock().get(key).and_then(|all| all.get(&name)) {
                Some(entry) => entry.input != input || entry.retry,
                None => true,
            };
            if !due {
                continue;
            }
            let entry = if pin.waits.is_empty() && (pin.asks.is_empty() || answered) {
                self.render_one(release, pin, input).await?
            } else {
                // The agent has to tell what is in the cluster first; until then the branch keeps what it has.
                let found = Found { of: pin.of.clone(), version: pin.version.clone(), asks: pin.asks.clone(), fault: String::new() };
                Entry { input, found, directory: rendered::directory(release), files: None, retry: false }
            };
            if entry.retry {
                next = Next::After(AGAIN);
            }
            news |= entry.found.fault != pin.fault || !entry.found.asks.is_subset(&pin.asks) || (pin.version.is_empty() && !entry.found.version.is_empty());
            if entry.found.fault != pin.fault && !entry.found.fault.is_empty() {
                let why = entry.found.fault.clone();
                tracing::warn!(release = %Key::of(&**release), error = why, "cannot render a release");
                self.recorder.record(engine::Regarding::of(&**release), engine::EventKind::Warning, Reason::HelmReleaseFailure.as_str(), why);
            }
            let (directory, files) = (entry.directory.clone(), entry.files.clone());
            let before = self.renders.all.lock().entry(key.clone()).or_default().insert(name, entry);
            changed |= before.is_none_or(|before| before.directory != directory || before.files.as_deref().map(ids) != files.as_deref().map(ids));
        }
        {
            let mut all = self.renders.all.lock();
            all.entry(key.clone()).or_default().retain(|name, _| pinned.iter().any(|(r, _)| r.metadata.name.as_deref() == Some(name)));
        }
        if changed {
            self.renders.hear(&key.namespace);
        }
        Ok((news, next))
    }

    async fn render_one(&self, release: &Arc<HelmRelease>, pin: &Pin, input: String) -> Result<Entry, TurnError> {
        let mut found = Found { of: pin.of.clone(), version: pin.version.clone(), ..Found::default() };
        let entry = |found: Found, files, retry| Entry { input: input.clone(), found, directory: rendered::directory(release), files, retry };
        let loaded = match self.load_chart(release, pin).await {
            Ok(loaded) => loaded,
            Err(why) => {
                found.fault = why;
                return Ok(entry(found, None, true));
            }
        };
        found.version.clone_from(&loaded.version);
        let mut answers = BTreeMap::new();
        if !pin.asks.is_empty() {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), release.metadata.namespace.as_deref().unwrap_or_default());
            let secret = api.get_opt(&rendered::answers_name(release.metadata.name.as_deref().unwrap_or_default())).await.map_err(failed)?;
            let data = secret.and_then(|s| s.data).unwrap_or_default();
            if data.get("of").is_some_and(|of| of.0 == pin.of.as_bytes()) {
                if let Some(fault) = data.get("fault") {
                    found.fault = String::from_utf8_lossy(&fault.0).into_owned();
                    return Ok(entry(found, None, false));
                }
                answers = data.get("answers").map(|b| rendered::read_answers(&b.0)).unwrap_or_default();
            }
        }
        let client = &self.client;
        let salt = self.renders.salt.get_or_try_init(|| salt(client, self.reserved())).await.map_err(failed)?;
        let id = self.cluster_id(release.metadata.namespace.as_deref().unwrap_or_default());
        let seed = rendered::seed(salt, &id, release);
        // Closed only when the process ends.
        let _permit = self.renders.permits.acquire().await;
        let (release_for, pin_for) = (release.clone(), pin.clone());
        let made = tokio::task::spawn_blocking(move || rendered::render(&loaded.chart, &release_for, &pin_for, answers, seed)).await;
        Ok(match made {
            Ok(Made::Files(files)) => entry(found, Some(Arc::new(self.renders.share(&files))), false),
            Ok(Made::Asks(asks)) => {
                found.asks = asks;
                entry(found, None, false)
            }
            Ok(Made::Fault(why)) => {
                found.fault = format!("render chart {}: {why}", release.spec.options.chart);
                entry(found, None, false)
            }
            Err(error) => {
                found.fault = format!("render chart {}: {error}", release.spec.options.chart);
                entry(found, None, false)
            }
        })
    }

    async fn load_chart(&self, release: &HelmRelease, pin: &Pin) -> Result<Arc<Loaded>, String> {
        let options = &release.spec.options;
        if release.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(annotation::CHART_PATH)) {
            let name = release.metadata.name.as_deref().unwrap_or_default();
            let description = release.metadata.owner_references.iter().flatten().find(|o| o.kind == "Description").map(|o| o.name.as_str()).unwrap_or_default();
            let charts = self.git_charts.lock();
            let found = charts.iter().find(|(key, _)| plan::releases::release_name(description, &key.namespace, &key.name) == name);
            return found.map(|(_, loaded)| loaded.clone()).ok_or_else(|| format!("chart {} was not read from its repository yet", options.chart));
        }
        let pool = self.pool.as_ref().ok_or("there are no chart repositories")?;
        let namespace = release.metadata.namespace.as_deref().unwrap_or_default();
        let mut with = options.clone();
        if !with.chart_pull_secret.name.is_empty() {
            // The copy that is made for the agent: where the original lies, only the HelmChart knows.
            with.chart_pull_secret.name = plan::releases::pull_secret_name(release.metadata.name.as_deref().unwrap_or_default());
            with.chart_pull_secret.namespace = namespace.to_owned();
        }
        let credentials = crate::charts::credentials(&self.client, namespace, &with).await?;
        let version = if pin.version.is_empty() { &options.chart_version } else { &pin.version };
        let reference = registry::Reference { repository: options.repo.clone(), chart: options.chart.clone(), version: version.clone() };
        let source = registry::pool::Source { reference, credentials, plain_http: options.plain_http == Some(true) };
        pool.load(&source).await.map_err(|error| format!("fetch chart {}: {}", options.chart, cluster::error::chain(&error)))
    }
}

/// What files hold, in few bytes.
fn ids(files: &Vec<File>) -> Vec<(&str, ObjectId)> {
    files.iter().map(|(file, content)| (file.name.as_str(), content.id())).collect()
}
