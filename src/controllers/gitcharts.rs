//! Charts that lie in the repository of their manifests: read from the revision that the GitSource is through with.

use std::collections::BTreeMap;
use std::str::FromStr as _;
use std::sync::Arc;

use api::apps::HelmChart;
use api::gitops::GitSource;
use api::known::{annotation, condition, label};
use chart::Chart;
use cluster::error::chain;
use engine::Key;
use git::{Filter, Mode, ObjectId, Remote};
use registry::pool::Loaded;

use crate::charts::ChartAnswer;
use crate::delivery::{Place, Unusable, remote};
use crate::world::World;

/// Largest file of a chart, most files, and the largest chart.
const FILE_MAX: u64 = 8 << 20;
const FILES_MAX: usize = 5_000;
const CHART_MAX: usize = 64 << 20;

/// The directory of a chart in its repository; none when it comes from a chart repository.
pub(crate) fn path_of(chart: &HelmChart) -> Option<&str> {
    chart.metadata.annotations.as_ref()?.get(annotation::CHART_PATH).map(|path| path.trim_matches('/'))
}

/// The label that a GitSource puts on its objects.
pub(crate) fn mark_of(source: &GitSource) -> String {
    let key = Key::of(source);
    api::names::label_value(&format!("{}.{}", key.namespace, key.name))
}

/// The files of a chart in a directory of a commit. A preview reads charts as the controllers do.
pub struct ChartDirectory {
    path: String,
    /// Names within the chart, and the files.
    files: Vec<(String, git::TreeFile)>,
}

impl ChartDirectory {
    /// Lists the files; `revision` is what a fault calls the commit.
    ///
    /// # Errors
    /// When the repository cannot be read, or there is no chart, or it has too many files.
    pub async fn list(remote: &Remote, commit: ObjectId, path: &str, revision: &str) -> Result<Self, String> {
        let listing = remote.list(commit, &Filter::under([path])).await.map_err(|e| chain(&e))?;
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let plain = listing.files.into_iter().filter(|f| matches!(f.mode, Mode::File | Mode::Executable));
        let files: Vec<(String, git::TreeFile)> = plain.filter_map(|f| Some((f.path.strip_prefix(&prefix)?.to_owned(), f))).collect();
        if !files.iter().any(|(name, _)| name == "Chart.yaml") {
            return Err(format!("there is no {prefix}Chart.yaml in {revision}"));
        }
        if files.len() > FILES_MAX {
            return Err(format!("{path} has {} files, more than {FILES_MAX}", files.len()));
        }
        Ok(Self { path: path.to_owned(), files })
    }

    /// Digest over names and contents.
    #[must_use]
    pub fn digest(&self) -> String {
        plan::preview::digest_of(self.files.iter().map(|(name, file)| (file.id.to_string(), name.as_str())))
    }

    /// Reads the files and makes a chart of them.
    ///
    /// # Errors
    /// When a file cannot be read or is too large, or they are no chart.
    pub async fn load(&self, remote: &Remote) -> Result<Chart, String> {
        let path = &self.path;
        let ids: Vec<ObjectId> = self.files.iter().map(|(_, file)| file.id).collect();
        let mut contents = BTreeMap::new();
        let mut total = 0;
        for ((name, file), bytes) in self.files.iter().zip(remote.read(&ids, FILE_MAX).await.map_err(|e| chain(&e))?) {
            let bytes = bytes.map_err(|e| format!("{}: {}", file.path, chain(&e)))?;
            total += bytes.len();
            if total > CHART_MAX {
                return Err(format!("{path} has more than {CHART_MAX} bytes"));
            }
            contents.insert(name.clone(), bytes);
        }
        let loaded = tokio::task::spawn_blocking(move || chart::load(contents).map_err(|e| e.to_string())).await.map_err(|e| e.to_string())?;
        loaded.map_err(|why| format!("{path}: {why}"))
    }
}

/// The revision that a source is through with. Faults in some of its files do not keep charts in others from being read.
pub(crate) fn settled_revision(source: &GitSource) -> Option<String> {
    let status = source.status.as_ref()?;
    let is_through = api::conditions::find(&status.conditions, condition::READY).is_some_and(|one| one.status != "Unknown");
    Some(status.last_attempted_revision.clone()).filter(|revision| is_through && !revision.is_empty())
}

impl World {
    /// Looks for a chart in the repository that its HelmChart came from.
    pub(crate) async fn look_in_git(&self, key: &Key, chart: &HelmChart, path: &str) -> ChartAnswer {
        match self.read_from_git(chart, path).await {
            Ok(loaded) => {
                let before = self.git_charts.lock().insert(key.clone(), loaded.clone());
                if before.is_none_or(|b| b.digest != loaded.digest) {
                    self.wake_releases_of(key);
                }
                ChartAnswer::Found
            }
            Err(why) => ChartAnswer::NotFound(why),
        }
    }

    async fn read_from_git(&self, chart: &HelmChart, path: &str) -> Result<Arc<Loaded>, String> {
        let git = self.git.as_ref().ok_or("this process reads no repositories")?;
        let mark = chart.metadata.labels.as_ref().and_then(|l| l.get(label::SOURCE)).ok_or("it did not come from a GitSource, so there is no repository to look in")?;
        let source = self.sources.list().into_iter().find(|s| mark_of(s) == *mark).ok_or_else(|| format!("its GitSource {mark} is not there"))?;
        let revision = match settled_revision(&source) {
            Some(revision) => {
                self.git_revisions.lock().insert(mark.clone(), revision.clone());
                revision
            }
            // While a revision is being applied the one before counts.
            None => self.git_revisions.lock().get(mark).cloned().unwrap_or_default(),
        };
        let commit = revision.rsplit(':').next().and_then(|id| ObjectId::from_str(id).ok()).ok_or("its GitSource has not settled a revision yet")?;
        let spec = &source.spec;
        let place = Place {
            namespace: source.metadata.namespace.as_deref().unwrap_or_default(),
            url: &spec.url,
            timeout: &spec.timeout,
            secret: spec.secret_ref.as_ref(),
            ca: spec.ca_ref.as_ref(),
            proxy: spec.proxy.as_ref(),
        };
        let remote = remote(&self.client, git, &place).await.map_err(|error| match error {
            Unusable::Invalid(why) | Unusable::Unreached(_, why) => why,
        })?;
        remote.fetch(&[commit], &[]).await.map_err(|e| chain(&e))?;
        let directory = ChartDirectory::list(&remote, commit, path, &revision).await?;
        let digest = directory.digest();
        if let Some(known) = self.git_charts.lock().values().find(|loaded| loaded.digest == digest) {
            return Ok(known.clone());
        }
        let loaded = directory.load(&remote).await?;
        let (name, version) = (loaded.name().to_owned(), loaded.metadata.version.clone());
        let options = &chart.spec.options;
        if name != options.chart {
            return Err(format!("{path} is the chart {name:?}, not {:?}", options.chart));
        }
        if !options.chart_version.is_empty() && !registry::pool::allows(&options.chart_version, &version) {
            return Err(format!("{path} has the version {version}, not {}", options.chart_version));
        }
        Ok(Arc::new(Loaded { version, digest, chart: loaded }))
    }

    /// Wakes the Descriptions that have a chart.
    fn wake_releases_of(&self, chart: &Key) {
        let has = |d: &api::apps::Description| d.spec.charts.iter().any(|c| *c.namespace == *chart.namespace && *c.name == *chart.name);
        self.queues.helm.add_all(self.descriptions.list().iter().filter(|d| has(d)).map(|d| Key::of(&**d)));
    }
}
