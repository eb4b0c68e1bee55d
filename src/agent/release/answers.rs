//! Answers what the templates of a release look up in the child, so that the parent can render it.
//!
//! Answers to one wish never change: what is in the child by then may come of the release itself.

use std::collections::BTreeMap;

use api::apps::HelmRelease;
use api::known::{annotation, component, label, manager};
use chart::Asked;
use engine::Key;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use plan::rendered::{self, Pin};
use serde_json::{Value, json};

use super::Releases;
use super::error::DeployError;
use super::render::look_up;

impl Releases {
    /// Answers the questions of a pin that are open.
    pub(super) async fn answer(&self, release: &HelmRelease, pin: &Pin) -> Result<(), DeployError> {
        let told = release.metadata.annotations.as_ref().and_then(|a| a.get(annotation::ANSWERED));
        if pin.asks.is_empty() || told == Some(&pin.answered()) {
            return Ok(());
        }
        let name = release.metadata.name.as_deref().unwrap_or_default();
        let secret = rendered::answers_name(name);
        let api: Api<Secret> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let before = api.get_opt(&secret).await.map_err(DeployError::refused("read", secret.as_str()))?.and_then(|s| s.data).unwrap_or_default();
        let mut answers: BTreeMap<Asked, Option<Value>> = match before.get("of") {
            Some(of) if of.0 == pin.of.as_bytes() => before.get("answers").map(|b| rendered::read_answers(&b.0)).unwrap_or_default(),
            _ => BTreeMap::new(),
        };
        for asked in &pin.asks {
            if !answers.contains_key(asked) {
                answers.insert(asked.clone(), look_up(&self.child, asked).await?.map(rendered::as_answer));
            }
        }
        let text = rendered::write_answers(&answers);
        let (key, value) = if text.len() > rendered::ANSWERS_MAX {
            ("fault", format!("what templates look up has {} bytes, more than {}", text.len(), rendered::ANSWERS_MAX))
        } else {
            ("answers", text)
        };
        let data = json!({"of": api::Bytes(pin.of.clone().into_bytes()), (key): api::Bytes(value.into_bytes())});
        let owner = json!([{"apiVersion": "apps.clusternet.io/v1alpha1", "kind": "HelmRelease", "name": name, "uid": release.metadata.uid}]);
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": secret, "labels": {label::CREATED_BY: component::AGENT}, "ownerReferences": owner},
            "data": data,
        });
        let how = PatchParams::apply(manager::AGENT).force();
        api.patch(&secret, &how, &Patch::Apply(&object)).await.map_err(DeployError::refused("write", secret.as_str()))?;
        let releases: Api<HelmRelease> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let patch = json!({"metadata": {"uid": release.metadata.uid, "annotations": {annotation::ANSWERED: pin.answered()}}});
        let how = PatchParams { field_manager: Some(manager::AGENT.to_owned()), ..PatchParams::default() };
        let written = releases.patch(name, &how, &Patch::Merge(&patch)).await.map_err(DeployError::refused("answer for", name))?;
        tracing::debug!(release = %Key::of(release), count = answers.len(), "told the parent what templates look up");
        self.releases.assume(written);
        Ok(())
    }
}
