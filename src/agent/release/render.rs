//! Renders a chart for the child: its version, its kinds, and what templates look up in it.
//!
//! A render never reaches out. What a template looks up is noted, fetched, and the chart rendered again over that picture, until
//! nothing is missing any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chart::{Output, Request, Rules, Val};
use cluster::discovery::Unresolved;
use parking_lot::Mutex;
use registry::pool::Loaded;
use serde_json::Value;

use super::error::DeployError;
use super::objects::{Child, Owner};

/// Rounds of looking up; templates that look up what they found need one per step.
const ROUNDS: usize = 8;

/// apiVersion, kind, namespace, name.
type Asked = (String, String, String, String);

/// What is known of the child.
#[derive(Default)]
struct Picture {
    known: BTreeMap<Asked, Option<Value>>,
    missing: Mutex<BTreeSet<Asked>>,
}

impl chart::Lookup for Picture {
    fn lookup(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Option<Value> {
        let asked = (api_version.to_owned(), kind.to_owned(), namespace.to_owned(), name.to_owned());
        match self.known.get(&asked) {
            Some(answer) => answer.clone(),
            None => {
                self.missing.lock().insert(asked);
                None
            }
        }
    }
}

/// What is asked of a render.
pub(super) struct Wish<'a> {
    pub(super) owner: &'a Owner,
    pub(super) revision: i64,
    pub(super) is_upgrade: bool,
    /// Values of the user.
    pub(super) config: &'a Value,
    pub(super) rules: Rules,
    pub(super) now: jiff::Timestamp,
}

/// Renders.
///
/// # Errors
/// When the templates fail, or the child does not tell what they need.
pub(super) async fn render(child: &Child, loaded: &Arc<Loaded>, wish: &Wish<'_>) -> Result<Output, DeployError> {
    let version: Value = child.dynamic.call("GET", "/version", None, None).await.map_err(DeployError::refused("read", "the child's version"))?;
    let kube_version = chart::parse_kube(version["gitVersion"].as_str().unwrap_or_default())
        .map_err(|problem| DeployError::Document { what: "the child's version".to_owned(), problem })?;
    child.discovery.expire();
    let catalogue = child.discovery.catalogue().await?;
    let mut api_versions = BTreeSet::new();
    for resource in catalogue.resources() {
        api_versions.insert(format!("{}/{}", resource.api_version(), resource.kind));
        api_versions.insert(resource.api_version());
    }
    let api_versions: Vec<String> = api_versions.into_iter().collect();
    // Passwords come of this: nobody may foretell it.
    let seed: u64 = rand::random();
    let mut picture = Arc::new(Picture::default());
    for _ in 0..ROUNDS {
        let request = Request {
            name: wish.owner.name.clone(),
            namespace: wish.owner.namespace.clone(),
            revision: wish.revision,
            values: if wish.config.is_null() { Val::map(Default::default()) } else { Val::from_json(wish.config) },
            rules: wish.rules,
            kube_version: Some(kube_version.clone()),
            all_api_versions: Some(api_versions.clone()),
            is_upgrade: wish.is_upgrade,
            now: wish.now.as_nanosecond(),
            seed,
            lookup: Some(picture.clone()),
            ..Request::default()
        };
        let shared = loaded.clone();
        let rendered = tokio::task::spawn_blocking(move || chart::template(&shared.chart, &request)).await;
        let missing = std::mem::take(&mut *picture.missing.lock());
        if missing.is_empty() {
            let fault = |source| DeployError::Render { chart: loaded.chart.name().to_owned(), source };
            return match rendered {
                Ok(rendered) => rendered.map_err(fault),
                Err(error) => Err(fault(chart::Error::Template(error.to_string()))),
            };
        }
        let mut known = picture.known.clone();
        for asked in missing {
            let answer = look_up(child, &asked).await?;
            known.insert(asked, answer);
        }
        picture = Arc::new(Picture { known, missing: Mutex::default() });
    }
    Err(DeployError::Render { chart: loaded.chart.name().to_owned(), source: chart::Error::Template("templates look up ever more objects".to_owned()) })
}

async fn look_up(child: &Child, (api_version, kind, namespace, name): &Asked) -> Result<Option<Value>, DeployError> {
    let resource = match child.discovery.resolve(api_version, kind).await {
        Ok(resource) => resource,
        // Helm answers with nothing as well.
        Err(Unresolved::NoSuchKind { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let refused = DeployError::refused("look up", format!("{kind} {namespace}/{name}"));
    if name.is_empty() {
        return child.dynamic.call("GET", &resource.collection(namespace), None, None).await.map(Some).map_err(refused);
    }
    child.dynamic.get_opt(&resource, namespace, name).await.map_err(refused)
}
