//! Whether a chart exists: the port to chart repositories, and the turn that writes the answer into the HelmChart.

use std::time::Duration;

use api::apps::{HelmChart, HelmChartPhase, HelmOptions};
use api::reason::Reason;
use engine::{Key, Next, Settled, TurnError};
use futures::future::BoxFuture;
use plan::step::{Step, Version, app_ref};
use serde_json::json;

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

/// A chart that was not found is looked for again after this long: repositories come back.
const AGAIN: Duration = Duration::from_secs(60);

impl World {
    /// A turn over a HelmChart: asks whether it exists and writes that down.
    pub(crate) async fn chart_turn(&self, key: &Key, lookup: &dyn ChartLookup) -> Result<Settled, TurnError> {
        let Some(chart) = self.charts.get_key(key) else { return Ok(Settled::QUIET) };
        if chart.metadata.deletion_timestamp.is_some() {
            return Ok(Settled::QUIET);
        }
        let answer = lookup.look(&key.namespace, &chart.spec.options).await;
        let next = if answer == ChartAnswer::Found { Next::Done } else { Next::After(AGAIN) };
        let changed = self.perform_in_order(&answered(&chart, &answer)).await?;
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
