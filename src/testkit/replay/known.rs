//! Differences from the original that are right: each with its case and its reason.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::{Difference, identity};

/// Defects of the original that show in the recorded answers themselves, in whatever case.
#[derive(Default)]
pub(super) struct Defects {
    /// Descriptions that failed since the original never learns of kinds that come later: identity, cluster and kind. Right: the object
    /// arrives, and the deletion does not hang (verdict of 05).
    unknown_kinds: BTreeSet<(String, String, String)>,
    /// A race made two Bases of one Subscription in a cluster. Right: one (verdict of 49).
    race: bool,
    /// A part of the original died. Right: the work goes on (verdict of 86).
    died: bool,
    /// Objects that were replaced: they lose the label of their creator and their uid. Right: both stay (verdict of 28).
    replaced: BTreeSet<Place>,
    /// Objects of which a patch was refused that is good: nothing is known of them any more (404, verdict of 24), or the kind of patch
    /// is not served (400, 415). Right: it applies, and drift is mended.
    patched: BTreeSet<Place>,
    /// What a recorded Description holds, by file and identity.
    raw: BTreeMap<(String, String), Vec<Place>>,
    /// Labels of recorded Manifests that their template has not (any more), by file, identity and path: an update adds and never removes.
    /// Right: what is gone is gone, or the object is found by a label that it has not.
    stale: BTreeSet<(String, String, String)>,
    /// Bases and Subscriptions that are there, as labels name them, by the folder of the step. The labels of others stay on feeds when
    /// a Base that was made by hand goes. Right: they go too.
    users: BTreeSet<(String, String)>,
    /// Who may own an object in a child, by the folder of the step and the object: our Descriptions that hold it. Of several the eldest
    /// owns it; which one that is, is chance where they were made at a turn of a second (the recorded one is chance too, verdict of 10).
    claims: BTreeMap<(String, String), BTreeSet<String>>,
}

/// Namespace and name.
type Place = (String, String);

/// What is being compared.
pub struct Case<'a> {
    /// Name of the case.
    pub name: &'a str,
    /// Its settings.
    pub settings: &'a Value,
    /// Its input.
    pub steps: &'a BTreeMap<u32, Vec<(String, Vec<Value>)>>,
}

impl Defects {
    /// Reads them out of a case and both sides' answers.
    pub(super) fn of(case: &Case<'_>, expected: &BTreeMap<String, Vec<Value>>, got: &BTreeMap<String, Vec<Value>>) -> Self {
        let mut found = Self { race: case.settings["race"] == true, died: case.settings["crash"] == "controller-manager", ..Self::default() };
        for (file, descriptions) in expected {
            for one in descriptions.iter().filter(|_| stem(file) == "descriptions") {
                let text = |pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                for rest in text("/status/reason").split("no matches for kind \"").skip(1) {
                    let kind = rest.split('"').next().unwrap_or_default().to_owned();
                    let cluster = text("/metadata/namespace").trim_start_matches("clusternet-").to_owned();
                    found.unknown_kinds.insert((identity(one), cluster, kind));
                }
                let raw = one.pointer("/spec/raw").and_then(Value::as_array).into_iter().flatten().map(place).collect();
                found.raw.insert((file.clone(), identity(one)), raw);
            }
        }
        for (file, descriptions) in got.iter().filter(|(file, _)| stem(file) == "descriptions") {
            for one in descriptions {
                let (namespace, name) = place(one);
                for raw in one.pointer("/spec/raw").and_then(Value::as_array).into_iter().flatten() {
                    let child = format!("{}child-{}", folder(file), namespace.trim_start_matches("clusternet-"));
                    found.claims.entry((child, identity(raw))).or_default().insert(format!("{namespace}.{name}"));
                }
            }
        }
        for (file, objects) in expected {
            for one in objects.iter().filter(|_| stem(file) == "manifests") {
                let own = |key: &&String| one["template"]["metadata"]["labels"].get(key.as_str()).is_none();
                for key in one["metadata"]["labels"].as_object().into_iter().flat_map(|labels| labels.keys()).filter(own) {
                    found.stale.insert((file.clone(), identity(one), format!("metadata.labels.{key}")));
                }
            }
            for (of, kind) in [("bases", "Base"), ("subscription-status", "Subscription")] {
                let folder = folder(file);
                let label = |one: &Value| format!("<uid:{kind}/{}>", one["metadata"]["name"].as_str().unwrap_or_default());
                found.users.extend(objects.iter().filter(|_| stem(file) == of).map(|one| (folder.to_owned(), label(one))));
            }
        }
        for (file, documents) in case.steps.values().flatten() {
            let to_shadow = !file.contains("-parent-") && !file.contains("-child-");
            let put = |doc: &&Value| doc["method"] == "PUT" || file.split_once('-').is_some_and(|(_, rest)| rest.starts_with("put"));
            for document in documents.iter().filter(|_| to_shadow).filter(put) {
                found.replaced.insert(document["path"].as_str().map_or_else(|| place(document), named));
            }
        }
        found.patched.extend(clocked(case));
        let none = Vec::new();
        let ours = got.get("responses").unwrap_or(&none);
        for refusal in expected.get("responses").into_iter().flatten() {
            let (file, object) = (refusal["file"].as_str().unwrap_or_default(), refusal["object"].as_str());
            let call = refusal["call"].as_str();
            let patch = call.is_some_and(|call| call.starts_with("PATCH ")) || file.split_once('-').is_some_and(|(_, rest)| rest.starts_with("patch"));
            let refused = |code: &Value| matches!(code.as_i64(), Some(400 | 404 | 405 | 415));
            let same = |other: &&Value| other["file"] == refusal["file"] && other["call"] == refusal["call"] && other["object"] == refusal["object"];
            if patch && refused(&refusal["code"]) && !ours.iter().filter(same).any(|answer| refused(&answer["code"])) {
                found.patched.insert(named(call.or(object).unwrap_or_default()));
            }
        }
        found
    }

    /// Whether a difference comes from one of them.
    pub(super) fn explain(&self, difference: &Difference) -> bool {
        let stem = stem(&difference.file);
        let ours_has_more = difference.text.starts_with("there, and not expected") || difference.text.starts_with("expected nothing");
        let ours_lacks = difference.text.starts_with("expected, and not there");
        let twin = self.race && ours_lacks && difference.object.ends_with('\'') && matches!(stem, "bases" | "descriptions" | "localizations");
        let went_on = self.died && ours_has_more && stem != "responses";
        let arrived = self.unknown_kinds.iter().any(|(description, cluster, kind)| {
            let is_it = stem == "descriptions" && difference.object == *description;
            is_it && matches!(difference.path.as_str(), "status.phase" | "status.reason")
                || is_it && difference.path.is_empty() && ours_lacks
                || stem.strip_prefix("child-") == Some(cluster) && ours_has_more && difference.object.split(' ').next() == Some(kind)
        });
        // Its answer to a GET of a status is a list without a name (verdict of 80).
        let status = stem == "responses" && difference.object.contains(" GET /apis/shadow/") && difference.object.ends_with("/status") && difference.path.starts_with("answer");
        // The dry run of a name that the parent has too leaves its stand-in's letters in this label (verdict of 25).
        let stand_in = difference.path.ends_with("labels.kubernetes.io/metadata.name") && difference.text.contains("<rand>\"");
        let user = difference.path.strip_prefix("metadata.labels.").is_some_and(|label| {
            let said = ["Base", "Subscription"].iter().any(|kind| difference.text == format!("expected \"{kind}\", got nothing"));
            said && matches!(stem, "manifests" | "helmcharts") && !self.users.contains(&(folder(&difference.file).to_owned(), label.to_owned()))
        });
        let key = || (difference.file.clone(), difference.object.clone(), difference.path.clone());
        let stale = difference.text.ends_with(", got nothing") && !difference.path.starts_with("metadata.labels.apps.clusternet.io/") && !difference.path.starts_with("metadata.labels.<uid:") && self.stale.contains(&key());
        // Of several releases of a Description the last that tells its state wins. Right: the state of all that are left (verdict of 32).
        let last_word = stem == "descriptions" && difference.path == "status.phase" && difference.text == "expected \"Uninstalling\", got \"Success\"";
        let shared = difference.path == "metadata.annotations.apps.clusternet.io/owned-by-description"
            && self.claims.get(&(difference.file.clone(), difference.object.clone())).is_some_and(|owners| {
                owners.len() > 1 && owners.iter().any(|owner| difference.text.ends_with(&format!(", got \"{owner}\"")))
            });
        twin || shared || went_on || arrived || status || stand_in || user || stale || last_word || self.about_a_template(stem, difference)
    }

    /// Whether it is about an object that the original lost sight of through its shadow API.
    fn about_a_template(&self, stem: &str, difference: &Difference) -> bool {
        let is = |set: &BTreeSet<Place>| match stem {
            "manifests" => set.iter().any(|(namespace, name)| difference.object.ends_with(&format!(".{namespace}.{name}").replace("..", "."))),
            "descriptions" => {
                let raw = self.raw.get(&(difference.file.clone(), difference.object.clone()));
                let at = difference.path.strip_prefix("spec.raw[").and_then(|rest| rest.split(']').next()?.parse::<usize>().ok());
                raw.zip(at).and_then(|(raw, at)| raw.get(at)).is_some_and(|place| set.contains(place))
            }
            _ => set.contains(&named(&difference.object)),
        };
        let identity = ["metadata.labels", "metadata.uid", "metadata.generation", "metadata.labels.clusternet.io/created-by"];
        is(&self.patched) || is(&self.replaced) && identity.iter().any(|field| difference.path.ends_with(field))
    }
}

/// Objects for which overrides of equal priority were made on both sides of the turn of a minute: the original compares the seconds within
/// the minute and takes the older for the younger (facts 7.6). The recorder starts such a case late in a minute.
fn clocked(case: &Case<'_>) -> Vec<Place> {
    if case.settings["startSecond"][0].as_i64().is_none_or(|second| second < 41) {
        return Vec::new();
    }
    let mut seen: BTreeMap<(String, i64, Place), u32> = BTreeMap::new();
    for document in case.steps.values().flatten().flat_map(|(_, documents)| documents) {
        let kind = document["kind"].as_str().unwrap_or_default();
        if matches!(kind, "Localization" | "Globalization") {
            let text = |field: &str| document["spec"]["feed"][field].as_str().unwrap_or_default().to_owned();
            let priority = document["spec"]["priority"].as_i64().unwrap_or(500);
            *seen.entry((kind.to_owned(), priority, (text("namespace"), text("name")))).or_default() += 1;
        }
    }
    seen.into_iter().filter(|(_, count)| *count > 1).map(|((.., place), _)| place).collect()
}

/// Namespace and name of an object.
fn place(object: &Value) -> Place {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// Namespace and name at the end of a text: `v1/ConfigMap vault/key` or `GET /apis/…/namespaces/vault/configmaps/key`.
fn named(text: &str) -> Place {
    let last = text.rsplit(' ').next().unwrap_or_default();
    let parts: Vec<&str> = last.split('?').next().unwrap_or_default().split('/').collect();
    let owned = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
    match (parts.iter().position(|part| *part == "namespaces"), parts.as_slice()) {
        (Some(at), all) if all.len() > at + 3 => owned(all[at + 1], all[at + 3]),
        (_, [namespace, name]) => owned(namespace, name),
        (_, all) => owned("", all.last().copied().unwrap_or_default()),
    }
}

/// `step-1/` of `step-1/bases`; empty for the last step.
fn folder(file: &str) -> &str {
    &file[..file.len() - stem(file).len()]
}

fn stem(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// A justified difference: case, file, object and path (a `*` at the end of any matches the rest), reason.
struct Known {
    case: &'static str,
    file: &'static str,
    object: &'static str,
    path: &'static str,
    reason: &'static str,
}

/// The table. The reasons are the verdicts of the cases.
const KNOWN: &[Known] = &[
    Known {
        case: "82-shadow-discovery",
        file: "responses",
        object: "1-call.yaml GET /apis/shadow/v1alpha1",
        path: "answer.resources./n*",
        reason: "the definition NodeFeatureRule of another project, which the original installs beside its own",
    },
    Known {
        case: "82-shadow-discovery",
        file: "responses",
        object: "1-call.yaml GET /apis/shadow/v1alpha1",
        path: "answer.resources./service*",
        reason: "the definitions of the multi-cluster services group, which the original installs beside its own",
    },
    Known {
        case: "91-crd-with-a-native-plural",
        file: "responses",
        object: "5-call.yaml*",
        path: "*",
        reason: "the built-in kind stays when a definition of the same plural goes (verdict of the case)",
    },
    Known {
        case: "60-static-two-clusters",
        file: "subscription-status",
        object: "Subscription fleet/w0-0",
        path: "status.replicas",
        reason: "weights of zero for all divide evenly, with a condition that says so; the original then copies the full count to every cluster",
    },
    Known {
        case: "*",
        file: "*",
        object: "HelmChart *",
        path: "metadata.labels.<uid:*",
        reason: "a chart's label of a user comes and goes with the user; the original writes it once all feeds are there and leaves it behind",
    },
    Known {
        case: "39-names-at-the-limits",
        file: "child-harbor",
        object: "ConfigMap lights/beacon-settings",
        path: "",
        reason: "the release of a Description with a long name is made, without the label (verdict of the case)",
    },
    Known {
        case: "39-names-at-the-limits",
        file: "child-harbor",
        object: "Secret lights/sh.helm.release.v1.beacon.v1",
        path: "",
        reason: "the release of a Description with a long name is made, without the label (verdict of the case)",
    },
    Known {
        case: "39-names-at-the-limits",
        file: "helmreleases",
        object: "HelmRelease clusternet-harbor/ddddddddddd*",
        path: "",
        reason: "the release of a Description with a long name is made, without the label (verdict of the case)",
    },
    Known {
        case: "39-names-at-the-limits",
        file: "descriptions",
        object: "Description clusternet-harbor/ddddddddddd*",
        path: "status",
        reason: "the release of a Description with a long name is made, without the label (verdict of the case)",
    },
    Known {
        case: "88-two-charts-one-release",
        file: "child-harbor",
        object: "*",
        path: "*",
        reason: "the second chart of a name does not upgrade the release of the first (verdict of the case)",
    },
    Known {
        case: "88-two-charts-one-release",
        file: "descriptions",
        object: "*",
        path: "status.*",
        reason: "the second chart of a name is refused with a reason (verdict of the case)",
    },
    Known {
        case: "88-two-charts-one-release",
        file: "helmreleases",
        object: "HelmRelease clusternet-harbor/lamps-<rand:harbor>-helm-crew-lantern",
        path: "",
        reason: "the second chart of a name gets no release (verdict of the case)",
    },
];

/// Whether a difference is in the table.
pub(super) fn justified(case: &str, difference: &Difference) -> bool {
    KNOWN.iter().any(|known| {
        debug_assert!(!known.reason.is_empty());
        fits(known.case, case)
            && fits(known.file, &difference.file)
            && fits(known.object, &difference.object)
            && fits(known.path, &difference.path)
    })
}

fn fits(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => pattern == text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn differences(owners: &[&str], ours: &str) -> usize {
        let shelf = |owner: &str| {
            let owned = json!({"apps.clusternet.io/owned-by-description": format!("clusternet-harbor.{owner}")});
            json!({"kind": "ConfigMap", "metadata": {"name": "shelf", "namespace": "library", "annotations": owned}})
        };
        let answers = |owner: &str| {
            let holds = |name: &&str| json!({"kind": "Description", "metadata": {"name": name, "namespace": "clusternet-harbor"}, "spec": {"raw": [shelf("")]}});
            let descriptions = owners.iter().map(|name| holds(name)).collect();
            BTreeMap::from([("step-1/descriptions".to_owned(), descriptions), ("step-1/child-harbor".to_owned(), vec![shelf(owner)])])
        };
        let case = Case { name: "any", settings: &json!({}), steps: &BTreeMap::new() };
        super::super::compare::compare(&case, &answers("readers"), &answers(ours), &[]).len()
    }

    #[test]
    fn any_holder_may_own_what_several_hold() {
        assert_eq!(differences(&["readers", "writers"], "writers"), 0);
        assert_eq!(differences(&["readers", "writers"], "strangers"), 1);
        assert_eq!(differences(&["readers"], "writers"), 1);
    }
}
