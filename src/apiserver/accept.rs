//! Content negotiation: which encoding and which form of an object a client wants.

use crate::status::ApiError;

/// Encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// Form of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The object itself.
    Whole,
    /// Rows for people (`as=Table`), of `meta.k8s.io/v1` or `v1beta1`.
    Table(&'static str),
    /// Metadata only.
    Partial(&'static str),
    /// Aggregated discovery of this version.
    Discovery(&'static str),
}

/// What was agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accept {
    /// Encoding.
    pub encoding: Encoding,
    /// Form.
    pub form: Form,
    /// Indented for people.
    pub pretty: bool,
}

impl Default for Accept {
    fn default() -> Self {
        Self { encoding: Encoding::Json, form: Form::Whole, pretty: false }
    }
}

/// Media types that objects are served in.
pub const TYPES: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

impl Encoding {
    /// Content type of a response.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Content type of a watch stream.
    #[must_use]
    pub fn stream_type(self) -> &'static str {
        match self {
            Self::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Yaml | Self::Json => "application/json",
        }
    }
}

/// Reads an `Accept` header. `forms`: whether tables and partial metadata are offered here; `protobuf`: whether that encoding is.
pub fn negotiate(header: Option<&str>, forms: bool, protobuf: bool) -> Result<Accept, ApiError> {
    let header = header.map(str::trim).unwrap_or("");
    if header.is_empty() {
        return Ok(Accept::default());
    }
    let mut clauses: Vec<(f32, &str)> = header.split(',').map(|c| (quality(c), c.trim())).collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, clause) in clauses {
        let mut parts = clause.split(';').map(str::trim);
        let media = parts.next().unwrap_or("");
        let encoding = match media {
            "application/json" | "*/*" | "application/*" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" => Encoding::Protobuf,
            _ => continue,
        };
        let (mut r#as, mut group, mut version, mut pretty) = ("", "", "", false);
        for part in parts {
            match part.split_once('=') {
                Some(("as", v)) => r#as = v,
                Some(("g", v)) => group = v,
                Some(("v", v)) => version = v,
                Some(("pretty", v)) => pretty = v == "1",
                _ => {}
            }
        }
        let form = match (r#as, group, version) {
            ("", ..) => Form::Whole,
            ("Table", "meta.k8s.io", "v1") if forms => Form::Table("meta.k8s.io/v1"),
            ("Table", "meta.k8s.io", "v1beta1") if forms => Form::Table("meta.k8s.io/v1beta1"),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1") if forms => Form::Partial("meta.k8s.io/v1"),
            ("PartialObjectMetadata" | "PartialObjectMetadataList", "meta.k8s.io", "v1beta1") if forms => Form::Partial("meta.k8s.io/v1beta1"),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Form::Discovery("apidiscovery.k8s.io/v2"),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") => Form::Discovery("apidiscovery.k8s.io/v2beta1"),
            _ => continue,
        };
        // Tables exist in JSON and YAML only; metadata has a protobuf form for every kind, custom ones too.
        let possible = match form {
            Form::Table(_) => encoding != Encoding::Protobuf,
            Form::Partial(_) => true,
            Form::Whole | Form::Discovery(_) => encoding != Encoding::Protobuf || protobuf,
        };
        if !possible {
            continue;
        }
        return Ok(Accept { encoding, form, pretty });
    }
    let offered = if protobuf { &TYPES[..] } else { &TYPES[..2] };
    Err(ApiError::not_acceptable(offered))
}

fn quality(clause: &str) -> f32 {
    clause.split(';').find_map(|p| p.trim().strip_prefix("q=")).and_then(|q| q.parse().ok()).unwrap_or(1.0)
}

/// The media type of a request body, without parameters; empty when not given.
#[must_use]
pub fn media(header: Option<&str>) -> &str {
    header.unwrap_or("").split(';').next().unwrap_or("").trim()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    #[test]
    fn the_first_possible_clause_wins() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let check = |header: &str, forms, protobuf| negotiate(Some(header), forms, protobuf).map(|a| (a.encoding, a.form));
        assert_eq!(check(table, true, true).unwrap(), (Encoding::Json, Form::Table("meta.k8s.io/v1")));
        assert_eq!(check(table, false, true).unwrap(), (Encoding::Json, Form::Whole));
        assert_eq!(check("application/vnd.kubernetes.protobuf, application/json", true, false).unwrap().0, Encoding::Json);
        assert_eq!(check("application/json;q=0.5, application/yaml", true, true).unwrap().0, Encoding::Yaml);
        assert_eq!(check("*/*", true, true).unwrap().0, Encoding::Json);
        assert!(check("text/html", true, true).is_err());
    }
}
