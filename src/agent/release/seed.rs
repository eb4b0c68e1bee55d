//! Seeds of random values for charts that are rendered here: the parent's, so that a branch that comes later shows the same, or drawn from
//! a salt that the child keeps, where the parent gives none. A password must not change because a release is rendered once more.

use api::apps::HelmRelease;
use api::known::{manager, secret as secrets};
use cluster::{Trouble, trouble};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use plan::rendered;

use super::error::DeployError;
use super::{Releases, owner_of};

/// Tries when another replica makes the salt at the same time.
const TRIES: usize = 3;

impl Releases {
    /// The seed of a release that is rendered here.
    pub(super) async fn seed(&self, release: &HelmRelease) -> Result<u64, DeployError> {
        if let Some(given) = self.given(release).await? {
            return Ok(given);
        }
        Ok(rendered::seed(&self.salt().await?, "", release))
    }

    /// What the parent gave.
    async fn given(&self, release: &HelmRelease) -> Result<Option<u64>, DeployError> {
        let Some(description) = owner_of(release) else { return Ok(None) };
        let name = rendered::seeds_name(&description.name);
        let api: Api<Secret> = Api::namespaced(self.session.parent.clone(), &self.session.namespace);
        let found = api.get_opt(&name).await.map_err(DeployError::refused("read", name.as_str()))?.and_then(|secret| secret.data).unwrap_or_default();
        let seed = found.get(release.metadata.name.as_deref().unwrap_or_default());
        Ok(seed.and_then(|bytes| std::str::from_utf8(&bytes.0).ok()?.parse().ok()))
    }

    /// The child's own salt; made when there is none.
    async fn salt(&self) -> Result<Vec<u8>, DeployError> {
        let name = secrets::RENDER_SALT;
        let api: Api<Secret> = Api::namespaced(self.session.shared.child.clone(), &self.session.shared.options.system_namespace);
        for _ in 0..TRIES {
            let found = api.get_opt(name).await.map_err(DeployError::refused("read", name))?;
            if let Some(salt) = found.and_then(|secret| secret.data?.remove("salt")).filter(|salt| !salt.0.is_empty()) {
                return Ok(salt.0);
            }
            let mut fresh = Secret { data: Some([("salt".to_owned(), ByteString(rand::random::<[u8; 32]>().to_vec()))].into()), ..Secret::default() };
            fresh.metadata.name = Some(name.to_owned());
            let how = PostParams { field_manager: Some(manager::AGENT.to_owned()), ..PostParams::default() };
            match api.create(&how, &fresh).await {
                Err(error) if trouble(&error) != Trouble::AlreadyExists => return Err(DeployError::refused("make", name)(error)),
                _ => {}
            }
        }
        Err(DeployError::Unrendered(format!("the Secret {name} in the child has no salt")))
    }
}
