//! Releases as Helm keeps them: one Secret per revision, `sh.helm.release.v1.NAME.vN`, holding gzipped JSON.
//!
//! Whatever a newer or older Helm wrote in a record that is not known here is kept as it is, so that a changed status can be
//! written back to a release that Helm itself installed.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};

use super::load::Chart;
use super::manifests::{Document, Hook};
use super::metadata::Metadata;

/// Type of the Secrets.
pub const SECRET_TYPE: &str = "helm.sh/release.v1";
/// Largest release that is unpacked, in bytes: what a Secret can hold, at gzip's best.
const UNPACKED_MAX: u64 = 256 << 20;

/// Status words.
pub mod status {
    /// Installed or upgraded, and current.
    pub const DEPLOYED: &str = "deployed";
    /// A newer revision took its place.
    pub const SUPERSEDED: &str = "superseded";
    /// It did not come to its end.
    pub const FAILED: &str = "failed";
    /// It is being removed.
    pub const UNINSTALLING: &str = "uninstalling";
    /// It was removed; the record was kept.
    pub const UNINSTALLED: &str = "uninstalled";
    /// The first installation is under way.
    pub const PENDING_INSTALL: &str = "pending-install";
    /// An upgrade is under way.
    pub const PENDING_UPGRADE: &str = "pending-upgrade";
    /// A return to an older revision is under way.
    pub const PENDING_ROLLBACK: &str = "pending-rollback";
}

/// A revision of a release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Name of the release.
    #[serde(default)]
    pub name: String,
    /// How it is.
    #[serde(default, deserialize_with = "nullable")]
    pub info: Info,
    /// The chart, as Helm writes it.
    #[serde(default)]
    pub chart: Value,
    /// Values of the user; null without any.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub config: Value,
    /// Rendered documents.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub manifest: String,
    /// Hooks.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookRecord>,
    /// Revision, from 1.
    #[serde(default)]
    pub version: i64,
    /// Namespace of the release.
    #[serde(default)]
    pub namespace: String,
    /// `ssa` when the objects were server-side applied; `csa` or empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub apply_method: String,
    /// What is not known here.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// How a release is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// RFC 3339.
    #[serde(default)]
    pub first_deployed: String,
    /// RFC 3339.
    #[serde(default)]
    pub last_deployed: String,
    /// RFC 3339; empty for a release that was not removed.
    #[serde(default)]
    pub deleted: String,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// One of [`status`].
    #[serde(default)]
    pub status: String,
    /// Notes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub notes: String,
    /// What is not known here.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A hook of a release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HookRecord {
    /// metadata.name.
    #[serde(default)]
    pub name: String,
    /// kind.
    #[serde(default)]
    pub kind: String,
    /// Template.
    #[serde(default)]
    pub path: String,
    /// The document.
    #[serde(default)]
    pub manifest: String,
    /// Events, as `pre-install`.
    #[serde(default, deserialize_with = "nullable")]
    pub events: Vec<String>,
    /// Its last run.
    #[serde(default, deserialize_with = "nullable")]
    pub last_run: Run,
    /// Weight.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub weight: i64,
    /// Policies of deletion.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub delete_policies: Vec<String>,
    /// When logs are shown.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub output_log_policies: Vec<String>,
    /// What is not known here.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A run of a hook.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// RFC 3339; empty before.
    #[serde(default)]
    pub started_at: String,
    /// RFC 3339; empty before.
    #[serde(default)]
    pub completed_at: String,
    /// `Unknown`, `Running`, `Succeeded` or `Failed`; empty before.
    #[serde(default)]
    pub phase: String,
}

fn is_zero(n: &i64) -> bool {
    *n == 0
}

fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The Secret holds no release.
    #[error("read release of Secret {secret}: {problem}")]
    Read {
        /// Name of the Secret.
        secret: String,
        /// What is wrong.
        problem: String,
    },
    /// It cannot be packed.
    #[error("pack release {release}: {problem}")]
    Write {
        /// Name of the release.
        release: String,
        /// What is wrong.
        problem: String,
    },
}

impl Record {
    /// Name of the Secret that it is kept in.
    pub fn secret_name(&self) -> String {
        format!("sh.helm.release.v1.{}.v{}", self.name, self.version)
    }

    /// Whether an action on it is under way, or was when somebody died.
    pub fn is_pending(&self) -> bool {
        matches!(self.info.status.as_str(), status::PENDING_INSTALL | status::PENDING_UPGRADE | status::PENDING_ROLLBACK)
    }

    /// A text of the chart's metadata, as `version`.
    pub fn chart_text(&self, field: &str) -> &str {
        self.chart["metadata"][field].as_str().unwrap_or_default()
    }

    /// The Secret. `stamp` is the label that tells the time of writing: `createdAt` or `modifiedAt`, seconds since 1970.
    ///
    /// # Errors
    /// When it cannot be packed.
    pub fn secret(&self, stamp: (&str, i64)) -> Result<Value, RecordError> {
        let problem = |problem: String| RecordError::Write { release: self.name.clone(), problem };
        let text = serde_json::to_vec(self).map_err(|e| problem(e.to_string()))?;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(&text).map_err(|e| problem(e.to_string()))?;
        let packed = packer.finish().map_err(|e| problem(e.to_string()))?;
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
            "metadata": {
                "name": self.secret_name(), "namespace": self.namespace,
                "labels": {
                    "name": self.name, "owner": "helm", "status": self.info.status, "version": self.version.to_string(),
                    (stamp.0): stamp.1.to_string(),
                },
            },
            // Helm encodes the text itself; the Secret's own encoding comes on top.
            "data": {"release": STANDARD.encode(STANDARD.encode(packed))},
        }))
    }

    /// Reads a Secret.
    ///
    /// # Errors
    /// When it holds no release.
    pub fn of_secret(secret: &Value) -> Result<Self, RecordError> {
        let name = secret["metadata"]["name"].as_str().unwrap_or_default();
        let fault = |problem: String| RecordError::Read { secret: name.to_owned(), problem };
        let outer = secret["data"]["release"].as_str().ok_or_else(|| fault("it has no release".to_owned()))?;
        let inner = STANDARD.decode(outer).map_err(|e| fault(e.to_string()))?;
        let packed = STANDARD.decode(inner.trim_ascii()).map_err(|e| fault(e.to_string()))?;
        let mut text = Vec::new();
        // The oldest releases were not packed.
        if packed.starts_with(&[0x1f, 0x8b, 0x08]) {
            flate2::read::GzDecoder::new(packed.as_slice()).take(UNPACKED_MAX).read_to_end(&mut text).map_err(|e| fault(e.to_string()))?;
        } else {
            text = packed;
        }
        serde_json::from_slice(&text).map_err(|e| fault(e.to_string()))
    }
}

impl HookRecord {
    /// Of a rendered hook.
    pub fn of(hook: &Hook) -> Self {
        Self {
            name: hook.document.head.name.clone(),
            kind: hook.document.head.kind.clone(),
            path: hook.document.path.clone(),
            manifest: hook.document.content.clone(),
            events: hook.events.clone(),
            weight: hook.weight,
            delete_policies: hook.delete_policies.clone(),
            output_log_policies: hook.log_policies.clone(),
            ..Self::default()
        }
    }
}

/// The documents as a release keeps them. Blank lines at the end of a document are left out, unless a block scalar keeps them.
pub fn manifest(documents: &[Document]) -> String {
    let mut out = String::new();
    for document in documents {
        out.push_str("---\n# Source: ");
        out.push_str(&document.path);
        out.push('\n');
        let keeps = document.content.lines().any(|line| {
            let line = line.trim_end();
            line.ends_with('+') && line.trim_end_matches(|c: char| c == '+' || c.is_ascii_digit()).ends_with(['|', '>'])
        });
        out.push_str(if keeps { &document.content } else { document.content.trim_end() });
        out.push('\n');
    }
    out
}

/// A chart as releases hold it: without its subcharts, as with Helm.
pub fn chart(chart: &Chart) -> Value {
    let files = |list: &[std::sync::Arc<super::load::File>]| -> Value {
        list.iter().map(|f| json!({"name": f.name, "data": STANDARD.encode(f.data.as_bytes())})).collect()
    };
    json!({
        "metadata": metadata(&chart.metadata),
        "lock": null,
        "templates": files(&chart.templates),
        "values": chart.values.to_json(),
        "schema": chart.schema.as_ref().map(|s| STANDARD.encode(s.as_bytes())),
        "files": files(&chart.files),
    })
}

fn metadata(md: &Metadata) -> Value {
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        let empty = match &value {
            Value::String(s) => s.is_empty(),
            Value::Array(a) => a.is_empty(),
            Value::Bool(b) => !b,
            Value::Object(o) => o.is_empty(),
            _ => value.is_null(),
        };
        if !empty {
            out.insert(key.to_owned(), value);
        }
    };
    put("name", json!(md.name));
    put("home", json!(md.home));
    put("sources", json!(md.sources));
    put("version", json!(md.version));
    put("description", json!(md.description));
    put("keywords", json!(md.keywords));
    put(
        "maintainers",
        md.maintainers
            .iter()
            .map(|m| some(&[("name", json!(m.name)), ("email", json!(m.email)), ("url", json!(m.url))]))
            .collect(),
    );
    put("icon", json!(md.icon));
    put("apiVersion", json!(md.api_version));
    put("condition", json!(md.condition));
    put("tags", json!(md.tags));
    put("appVersion", json!(md.app_version));
    put("deprecated", json!(md.deprecated));
    let annotations: BTreeMap<String, Value> = md.annotations.iter().flatten().map(|(k, v)| (k.text().into_owned(), v.to_json())).collect();
    put("annotations", json!(annotations));
    put("kubeVersion", json!(md.kube_version));
    put(
        "dependencies",
        md.dependencies
            .iter()
            .flatten()
            .map(|d| {
                some(&[
                    ("name", json!(d.name)),
                    ("version", json!(d.version)),
                    ("repository", json!(d.repository)),
                    ("condition", json!(d.condition)),
                    ("tags", json!(d.tags)),
                    ("enabled", if d.enabled { json!(true) } else { Value::Null }),
                    ("import-values", d.import_values.iter().map(crate::value::Val::to_json).collect()),
                    ("alias", json!(d.alias)),
                ])
            })
            .collect(),
    );
    put("type", json!(md.kind));
    Value::Object(out)
}

/// An object of the fields that are not empty.
fn some(fields: &[(&str, Value)]) -> Value {
    let filled = fields.iter().filter(|(_, v)| !(v.is_null() || v == &json!("") || v == &json!([])));
    Value::Object(filled.map(|(k, v)| ((*k).to_owned(), v.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_of_another_helm_keeps_what_is_not_known() {
        let text = json!({"name": "a", "version": 3, "namespace": "n", "info": {"status": "deployed", "first_deployed": "2024-01-02T03:04:05Z", "new": 1},
            "hooks": null, "chart": {"metadata": {"version": "1.2.3"}}, "config": {"x": 1}, "labels": {"a": "b"}, "manifest": "---\n"});
        let record: Record = serde_json::from_value(text).expect("a release");
        let secret = record.secret(("createdAt", 7)).expect("packed");
        assert_eq!(secret["metadata"]["name"], "sh.helm.release.v1.a.v3");
        assert_eq!(secret["metadata"]["labels"]["createdAt"], "7");
        let again = Record::of_secret(&secret).expect("unpacked");
        assert_eq!(again, record);
        assert_eq!(again.rest["labels"]["a"], "b");
        assert_eq!(again.info.rest["new"], 1);
        assert_eq!(again.chart_text("version"), "1.2.3");
    }

    #[test]
    fn what_is_no_release_is_refused() {
        for secret in [json!({}), json!({"data": {"release": "!"}}), json!({"data": {"release": STANDARD.encode(STANDARD.encode("[]"))}})] {
            assert!(Record::of_secret(&secret).is_err(), "{secret}");
        }
    }

    #[test]
    fn blank_ends_go_unless_they_mean_something() {
        let doc = |content: &str| Document { path: "c/templates/a.yaml".into(), content: content.into(), head: Default::default() };
        assert_eq!(manifest(&[doc("a: b\n\n\n"), doc("c: d")]), "---\n# Source: c/templates/a.yaml\na: b\n---\n# Source: c/templates/a.yaml\nc: d\n");
        assert_eq!(manifest(&[doc("a: |+\n  x\n\n\n")]), "---\n# Source: c/templates/a.yaml\na: |+\n  x\n\n\n\n");
    }
}
