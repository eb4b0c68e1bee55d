//! How long plugins and extension points take: measured in one cycle of ten, by profiles whose plugins are wrapped. The other nine
//! run as if nothing were measured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use engine::{Clock, Registry};
use parking_lot::Mutex;
use plan::placement::Framework;
use plan::placement::cycle::Cycle;
use plan::placement::events::Events;
use plan::placement::framework::{Code, CycleState, Enabled, Plugin, Point, Profile, Shares, Status};

/// One cycle in so many is measured, the first among them.
const CYCLES: u32 = 10;
/// Where a plugin is asked about every cluster, one call in so many is measured.
const CALLS: usize = 256;
/// No extension point.
const NOWHERE: u8 = u8::MAX;

/// Observes how long one extension point took.
pub(crate) fn point_took(metrics: &Registry, point: Point, code: Code, profile: &str, took: Duration) {
    let labels = [("extension_point", point_word(point)), ("status", code_word(code)), ("profile", profile)];
    metrics.observe("clusternet_scheduler_framework_extension_point_duration_seconds", &labels, took);
}

/// Observes how long one plugin took at a point.
pub(crate) fn plugin_took(metrics: &Registry, plugin: &str, point: Point, code: Code, took: Duration) {
    let labels = [("plugin", plugin), ("extension_point", point_word(point)), ("status", code_word(code))];
    metrics.observe("clusternet_scheduler_plugin_execution_duration_seconds", &labels, took);
}

/// The measured twins of the profiles.
pub(crate) struct Meter {
    metrics: Registry,
    run: Arc<Run>,
    profiles: BTreeMap<String, Arc<Profile>>,
    cycles: u32,
}

/// One measured cycle; one runs at a time.
struct Run {
    clock: Arc<dyn Clock>,
    /// The extension point under way, so that most calls need not look further.
    point: AtomicU8,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    open: Option<(Point, Duration, Code)>,
    points: Vec<(Point, Code, Duration)>,
    plugins: Vec<(&'static str, Point, Code, Duration)>,
}

impl Meter {
    pub(crate) fn new(framework: &Framework, metrics: Registry, clock: Arc<dyn Clock>) -> Self {
        let run = Arc::new(Run { clock, point: AtomicU8::new(NOWHERE), notes: Mutex::default() });
        let wrapped = |enabled: &Enabled| Enabled { plugin: Arc::new(Timed { plugin: Arc::clone(&enabled.plugin), run: Arc::clone(&run) }), weight: enabled.weight };
        let twin = |profile: &Profile| Profile {
            scheduler_name: profile.scheduler_name.clone(),
            points: profile.points.iter().map(|(point, plugins)| (*point, plugins.iter().map(wrapped).collect())).collect(),
        };
        let profiles = framework.profiles.iter().map(|(name, profile)| (name.clone(), Arc::new(twin(profile)))).collect();
        Self { metrics, run, profiles, cycles: 0 }
    }

    /// The measured twin of a profile, when it is its turn.
    pub(crate) fn turn(&mut self, profile: &str) -> Option<Arc<Profile>> {
        let turn = self.cycles == 0;
        self.cycles = (self.cycles + 1) % CYCLES;
        self.profiles.get(profile).filter(|_| turn).cloned()
    }

    /// A measured cycle, or its first half, has ended.
    pub(crate) fn ended(&self, profile: &str) {
        self.run.enter(None);
        let notes = std::mem::take(&mut *self.run.notes.lock());
        for (point, code, took) in notes.points {
            point_took(&self.metrics, point, code, profile, took);
        }
        for (plugin, point, code, took) in notes.plugins {
            plugin_took(&self.metrics, plugin, point, code, took);
        }
    }
}

impl Run {
    /// A call at a point: the first ends the point before.
    fn enter(&self, point: Option<Point>) {
        let number = point.map_or(NOWHERE, |point| point as u8);
        if self.point.load(Ordering::Relaxed) == number {
            return;
        }
        self.point.store(number, Ordering::Relaxed);
        let now = self.clock.monotonic();
        let mut notes = self.notes.lock();
        if let Some((point, since, code)) = notes.open.take() {
            notes.points.push((point, code, now.saturating_sub(since)));
        }
        notes.open = point.map(|point| (point, now, Code::Success));
    }
}

/// A plugin whose calls are measured.
struct Timed {
    plugin: Arc<dyn Plugin>,
    run: Arc<Run>,
}

impl Timed {
    fn time<T>(&self, point: Point, call: impl FnOnce() -> T, code: impl FnOnce(&T) -> Code) -> T {
        self.run.enter(Some(point));
        let started = self.run.clock.monotonic();
        let answer = call();
        let took = self.run.clock.monotonic().saturating_sub(started);
        let code = code(&answer);
        let mut notes = self.run.notes.lock();
        notes.plugins.push((self.plugin.name(), point, code, took));
        // What a plugin says about one cluster is no verdict of the point.
        let about_all = !matches!(point, Point::Filter | Point::Predict | Point::Score);
        if let Some(open) = notes.open.as_mut().filter(|open| open.2 == Code::Success && (about_all || code == Code::Error)) {
            open.2 = code;
        }
        answer
    }

    /// One call of many.
    fn some<T>(&self, point: Point, candidate: usize, call: impl FnOnce() -> T, code: impl FnOnce(&T) -> Code) -> T {
        if candidate.is_multiple_of(CALLS) {
            return self.time(point, call, code);
        }
        self.run.enter(Some(point));
        call()
    }
}

fn of_status(status: &Status) -> Code {
    status.code
}

fn of_result<T>(result: &Result<T, Status>) -> Code {
    result.as_ref().map_or_else(of_status, |_| Code::Success)
}

impl Plugin for Timed {
    fn name(&self) -> &'static str {
        self.plugin.name()
    }
    fn points(&self) -> &'static [Point] {
        self.plugin.points()
    }
    fn events(&self) -> Events {
        self.plugin.events()
    }
    fn passes_quiet(&self) -> bool {
        self.plugin.passes_quiet()
    }
    fn pre_filter(&self, cycle: &Cycle, state: &mut CycleState) -> Status {
        self.time(Point::PreFilter, || self.plugin.pre_filter(cycle, state), of_status)
    }
    fn filter(&self, cycle: &Cycle, state: &CycleState, candidate: usize) -> Status {
        self.some(Point::Filter, candidate, || self.plugin.filter(cycle, state, candidate), of_status)
    }
    fn post_filter(&self, cycle: &Cycle, state: &mut CycleState) -> Status {
        self.time(Point::PostFilter, || self.plugin.post_filter(cycle, state), of_status)
    }
    fn pre_predict(&self, cycle: &Cycle, state: &mut CycleState) -> Status {
        self.time(Point::PrePredict, || self.plugin.pre_predict(cycle, state), of_status)
    }
    fn predict(&self, cycle: &Cycle, state: &CycleState, candidate: usize) -> Result<Option<Vec<i64>>, Status> {
        self.some(Point::Predict, candidate, || self.plugin.predict(cycle, state, candidate), of_result)
    }
    fn pre_score(&self, cycle: &Cycle, state: &mut CycleState) -> Status {
        self.time(Point::PreScore, || self.plugin.pre_score(cycle, state), of_status)
    }
    fn score(&self, cycle: &Cycle, state: &CycleState, candidate: usize) -> i64 {
        self.some(Point::Score, candidate, || self.plugin.score(cycle, state, candidate), |_| Code::Success)
    }
    fn normalize(&self, scores: &mut [i64]) {
        self.plugin.normalize(scores);
    }
    fn pre_assign(&self, cycle: &Cycle, state: &mut CycleState) -> Status {
        self.time(Point::PreAssign, || self.plugin.pre_assign(cycle, state), of_status)
    }
    fn assign(&self, cycle: &mut Cycle, state: &mut CycleState) -> Result<Shares, Status> {
        self.time(Point::Assign, || self.plugin.assign(cycle, state), of_result)
    }
    fn post_assign(&self, cycle: &Cycle, state: &mut CycleState, shares: &mut Shares) -> Status {
        self.time(Point::PostAssign, || self.plugin.post_assign(cycle, state, shares), of_status)
    }
    fn reserve(&self, cycle: &Cycle, state: &mut CycleState) -> Status {
        self.time(Point::Reserve, || self.plugin.reserve(cycle, state), of_status)
    }
    fn unreserve(&self, cycle: &Cycle, state: &mut CycleState) {
        self.plugin.unreserve(cycle, state);
    }
    fn permit(&self, cycle: &Cycle, state: &CycleState) -> Status {
        self.time(Point::Permit, || self.plugin.permit(cycle, state), of_status)
    }
}

/// Words as Clusternet has them.
fn code_word(code: Code) -> &'static str {
    match code {
        Code::Success => "Success",
        Code::Error => "Error",
        Code::Unschedulable => "Unschedulable",
        Code::UnschedulableAndUnresolvable => "UnschedulableAndUnresolvable",
        Code::Wait => "Wait",
        Code::Skip => "Skip",
    }
}

fn point_word(point: Point) -> &'static str {
    match point {
        Point::PreFilter => "PreFilter",
        Point::Filter => "Filter",
        Point::PostFilter => "PostFilter",
        Point::PrePredict => "PrePredict",
        Point::Predict => "Predict",
        Point::PreScore => "PreScore",
        Point::Score => "Score",
        Point::PreAssign => "PreAssign",
        Point::Assign => "Assign",
        Point::PostAssign => "PostAssign",
        Point::Reserve => "Reserve",
        Point::Permit => "Permit",
        Point::PreBind => "PreBind",
        Point::Bind => "Bind",
        Point::PostBind => "PostBind",
    }
}
