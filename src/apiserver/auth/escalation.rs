//! Nobody grants what they do not hold: the check on every write of a role or a binding.

use serde_json::Value;

use super::index::RBAC_GROUP;
use super::rules::missing;
use super::{quoted, quoted_list, text, Attributes, Authorizer, Identity, Rule};

/// Checks a create or update of a role or binding.
///
/// `old` is the object before an update. Writes that leave the granted rules as they are pass, so that metadata can be changed
/// and finalizers can be taken away by those who could not grant the rules.
///
/// # Errors
/// The cause text of a `Forbidden` answer for the object (without the `… is forbidden: ` prefix).
pub fn check(authorizer: &Authorizer, who: &Identity, plural: &str, object: &Value, old: Option<&Value>) -> Result<(), String> {
    if who.is_master() {
        return Ok(());
    }
    let (namespace, name) = (text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"]));
    let ask = |verb: &str, resource: &str, name: &str| {
        authorizer.allowed(who, &Attributes::resource(verb, RBAC_GROUP, resource, namespace, name)).allow
    };
    let granted = match plural {
        "roles" | "clusterroles" => {
            let same = |field: &str| old.is_some_and(|old| old.get(field) == object.get(field));
            if same("rules") && same("aggregationRule") {
                return Ok(());
            }
            if ask("escalate", plural, name) {
                return Ok(());
            }
            if plural == "clusterroles" && has_aggregation(object) && !holds_everything(authorizer, who) {
                return Err("must have cluster-admin privileges to use the aggregationRule".into());
            }
            Rule::list(object)
        }
        "rolebindings" | "clusterrolebindings" => {
            let same = |field: &str| old.is_some_and(|old| old.get(field) == object.get(field));
            if same("roleRef") && same("subjects") {
                return Ok(());
            }
            let (kind, role) = (text(object, &["roleRef", "kind"]), text(object, &["roleRef", "name"]));
            let resource = if kind == "Role" { "roles" } else { "clusterroles" };
            if ask("bind", resource, role) {
                return Ok(());
            }
            authorizer.role_rules(kind, role, namespace)?
        }
        _ => return Ok(()),
    };
    confirm(authorizer, who, namespace, &granted)
}

fn has_aggregation(object: &Value) -> bool {
    object.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array).is_some_and(|list| !list.is_empty())
}

fn holds_everything(authorizer: &Authorizer, who: &Identity) -> bool {
    let all = || vec!["*".to_owned()];
    let everything = [
        Rule { api_groups: all(), resources: all(), verbs: all(), ..Rule::default() },
        Rule { non_resource_urls: all(), verbs: all(), ..Rule::default() },
    ];
    missing(&authorizer.rules_for(who, "").0, &everything).is_empty()
}

fn confirm(authorizer: &Authorizer, who: &Identity, namespace: &str, granted: &[Rule]) -> Result<(), String> {
    let (held, errors) = authorizer.rules_for(who, namespace);
    let lacking = missing(&held, granted);
    if lacking.is_empty() {
        return Ok(());
    }
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(&who.user),
        quoted_list(&who.groups),
        lacking.join("\n")
    );
    if !errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", errors.join(", ")));
    }
    Err(message)
}
