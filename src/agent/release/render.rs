//! What is to be deployed: the files that the branch has of a release, or its chart rendered for the child here.
//!
//! A render never reaches out. What a template looks up is noted, fetched, and the chart rendered again over that picture, until
//! nothing is missing any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use chart::{Asked, Bundle, Picture, Request, Rules, Val};
use cluster::discovery::Unresolved;
use plan::rendered::Rendered;
use registry::pool::Loaded;
use serde_json::Value;

use super::error::DeployError;
use super::objects::{Child, Owner};

/// Rounds of looking up; templates that look up what they found need one per step.
const ROUNDS: usize = 8;

/// Where what is to be deployed comes from.
pub(super) enum From {
    /// The cluster's branch: these bytes.
    Branch(Arc<Rendered>),
    /// A chart, rendered here, and the seed of its random values.
    Chart(Arc<Loaded>, u64),
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
pub(super) async fn render(child: &Child, from: &From, wish: &Wish<'_>) -> Result<Bundle, DeployError> {
    let (loaded, seed) = match from {
        From::Branch(rendered) => return Ok(rendered.bundle.clone()),
        From::Chart(loaded, seed) => (loaded, *seed),
    };
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
        let missing = picture.missing();
        if missing.is_empty() {
            let fault = |source| DeployError::Render { chart: loaded.chart.name().to_owned(), source };
            return match rendered {
                Ok(rendered) => rendered.map(|output| Bundle::of(&loaded.chart, &output)).map_err(fault),
                Err(error) => Err(fault(chart::Error::Template(error.to_string()))),
            };
        }
        let mut known = picture.known().clone();
        for asked in missing {
            let answer = look_up(child, &asked).await?;
            known.insert(asked, answer);
        }
        picture = Arc::new(Picture::new(known));
    }
    Err(DeployError::Render { chart: loaded.chart.name().to_owned(), source: chart::Error::Template("templates look up ever more objects".to_owned()) })
}

/// What is in the child; `None` when it is not there.
pub(super) async fn look_up(child: &Child, (api_version, kind, namespace, name): &Asked) -> Result<Option<Value>, DeployError> {
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
