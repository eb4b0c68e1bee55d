//! Differences from the original that are right: each with its case and its reason.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::{Difference, identity};

/// Defects of the original that show in the recorded answers themselves, in whatever case.
#[derive(Default)]
pub struct Defects {
    /// Descriptions that failed since the original never learns of kinds that come later: identity, cluster and kind. Right: the object
    /// arrives, and the deletion does not hang (verdict of 05).
    unknown_kinds: BTreeSet<(String, String, String)>,
    /// A race made two Bases of one Subscription in a cluster. Right: one (verdict of 49).
    race: bool,
    /// A part of the original died. Right: the work goes on (verdict of 86).
    died: bool,
}

impl Defects {
    /// Reads them out of the settings and the answers of a case.
    pub fn of(settings: &Value, expected: &BTreeMap<String, Vec<Value>>) -> Self {
        let mut found = Self { race: settings["race"] == true, died: settings["crash"] == "controller-manager", ..Self::default() };
        for (file, descriptions) in expected {
            for one in descriptions.iter().filter(|_| stem(file) == "descriptions") {
                let text = |pointer: &str| one.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                for rest in text("/status/reason").split("no matches for kind \"").skip(1) {
                    let kind = rest.split('"').next().unwrap_or_default().to_owned();
                    let cluster = text("/metadata/namespace").trim_start_matches("clusternet-").to_owned();
                    found.unknown_kinds.insert((identity(one), cluster, kind));
                }
            }
        }
        found
    }

    /// Whether a difference comes from one of them.
    pub fn explain(&self, difference: &Difference) -> bool {
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
        twin || went_on || arrived
    }
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
        case: "28-template-updated",
        file: "*",
        object: "ConfigMap quay/limits",
        path: "*",
        reason: "a replaced object keeps its creator's label and its uid, the patch of step 3 applies and the drift of step 4 is mended (verdict of the case)",
    },
    Known {
        case: "28-template-updated",
        file: "*",
        object: "Deployment quay/crane",
        path: "metadata.labels.clusternet.io/created-by",
        reason: "a replaced object keeps its creator's label and its uid, the patch of step 3 applies and the drift of step 4 is mended (verdict of the case)",
    },
    Known {
        case: "28-template-updated",
        file: "*",
        object: "Description clusternet-*",
        path: "spec.raw[1].metadata.labels.clusternet.io/created-by",
        reason: "a replaced object keeps its creator's label and its uid, the patch of step 3 applies and the drift of step 4 is mended (verdict of the case)",
    },
    Known {
        case: "28-template-updated",
        file: "*",
        object: "Description clusternet-*",
        path: "spec.raw[2].*",
        reason: "a replaced object keeps its creator's label and its uid, the patch of step 3 applies and the drift of step 4 is mended (verdict of the case)",
    },
    Known {
        case: "28-template-updated",
        file: "*",
        object: "Manifest clusternet-reserved/configmaps.quay.limits",
        path: "*",
        reason: "a replaced object keeps its creator's label and its uid, the patch of step 3 applies and the drift of step 4 is mended (verdict of the case)",
    },
    Known {
        case: "28-template-updated",
        file: "*",
        object: "Manifest clusternet-reserved/deployments.quay.crane",
        path: "template.metadata.*",
        reason: "a replaced object keeps its creator's label and its uid, the patch of step 3 applies and the drift of step 4 is mended (verdict of the case)",
    },
    Known {
        case: "28-template-updated",
        file: "responses",
        object: "3-patch-labels.yaml*",
        path: "",
        reason: "a replaced object keeps its creator's label and its uid, the patch of step 3 applies and the drift of step 4 is mended (verdict of the case)",
    },
    Known {
        case: "60-static-two-clusters",
        file: "subscription-status",
        object: "Subscription fleet/w0-0",
        path: "status.replicas",
        reason: "weights of zero for all divide evenly, with a condition that says so; the original then copies the full count to every cluster",
    },
    Known {
        case: "24-shadow-create-update-delete",
        file: "*",
        object: "Manifest clusternet-reserved/configmaps.vault.ledger",
        path: "template.*",
        reason: "a replaced object keeps its creator's label and its uid, so that the patch of step 3 applies (verdict of the case)",
    },
    Known {
        case: "24-shadow-create-update-delete",
        file: "responses",
        object: "2-put.yaml v1/ConfigMap vault/ledger",
        path: "answer.metadata.labels",
        reason: "a replaced object keeps its creator's label (verdict of the case)",
    },
    Known {
        case: "24-shadow-create-update-delete",
        file: "responses",
        object: "3-patch.yaml v1/ConfigMap vault/ledger",
        path: "*",
        reason: "the patch is answered 200 (verdict of the case)",
    },
    Known {
        case: "25-manifest-names",
        file: "manifests",
        object: "Manifest clusternet-reserved/namespaces.kube-system",
        path: "*",
        reason: "the letters of the dry run's stand-in name are not left in a label",
    },
];

/// Whether a difference is in the table.
pub fn justified(case: &str, difference: &Difference) -> bool {
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
