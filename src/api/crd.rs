//! Schema export: the CustomResourceDefinitions of all kinds, and JSON schemas for editors.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::{Kind, apps, clusters, gitops, schema};

/// What a CRD says beside its schema.
struct Shape {
    kind: &'static str,
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    singular: String,
    namespaced: bool,
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    /// `None`: no `subresources` at all; `Some(false)`: an empty one; `Some(true)`: the status subresource.
    subresources: Option<bool>,
    columns: Vec<Value>,
    schema: Value,
}

const CLUSTERNET: &[&str] = &["clusternet"];
const ANABRANCH: &[&str] = &["anabranch"];

fn shape<K: Kind + JsonSchema>(
    short_names: &'static [&'static str],
    categories: &'static [&'static str],
    subresources: Option<bool>,
    columns: &[(&str, &str, &str, &str, i32)],
) -> Shape {
    let columns = columns
        .iter()
        .map(|(name, kind, path, description, priority)| {
            let mut column = json!({"name": name, "type": kind, "jsonPath": path});
            if !description.is_empty() {
                column["description"] = json!(description);
            }
            if *priority != 0 {
                column["priority"] = json!(priority);
            }
            column
        })
        .collect();
    Shape {
        kind: K::KIND,
        group: K::GROUP,
        version: K::VERSION,
        plural: K::PLURAL,
        singular: K::KIND.to_lowercase(),
        namespaced: K::NAMESPACED,
        short_names,
        categories,
        subresources,
        columns,
        schema: schema::structural::<K>(),
    }
}

const AGE: (&str, &str, &str, &str, i32) = ("AGE", "date", ".metadata.creationTimestamp", "", 0);
const CHART_COLUMNS: &[(&str, &str, &str, &str, i32)] = &[
    ("CHART", "string", ".spec.chart", "The helm chart name", 0),
    ("VERSION", "string", ".spec.version", "The helm chart version", 0),
    ("REPO", "string", ".spec.repo", "The helm repo url", 0),
    ("STATUS", "string", ".status.phase", "The helm chart status", 0),
    AGE,
];

fn shapes() -> Vec<Shape> {
    let ready = |path: &'static str| ("READY", "string", path, "", 0);
    vec![
        shape::<apps::Subscription>(&["sub", "subs"], CLUSTERNET, Some(true), &[AGE]),
        shape::<apps::Base>(&[], CLUSTERNET, Some(false), &[AGE]),
        shape::<apps::Description>(
            &["desc"],
            CLUSTERNET,
            Some(true),
            &[
                ("DEPLOYER", "string", ".spec.deployer", "The deployer of this Description", 0),
                ("STATUS", "string", ".status.phase", "The status of this Description", 0),
                AGE,
            ],
        ),
        shape::<apps::Manifest>(&[], CLUSTERNET, Some(false), &[AGE]),
        shape::<apps::HelmChart>(&["chart", "charts"], CLUSTERNET, Some(true), CHART_COLUMNS),
        shape::<apps::HelmRelease>(&["hr"], CLUSTERNET, Some(true), CHART_COLUMNS),
        shape::<apps::Localization>(&["loc", "local"], CLUSTERNET, Some(false), &[AGE]),
        shape::<apps::Globalization>(&["glob", "global"], CLUSTERNET, Some(false), &[AGE]),
        shape::<apps::FeedInventory>(&["finv"], CLUSTERNET, None, &[]),
        shape::<clusters::ClusterRegistrationRequest>(
            &["clsrr"],
            CLUSTERNET,
            Some(true),
            &[
                ("CLUSTER ID", "string", ".spec.clusterId", "The unique id for the cluster", 0),
                ("STATUS", "string", ".status.result", "The status of current cluster registration request", 0),
                AGE,
            ],
        ),
        shape::<clusters::ManagedCluster>(
            &["mcls"],
            CLUSTERNET,
            Some(true),
            &[
                ("CLUSTER ID", "string", ".spec.clusterId", "The unique id for the cluster", 0),
                ("CLUSTER TYPE", "string", ".spec.clusterType", "The type of the cluster", 100),
                ("SYNC MODE", "string", ".spec.syncMode", "The cluster sync mode", 0),
                ("KUBERNETES", "string", ".status.k8sVersion", "The Kubernetes version of the cluster", 0),
                ("STATUS", "string", ".status.conditions[?(@.type=='Ready')].status", "The status of current cluster", 0),
                AGE,
                ("AGENT VERSION", "string", ".status.agentVersion", "The agent version of the cluster", 100),
            ],
        ),
        shape::<gitops::GitSource>(
            &["gs"],
            ANABRANCH,
            Some(true),
            &[
                ("URL", "string", ".spec.url", "", 0),
                ready(".status.conditions[?(@.type=='Ready')].status"),
                ("REVISION", "string", ".status.lastAppliedRevision", "", 0),
                ("OBJECTS", "integer", ".status.inventory.objects", "", 0),
                ("FAULTS", "integer", ".status.faultCount", "", 0),
                ("STATUS", "string", ".status.conditions[?(@.type=='Ready')].message", "", 1),
                AGE,
            ],
        ),
        shape::<gitops::GitTarget>(
            &["gt"],
            ANABRANCH,
            Some(true),
            &[
                ("URL", "string", ".spec.url", "", 0),
                ready(".status.conditions[?(@.type=='Ready')].status"),
                ("CLUSTERS", "integer", ".status.clusters.matched", "", 0),
                ("DELIVERED", "integer", ".status.clusters.delivered", "", 0),
                ("PUSHED", "date", ".status.lastPushTime", "", 0),
                ("STATUS", "string", ".status.conditions[?(@.type=='Ready')].message", "", 1),
                AGE,
            ],
        ),
        shape::<gitops::Rollout>(
            &["ro"],
            ANABRANCH,
            Some(true),
            &[
                ("PHASE", "string", ".status.phase", "", 0),
                ("WAVE", "string", ".status.currentWave", "", 0),
                ready(".status.conditions[?(@.type=='Ready')].status"),
                AGE,
            ],
        ),
    ]
}

const API_VERSION_TEXT: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND_TEXT: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

impl Shape {
    fn crd(self) -> Value {
        let mut schema = self.schema;
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.insert("apiVersion".to_owned(), json!({"type": "string", "description": API_VERSION_TEXT}));
            properties.insert("kind".to_owned(), json!({"type": "string", "description": KIND_TEXT}));
            properties.insert("metadata".to_owned(), json!({"type": "object"}));
        }
        let mut version = json!({
            "name": self.version, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
        });
        if !self.columns.is_empty() {
            version["additionalPrinterColumns"] = Value::Array(self.columns);
        }
        if let Some(status) = self.subresources {
            version["subresources"] = if status { json!({"status": {}}) } else { json!({}) };
        }
        let mut names = json!({
            "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural, "singular": self.singular,
            "categories": self.categories,
        });
        if !self.short_names.is_empty() {
            names["shortNames"] = json!(self.short_names);
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{}", self.plural, self.group)},
            "spec": {
                "group": self.group,
                "names": names,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "versions": [version],
            },
        })
    }

    fn editor_schema(self) -> Value {
        let mut schema = self.schema;
        schema::strict(&mut schema);
        let Some(fields) = schema.as_object_mut() else { return schema };
        let name = if self.namespaced {
            json!({"name": {"type": "string"}, "namespace": {"type": "string"}})
        } else {
            json!({"name": {"type": "string"}})
        };
        let mut meta = name.as_object().cloned().unwrap_or_default();
        for field in ["labels", "annotations"] {
            meta.insert(field.to_owned(), json!({"type": "object", "additionalProperties": {"type": "string"}}));
        }
        meta.insert("generateName".to_owned(), json!({"type": "string"}));
        meta.insert("finalizers".to_owned(), json!({"type": "array", "items": {"type": "string"}}));
        let mut properties = fields.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        properties.insert("apiVersion".to_owned(), json!({"const": format!("{}/{}", self.group, self.version)}));
        properties.insert("kind".to_owned(), json!({"const": self.kind}));
        properties.insert("metadata".to_owned(), json!({"type": "object", "properties": meta, "required": ["name"]}));
        let mut required = vec![json!("apiVersion"), json!("kind"), json!("metadata")];
        required.extend(fields.get("required").and_then(Value::as_array).into_iter().flatten().cloned());
        fields.insert("properties".to_owned(), Value::Object(properties));
        fields.insert("required".to_owned(), Value::Array(required));
        fields.insert("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#"));
        fields.insert("title".to_owned(), json!(self.kind));
        schema
    }
}

/// The CustomResourceDefinitions of all our kinds.
pub fn crds() -> Vec<Value> {
    shapes().into_iter().map(Shape::crd).collect()
}

/// JSON schemas for editors by file name (`<kind>.json`, lower case), and `all.json` for a file of any of our kinds.
pub fn schemas() -> BTreeMap<String, Value> {
    let mut out = BTreeMap::new();
    let mut choices = Vec::new();
    for shape in shapes() {
        let file = format!("{}.json", shape.singular);
        let (kind, api_version) = (shape.kind, format!("{}/{}", shape.group, shape.version));
        choices.push(json!({
            "if": {"required": ["apiVersion", "kind"], "properties": {"apiVersion": {"const": api_version}, "kind": {"const": kind}}},
            "then": {"$ref": file},
        }));
        out.insert(file, shape.editor_schema());
    }
    // By if/then, not oneOf: an editor then shows the faults of the one kind that the file has.
    let all = Map::from_iter([
        ("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#")),
        ("title".to_owned(), json!("Any Kubernetes object; Anabranch's and Clusternet's kinds are checked")),
        ("type".to_owned(), json!("object")),
        ("required".to_owned(), json!(["apiVersion", "kind"])),
        ("allOf".to_owned(), Value::Array(choices)),
    ]);
    out.insert("all.json".to_owned(), Value::Object(all));
    out
}
