//! Which controllers a server runs, and starting them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use schema::catalog;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::accounts::Accounts;
use super::addresses::Addresses;
use super::bootstrap::{ClusterInfo, InfoSigner, TokenCleaner};
use super::certificates::{Certificates, SigningAdmission};
use super::disruption::Disruption;
use super::endpoints::{Endpoints, Mirror};
use super::flows::Flows;
use super::garbage::Garbage;
use super::kinds::CUSTOM_RESOURCE_DEFINITION;
use super::local::{Local, Stored, StoreFeed};
use super::namespaces::Namespaces;
use super::policies::Policies;
use super::quota::{QuotaAdmission, Quotas};
use super::roles::Roles;
use super::storage::{Binder, Protection, StorageAdmission};
use super::tokens::Tokens;
use super::{Controller, runner};
use crate::ApiServer;
use crate::auth::{Objects, Pki, text};

/// Whether a kind is served, and whether its objects live in namespaces.
fn served(objects: &dyn Objects, api_version: &str, kind: &str) -> Option<bool> {
    static NATIVE: OnceLock<BTreeMap<(String, String), bool>> = OnceLock::new();
    let native = NATIVE.get_or_init(|| {
        let all = catalog::resources().iter();
        all.map(|resource| ((resource.api_version(), resource.kind.to_owned()), resource.namespaced)).collect()
    });
    if let Some(namespaced) = native.get(&(api_version.to_owned(), kind.to_owned())) {
        return Some(*namespaced);
    }
    let (group, version) = api_version.split_once('/')?;
    let definition = CUSTOM_RESOURCE_DEFINITION;
    objects.list(definition.group, definition.plural, None).into_iter().find_map(|crd| {
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let known = text(&crd, &["spec", "group"]) == group
            && text(&crd, &["spec", "names", "kind"]) == kind
            && versions.iter().any(|v| text(v, &["name"]) == version && v.get("served") == Some(&Value::Bool(true)));
        known.then(|| text(&crd, &["spec", "scope"]) == "Namespaced")
    })
}

/// The controllers that keep a server in order. Without keys (a simulated child) nothing is signed.
pub fn built_in(pki: Option<&Arc<Pki>>) -> Vec<Box<dyn Controller>> {
    let root_ca = pki.map(|pki| pki.ca.pem()).unwrap_or_default();
    let mut all: Vec<Box<dyn Controller>> = vec![
        Box::new(Accounts::new(root_ca.clone())),
        Box::new(Namespaces),
        Box::new(Garbage::new(Arc::new(served))),
        Box::new(Roles),
        Box::new(Endpoints),
        Box::new(Mirror),
        Box::new(Quotas),
        Box::new(Disruption),
        Box::new(Protection),
        Box::new(Binder),
        Box::new(Policies),
        Box::new(Flows),
    ];
    if let Some(pki) = pki {
        all.push(Box::new(Tokens::new(pki.service_account_issuer(), root_ca)));
        all.push(Box::new(Certificates::new(pki.clone())));
        all.push(Box::new(TokenCleaner));
        all.push(Box::new(Addresses));
        all.push(Box::new(InfoSigner));
    }
    all
}

/// Hangs the admission that belongs to the controllers into a server: signing requests, guards of
/// storage objects, quotas.
fn admit(server: &ApiServer) {
    server.admit(Arc::new(SigningAdmission));
    server.admit(Arc::new(StorageAdmission));
    server.admit(Arc::new(QuotaAdmission::new(Stored(server.store().clone()))));
}

/// Runs controllers over a server in this process until shutdown, with the admission that belongs to them.
pub async fn run_local(server: ApiServer, mut controllers: Vec<Box<dyn Controller>>, shutdown: CancellationToken) {
    admit(&server);
    let (address, port) = server.core().options.advertise;
    controllers.push(Box::new(ClusterInfo::new(format!("https://{}", std::net::SocketAddr::new(address, port)))));
    let feed = StoreFeed::new(server.store().clone());
    runner::run(Arc::new(Local::new(server)), feed, controllers, shutdown).await;
}
