//! What follows from a write once it is durable: routes, allocations, authorization rules.

use std::sync::Arc;

use store::Entry;

use crate::core::Core;
use crate::object;
use crate::resource::Resource;

/// An object was made or changed.
pub(crate) fn written(core: &Arc<Core>, resource: &Resource, old: Option<&Arc<Entry>>, new: &Arc<Entry>) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => crate::crd::changed(core),
        ("", "services") => {
            core.remotes.moved();
            if let Some(old) = old {
                crate::services::released(core, &object::decode(&old.value), Some(&object::decode(&new.value)));
            }
        }
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => crate::webhooks::changed(core),
        (crate::flowcontrol::GROUP, _) => crate::flowcontrol::changed(core),
        ("apiregistration.k8s.io", "apiservices") => crate::aggregate::changed(core),
        ("discovery.k8s.io", "endpointslices") => core.remotes.moved(),
        ("rbac.authorization.k8s.io", _) => crate::guard::changed(core, resource, Some(&object::decode(&new.value)), &new.key),
        _ => {}
    }
}

/// An object is gone.
pub(crate) fn removed(core: &Arc<Core>, resource: &Resource, old: &Arc<Entry>, last: &Arc<Entry>) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("apiextensions.k8s.io", "customresourcedefinitions") => crate::crd::changed(core),
        ("", "services") => {
            core.remotes.moved();
            crate::services::released(core, &object::decode(&old.value), None);
        }
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => crate::webhooks::changed(core),
        (crate::flowcontrol::GROUP, _) => crate::flowcontrol::changed(core),
        ("apiregistration.k8s.io", "apiservices") => crate::aggregate::changed(core),
        ("discovery.k8s.io", "endpointslices") => core.remotes.moved(),
        ("rbac.authorization.k8s.io", _) => crate::guard::changed(core, resource, None, &last.key),
        _ => {}
    }
}
