//! Profiles and configuration, as Kubernetes and Clusternet have them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::framework::{Enabled, Plugin, Point, Profile};
use super::plugins::{self, Factory};
use super::policy::Policy;

/// A fault of a configuration, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read scheduler configuration: {path}: {message}")]
pub struct ConfigError {
    /// Place in the file.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl ConfigError {
    /// A fault at a place.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// The configuration of a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Profiles by scheduler name; none means the default one.
    pub profiles: Vec<ProfileConfig>,
    /// Kept for compatibility. Every cluster is always looked at: with the index that costs less than choosing would.
    #[serde(alias = "percentageofclusterstoscore")]
    pub percentage_of_clusters_to_score: Option<u32>,
    /// Percentage of clusters whose predictor may fail; overrides the policy.
    #[serde(alias = "percentageofclusterstotolerate")]
    pub percentage_of_clusters_to_tolerate: Option<u32>,
    /// Choices; absent fields are ours.
    pub policy: Policy,
    /// Who of several processes schedules.
    pub leader_election: LeaderElection,
}

/// The election, with Kubernetes' names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaderElection {
    /// Whether to stand for election; the command line may switch it off as well.
    pub leader_elect: Option<bool>,
    /// Name of the Lease. Left out, it is `clusternet-scheduler`, with the profiles' names after it when the default one is not
    /// among them, so that schedulers of different names run side by side.
    pub resource_name: Option<String>,
    /// Namespace of the Lease; `clusternet-system` when left out.
    pub resource_namespace: Option<String>,
}

impl Config {
    /// Reads a configuration file; what it does not know it refuses, with the place and how to mend it.
    pub fn read(value: &Value) -> Result<Self, ConfigError> {
        let empty = serde_json::Map::new();
        let top = match value {
            Value::Null => &empty,
            Value::Object(top) => top,
            _ => return Err(ConfigError::new("(top)", "must be a mapping with profiles, policy or leaderElection")),
        };
        let known = [
            "profiles", "policy", "leaderElection", "percentageOfClustersToScore", "percentageofclusterstoscore", "percentageOfClustersToTolerate",
            "percentageofclusterstotolerate",
        ];
        for key in top.keys().filter(|key| !known.contains(&key.as_str())) {
            let kubernetes = ["apiVersion", "kind", "clientConnection", "parallelism", "extenders", "percentageOfNodesToScore", "podInitialBackoffSeconds",
                "podMaxBackoffSeconds", "enableProfiling", "enableContentionProfiling", "delayCacheUntilActive"];
            let message = match nearest(key, &known) {
                _ if kubernetes.contains(&key.as_str()) => "belongs to a KubeSchedulerConfiguration, which this is not: leave it out".to_owned(),
                Some(near) => format!("is not known: did you mean {near}?"),
                None => "is not known: leave it out".to_owned(),
            };
            return Err(ConfigError::new(key.as_str(), message));
        }
        let part = |key: &str| top.get(key).filter(|part| !part.is_null());
        let mut config = Self::default();
        for (index, profile) in part("profiles").map_or(Ok(&[][..]), |list| list.as_array().map(Vec::as_slice).ok_or_else(|| ConfigError::new("profiles", "must be a list")))?.iter().enumerate() {
            let path = format!("profiles[{index}]");
            for (point, set) in profile.get("plugins").and_then(Value::as_object).into_iter().flatten() {
                let path = format!("{path}.plugins.{point}");
                if point != MULTI_POINT && serde_json::from_value::<Point>(Value::String(point.clone())).is_err() {
                    let known: Vec<String> = Point::ALL.iter().map(|point| point.word()).chain([MULTI_POINT.to_owned()]).collect();
                    return Err(ConfigError::new(path, format!("is no extension point: expected one of {}", known.join(", "))));
                }
                serde_json::from_value::<PluginSet>(set.clone()).map_err(|error| ConfigError::new(path, error.to_string()))?;
            }
            let profile: ProfileConfig = serde_json::from_value(profile.clone()).map_err(|error| ConfigError::new(path, error.to_string()))?;
            config.profiles.push(profile);
        }
        fn field<T: serde::de::DeserializeOwned + Default>(part: Option<&Value>, key: &str) -> Result<T, ConfigError> {
            part.map_or_else(|| Ok(T::default()), |part| serde_json::from_value(part.clone()).map_err(|error| ConfigError::new(key, error.to_string())))
        }
        config.policy = field(part("policy"), "policy")?;
        config.leader_election = field(part("leaderElection"), "leaderElection")?;
        let score = part("percentageOfClustersToScore").or_else(|| part("percentageofclusterstoscore"));
        config.percentage_of_clusters_to_score = field(score, "percentageOfClustersToScore")?;
        let tolerate = part("percentageOfClustersToTolerate").or_else(|| part("percentageofclusterstotolerate"));
        config.percentage_of_clusters_to_tolerate = field(tolerate, "percentageOfClustersToTolerate")?;
        Ok(config)
    }
}

/// The known word that somebody may have meant: the same in other letters, or begun alike.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let alike = |one: &&&str| one.to_lowercase().chars().zip(lower.chars()).take_while(|(a, b)| a == b).count();
    known.iter().filter(|one| alike(one) >= 5).max_by_key(|one| (alike(one), std::cmp::Reverse(one.len().abs_diff(word.len())))).copied()
}

/// The plugins of all extension points at once, as Kubernetes has it.
const MULTI_POINT: &str = "multiPoint";

/// One profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileConfig {
    /// Name that Subscriptions ask for; a single unnamed profile is `default`.
    pub scheduler_name: String,
    /// Changes of the default plugins, by extension point.
    pub plugins: PluginSets,
    /// Arguments of plugins.
    pub plugin_config: Vec<PluginConfig>,
}

/// Changes of the plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PluginSets {
    /// At all points of a plugin at once; what a point says itself counts more.
    pub multi_point: PluginSet,
    /// At single points.
    #[serde(flatten)]
    pub at: BTreeMap<Point, PluginSet>,
}

/// Changes at one point.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginSet {
    /// Plugins to add, or to give another weight.
    pub enabled: Vec<PluginRef>,
    /// Plugins to leave out; `*` means all default ones.
    pub disabled: Vec<PluginRef>,
}

/// A plugin by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginRef {
    /// Name.
    pub name: String,
    /// Weight, for scores.
    pub weight: Option<i64>,
}

/// Arguments of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginConfig {
    /// Name.
    pub name: String,
    /// Arguments, as the plugin reads them.
    pub args: Value,
}

/// Profiles that are ready to run.
#[derive(Clone)]
pub struct Framework {
    /// By scheduler name.
    pub profiles: BTreeMap<String, Arc<Profile>>,
    /// Choices.
    pub policy: Arc<Policy>,
    /// The election, as configured.
    pub election: LeaderElection,
}

impl Framework {
    /// Name of the Lease for which a scheduler with these profiles stands.
    pub fn lease_name(&self) -> String {
        if let Some(name) = &self.election.resource_name {
            return name.clone();
        }
        let component = api::known::component::SCHEDULER;
        if self.profiles.contains_key(api::known::DEFAULT_SCHEDULER_NAME) {
            return component.to_owned();
        }
        let names: Vec<&str> = self.profiles.keys().map(String::as_str).collect();
        let plain = format!("{component}-{}", names.join("."));
        if api::names::is_dns_subdomain(&plain) && plain.len() <= 63 { plain } else { api::names::with_suffix(component, &names, 63) }
    }

    /// The default profile with our choices.
    pub fn standard() -> Self {
        Self::with_policy(Policy::default())
    }

    /// The default profile with these choices.
    pub fn with_policy(policy: Policy) -> Self {
        let config = Config { policy, ..Config::default() };
        // The built-in defaults have no fault; an empty framework would serve nobody, and a test guards it.
        Self::build(&config, &[]).unwrap_or_else(|_| Self {
            profiles: BTreeMap::new(),
            policy: Arc::new(config.policy.clone()),
            election: LeaderElection::default(),
        })
    }

    /// Builds the profiles, with out-of-tree plugins besides the in-tree ones; the first fault ends it.
    pub fn build(config: &Config, out_of_tree: &[(&'static str, Factory)]) -> Result<Self, ConfigError> {
        for (percentage, name) in [
            (config.percentage_of_clusters_to_score, "percentageOfClustersToScore"),
            (config.percentage_of_clusters_to_tolerate, "percentageOfClustersToTolerate"),
        ] {
            if percentage.is_some_and(|percentage| percentage > 100) {
                return Err(ConfigError::new(name, "must be between 0 and 100"));
            }
        }
        let mut policy = config.policy.clone();
        if let Some(percentage) = config.percentage_of_clusters_to_tolerate {
            policy.percentage_of_clusters_to_tolerate = percentage;
        }
        let factories: BTreeMap<&str, Factory> = plugins::in_tree().into_iter().chain(out_of_tree.iter().copied()).collect();
        let mut configs = config.profiles.clone();
        if configs.is_empty() {
            configs.push(ProfileConfig::default());
        }
        if let [only] = configs.as_mut_slice()
            && only.scheduler_name.is_empty()
        {
            api::known::DEFAULT_SCHEDULER_NAME.clone_into(&mut only.scheduler_name);
        }
        let mut profiles = BTreeMap::new();
        for (index, config) in configs.iter().enumerate() {
            let path = format!("profiles[{index}]");
            if config.scheduler_name.is_empty() {
                return Err(ConfigError::new(path + ".schedulerName", "must not be empty"));
            }
            let profile = profile(config, &factories, &path)?;
            if profiles.insert(config.scheduler_name.clone(), Arc::new(profile)).is_some() {
                return Err(ConfigError::new(path + ".schedulerName", format!("{:?} is there twice", config.scheduler_name)));
            }
        }
        for (name, field) in [(&config.leader_election.resource_name, "resourceName"), (&config.leader_election.resource_namespace, "resourceNamespace")] {
            if name.as_ref().is_some_and(|name| !api::names::is_dns_subdomain(name)) {
                return Err(ConfigError::new(format!("leaderElection.{field}"), "must be a name of Kubernetes: lower-case letters, digits, - and ."));
            }
        }
        Ok(Self { profiles, policy: Arc::new(policy), election: config.leader_election.clone() })
    }
}

/// Default plugins by point, with weights (facts: Clusternet's defaults).
fn defaults() -> BTreeMap<Point, Vec<(&'static str, i64)>> {
    BTreeMap::from([
        (Point::Filter, vec![(plugins::taints::NAME, 1)]),
        (Point::PostFilter, vec![(super::preempt::NAME, 1)]),
        (Point::Predict, vec![(plugins::predictor::NAME, 1)]),
        (Point::Score, vec![(plugins::taints::NAME, 3)]),
        (Point::PreAssign, vec![(plugins::dynamic::NAME, 1)]),
        (Point::Assign, vec![(plugins::statics::NAME, 1), (plugins::dynamic::NAME, 1)]),
        (Point::Bind, vec![(plugins::BINDER, 1)]),
    ])
}

fn profile(config: &ProfileConfig, factories: &BTreeMap<&str, Factory>, path: &str) -> Result<Profile, ConfigError> {
    let mut args: BTreeMap<&str, &Value> = BTreeMap::new();
    for (index, entry) in config.plugin_config.iter().enumerate() {
        let path = format!("{path}.pluginConfig[{index}].name");
        if !factories.contains_key(entry.name.as_str()) {
            return Err(ConfigError::new(path, format!("there is no plugin {:?}", entry.name)));
        }
        if args.insert(&entry.name, &entry.args).is_some() {
            return Err(ConfigError::new(path, format!("{:?} is there twice", entry.name)));
        }
    }
    let mut made: BTreeMap<String, Arc<dyn Plugin>> = BTreeMap::new();
    for (index, entry) in config.plugin_config.iter().enumerate().filter(|(_, entry)| !entry.args.is_null()) {
        let factory = factories.get(entry.name.as_str());
        let takes_none = plugins::in_tree().iter().any(|(name, ours)| *name == entry.name && factory.is_some_and(|have| std::ptr::fn_addr_eq(*have, *ours)));
        if takes_none && entry.args.as_object().is_none_or(|args| !args.is_empty()) {
            let path = format!("{path}.pluginConfig[{index}].args");
            return Err(ConfigError::new(path, format!("plugin {:?} takes no arguments: leave them out", entry.name)));
        }
    }
    // Kubernetes' short way: all points of a plugin at once; what a point says itself counts more.
    let multi = &config.plugins.multi_point;
    let words = config.plugins.at.iter().map(|(point, set)| (point.word(), set));
    for (word, set) in words.chain([(MULTI_POINT.to_owned(), multi)]) {
        for (list, plugins) in [("enabled", &set.enabled), ("disabled", &set.disabled)] {
            for (index, plugin) in plugins.iter().enumerate() {
                let path = format!("{path}.plugins.{word}.{list}[{index}]");
                let all = list == "disabled" && plugin.name == "*";
                if !all && !factories.contains_key(plugin.name.as_str()) {
                    let names: Vec<&str> = factories.keys().copied().collect();
                    return Err(ConfigError::new(path + ".name", format!("there is no plugin {:?}; there are {}", plugin.name, names.join(", "))));
                }
                if plugin.weight.is_some_and(|weight| weight < 0) {
                    return Err(ConfigError::new(path + ".weight", "must not be negative"));
                }
            }
        }
    }
    let mut points = BTreeMap::new();
    let defaults = defaults();
    for point in Point::ALL {
        let empty = PluginSet::default();
        let set = config.plugins.at.get(&point).unwrap_or(&empty);
        let path = format!("{path}.plugins.{}", point.word());
        let disabled: BTreeSet<&str> = set.disabled.iter().chain(&multi.disabled).map(|plugin| plugin.name.as_str()).collect();
        let mut names: Vec<(String, i64)> = defaults
            .get(&point)
            .into_iter()
            .flatten()
            .filter(|(name, _)| !disabled.contains("*") && !disabled.contains(name))
            .map(|(name, weight)| ((*name).to_owned(), *weight))
            .collect();
        for (index, plugin) in set.enabled.iter().enumerate() {
            let path = format!("{path}.enabled[{index}]");
            if point == Point::Score && plugin.weight == Some(0) {
                return Err(ConfigError::new(path + ".weight", "must not be 0"));
            }
            let weight = plugin.weight.unwrap_or(1);
            match names.iter_mut().find(|(name, _)| *name == plugin.name) {
                Some(have) => have.1 = weight,
                None => names.push((plugin.name.clone(), weight)),
            }
        }
        for plugin in multi.enabled.iter().filter(|plugin| !set.disabled.iter().any(|off| off.name == plugin.name || off.name == "*")) {
            let own = set.enabled.iter().any(|own| own.name == plugin.name);
            let Some(factory) = factories.get(plugin.name.as_str()).filter(|_| !own) else { continue };
            let made = match made.get(&plugin.name) {
                Some(made) => Arc::clone(made),
                None => {
                    let one = factory(args.get(plugin.name.as_str()).copied().unwrap_or(&Value::Null))?;
                    made.insert(plugin.name.clone(), Arc::clone(&one));
                    one
                }
            };
            if !made.points().contains(&point) {
                continue;
            }
            match names.iter_mut().find(|(name, _)| *name == plugin.name) {
                Some(have) => have.1 = plugin.weight.filter(|weight| *weight != 0).unwrap_or(have.1),
                None => names.push((plugin.name.clone(), plugin.weight.filter(|weight| *weight != 0).unwrap_or(1))),
            }
        }
        let mut list = Vec::new();
        for (name, weight) in names {
            let plugin = match made.get(&name) {
                Some(plugin) => Arc::clone(plugin),
                None => {
                    let factory = factories
                        .get(name.as_str())
                        .ok_or_else(|| ConfigError::new(path.clone(), format!("there is no plugin {name:?}")))?;
                    let plugin = factory(args.get(name.as_str()).copied().unwrap_or(&Value::Null))?;
                    made.insert(name.clone(), Arc::clone(&plugin));
                    plugin
                }
            };
            if !plugin.points().contains(&point) {
                return Err(ConfigError::new(path, format!("plugin {name:?} has nothing to say here")));
            }
            list.push(Enabled { plugin, weight });
        }
        if point == Point::Bind && list.is_empty() {
            return Err(ConfigError::new(path, "a plugin is needed"));
        }
        points.insert(point, list);
    }
    Ok(Profile { scheduler_name: config.scheduler_name.clone(), points })
}
