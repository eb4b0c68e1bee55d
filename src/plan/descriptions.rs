//! Base -> Descriptions: what one turn over a Base does.
//!
//! A Base is rendered when something that calls for it changed: its feeds, its cluster, a template, an ApplyNow override, a
//! share. That is told by the *trigger*, a hash of those inputs which is kept on the Description, so that a change of an
//! ApplyLater override alone waits for the next such change, also over a restart.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::{Base, DeployerType, Description, DescriptionSpec, Feed};
use api::known::{component, finalizer, label};
use api::names::is_label_value;
use api::object::{self, ObjectRef};
use api::reason::Reason;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::overrides::{Digest, Finding, Override, OverrideFault};
use crate::render::{self, ClusterFacts, Part, Piece, Rendered, feed_names};
use crate::step::{MetaWish, Step, Version, app_ref, label_of, owner};

/// On a Description: hash of the inputs that call for rendering, as of the last one.
pub const TRIGGER: &str = "gitops.anabranch.io/rendered-from";
/// On a Subscription: what to do while a feed is missing, `skip` (deploy the others) or `wait` (deploy nothing).
pub const MISSING_FEEDS: &str = "gitops.anabranch.io/missing-feeds";

/// What to do while a feed is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingFeeds {
    /// The other feeds go, as a reader of a Git history expects.
    Skip,
    /// Nothing goes, as Clusternet does.
    Wait,
}

impl MissingFeeds {
    /// The rule for a Subscription: what it says itself, else by where it comes from. From Git one missing file never
    /// holds up the rest; by hand, the way of Clusternet is kept.
    #[must_use]
    pub fn of(subscription: &api::ObjectMeta) -> Self {
        match crate::step::annotation_of(subscription, MISSING_FEEDS) {
            Some("skip") => Self::Skip,
            Some("wait") => Self::Wait,
            _ if label_of(subscription, label::SOURCE).is_empty() => Self::Wait,
            _ => Self::Skip,
        }
    }
}

/// What a feed of a Base was found to be.
#[derive(Debug, Clone)]
pub struct FeedSeen {
    /// The feed.
    pub feed: Feed,
    /// The objects it names, usually one, each with the overrides for it and this cluster, in order.
    pub parts: Vec<(Arc<Part>, Vec<Arc<Override>>)>,
    /// Why its objects cannot be deployed yet although they are there (a chart that is not found).
    pub held: Option<(Reason, String)>,
    /// Hash of the ApplyNow overrides of the feed for any cluster: a change of one renders all.
    pub now: Digest,
}

/// One reading of the world around a Base.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The Base.
    pub base: Arc<Base>,
    /// Its cluster.
    pub cluster: ClusterFacts,
    /// Its feeds, in order.
    pub feeds: Vec<FeedSeen>,
    /// Its Description of plain objects.
    pub generic: Option<Arc<Description>>,
    /// Its Description of charts.
    pub helm: Option<Arc<Description>>,
    /// What to do while a feed is missing.
    pub missing: MissingFeeds,
    /// The Subscription that it was made for is gone: the Base must go too.
    pub orphan: bool,
    /// Its Subscription no longer binds its cluster: it will go, and is not rendered any more.
    pub unbound: bool,
    /// It goes, but another Base of its Subscription stays for this cluster: nothing is taken from the cluster.
    pub replaced: bool,
}

/// What a turn found, for the conditions of the Subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Feeds that are waited for, with the reason.
    pub waiting: Vec<(Reason, String)>,
    /// Overrides that found nothing.
    pub findings: Vec<Finding>,
    /// The override that failed.
    pub fault: Option<OverrideFault>,
}

/// What to do for a Base.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Changes, in order.
    pub steps: Vec<Step>,
    /// What to tell.
    pub report: Report,
    /// Trigger to remember when nothing had to be written.
    pub trigger: Option<String>,
}

/// Name of the Description of plain objects.
#[must_use]
pub fn generic_name(base: &str) -> String {
    format!("{base}-generic")
}

/// Name of the Description of charts.
#[must_use]
pub fn helm_name(base: &str) -> String {
    format!("{base}-helm")
}

/// The hash of what calls for rendering.
#[must_use]
pub fn trigger(seen: &Seen) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("{}\0{}\0{}\0{:?}\0", seen.cluster.namespace, seen.cluster.id, seen.cluster.name, seen.missing).as_bytes());
    for feed in &seen.feeds {
        hash.update(feed.feed.key().as_bytes());
        hash.update([u8::from(feed.held.is_some())]);
        hash.update(feed.now);
        for (part, overrides) in &feed.parts {
            hash.update(part.digest);
            for one in overrides.iter().filter(|one| one.policy == api::apps::OverridePolicy::ApplyNow) {
                hash.update(one.digest);
            }
        }
    }
    manifest::hash::hex(&hash.finalize()[..8])
}

/// Decides. `known` is the trigger of the last rendering that had to write nothing; `render` renders a part or remembers it.
pub fn decide(
    seen: &Seen,
    known: Option<&str>,
    mut render: impl FnMut(&Part, &[Arc<Override>]) -> Result<Arc<Rendered>, OverrideFault>,
) -> Plan {
    let base = &seen.base;
    let meta = &base.metadata;
    let at = app_ref("Base", meta);
    let uid = meta.uid.clone().unwrap_or_default();
    let mut plan = Plan::default();
    if meta.deletion_timestamp.is_some() {
        return deleting(seen, &at, &uid);
    }
    if seen.orphan {
        plan.steps.push(Step::Delete { at, uid });
        return plan;
    }
    let mut wish = MetaWish { finalizers: vec![finalizer::APP], ..MetaWish::default() };
    wish.labels.insert(uid.clone(), Some("Base".to_owned()));
    if let Some(patch) = wish.patch(meta) {
        plan.steps.push(Step::Patch { at: at.clone(), patch: json!({"metadata": patch}), only_if: Version::exactly(meta) });
    }
    if seen.unbound {
        return plan;
    }

    let mut pieces = Vec::new();
    for feed in &seen.feeds {
        if let Some((reason, message)) = &feed.held {
            plan.report.waiting.push((*reason, message.clone()));
            pieces.extend(kept(seen, &feed.feed));
            continue;
        }
        if feed.parts.is_empty() {
            plan.report.waiting.push((Reason::FeedNotFound, missing_message(&feed.feed)));
            // A feed that was there and is gone keeps its last form: nothing is deleted on a doubt.
            pieces.extend(kept(seen, &feed.feed));
            continue;
        }
        for (part, overrides) in &feed.parts {
            match render(part, overrides) {
                Ok(rendered) => {
                    plan.report.findings.extend(rendered.findings.iter().cloned());
                    pieces.push(Piece { target: part.target.clone(), chart: part.chart, rendered });
                }
                Err(fault) => plan.report.fault = plan.report.fault.take().or(Some(fault)),
            }
        }
    }
    if !plan.report.waiting.is_empty() {
        // One event per reason: several of one reason would take turns in being news.
        let mut by_reason: BTreeMap<Reason, Vec<&str>> = BTreeMap::new();
        for (reason, message) in &plan.report.waiting {
            by_reason.entry(*reason).or_default().push(message);
        }
        for (reason, messages) in by_reason {
            plan.steps.push(tell(&at, &uid, reason, messages.join("; ")));
        }
        // As Clusternet: the whole Base waits, and what is deployed stays as it is.
        if seen.missing == MissingFeeds::Wait {
            return plan;
        }
    }
    if let Some(fault) = &plan.report.fault {
        plan.steps.push(tell(&at, &uid, Reason::FailedApplyingOverrides, fault.to_string()));
        return plan;
    }
    let trigger = trigger(seen);
    let have = |description: &Option<Arc<Description>>| {
        description.as_ref().and_then(|d| crate::step::annotation_of(&d.metadata, TRIGGER)).map(str::to_owned)
    };
    let subscription = label_of(meta, label::SUBS_UID);
    let own = [(uid.clone(), "Base"), (if render::is_uid(subscription) { subscription.to_owned() } else { String::new() }, "Subscription")];
    let (generic, helm) = render::specs(&pieces, &own);
    let up_to_date = |wanted: &Option<DescriptionSpec>, now: &Option<Arc<Description>>| match (wanted, now) {
        (Some(_), Some(now)) => now.metadata.deletion_timestamp.is_none() && (have(&Some(now.clone())).as_deref() == Some(&trigger) || known == Some(&trigger)),
        (None, None) => true,
        _ => false,
    };
    let waits_for_later = up_to_date(&generic, &seen.generic) && up_to_date(&helm, &seen.helm);
    for (wanted, now, name) in
        [(generic, &seen.generic, generic_name(meta.name.as_deref().unwrap_or_default())), (helm, &seen.helm, helm_name(meta.name.as_deref().unwrap_or_default()))]
    {
        description(seen, wanted, now.as_deref(), &name, &trigger, waits_for_later, &mut plan.steps);
    }
    plan.trigger = Some(trigger);
    plan
}

/// Brings one Description to what is wanted.
fn description(
    seen: &Seen,
    wanted: Option<DescriptionSpec>,
    now: Option<&Description>,
    name: &str,
    trigger: &str,
    waits_for_later: bool,
    steps: &mut Vec<Step>,
) {
    let Some(now) = now else {
        if let Some(spec) = wanted {
            steps.push(Step::Create { object: fresh(seen, name, &spec, trigger) });
        }
        return;
    };
    let at = app_ref("Description", &now.metadata);
    let uid = now.metadata.uid.clone().unwrap_or_default();
    if now.metadata.deletion_timestamp.is_some() {
        // It will be made anew once it is gone.
        return;
    }
    let Some(spec) = wanted else {
        steps.push(Step::Delete { at, uid });
        return;
    };
    let wish = MetaWish {
        labels: labels(seen).into_iter().map(|(k, v)| (k, Some(v))).collect(),
        finalizers: vec![finalizer::APP],
        ..MetaWish::default()
    };
    let mut meta = wish.patch(&now.metadata);
    let mut patch = serde_json::Map::new();
    let news = (!waits_for_later && now.spec != spec).then(|| in_present_words(&now.spec, spec)).filter(|spec| now.spec != *spec);
    if let Some(spec) = news {
        let meta = meta.get_or_insert_with(|| json!({}));
        meta["annotations"] = json!({TRIGGER: trigger});
        patch.insert("spec".to_owned(), spec_patch(&now.spec, &spec));
    }
    if let Some(meta) = meta {
        patch.insert("metadata".to_owned(), meta);
    }
    if !patch.is_empty() {
        steps.push(Step::Patch { at, patch: Value::Object(patch), only_if: Version::exactly(&now.metadata) });
    }
}

/// What is wanted, with the present text of each object that stays the same. Clusternet leaves system metadata of the template in the
/// objects that it renders, and its agents write an object again whose text is another one.
fn in_present_words(now: &DescriptionSpec, mut then: DescriptionSpec) -> DescriptionSpec {
    if then.deployer != DeployerType::Generic {
        return then;
    }
    let object = |raw: &api::Bytes| {
        let mut object: Value = serde_json::from_slice(raw.as_slice()).ok()?;
        for field in SYSTEM_METADATA {
            object.get_mut("metadata")?.as_object_mut()?.remove(field);
        }
        Some(object)
    };
    let mut present: Option<Vec<Option<Value>>> = None;
    for raw in then.raw.iter_mut() {
        if now.raw.contains(raw) {
            continue;
        }
        let present = present.get_or_insert_with(|| now.raw.iter().map(object).collect());
        let Some(wanted) = object(raw) else { continue };
        if let Some(same) = present.iter().position(|one| one.as_ref() == Some(&wanted)) {
            raw.clone_from(&now.raw[same]);
        }
    }
    then
}

/// What an API server writes into the metadata of a template, and Clusternet leaves there.
const SYSTEM_METADATA: [&str; 4] = ["creationTimestamp", "generation", "resourceVersion", "uid"];

/// A merge patch takes lists whole, and leaves out what did not change.
fn spec_patch(now: &DescriptionSpec, then: &DescriptionSpec) -> Value {
    let (now, then) = (json!(now), json!(then));
    let mut out = serde_json::Map::new();
    for field in ["deployer", "charts", "raw", "chartRaw"] {
        let (a, b) = (now.get(field), then.get(field));
        if a != b {
            out.insert(field.to_owned(), b.cloned().unwrap_or(Value::Null));
        }
    }
    Value::Object(out)
}

fn labels(seen: &Seen) -> BTreeMap<String, String> {
    let meta = &seen.base.metadata;
    let mut out: BTreeMap<String, String> = [
        (label::CREATED_BY, component::CONTROLLER_MANAGER),
        (label::CONFIG_KIND, "Base"),
        (label::CONFIG_NAMESPACE, meta.namespace.as_deref().unwrap_or_default()),
        (label::CONFIG_UID, meta.uid.as_deref().unwrap_or_default()),
        (label::CLUSTER_ID, seen.cluster.id.as_str()),
        (label::CLUSTER_NAME, seen.cluster.name.as_str()),
        (label::SUBS_NAMESPACE, label_of(meta, label::SUBS_NAMESPACE)),
        (label::SUBS_UID, label_of(meta, label::SUBS_UID)),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .collect();
    // Left out by Clusternet by mistake since 2023; its own aggregation looks for it.
    let name = label_of(meta, label::SUBS_NAME);
    if !name.is_empty() && is_label_value(name) {
        out.insert(label::SUBS_NAME.to_owned(), name.to_owned());
    }
    out
}

fn fresh(seen: &Seen, name: &str, spec: &DescriptionSpec, trigger: &str) -> Value {
    json!({
        "apiVersion": "apps.clusternet.io/v1alpha1",
        "kind": "Description",
        "metadata": {
            "name": name,
            "namespace": seen.base.metadata.namespace.clone().unwrap_or_default(),
            "labels": labels(seen),
            "annotations": {TRIGGER: trigger},
            "finalizers": [finalizer::APP],
            "ownerReferences": [owner("Base", &seen.base.metadata)],
        },
        "spec": spec,
    })
}

/// Deletion: the Descriptions first, the Base's finalizer when none is left.
fn deleting(seen: &Seen, at: &ObjectRef, uid: &str) -> Plan {
    let mut plan = Plan::default();
    let meta = &seen.base.metadata;
    let mut left = false;
    for description in [&seen.generic, &seen.helm].into_iter().flatten() {
        left = true;
        if description.metadata.deletion_timestamp.is_some() {
            continue;
        }
        // An agent of Clusternet deletes whatever a Description that is being deleted names, also when another one names it too.
        let at = app_ref("Description", &description.metadata);
        match (seen.replaced, description.spec.deployer) {
            (true, DeployerType::Generic) => plan.steps.push(Step::LetGo { at, only_if: Version::exactly(&description.metadata) }),
            // Its HelmReleases go before it: its own turn sees to that.
            (true, DeployerType::Helm) => {}
            (false, _) => plan.steps.push(Step::Delete { at, uid: description.metadata.uid.clone().unwrap_or_default() }),
        }
    }
    if !left {
        let wish = MetaWish { without_finalizers: vec![finalizer::APP], ..MetaWish::default() };
        if let Some(patch) = wish.patch(meta) {
            let only_if = Version::exactly(meta);
            debug_assert_eq!(only_if.uid, uid);
            plan.steps.push(Step::Patch { at: at.clone(), patch: json!({"metadata": patch}), only_if });
        }
    }
    plan
}

/// What the Descriptions hold of a feed that cannot be read now.
fn kept(seen: &Seen, feed: &Feed) -> Vec<Piece> {
    if seen.missing == MissingFeeds::Wait {
        return Vec::new();
    }
    let mut out = Vec::new();
    if feed.is_helm_chart() {
        let Some(helm) = &seen.helm else { return out };
        for ((chart, raw), whole) in helm.spec.charts.iter().zip(&helm.spec.raw).zip(&helm.spec.chart_raw) {
            if chart.name == feed.name && (feed.namespace.is_empty() || chart.namespace == feed.namespace) {
                let target = ObjectRef { api_version: feed.api_version.clone(), kind: feed.kind.clone(), namespace: chart.namespace.clone(), name: chart.name.clone() };
                let rendered = Rendered { raw: raw.0.clone(), chart: whole.0.clone(), findings: Vec::new() };
                out.push(Piece { target, chart: true, rendered: Arc::new(rendered) });
            }
        }
        return out;
    }
    let Some(generic) = &seen.generic else { return out };
    for raw in &generic.spec.raw {
        let Ok(value) = serde_json::from_slice::<Value>(&raw.0) else { continue };
        let target = ObjectRef::of(&value);
        if feed_names(feed, &target) && !object::name(&value).is_empty() {
            let rendered = Rendered { raw: raw.0.clone(), chart: Vec::new(), findings: Vec::new() };
            out.push(Piece { target, chart: false, rendered: Arc::new(rendered) });
        }
    }
    out
}

fn missing_message(feed: &Feed) -> String {
    format!("waits for {} {}, which does not exist", feed.kind, object::key(&feed.namespace, &feed.name))
}

fn tell(about: &ObjectRef, uid: &str, reason: Reason, message: String) -> Step {
    Step::Tell { about: about.clone(), uid: uid.to_owned(), warning: true, reason, message }
}

#[cfg(test)]
mod tests;
