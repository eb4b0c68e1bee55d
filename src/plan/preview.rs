//! What a revision would make of the fleet, computed without any server; two of them compared are the preview of a change.
//!
//! The functions that decide here are the ones that decide in the controllers: source assembles, placement binds, the deploy
//! pipeline makes Bases and Descriptions (their steps are taken as done), the tree is laid out. So the preview of a branch is
//! the branch, byte for byte.

mod charts;
mod compare;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::Kind;
use api::apps::{Base, DeployerType, Description, Feed, FeedInventory, Globalization, HelmChart, Localization, Manifest, Subscription, SubscriptionStatus};
use api::clusters::ManagedCluster;
use api::gitops::FileFault;
use api::object;
use jiff::Timestamp;
use serde_json::Value;

pub use charts::{Charts, Known, NoCharts, digest_of};
pub use compare::{ClusterChange, FileChange, Group, Placed, Report, compare};
pub use text::{markdown, text};

use crate::descriptions::{self, FeedSeen, MissingFeeds};
use crate::inventory;
use crate::overrides::{Override, combine, order};
use crate::placement::{Admission, Begun, ClusterInfo, Framework, Outcome, Previous, Request, Snapshot, Subject, admit, begin, finish};
use crate::render::{self, ClusterFacts, Memo, Part, feed_index, feed_names};
use crate::shares::{self, Scalers};
use crate::source::{Desired, Parsed, Settings, assemble};
use crate::step::Step;
use crate::subscription;
use crate::tree::{Tree, object_file, part};

/// What is known of the fleet besides the repository.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fleet {
    /// The clusters.
    pub clusters: Vec<ManagedCluster>,
    /// Where Subscriptions are bound now, by `namespace/name`.
    pub bindings: BTreeMap<String, SubscriptionStatus>,
    /// Objects of the parent that do not come from this repository (feeds and overrides made by hand).
    pub others: Vec<Value>,
    /// What is known of its releases.
    pub known: Known,
}

/// How branches are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Target {
    /// The GitTarget, `namespace/name`.
    pub owner: String,
    /// Directory of the layout.
    pub prefix: String,
}

/// What became of a Subscription.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Bound {
    /// As the scheduler would write it.
    pub status: SubscriptionStatus,
    /// Why it is where it is, or is not bound.
    pub message: String,
    /// Feeds that do not exist, and overrides that found nothing or failed.
    pub findings: Vec<String>,
    /// Those of them that keep something from being rendered.
    pub faults: BTreeSet<String>,
}

impl Bound {
    fn fails(&mut self, message: String) {
        self.faults.insert(message.clone());
        self.findings.push(message);
    }
}

/// The fleet as a revision makes it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// What is wrong in files.
    pub faults: Vec<FileFault>,
    /// Subscriptions by `namespace/name`.
    pub subscriptions: BTreeMap<String, Bound>,
    /// Trees of clusters by `namespace/name`.
    pub trees: BTreeMap<String, Tree>,
    /// What is deployed, by `namespace/name`.
    descriptions: BTreeMap<String, Arc<Description>>,
}

impl State {
    /// What is deployed, as the parent has it: overrides that apply later are told from those that did by it.
    pub fn deployed(descriptions: impl IntoIterator<Item = Description>) -> Self {
        let of = |one: Description| (key_of(&one.metadata), Arc::new(one));
        Self { descriptions: descriptions.into_iter().filter(|one| one.metadata.deletion_timestamp.is_none()).map(of).collect(), ..Self::default() }
    }

    /// Where its Subscriptions are bound, as the start of the next revision.
    #[must_use]
    pub fn bindings(&self) -> BTreeMap<String, SubscriptionStatus> {
        self.subscriptions.iter().map(|(key, bound)| (key.clone(), bound.status.clone())).collect()
    }
}

/// What a revision asks of the parent.
#[must_use]
pub fn desired(files: &BTreeMap<String, Arc<Parsed>>, settings: &Settings) -> Desired {
    assemble(files, &crate::kinds::Kinds::built_in(), settings)
}

/// All objects of the parent that matter, typed.
#[derive(Default)]
struct Objects {
    subscriptions: Vec<Subscription>,
    manifests: BTreeMap<String, Vec<Arc<Part>>>,
    charts: BTreeMap<String, Vec<Arc<Part>>>,
    globals: BTreeMap<String, Vec<Arc<Override>>>,
    locals: BTreeMap<String, Vec<Arc<Override>>>,
    bases: Vec<Base>,
}

impl Objects {
    fn take(&mut self, value: &Value, faults: &mut Vec<String>) {
        let kind = object::text(value, "kind");
        let shown = object::ObjectRef::of(value).to_string();
        let mut bad = |error: serde_json::Error| faults.push(format!("{shown}: {error}"));
        match kind {
            "Subscription" => match Subscription::from_object(value) {
                Ok(one) => self.subscriptions.push(one),
                Err(error) => bad(error),
            },
            "Base" => match Base::from_object(value) {
                Ok(one) => self.bases.push(one),
                Err(error) => bad(error),
            },
            "Manifest" => match Manifest::from_object(value) {
                Ok(one) => {
                    let made = Part::of_manifest(&one);
                    self.manifests.entry(feed_index(&made.target.api_version, &made.target.kind, &made.target.name)).or_default().push(Arc::new(made));
                }
                Err(error) => bad(error),
            },
            "HelmChart" => match HelmChart::from_object(value) {
                Ok(one) => {
                    let made = Part::of_chart(&one);
                    self.charts.entry(made.target.name.clone()).or_default().push(Arc::new(made));
                }
                Err(error) => bad(error),
            },
            "Globalization" => match Globalization::from_object(value) {
                Ok(one) => self.globals.entry(index_of(&one.spec.feed)).or_default().push(Arc::new(Override::global(&one))),
                Err(error) => bad(error),
            },
            "Localization" => match Localization::from_object(value) {
                Ok(one) => self.locals.entry(index_of(&one.spec.feed)).or_default().push(Arc::new(Override::local(&one))),
                Err(error) => bad(error),
            },
            _ => {}
        }
    }

    fn parts(&self, feed: &Feed) -> Vec<Arc<Part>> {
        let found = if feed.is_helm_chart() { self.charts.get(&feed.name) } else { self.manifests.get(&index_of(feed)) };
        let mut out: Vec<Arc<Part>> = found.into_iter().flatten().filter(|p| feed_names(feed, &p.target)).cloned().collect();
        out.sort_by(|a, b| a.target.cmp(&b.target));
        out
    }

    /// Where the kinds of feeds keep their replicas, as the definitions here say.
    fn scales(&self, feeds: &[Feed]) -> Vec<Option<String>> {
        let definitions: Vec<&Arc<Part>> = self.manifests.values().flatten().filter(|part| part.target.kind == "CustomResourceDefinition").collect();
        let scale = |feed: &Feed| {
            let is_of = |part: &&&Arc<Part>| {
                let at = |path: &str| part.template.pointer(path).and_then(Value::as_str).unwrap_or_default();
                at("/spec/names/kind") == feed.kind && feed.api_version.strip_prefix(at("/spec/group")).is_some_and(|rest| rest.starts_with('/'))
            };
            inventory::scale_of(&definitions.iter().find(is_of)?.template, &feed.api_version)
        };
        feeds.iter().map(scale).collect()
    }

    /// The autoscalers among feeds.
    fn scalers(&self, feeds: &[Feed]) -> Scalers {
        if !feeds.iter().any(shares::is_scaler) {
            return Scalers::new();
        }
        let templates: Vec<Option<Arc<Value>>> = feeds.iter().map(|feed| self.parts(feed).first().map(|part| part.template.clone())).collect();
        shares::scalers(feeds, |feed| templates.get(feeds.iter().position(|other| other == feed)?)?.as_deref())
    }

    fn overrides(&self, part: &Part, cluster: &ClusterFacts) -> Vec<Arc<Override>> {
        let key = feed_index(&part.target.api_version, &part.target.kind, &part.target.name);
        let all = self.globals.get(&key).into_iter().chain(self.locals.get(&key)).flatten();
        all.filter(|one| one.is_for(&part.target) && one.matches_cluster(&cluster.namespace, &cluster.labels)).cloned().collect()
    }
}

fn index_of(feed: &Feed) -> String {
    feed_index(&feed.api_version, &feed.kind, &feed.name)
}

/// Computes the fleet for a revision. `before` is what a former one made: what cannot be rendered now stays as it was there. `created`
/// says since when an object exists, for overrides of equal priority; `now` is the instant at which tolerations are judged.
#[must_use]
pub fn compute(
    desired: &Desired,
    before: Option<&State>,
    fleet: &Fleet,
    target: &Target,
    created: &dyn Fn(&crate::source::Place) -> Option<Timestamp>,
    now: Timestamp,
    charts: &dyn Charts,
) -> State {
    let mut out = State { faults: desired.faults.clone(), ..State::default() };
    let mut objects = Objects::default();
    let mut unread = Vec::new();
    for (place, wanted) in &desired.objects {
        let mut value = wanted.object.clone();
        if let (Some(at), Some(meta)) = (created(place), value.get_mut("metadata").and_then(Value::as_object_mut)) {
            meta.insert("creationTimestamp".to_owned(), Value::String(at.to_string()));
        }
        objects.take(&value, &mut unread);
    }
    for value in &fleet.others {
        objects.take(value, &mut unread);
    }
    out.faults.extend(unread.into_iter().map(|message| FileFault { reason: "Unreadable".to_owned(), message, ..FileFault::default() }));

    let facts: BTreeMap<String, ClusterFacts> = fleet.clusters.iter().filter(|c| c.metadata.deletion_timestamp.is_none()).map(|c| (key_of(&c.metadata), facts_of(c))).collect();
    let mut snapshot = Snapshot::new();
    for cluster in fleet.clusters.iter().filter_map(ClusterInfo::of) {
        snapshot.upsert(cluster);
    }
    let framework = Framework::standard();
    let mut memo = Memo::default();
    let mut parts = BTreeMap::new();
    let by_namespace: BTreeMap<&str, &ManagedCluster> = fleet.clusters.iter().filter_map(|c| Some((c.metadata.namespace.as_deref()?, c))).collect();
    let subscriptions = std::mem::take(&mut objects.subscriptions);
    for mut one in subscriptions {
        let key = key_of(&one.metadata);
        // The parent would have given it these; nothing in a tree depends on them.
        one.metadata.uid = Some(stable_uid(&key));
        let inventory = inventory_of(&one, &objects);
        let mut bound = schedule(&one, inventory.as_ref(), fleet.bindings.get(&key), &framework, &mut snapshot, now);
        one.status = Some(bound.status.clone());
        for description in describe(&one, inventory.as_ref(), &facts, &objects, before, &mut memo, &mut bound) {
            out.descriptions.insert(key_of(&description.metadata), description.clone());
            let namespace = description.metadata.namespace.clone().unwrap_or_default();
            let mut made = part(&description, object_file);
            if description.spec.deployer == DeployerType::Helm
                && let Some(cluster) = by_namespace.get(namespace.as_str())
            {
                made.releases = charts::rendered(&description, cluster, &fleet.known, charts, now, &mut bound);
            }
            parts.entry(namespace).or_insert_with(Vec::new).push(made);
        }
        bound.findings.sort();
        bound.findings.dedup();
        out.subscriptions.insert(key, bound);
    }
    for (key, cluster) in &facts {
        let mine = parts.get(&cluster.namespace).map(Vec::as_slice).unwrap_or_default();
        let mut tree = crate::tree::assemble(&target.owner, &target.prefix, mine);
        if let Some(before) = before.and_then(|state| state.trees.get(key)) {
            tree.stay(before);
        }
        out.trees.insert(key.clone(), tree);
    }
    out
}

fn key_of(meta: &api::ObjectMeta) -> String {
    object::key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn facts_of(cluster: &ManagedCluster) -> ClusterFacts {
    ClusterFacts {
        namespace: cluster.metadata.namespace.clone().unwrap_or_default(),
        name: cluster.metadata.name.clone().unwrap_or_default(),
        id: cluster.spec.cluster_id.clone(),
        labels: cluster.metadata.labels.clone().unwrap_or_default(),
    }
}

/// An id in the form of a uid that depends on the name only.
fn stable_uid(key: &str) -> String {
    let (a, b) = (api::names::stable_hash(&[key, "a"]), api::names::stable_hash(&[key, "b"]));
    let digits = format!("{a:016x}{b:016x}");
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..32])
}

fn inventory_of(one: &Subscription, objects: &Objects) -> Option<FeedInventory> {
    let templates = one.spec.feeds.iter().map(|feed| if feed.is_helm_chart() { None } else { objects.parts(feed).first().map(|p| p.template.clone()) }).collect();
    let seen = inventory::Seen { subscription: Arc::new(one.clone()), templates, scales: objects.scales(&one.spec.feeds), inventory: None };
    inventory::decide(&seen).into_iter().find_map(|step| match step {
        Step::Create { object } => FeedInventory::from_object(&object).ok(),
        _ => None,
    })
}

fn schedule(one: &Subscription, inventory: Option<&FeedInventory>, before: Option<&SubscriptionStatus>, framework: &Framework, snapshot: &mut Snapshot, now: Timestamp) -> Bound {
    let before = before.cloned().unwrap_or_default();
    let mut out = Bound { status: before.clone(), ..Bound::default() };
    let name = if one.spec.scheduler_name.is_empty() { api::known::DEFAULT_SCHEDULER_NAME } else { &one.spec.scheduler_name };
    let Some(profile) = framework.profiles.get(name) else {
        out.message = format!("no scheduler is named {name}");
        return out;
    };
    let subject = Arc::new(Subject::of(one, snapshot));
    let request = Request { subject: subject.clone(), previous: Arc::new(Previous::of(&before)), ready: Arc::default(), inventory: inventory.map(|i| Arc::new(i.spec.clone())), now };
    if admit(snapshot, &framework.policy, &request) == Admission::No {
        subject.release(snapshot);
        out.message = "stays as it is".to_owned();
        return out;
    }
    let decision = match begin(profile, &framework.policy, snapshot, request) {
        Begun::Settled(decision) => decision,
        Begun::Asks(mut pending) => {
            let asked: Vec<usize> = pending.clusters().map(|(number, _)| number).collect();
            for number in asked {
                pending.answer(number, Err("predictors are not asked in a preview".to_owned()));
            }
            finish(profile, pending)
        }
    };
    subject.release(snapshot);
    out.message = decision.message.clone();
    out.findings.extend(decision.warnings.iter().map(|(reason, text)| format!("{reason}: {text}")));
    if let Outcome::Bind(placement) | Outcome::Trim(placement) = &decision.outcome {
        out.status = SubscriptionStatus {
            binding_clusters: placement.bindings.iter().map(ToString::to_string).collect(),
            replicas: placement.replicas.clone(),
            spec_hash: placement.spec_hash,
            desired_releases: i32::try_from(placement.bindings.len()).unwrap_or(i32::MAX),
            ..SubscriptionStatus::default()
        };
    }
    out
}

/// The Descriptions of a bound Subscription, made by the steps of the deploy pipeline.
fn describe(
    one: &Subscription,
    inventory: Option<&FeedInventory>,
    facts: &BTreeMap<String, ClusterFacts>,
    objects: &Objects,
    before: Option<&State>,
    memo: &mut Memo,
    bound: &mut Bound,
) -> Vec<Arc<Description>> {
    let clusters = bound.status.binding_clusters.iter().filter_map(|key| facts.get(key).map(|f| (key.clone(), f.clone()))).collect();
    let seen = subscription::Seen { subscription: Arc::new(one.clone()), bases: Vec::new(), shares: Vec::new(), inventory: inventory.cloned().map(Arc::new), scalers: objects.scalers(&one.spec.feeds), clusters };
    let mut out = Vec::new();
    for step in subscription::decide(&seen).steps {
        let Step::Create { object } = step else { continue };
        if object::text(&object, "kind") != "Base" {
            continue;
        }
        let Ok(mut base) = Base::from_object(&object) else { continue };
        base.metadata.uid = Some(stable_uid(&key_of(&base.metadata)));
        let namespace = base.metadata.namespace.clone().unwrap_or_default();
        let Some(cluster) = seen.clusters.values().find(|f| f.namespace == namespace) else { continue };
        let key = object::key(&cluster.namespace, &cluster.name);
        let deployed = |name: String| before.and_then(|state| state.descriptions.get(&object::key(&namespace, &name))).cloned();
        let base_name = base.metadata.name.clone().unwrap_or_default();
        let (generic, helm) = (deployed(descriptions::generic_name(&base_name)), deployed(descriptions::helm_name(&base_name)));
        let feeds = base.spec.feeds.iter().map(|feed| feed_seen(feed, one, inventory, cluster, &key, objects)).collect();
        let seen = descriptions::Seen {
            base: Arc::new(base),
            cluster: cluster.clone(),
            feeds,
            generic: generic.clone(),
            helm: helm.clone(),
            missing: MissingFeeds::of(&one.metadata),
            orphan: false,
            unbound: false,
            replaced: false,
        };
        let plan = descriptions::decide(&seen, None, |part, overrides| {
            let key = render::key(part, overrides);
            if let Some(known) = memo.get(&key) {
                return known;
            }
            let made = render::part(part, overrides).map(Arc::new);
            memo.put(key, made.clone());
            made
        });
        for (_, message) in &plan.report.waiting {
            bound.fails(message.clone());
        }
        bound.findings.extend(plan.report.findings.iter().map(|f| format!("{key}: {}, {}: {} not found in {}", f.by, f.step, f.missing, f.target)));
        if let Some(fault) = &plan.report.fault {
            bound.fails(format!("{key}: {fault}"));
        }
        out.extend(after(generic.into_iter().chain(helm), plan.steps));
    }
    bound.findings.sort();
    bound.findings.dedup();
    out
}

/// The Descriptions of a Base once its steps are done.
fn after(now: impl Iterator<Item = Arc<Description>>, steps: Vec<Step>) -> Vec<Arc<Description>> {
    let mut all: BTreeMap<String, Arc<Description>> = now.map(|one| (one.metadata.name.clone().unwrap_or_default(), one)).collect();
    for step in &steps {
        if let Some(made) = made::<Description>(step, |name| all.get(name).map(|one| one.to_object())) {
            all.insert(made.metadata.name.clone().unwrap_or_default(), Arc::new(made));
        } else if let Step::Delete { at, .. } = step
            && at.kind == Description::KIND
        {
            all.remove(&at.name);
        }
    }
    all.into_values().collect()
}

/// The object of a kind that a step makes, or changes; `now` has those that are there, by name.
fn made<K: Kind>(step: &Step, now: impl FnOnce(&str) -> Option<Value>) -> Option<K> {
    match step {
        Step::Create { object } if object::text(object, "kind") == K::KIND => K::from_object(object).ok(),
        Step::Patch { at, patch, .. } if at.kind == K::KIND => {
            let mut object = now(&at.name)?;
            manifest::patch::merge(&mut object, patch);
            K::from_object(&object).ok()
        }
        _ => None,
    }
}

fn feed_seen(feed: &Feed, one: &Subscription, inventory: Option<&FeedInventory>, cluster: &ClusterFacts, bound: &str, objects: &Objects) -> FeedSeen {
    let share = if subscription::divides(one) { shares::share(one, inventory, &objects.scalers(&one.spec.feeds), bound, feed) } else { None };
    let parts = objects.parts(feed).into_iter().map(|part| {
        let mut overrides = objects.overrides(&part, cluster);
        if let Some(changes) = &share {
            overrides.push(Arc::new(Override::share(&cluster.namespace, "", &part.target, changes, None)));
        }
        order(&mut overrides);
        (part, overrides)
    });
    FeedSeen { feed: feed.clone(), parts: parts.collect(), held: None, now: combine(&std::collections::BTreeSet::new()) }
}
