//! Whether a chart exists: the port to chart repositories, and the turn that writes the answer into the HelmChart.

use std::collections::BTreeMap;
use std::time::Duration;

use api::apps::{Description, HelmChart, HelmChartPhase, HelmOptions};
use api::reason::Reason;
use engine::{Key, Next, Settled, TurnError};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use plan::step::{Step, Version, app_ref};
use serde_json::json;

use crate::rendering::failed;
use crate::world::World;

/// What a repository says of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChartAnswer {
    /// It is there.
    Found,
    /// It is not there, or the repository does not answer; why.
    NotFound(String),
}

/// Asks chart repositories.
pub trait ChartLookup: Send + Sync + 'static {
    /// Whether the chart with these options exists. `namespace` is where the HelmChart lives.
    fn look<'a>(&'a self, namespace: &'a str, options: &'a HelmOptions) -> BoxFuture<'a, ChartAnswer>;
}

/// Chart repositories as they are, asked with the charts' own pull secrets.
pub struct Repositories {
    client: Client,
    pool: registry::Pool,
}

impl Repositories {
    /// Asks through a pool; pull secrets are read with the client.
    #[must_use]
    pub fn new(client: Client, pool: registry::Pool) -> Self {
        Self { client, pool }
    }

    async fn answer(&self, namespace: &str, options: &HelmOptions) -> Result<(), String> {
        let credentials = credentials(&self.client, namespace, options).await?;
        let reference = registry::Reference { repository: options.repo.clone(), chart: options.chart.clone(), version: options.chart_version.clone() };
        let source = registry::pool::Source { reference, credentials, plain_http: options.plain_http == Some(true) };
        match self.pool.find(&source).await {
            Ok(_) => Ok(()),
            Err(registry::Error::NoChart { .. } | registry::Error::NoVersion { .. }) => Err(match options.chart_version.as_str() {
                "" => format!("chart \"{}\" not found in {} repository", options.chart, options.repo),
                version => format!("chart \"{}\" version \"{version}\" not found in {} repository", options.chart, options.repo),
            }),
            Err(error) => Err(cluster::error::chain(&error)),
        }
    }
}

/// The credentials of a chart's repository; a Secret without a namespace lies in `namespace`.
pub(crate) async fn credentials(client: &Client, namespace: &str, options: &HelmOptions) -> Result<Option<registry::Credentials>, String> {
    let secret = &options.chart_pull_secret;
    if secret.name.is_empty() {
        return Ok(None);
    }
    let namespace = if secret.namespace.is_empty() { namespace } else { &secret.namespace };
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let found = api.get(&secret.name).await.map_err(|e| cluster::error::message(&e))?;
    let text = |key: &str| found.data.as_ref().and_then(|d| d.get(key)).map(|b| String::from_utf8_lossy(&b.0).into_owned()).unwrap_or_default();
    Ok(Some(registry::Credentials { username: text("username"), password: registry::Secret::new(text("password")) }))
}

impl ChartLookup for Repositories {
    fn look<'a>(&'a self, namespace: &'a str, options: &'a HelmOptions) -> BoxFuture<'a, ChartAnswer> {
        async move {
            match self.answer(namespace, options).await {
                Ok(()) => ChartAnswer::Found,
                Err(why) => ChartAnswer::NotFound(why),
            }
        }
        .boxed()
    }
}

/// A chart that was not found is looked for again after this long: repositories come back.
const AGAIN: Duration = Duration::from_secs(60);

/// Copies of pull secrets are compared with them this often: passwords change.
const SECRETS: Duration = Duration::from_secs(300);

impl World {
    /// Puts the pull secrets of a Description's charts, and the seeds of their random values, where the cluster's agent may read them: it
    /// reads its own namespace only. Before there are HelmReleases, so that the agent finds them.
    pub(crate) async fn share_pull_secrets(&self, description: &Description) -> Result<Next, TurnError> {
        self.share_seeds(description).await?;
        let wanted = plan::releases::pull_secrets(description);
        if wanted.is_empty() || description.metadata.deletion_timestamp.is_some() {
            return Ok(Next::Done);
        }
        for (release, (namespace, name)) in wanted {
            let there: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            // Without the Secret the repository says what is missing.
            let Some(secret) = there.get_opt(&name).await.map_err(failed)? else { continue };
            self.keep_secret(description, &plan::releases::pull_secret_name(&release), secret.data.as_ref()).await?;
        }
        Ok(Next::After(SECRETS))
    }

    /// Writes a Secret beside a Description, which takes it away with it, unless it is there as it shall be.
    pub(crate) async fn keep_secret(&self, description: &Description, name: &str, data: Option<&BTreeMap<String, ByteString>>) -> Result<(), TurnError> {
        let api: Api<Secret> = Api::namespaced(self.client.clone(), description.metadata.namespace.as_deref().unwrap_or_default());
        if api.get_opt(name).await.map_err(failed)?.is_some_and(|have| have.data.as_ref() == data) {
            return Ok(());
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {
                "name": name,
                "labels": {api::known::label::CREATED_BY: api::known::component::CONTROLLER_MANAGER},
                "ownerReferences": [plan::step::owner("Description", &description.metadata)],
            },
            "data": data,
        });
        api.patch(name, &PatchParams::apply(api::known::manager::CONTROLLERS).force(), &Patch::Apply(&object)).await.map_err(failed)?;
        Ok(())
    }

    /// A turn over a HelmChart: asks whether it exists and writes that down.
    pub(crate) async fn chart_turn(&self, key: &Key, lookup: &dyn ChartLookup) -> Result<Settled, TurnError> {
        let Some(chart) = self.charts.get_key(key) else { return Ok(Settled::QUIET) };
        if chart.metadata.deletion_timestamp.is_some() {
            return Ok(Settled::QUIET);
        }
        let answer = match crate::gitcharts::path_of(&chart) {
            Some(path) => self.look_in_git(key, &chart, path).await,
            None => lookup.look(&key.namespace, &chart.spec.options).await,
        };
        let next = if answer == ChartAnswer::Found { Next::Done } else { Next::After(AGAIN) };
        let steps = answered(&chart, &answer);
        let changed = self.perform_in_order(&steps).await?;
        if steps.is_empty() {
            self.verified(&chart);
        }
        Ok(Settled { next, changed })
    }
}

fn answered(chart: &HelmChart, answer: &ChartAnswer) -> Vec<Step> {
    let (phase, reason) = match answer {
        ChartAnswer::Found => (HelmChartPhase::Found, ""),
        ChartAnswer::NotFound(why) => (HelmChartPhase::NotFound, why.as_str()),
    };
    let now = chart.status.clone().unwrap_or_default();
    if now.phase == Some(phase) && now.reason == reason {
        return Vec::new();
    }
    let at = app_ref("HelmChart", &chart.metadata);
    let reason_patch = if reason.is_empty() { serde_json::Value::Null } else { json!(reason) };
    let mut steps = vec![Step::PatchStatus {
        at: at.clone(),
        patch: json!({"status": {"phase": phase, "reason": reason_patch}}),
        // The answer is for this spec; a label that came meanwhile does not matter, another object does.
        only_if: Version { uid: chart.metadata.uid.clone().unwrap_or_default(), resource_version: String::new() },
    }];
    if phase == HelmChartPhase::NotFound {
        steps.push(Step::Tell {
            about: at,
            uid: chart.metadata.uid.clone().unwrap_or_default(),
            warning: true,
            reason: Reason::HelmChartNotFound,
            message: reason.to_owned(),
        });
    }
    steps
}
