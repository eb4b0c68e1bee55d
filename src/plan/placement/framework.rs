//! The scheduling framework: plugins at extension points, with status codes that separate "not now" from "not ever".
//!
//! All points here are pure; what must wait for the world (asking predictors, binding) happens in the scheduler's shell
//! between [`super::cycle::begin`] and [`super::cycle::finish`], and after the decision.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cluster::ClusterInfo;
use super::cycle::Cycle;
use super::events::Events;

/// What a plugin says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// Fine.
    Success,
    /// Something broke; try again with back-off.
    Error,
    /// Not now: something else may help, such as preemption or an event.
    Unschedulable,
    /// Not as long as cluster and Subscription are what they are.
    UnschedulableAndUnresolvable,
    /// Permitted later.
    Wait,
    /// The plugin has nothing to say here.
    Skip,
}

/// Why a plugin said so; rendered only when someone reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No words.
    Nothing,
    /// These words.
    Text(Cow<'static, str>),
    /// The cluster's taint of this index is not tolerated.
    Taint(usize),
    /// The cluster is lost, which counts as a taint.
    Lost,
}

impl Why {
    /// The words, about this cluster.
    pub fn render(&self, cluster: &ClusterInfo) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::Text(text) => text.clone().into_owned(),
            Self::Taint(index) => match cluster.taints.get(*index) {
                Some(taint) => {
                    let value = taint.value.as_deref().unwrap_or_default();
                    format!("had taint {{{}: {value}}}, that the subscription didn't tolerate", taint.key)
                }
                None => "had a taint, that the subscription didn't tolerate".to_owned(),
            },
            Self::Lost => "did not report and fail-over is on".to_owned(),
        }
    }
}

/// Code and reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Code.
    pub code: Code,
    /// Reason.
    pub why: Why,
}

impl Status {
    /// Fine.
    pub const SUCCESS: Self = Self { code: Code::Success, why: Why::Nothing };
    /// Nothing to say.
    pub const SKIP: Self = Self { code: Code::Skip, why: Why::Nothing };

    /// A code with words.
    pub fn new(code: Code, text: impl Into<Cow<'static, str>>) -> Self {
        Self { code, why: Why::Text(text.into()) }
    }

    /// Whether the cycle goes on.
    pub fn is_fine(&self) -> bool {
        matches!(self.code, Code::Success | Code::Skip)
    }
}

/// Data of plugins during one cycle, by name.
#[derive(Default)]
pub struct CycleState(BTreeMap<&'static str, Box<dyn Any + Send + Sync>>);

impl CycleState {
    /// Keeps a value.
    pub fn put<T: Any + Send + Sync>(&mut self, key: &'static str, value: T) {
        self.0.insert(key, Box::new(value));
    }

    /// A value that was kept, if it is of this type.
    pub fn get<T: Any>(&self, key: &str) -> Option<&T> {
        self.0.get(key)?.downcast_ref()
    }
}

/// Extension points, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Point {
    /// Before filtering, once.
    PreFilter,
    /// May a cluster be used.
    Filter,
    /// When no cluster may be used, or capacity is short.
    PostFilter,
    /// Before predicting, once.
    PrePredict,
    /// What a cluster can take.
    Predict,
    /// Before scoring, once.
    PreScore,
    /// How good a cluster is.
    Score,
    /// Before assigning, once.
    PreAssign,
    /// Replicas of each cluster.
    Assign,
    /// After assigning; may change the shares.
    PostAssign,
    /// The decision is assumed.
    Reserve,
    /// May it be bound now.
    Permit,
    /// Before binding.
    PreBind,
    /// Binding.
    Bind,
    /// After binding.
    PostBind,
}

impl Point {
    /// The word for it in configuration.
    pub fn word(self) -> String {
        serde_json::to_value(self).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// All points in their order.
    pub const ALL: [Self; 15] = [
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PrePredict,
        Self::Predict,
        Self::PreScore,
        Self::Score,
        Self::PreAssign,
        Self::Assign,
        Self::PostAssign,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
    ];
}

/// Shares of each divided feed: by feed index of the Subscription, aligned with the cycle's candidates.
pub type Shares = BTreeMap<usize, Vec<i64>>;

/// Highest score after normalising.
pub const MAX_SCORE: i64 = 100;

/// A plugin. Each method is one extension point; a profile says which of them are asked.
pub trait Plugin: Send + Sync {
    /// Name, as configuration and explanations call it.
    fn name(&self) -> &'static str;

    /// Points at which this plugin has something to say.
    fn points(&self) -> &'static [Point];

    /// Queueing hint: events that may turn a rejection by this plugin.
    fn events(&self) -> Events {
        Events::NONE
    }

    /// A promise of a filter: it passes every cluster that is quiet ([`ClusterInfo::is_quiet`]). With it, copying to
    /// thousands of quiet clusters costs nothing per cluster.
    fn passes_quiet(&self) -> bool {
        false
    }

    /// [`Point::PreFilter`].
    fn pre_filter(&self, _cycle: &Cycle, _state: &mut CycleState) -> Status {
        Status::SUCCESS
    }

    /// [`Point::Filter`]: about one candidate, by index.
    fn filter(&self, _cycle: &Cycle, _state: &CycleState, _candidate: usize) -> Status {
        Status::SUCCESS
    }

    /// [`Point::PostFilter`]: `Success` with words says what was done so that a later try may succeed.
    fn post_filter(&self, _cycle: &Cycle, _state: &mut CycleState) -> Status {
        Status::SKIP
    }

    /// [`Point::PrePredict`].
    fn pre_predict(&self, _cycle: &Cycle, _state: &mut CycleState) -> Status {
        Status::SUCCESS
    }

    /// [`Point::Predict`]: upper bound of replicas of each divided feed in a candidate; the lowest of all plugins counts.
    fn predict(&self, _cycle: &Cycle, _state: &CycleState, _candidate: usize) -> Result<Option<Vec<i64>>, Status> {
        Ok(None)
    }

    /// [`Point::PreScore`].
    fn pre_score(&self, _cycle: &Cycle, _state: &mut CycleState) -> Status {
        Status::SUCCESS
    }

    /// [`Point::Score`]: the higher the better.
    fn score(&self, _cycle: &Cycle, _state: &CycleState, _candidate: usize) -> i64 {
        0
    }

    /// Brings the scores of one cycle to 0 to [`MAX_SCORE`].
    fn normalize(&self, _scores: &mut [i64]) {}

    /// [`Point::PreAssign`].
    fn pre_assign(&self, _cycle: &Cycle, _state: &mut CycleState) -> Status {
        Status::SUCCESS
    }

    /// [`Point::Assign`]: the first plugin that does not skip decides.
    fn assign(&self, _cycle: &mut Cycle, _state: &mut CycleState) -> Result<Shares, Status> {
        Err(Status::SKIP)
    }

    /// [`Point::PostAssign`].
    fn post_assign(&self, _cycle: &Cycle, _state: &mut CycleState, _shares: &mut Shares) -> Status {
        Status::SUCCESS
    }

    /// [`Point::Reserve`].
    fn reserve(&self, _cycle: &Cycle, _state: &mut CycleState) -> Status {
        Status::SUCCESS
    }

    /// Takes a reservation back.
    fn unreserve(&self, _cycle: &Cycle, _state: &mut CycleState) {}

    /// [`Point::Permit`].
    fn permit(&self, _cycle: &Cycle, _state: &CycleState) -> Status {
        Status::SUCCESS
    }
}

/// Brings scores to 0..=100 by their highest; reversed, the lowest is best and all-zero is all-best.
pub fn default_normalize(scores: &mut [i64], reverse: bool) {
    let highest = scores.iter().copied().max().unwrap_or(0);
    for score in scores {
        if highest == 0 {
            *score = if reverse { MAX_SCORE } else { *score };
            continue;
        }
        let scaled = *score * MAX_SCORE / highest;
        *score = if reverse { MAX_SCORE - scaled } else { scaled };
    }
}

/// A plugin at a point.
#[derive(Clone)]
pub struct Enabled {
    /// The plugin.
    pub plugin: Arc<dyn Plugin>,
    /// Weight, for scores.
    pub weight: i64,
}

/// The plugins of one scheduler name.
#[derive(Clone, Default)]
pub struct Profile {
    /// Name that Subscriptions ask for.
    pub scheduler_name: String,
    /// Plugins of each point, in their order.
    pub points: BTreeMap<Point, Vec<Enabled>>,
}

impl Profile {
    /// Plugins of a point.
    pub fn at(&self, point: Point) -> &[Enabled] {
        self.points.get(&point).map_or(&[], Vec::as_slice)
    }
}
