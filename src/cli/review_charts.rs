//! Charts for `anabranch plan`: what the computation asks for is fetched, and it is computed again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use api::apps::HelmRelease;
use api::known::annotation;
use chart::Chart;
use controllers::ChartDirectory;
use git::{ObjectId, Remote};
use plan::preview::Charts;

/// A chart that is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Want {
    /// From a chart repository: address, name, version, plain HTTP.
    Repository(String, String, String, bool),
    /// A directory of a commit.
    Git(ObjectId, String),
}

/// All that was fetched.
pub(crate) struct Store {
    remote: Remote,
    salt: Vec<u8>,
    charts: BTreeMap<Want, Result<Arc<Chart>, String>>,
    digests: BTreeMap<(ObjectId, String), String>,
}

/// The charts as a revision sees them.
pub(crate) struct View<'a> {
    store: &'a Store,
    commit: ObjectId,
    missing: Mutex<BTreeSet<Want>>,
}

impl Store {
    pub(crate) fn new(remote: Remote, salt: Vec<u8>) -> Self {
        Self { remote, salt, charts: BTreeMap::new(), digests: BTreeMap::new() }
    }

    pub(crate) fn at(&self, commit: ObjectId) -> View<'_> {
        View { store: self, commit, missing: Mutex::default() }
    }

    /// Fetches what a computation missed. A failure is remembered too: it is what the computation will show.
    pub(crate) async fn fetch(&mut self, missing: Missing) {
        for want in missing.0 {
            let found = match &want {
                Want::Repository(repository, name, version, plain_http) => {
                    let reference = registry::Reference { repository: repository.clone(), chart: name.clone(), version: version.clone() };
                    let source = registry::pool::Source { reference, credentials: None, plain_http: *plain_http };
                    let loaded = registry::Pool::shared().load(&source).await;
                    loaded.map(|loaded| Arc::new(loaded.chart.clone())).map_err(|error| format!("fetch chart {name}: {}", cluster::error::chain(&error)))
                }
                Want::Git(commit, path) => match self.from_git(*commit, path).await {
                    Ok((digest, chart)) => {
                        self.digests.insert((*commit, path.clone()), digest);
                        Ok(Arc::new(chart))
                    }
                    Err(why) => Err(format!("read the chart {path}: {why}")),
                },
            };
            self.charts.insert(want, found);
        }
    }

    async fn from_git(&self, commit: ObjectId, path: &str) -> Result<(String, Chart), String> {
        let directory = ChartDirectory::list(&self.remote, commit, path, &commit.to_string()).await?;
        Ok((directory.digest(), directory.load(&self.remote).await?))
    }
}

/// What a computation asked for in vain.
pub(crate) struct Missing(BTreeSet<Want>);

impl Missing {
    /// Of two revisions; none when both had all they asked for.
    pub(crate) fn of(views: [View<'_>; 2]) -> Option<Self> {
        let all: BTreeSet<Want> = views.into_iter().flat_map(|v| v.missing.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
        (!all.is_empty()).then_some(Self(all))
    }
}

impl View<'_> {
    fn ask(&self, want: Want) -> Option<&Result<Arc<Chart>, String>> {
        let found = self.store.charts.get(&want);
        if found.is_none() {
            self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(want);
        }
        found
    }
}

impl Charts for View<'_> {
    fn chart(&self, release: &HelmRelease, version: &str) -> Option<Result<Arc<Chart>, String>> {
        let options = &release.spec.options;
        let want = match release.metadata.annotations.as_ref().and_then(|a| a.get(annotation::CHART_PATH)) {
            Some(path) => Want::Git(self.commit, path.trim_matches('/').to_owned()),
            None => Want::Repository(options.repo.clone(), options.chart.clone(), version.to_owned(), options.plain_http == Some(true)),
        };
        self.ask(want).cloned()
    }

    fn digest(&self, path: &str) -> Option<String> {
        let path = path.trim_matches('/').to_owned();
        self.ask(Want::Git(self.commit, path.clone()))?;
        self.store.digests.get(&(self.commit, path)).cloned()
    }

    fn salt(&self) -> &[u8] {
        &self.store.salt
    }
}
