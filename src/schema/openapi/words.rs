//! Descriptions of built-in types and fields, from k8s-openapi's JSON schemas, made per group version when asked for.

use k8s_openapi::api::{
    admissionregistration, apps, authentication, authorization, autoscaling, batch, certificates, coordination, core, discovery, events, flowcontrol, networking, node, policy, rbac, resource, scheduling,
    storage, storagemigration,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

macro_rules! add {
    ($gen:ident, $($t:ty),* $(,)?) => {{ $( let _ = $gen.subschema_for::<$t>(); )* }};
}

/// JSON schemas of all types of the group versions, by full name. Empty group: core.
pub(crate) fn schemas(places: &[(&str, &str)]) -> Map<String, Value> {
    let mut g = SchemaGenerator::default();
    add!(g, meta::v1::DeleteOptions, meta::v1::Status, meta::v1::APIResourceList, meta::v1::ListMeta, meta::v1::ObjectMeta, meta::v1::APIGroup, meta::v1::Condition, meta::v1::LabelSelector, RawExtension);
    for place in places {
        of(*place, &mut g);
    }
    g.take_definitions(true)
}

fn of(place: (&str, &str), g: &mut SchemaGenerator) {
    match place {
        ("", "v1") => add!(
            g,
            core::v1::Binding, core::v1::ComponentStatus, core::v1::ConfigMap, core::v1::Endpoints, core::v1::Event, core::v1::LimitRange, core::v1::Namespace, core::v1::Node, core::v1::PersistentVolume,
            core::v1::PersistentVolumeClaim, core::v1::Pod, core::v1::PodTemplate, core::v1::ReplicationController, core::v1::ResourceQuota, core::v1::Secret, core::v1::Service, core::v1::ServiceAccount,
            autoscaling::v1::Scale, policy::v1::Eviction, authentication::v1::TokenRequest,
        ),
        ("apps", _) => add!(g, apps::v1::ControllerRevision, apps::v1::DaemonSet, apps::v1::Deployment, apps::v1::ReplicaSet, apps::v1::StatefulSet, autoscaling::v1::Scale),
        ("batch", _) => add!(g, batch::v1::CronJob, batch::v1::Job),
        ("autoscaling", "v1") => add!(g, autoscaling::v1::HorizontalPodAutoscaler, autoscaling::v1::Scale),
        ("autoscaling", _) => add!(g, autoscaling::v2::HorizontalPodAutoscaler),
        ("networking.k8s.io", _) => add!(g, networking::v1::Ingress, networking::v1::IngressClass, networking::v1::IPAddress, networking::v1::NetworkPolicy, networking::v1::ServiceCIDR),
        ("rbac.authorization.k8s.io", _) => add!(g, rbac::v1::ClusterRole, rbac::v1::ClusterRoleBinding, rbac::v1::Role, rbac::v1::RoleBinding),
        ("policy", _) => add!(g, policy::v1::PodDisruptionBudget, policy::v1::Eviction),
        ("storage.k8s.io", _) => add!(g, storage::v1::CSIDriver, storage::v1::CSINode, storage::v1::CSIStorageCapacity, storage::v1::StorageClass, storage::v1::VolumeAttachment, storage::v1::VolumeAttributesClass),
        ("scheduling.k8s.io", _) => add!(g, scheduling::v1::PriorityClass),
        ("coordination.k8s.io", _) => add!(g, coordination::v1::Lease),
        ("certificates.k8s.io", _) => add!(g, certificates::v1::CertificateSigningRequest, certificates::v1::ClusterTrustBundle, certificates::v1::PodCertificateRequest),
        ("discovery.k8s.io", _) => add!(g, discovery::v1::EndpointSlice),
        ("events.k8s.io", _) => add!(g, events::v1::Event),
        ("flowcontrol.apiserver.k8s.io", _) => add!(g, flowcontrol::v1::FlowSchema, flowcontrol::v1::PriorityLevelConfiguration),
        ("node.k8s.io", _) => add!(g, node::v1::RuntimeClass),
        ("resource.k8s.io", _) => add!(g, resource::v1::DeviceClass, resource::v1::DeviceTaintRule, resource::v1::ResourceClaim, resource::v1::ResourceClaimTemplate, resource::v1::ResourceSlice),
        ("admissionregistration.k8s.io", _) => add!(
            g,
            admissionregistration::v1::MutatingAdmissionPolicy, admissionregistration::v1::MutatingAdmissionPolicyBinding, admissionregistration::v1::MutatingWebhookConfiguration,
            admissionregistration::v1::ValidatingAdmissionPolicy, admissionregistration::v1::ValidatingAdmissionPolicyBinding, admissionregistration::v1::ValidatingWebhookConfiguration,
        ),
        ("authentication.k8s.io", _) => add!(g, authentication::v1::SelfSubjectReview, authentication::v1::TokenReview, authentication::v1::TokenRequest),
        ("authorization.k8s.io", _) => add!(g, authorization::v1::LocalSubjectAccessReview, authorization::v1::SelfSubjectAccessReview, authorization::v1::SelfSubjectRulesReview, authorization::v1::SubjectAccessReview),
        ("apiextensions.k8s.io", _) => add!(g, apiextensions::v1::CustomResourceDefinition),
        ("apiregistration.k8s.io", _) => add!(g, apiregistration::v1::APIService),
        ("storagemigration.k8s.io", _) => add!(g, storagemigration::v1::StorageVersionMigration),
        _ => {}
    }
}
