//! Differences from the original that are right: each with its case and its reason.

use super::compare::Difference;

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
        case: "05-crd-and-its-object",
        file: "*",
        object: "Kiln pottery/big",
        path: "",
        reason: "the object of the new kind arrives in every cluster, pushed ones too (verdict of the case)",
    },
    Known {
        case: "05-crd-and-its-object",
        file: "descriptions",
        object: "Description clusternet-*",
        path: "",
        reason: "a deleted Subscription leaves no Description behind (verdict of the case)",
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
