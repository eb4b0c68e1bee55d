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
#[serde(default, rename_all = "camelCase")]
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
}

/// One profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileConfig {
    /// Name that Subscriptions ask for; a single unnamed profile is `default`.
    pub scheduler_name: String,
    /// Changes of the default plugins, by extension point.
    pub plugins: BTreeMap<Point, PluginSet>,
    /// Arguments of plugins.
    pub plugin_config: Vec<PluginConfig>,
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
}

impl Framework {
    /// The default profile with our choices.
    pub fn standard() -> Self {
        Self::with_policy(Policy::default())
    }

    /// The default profile with these choices.
    pub fn with_policy(policy: Policy) -> Self {
        let config = Config { policy, ..Config::default() };
        // The built-in defaults have no fault; an empty framework would serve nobody, and a test guards it.
        Self::build(&config, &[]).unwrap_or_else(|_| Self { profiles: BTreeMap::new(), policy: Arc::new(config.policy.clone()) })
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
        Ok(Self { profiles, policy: Arc::new(policy) })
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
    let mut points = BTreeMap::new();
    let defaults = defaults();
    for point in Point::ALL {
        let empty = PluginSet::default();
        let set = config.plugins.get(&point).unwrap_or(&empty);
        let word = serde_json::to_value(point).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
        let path = format!("{path}.plugins.{word}");
        let disabled: BTreeSet<&str> = set.disabled.iter().map(|plugin| plugin.name.as_str()).collect();
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
