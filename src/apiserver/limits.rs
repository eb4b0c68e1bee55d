//! LimitRanges: what containers get that ask for nothing, and what pods and claims may ask for.

use schema::Quantity;
use serde_json::{Value, json};

use crate::admission::{Operation, Request};
use crate::controllers::usage::{Amounts, amounts, pod_amounts};
use crate::object::{self, at, text};
use crate::status::ApiError;

/// Says which amounts are ours.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The items of a namespace's LimitRanges that are about one type of thing.
fn items(request: &Request<'_>, kind: &str) -> Vec<Value> {
    let mut all = Vec::new();
    request.core.store.scan("/limitranges", &format!("{}/", request.namespace), &mut |entry| {
        let range = object::decode(&entry.value);
        let list = at(&range, &["spec", "limits"]).and_then(Value::as_array).cloned().unwrap_or_default();
        all.extend(list.into_iter().filter(|item| text(item, &["type"]) == kind));
    });
    all
}

/// Gives the containers of a new pod the amounts that they do not name.
pub(crate) fn default(request: &Request<'_>, pod: &mut Value) {
    let items = items(request, "Container");
    let mut notes = Vec::new();
    for (field, words) in [("initContainers", "init container"), ("containers", "container")] {
        let containers = object::child(pod, "spec").get_mut(field).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = text(container, &["name"]).to_owned();
            let mut set = |side: &str, from: &str, what: &str| {
                let mut given = Vec::new();
                for (resource, amount) in items.iter().filter_map(|item| item.get(from)).filter_map(Value::as_object).flatten() {
                    let resources = object::child(container, "resources").entry(side).or_insert_with(|| json!({}));
                    if resources.get(resource).is_none() {
                        object::child_root(resources).insert(resource.clone(), amount.clone());
                        given.push(resource.clone());
                    }
                }
                given.sort();
                if !given.is_empty() {
                    notes.push(format!("{} {what} for {words} {name}", given.join(", ")));
                }
            };
            set("requests", "defaultRequest", "request");
            set("limits", "default", "limit");
        }
    }
    if !notes.is_empty() {
        let annotations = object::metadata(pod).entry("annotations").or_insert_with(|| json!({}));
        object::child_root(annotations).insert(ANNOTATION.into(), json!(format!("LimitRanger plugin set: {}", notes.join("; "))));
    }
}

/// What one thing asks for and is limited to.
struct Asked {
    requests: Amounts,
    limits: Amounts,
}

fn shown(quantity: &Quantity) -> String {
    quantity.canonical()
}

#[expect(clippy::cast_precision_loss, reason = "a ratio is shown with six digits")]
fn ratio(limit: &Quantity, request: &Quantity) -> f64 {
    limit.nanos() as f64 / request.nanos() as f64
}

/// Words of everything in which `asked` breaks an item.
fn faults(item: &Value, kind: &str, asked: &Asked, out: &mut Vec<String>) {
    let bounds = |field: &str| amounts(item.get(field));
    for (name, least) in bounds("min") {
        let begin = format!("minimum {name} usage per {kind} is {}", shown(&least));
        match asked.requests.get(&name) {
            None => out.push(format!("{begin}.  No request is specified")),
            Some(request) if *request < least => out.push(format!("{begin}, but request is {}", shown(request))),
            Some(_) => {
                if let Some(limit) = asked.limits.get(&name).filter(|limit| **limit < least) {
                    out.push(format!("{begin}, but limit is {}", shown(limit)));
                }
            }
        }
    }
    for (name, most) in bounds("max") {
        let begin = format!("maximum {name} usage per {kind} is {}", shown(&most));
        let claim = kind == "PersistentVolumeClaim";
        match asked.limits.get(&name).filter(|_| !claim) {
            None if claim => match asked.requests.get(&name) {
                None => out.push(format!("{begin}.  No request is specified")),
                Some(request) if *request > most => out.push(format!("{begin}, but request is {}", shown(request))),
                Some(_) => {}
            },
            None => out.push(format!("{begin}.  No limit is specified")),
            Some(limit) if *limit > most => out.push(format!("{begin}, but limit is {}", shown(limit))),
            Some(_) => {
                if let Some(request) = asked.requests.get(&name).filter(|request| **request > most) {
                    out.push(format!("{begin}, but request is {}", shown(request)));
                }
            }
        }
    }
    for (name, most) in bounds("maxLimitRequestRatio") {
        let begin = format!("{name} max limit to request ratio per {kind} is {}", shown(&most));
        let positive = |amounts: &Amounts| amounts.get(&name).copied().filter(|amount| amount.sign() > 0);
        match (positive(&asked.requests), positive(&asked.limits)) {
            (None, _) => out.push(format!("{begin}, but no request is specified or request is 0")),
            (_, None) => out.push(format!("{begin}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let found = ratio(&limit, &request);
                if found > ratio(&most, &Quantity::from_int(1)) {
                    out.push(format!("{begin}, but provided ratio is {found:.6}"));
                }
            }
        }
    }
}

/// Refuses a new pod or claim that asks for less or more than its namespace allows.
pub(crate) fn check(request: &Request<'_>, object: &Value) -> Result<(), ApiError> {
    if request.operation != Operation::Create || !request.subresource.is_empty() || !request.resource.group.is_empty() {
        return Ok(());
    }
    let mut out = Vec::new();
    match request.resource.plural.as_str() {
        "pods" => {
            for item in items(request, "Container") {
                for field in ["containers", "initContainers"] {
                    for container in at(object, &["spec", field]).and_then(Value::as_array).into_iter().flatten() {
                        let side = |side: &str| amounts(at(container, &["resources", side]));
                        faults(&item, "Container", &Asked { requests: side("requests"), limits: side("limits") }, &mut out);
                    }
                }
            }
            let whole = items(request, "Pod");
            if !whole.is_empty() {
                let asked = Asked { requests: pod_amounts(object, "requests"), limits: pod_amounts(object, "limits") };
                whole.iter().for_each(|item| faults(item, "Pod", &asked, &mut out));
            }
        }
        "persistentvolumeclaims" => {
            let asked = Asked { requests: amounts(at(object, &["spec", "resources", "requests"])), limits: Amounts::new() };
            for item in items(request, "PersistentVolumeClaim") {
                faults(&item, "PersistentVolumeClaim", &asked, &mut out);
            }
        }
        _ => {}
    }
    match out.as_slice() {
        [] => Ok(()),
        [one] => Err(ApiError::forbidden("", &request.resource.plural, request.name, one)),
        all => Err(ApiError::forbidden("", &request.resource.plural, request.name, &format!("[{}]", all.join(", ")))),
    }
}
