//! The override engine: which overrides meet an object, in which order, and what becomes of it.
//!
//! Order, always: Globalizations, then Localizations; inside each by priority, lowest first; then by the instant of creation
//! (the whole instant, not its seconds), then by namespace and name; inside one object in list order. Later wins. An override
//! that finds nothing to change passes and is told about ([`Finding`]); one that is wrong fails the Description it is for.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::apps::{FieldFormat, Globalization, Localization, OverrideConfig, OverridePolicy, OverrideType};
use api::known::{component, label};
use api::object::ObjectRef;
use api::selector::{Selector, SelectorError};
use manifest::field::{self, Format, Inner};
use manifest::patch::{self, PatchError};
use manifest::{Limits, merge};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::shares;

/// Whose override it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// A Globalization.
    Global,
    /// A Localization.
    Local,
    /// The share of a divided workload, which the scheduler decided; a Localization in the API.
    Share,
}

/// 32 bytes that stand for a content.
pub type Digest = [u8; 32];

/// One Localization or Globalization, read and parsed once.
#[derive(Debug, Clone)]
pub struct Override {
    /// Global or local.
    pub scope: Scope,
    /// Namespace of a Localization, empty for a Globalization.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// What it is for.
    pub feed: ObjectRef,
    /// When a change of it takes effect.
    pub policy: OverridePolicy,
    /// 0 to 1000, lowest first.
    pub priority: i32,
    /// Instant of creation, nanoseconds since 1970; an object that is not stored yet is younger than all others.
    pub created: i128,
    /// Made by us for a divided workload.
    pub generated: bool,
    /// Clusters that a Globalization is for; none means all.
    affinity: Option<Result<Selector, SelectorError>>,
    steps: Vec<Step>,
    /// Hash of everything that decides what it does and when.
    pub digest: Digest,
}

/// One entry of `spec.overrides`.
#[derive(Debug, Clone)]
struct Step {
    name: String,
    chart: bool,
    action: Result<Action, String>,
}

impl Step {
    /// Patches by place, of which `overrideChart` says nothing.
    fn names_places(&self) -> bool {
        matches!(self.action, Ok(Action::JsonPatch(_) | Action::Field { .. }))
    }
}

#[derive(Debug, Clone)]
enum Action {
    /// A blank value, or a patch without operations.
    Nothing,
    Values(Value),
    JsonPatch(Vec<patch::Operation>),
    Merge(Value),
    Field { path: String, format: Format, inner: Inner },
}

/// An override that changed nothing because what it names is not there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// `Globalization g` or `Localization ns/l`.
    pub by: String,
    /// Name of the entry in its list.
    pub step: String,
    /// Object it was for.
    pub target: String,
    /// What was not found.
    pub missing: String,
}

/// An override that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("apply override {step:?} of {by} to {target}: {why}")]
pub struct OverrideFault {
    /// `Globalization g` or `Localization ns/l`.
    pub by: String,
    /// Name of the entry in its list.
    pub step: String,
    /// Object it was for.
    pub target: String,
    /// What is wrong with it.
    pub why: String,
}

impl Override {
    /// Reads a Localization.
    #[must_use]
    pub fn local(object: &Localization) -> Self {
        let meta = &object.metadata;
        let generated = is_generated(object);
        Self::new(
            Scope::Local,
            meta.namespace.clone().unwrap_or_default(),
            meta.name.clone().unwrap_or_default(),
            created(meta.creation_timestamp.as_ref()),
            (&object.spec.feed.object_ref(), object.spec.override_policy, object.spec.priority),
            &object.spec.overrides,
            None,
            generated,
        )
    }

    /// Reads a Globalization.
    #[must_use]
    pub fn global(object: &Globalization) -> Self {
        let meta = &object.metadata;
        Self::new(
            Scope::Global,
            String::new(),
            meta.name.clone().unwrap_or_default(),
            created(meta.creation_timestamp.as_ref()),
            (&object.spec.feed.object_ref(), object.spec.override_policy, object.spec.priority),
            &object.spec.overrides,
            object.spec.cluster_affinity.as_ref().map(Selector::from_label_selector),
            false,
        )
    }

    /// The share of a divided workload. `created` is the creation of its Localization, `None` before that exists.
    #[must_use]
    pub fn share(namespace: &str, name: &str, feed: &ObjectRef, changes: &[shares::Change], created: Option<i128>) -> Self {
        let config = OverrideConfig {
            name: SHARE_STEP.to_owned(),
            value: shares::rendered(changes),
            kind: OverrideType::JSONPatch,
            ..OverrideConfig::default()
        };
        Self::new(
            Scope::Share,
            namespace.to_owned(),
            name.to_owned(),
            created.unwrap_or(i128::MAX),
            (feed, OverridePolicy::ApplyNow, SHARE_PRIORITY),
            &[config],
            None,
            true,
        )
    }

    #[expect(clippy::too_many_arguments, reason = "one place that builds, from three kinds of source")]
    fn new(
        scope: Scope,
        namespace: String,
        name: String,
        created: i128,
        (feed, policy, priority): (&ObjectRef, OverridePolicy, i32),
        configs: &[OverrideConfig],
        affinity: Option<Result<Selector, SelectorError>>,
        generated: bool,
    ) -> Self {
        let steps = configs.iter().map(parse_step).collect();
        let mut hash = Sha256::new();
        // The place in the order counts as much as the content, so everything that decides it is hashed as well.
        let head = format!("{scope:?}\0{namespace}\0{name}\0{priority}\0{}\0", if created == i128::MAX { 0 } else { created });
        hash.update(head.as_bytes());
        for config in configs {
            let text = format!(
                "{}\0{:?}\0{}\0{}\0{:?}\0{}\0",
                config.name, config.kind, config.override_chart, config.field_path, config.field_format, config.value
            );
            hash.update(text.as_bytes());
        }
        Self { scope, namespace, name, feed: feed.clone(), policy, priority, created, generated, affinity, steps, digest: hash.finalize().into() }
    }

    /// How it is called in messages.
    #[must_use]
    pub fn title(&self) -> String {
        match self.scope {
            Scope::Global => format!("Globalization {}", self.name),
            Scope::Local | Scope::Share => format!("Localization {}/{}", self.namespace, self.name),
        }
    }

    /// Whether it is for this object. A feed without a namespace is for objects of the name in any.
    #[must_use]
    pub fn is_for(&self, object: &ObjectRef) -> bool {
        self.feed.kind == object.kind
            && self.feed.name == object.name
            && (self.feed.api_version == object.api_version || object.kind == "HelmChart")
            && (self.feed.namespace.is_empty() || self.feed.namespace == object.namespace)
    }

    /// Whether it is for a cluster with this namespace and these labels. A selector that makes no sense matches nothing.
    #[must_use]
    pub fn matches_cluster(&self, namespace: &str, labels: &BTreeMap<String, String>) -> bool {
        match self.scope {
            Scope::Local | Scope::Share => self.namespace == namespace,
            Scope::Global => match &self.affinity {
                None => true,
                Some(Ok(selector)) => selector.matches(labels),
                Some(Err(_)) => false,
            },
        }
    }

    /// What is wrong with it whatever it is applied to: values that cannot be read, a selector that makes no sense.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let steps = self.steps.iter().filter_map(|step| step.action.as_ref().err().map(|why| format!("override {:?}: {why}", step.name)));
        let selector = self.affinity.iter().filter_map(|affinity| affinity.as_ref().err()).map(|error| format!("clusterAffinity matches no cluster: {error}"));
        steps.chain(selector).collect()
    }

    /// Place in the order of all overrides.
    ///
    /// Creation instants have whole seconds. Within one second a share is the younger: its deployer answered to what was there.
    fn rank(&self) -> (bool, i32, i128, bool, &str, &str) {
        (self.scope != Scope::Global, self.priority, self.created, self.generated, &self.namespace, &self.name)
    }
}

/// One hash for a set of them.
#[must_use]
pub fn combine(digests: &std::collections::BTreeSet<Digest>) -> Digest {
    let mut hash = Sha256::new();
    for digest in digests {
        hash.update(digest);
    }
    hash.finalize().into()
}

/// Sorts overrides into the order in which they are applied.
pub fn order(overrides: &mut [Arc<Override>]) {
    overrides.sort_by(|a, b| a.rank().cmp(&b.rank()));
}

/// Priority of generated Localizations.
pub const SHARE_PRIORITY: i32 = 1000;
/// Name of the one entry in a generated Localization.
pub const SHARE_STEP: &str = "dividing scheduling replicas";

/// True for a Localization that the deployer made for a divided workload.
#[must_use]
pub fn is_generated(object: &Localization) -> bool {
    let labels = object.metadata.labels.as_ref();
    labels.and_then(|l| l.get(label::CREATED_BY)).is_some_and(|by| by == component::CONTROLLER_MANAGER)
        && object.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Base" && owner.controller == Some(true))
}

fn created(time: Option<&api::Time>) -> i128 {
    time.map_or(i128::MAX, |time| time.0.as_nanosecond())
}

fn parse_step(config: &OverrideConfig) -> Step {
    Step { name: config.name.clone(), chart: config.override_chart, action: parse_action(config) }
}

fn parse_action(config: &OverrideConfig) -> Result<Action, String> {
    if config.value.trim().is_empty() {
        return Ok(Action::Nothing);
    }
    let value = manifest::parse(&config.value, &Limits::OBJECT).map_err(|fault| format!("its value cannot be read: {fault}"))?;
    let operations = |value: &Value| patch::parse(value).map_err(|fault| fault.to_string());
    let object = |value: Value| match value {
        Value::Object(_) | Value::Array(_) => Ok(value),
        other => Err(format!("a merge patch must be an object, not {}", patch::kind_word(&other))),
    };
    let field = |inner: Inner| {
        let format = match config.field_format {
            Some(FieldFormat::JSON) => Format::Json,
            Some(FieldFormat::YAML) => Format::Yaml,
            None => return Err("fieldFormat must be JSON or YAML".to_owned()),
        };
        Ok(Action::Field { path: config.field_path.clone(), format, inner })
    };
    match config.kind {
        OverrideType::Helm => match value {
            Value::Object(_) => Ok(Action::Values(value)),
            Value::Null => Ok(Action::Nothing),
            other => Err(format!("values must be an object, not {}", patch::kind_word(&other))),
        },
        OverrideType::JSONPatch => Ok(Action::JsonPatch(operations(&value)?)),
        OverrideType::MergePatch => Ok(Action::Merge(object(value)?)),
        OverrideType::FieldJSONPatch => field(Inner::JsonPatch(operations(&value)?)),
        OverrideType::FieldMergePatch => field(Inner::MergePatch(object(value)?)),
    }
}

/// An object after its overrides, with what the overrides did not find.
pub type Changed = (Value, Vec<Finding>);

/// Applies overrides, already in order, to a plain object; ends with the implicit removals.
pub fn apply_to_object(target: &ObjectRef, mut object: Value, overrides: &[Arc<Override>]) -> Result<Changed, OverrideFault> {
    let mut findings = Vec::new();
    for one in overrides {
        for step in &one.steps {
            // `overrideChart` speaks of HelmCharts; patches that name places do not look at it.
            if step.chart && !step.names_places() {
                continue;
            }
            apply(one, step, target, &mut object, &mut findings)?;
        }
    }
    strip(target, &mut object)?;
    Ok((object, findings))
}

/// Applies the values overrides to the values of a chart; blank when there are none.
pub fn apply_to_values(target: &ObjectRef, overrides: &[Arc<Override>]) -> Result<(Option<Value>, Vec<Finding>), OverrideFault> {
    let mut findings = Vec::new();
    let mut values: Option<Value> = None;
    for one in overrides {
        for step in one.steps.iter().filter(|step| !step.chart || step.names_places()) {
            match (&mut values, &step.action) {
                (Some(values), _) => apply(one, step, target, values, &mut findings)?,
                // The first override that is no JSON patch becomes the base as it is.
                (none, Ok(Action::Values(value) | Action::Merge(value))) => *none = Some(value.clone()),
                (None, Ok(Action::Nothing)) => {}
                (None, Ok(Action::JsonPatch(_) | Action::Field { .. })) => findings.push(Finding {
                    by: one.title(),
                    step: step.name.clone(),
                    target: target.to_string(),
                    missing: "no values to patch".to_owned(),
                }),
                (None, Err(why)) => return Err(fault(one, step, target, why.clone())),
            }
        }
    }
    if let Some(values) = &mut values {
        strip(target, values)?;
    }
    Ok((values, findings))
}

/// Applies the overrides of the HelmChart object itself. Chart name and target namespace cannot be overridden.
pub fn apply_to_chart(target: &ObjectRef, mut chart: Value, overrides: &[Arc<Override>]) -> Result<Changed, OverrideFault> {
    let mut findings = Vec::new();
    let fixed = |chart: &Value, field: &str| chart.get("spec").and_then(|spec| spec.get(field)).cloned();
    let (name, namespace) = (fixed(&chart, "chart"), fixed(&chart, "targetNamespace"));
    for one in overrides {
        for step in one.steps.iter().filter(|step| step.chart) {
            match &step.action {
                Ok(Action::Values(value)) => patch::merge(&mut chart, value),
                Ok(Action::JsonPatch(_) | Action::Field { .. }) => {}
                _ => apply(one, step, target, &mut chart, &mut findings)?,
            }
        }
    }
    if let Some(spec) = chart.get_mut("spec").and_then(Value::as_object_mut) {
        for (field, value) in [("chart", name), ("targetNamespace", namespace)] {
            if let Some(value) = value {
                spec.insert(field.to_owned(), value);
            }
        }
    }
    strip(target, &mut chart)?;
    Ok((chart, findings))
}

fn apply(one: &Override, step: &Step, target: &ObjectRef, object: &mut Value, findings: &mut Vec<Finding>) -> Result<(), OverrideFault> {
    let mut miss = |what: String| findings.push(Finding { by: one.title(), step: step.name.clone(), target: target.to_string(), missing: what });
    match &step.action {
        Err(why) => return Err(fault(one, step, target, why.clone())),
        Ok(Action::Nothing) => {}
        Ok(Action::Values(value)) => match (&mut *object, value) {
            (Value::Object(base), Value::Object(over)) => merge::values(base, over),
            (object, value) => *object = value.clone(),
        },
        Ok(Action::Merge(value)) => patch::merge(object, value),
        Ok(Action::JsonPatch(operations)) => match patch::apply(object, operations) {
            Ok(()) => {}
            Err(error @ PatchError::Missing { .. }) => miss(error.to_string()),
            Err(error) => return Err(fault(one, step, target, error.to_string())),
        },
        Ok(Action::Field { path, format, inner }) => match field::apply(object, path, *format, inner) {
            Ok(()) => {}
            Err(error) if error.is_missing() => miss(chain(&error)),
            Err(error) => return Err(fault(one, step, target, chain(&error))),
        },
    }
    Ok(())
}

/// What a server owns never goes to a child: managed fields, uid, status.
fn strip(target: &ObjectRef, object: &mut Value) -> Result<(), OverrideFault> {
    let Value::Object(fields) = object else {
        return Err(OverrideFault {
            by: "the overrides together".to_owned(),
            step: String::new(),
            target: target.to_string(),
            why: format!("the result is {}, not an object", patch::kind_word(object)),
        });
    };
    fields.remove("status");
    if let Some(meta) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        remove_all(meta, &["managedFields", "uid"]);
    }
    Ok(())
}

fn remove_all(map: &mut Map<String, Value>, keys: &[&str]) {
    for key in keys {
        map.remove(*key);
    }
}

fn fault(one: &Override, step: &Step, target: &ObjectRef, why: String) -> OverrideFault {
    OverrideFault { by: one.title(), step: step.name.clone(), target: target.to_string(), why }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
