//! Tests of what the apply engine decides without a server: preparation, faults, scopes.

use serde_json::json;

use super::*;

#[test]
fn a_desired_object_carries_its_owner_and_nothing_of_a_server() {
    let desired = Desired::new(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n", "uid": "x", "annotations": null}, "status": {}}),
        "clusternet-x.base-generic",
    )
    .expect("well formed");
    assert_eq!(
        *desired.object(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n", "annotations": {OWNED_BY_DESCRIPTION: "clusternet-x.base-generic"}}})
    );
    assert_eq!(desired.id().to_string(), "ConfigMap n/a");
    assert!(Desired::new(json!({"kind": "ConfigMap", "metadata": {"name": "a"}}), "o").is_err());
    assert!(Desired::new(json!("text"), "o").is_err());
}

#[test]
fn refusals_are_told_apart() {
    let refusal = |code: u16, reason: &str, message: &str| {
        Fault::of(&kube::Error::Api(Box::new(kube::core::Status::failure(message, reason).with_code(code)))).reason
    };
    assert_eq!(refusal(404, "NotFound", "namespaces \"garret\" not found"), FaultReason::NamespaceMissing);
    assert_eq!(refusal(404, "NotFound", "the server could not find the requested resource"), FaultReason::NoSuchKind);
    assert_eq!(refusal(422, "Invalid", "Job.batch \"a\" is invalid: spec.template: Invalid value: …: field is immutable"), FaultReason::Immutable);
    assert_eq!(refusal(422, "Invalid", "spec.replicas: Invalid value"), FaultReason::Invalid);
    assert_eq!(
        refusal(403, "Forbidden", "unable to create new content in namespace n because it is being terminated"),
        FaultReason::Terminating
    );
    assert_eq!(refusal(503, "ServiceUnavailable", "later"), FaultReason::Unavailable);
    assert!(FaultReason::NamespaceMissing.may_heal() && !FaultReason::Invalid.may_heal());
}

#[test]
fn scopes_must_fit() {
    let cm = crate::resource::built_in("v1", "ConfigMap").expect("known");
    let ns = crate::resource::built_in("v1", "Namespace").expect("known");
    let id = |namespace: &str| ObjectRef { namespace: namespace.into(), name: "x".into(), ..ObjectRef::default() };
    assert!(check_scope(&cm, &id("")).is_err() && check_scope(&cm, &id("n")).is_ok());
    assert!(check_scope(&ns, &id("")).is_ok() && check_scope(&ns, &id("n")).is_err());
}
