//! Chart.yaml: reading, Helm's checks and clean-up, and the map templates see as `.Chart`.

use crate::text::fmt::float_g32;
use crate::text::quote::quote;
use crate::text::{is_print, is_space};
use crate::value::{MapTy, Str, Tree, Val};
use crate::yaml::decode::{decode_ints, json_kind};

/// A dependency entry.
#[derive(Clone, Debug, Default)]
pub struct Dependency {
    /// Chart name.
    pub name: String,
    /// Version range.
    pub version: String,
    /// Repository.
    pub repository: String,
    /// Value paths that enable it, comma separated.
    pub condition: String,
    /// Tags.
    pub tags: Vec<String>,
    /// Enabled.
    pub enabled: bool,
    /// Values taken over into the parent.
    pub import_values: Vec<Val>,
    /// Other name.
    pub alias: String,
}

/// A maintainer.
#[derive(Clone, Debug, Default)]
pub struct Maintainer {
    /// Name.
    pub name: String,
    /// Address.
    pub email: String,
    /// Page.
    pub url: String,
}

/// Chart.yaml.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Home page.
    pub home: String,
    /// Source pages.
    pub sources: Vec<String>,
    /// Version.
    pub version: String,
    /// Description.
    pub description: String,
    /// Keywords.
    pub keywords: Vec<String>,
    /// Maintainers.
    pub maintainers: Vec<Maintainer>,
    /// Icon.
    pub icon: String,
    /// API version.
    pub api_version: String,
    /// Condition.
    pub condition: String,
    /// Tags.
    pub tags: String,
    /// Version of the application.
    pub app_version: String,
    /// Deprecated.
    pub deprecated: bool,
    /// Annotations, absent if not written.
    pub annotations: Option<Tree>,
    /// Range of Kubernetes versions.
    pub kube_version: String,
    /// Dependencies; `None` if the list is absent.
    pub dependencies: Option<Vec<Dependency>>,
    /// application or library.
    pub kind: String,
}

type Res<T> = Result<T, String>;

fn mismatch(v: &Val, field: &str, want: &str) -> String {
    format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go struct field {field} of type {want}", json_kind(v))
}

/// A string field; numbers and booleans are taken as text.
pub fn text(v: &Val, field: &str) -> Res<String> {
    Ok(match v {
        Val::Nil | Val::No => String::new(),
        Val::Str(s) => s.text().into_owned(),
        Val::Int(i) | Val::Int64(i) => i.to_string(),
        Val::Float(f) => float_g32(*f),
        Val::Bool(b) => b.to_string(),
        v => return Err(mismatch(v, field, "string")),
    })
}

fn list(v: &Val, field: &str) -> Res<Vec<Val>> {
    match v {
        Val::Nil | Val::No => Ok(Vec::new()),
        Val::List(l) => Ok(l.v.clone()),
        v => Err(mismatch(v, field, "[]string")),
    }
}

fn texts(v: &Val, field: &str) -> Res<Vec<String>> {
    list(v, field)?.iter().map(|v| text(v, field)).collect()
}

fn boolean(v: &Val, field: &str) -> Res<bool> {
    match v {
        Val::Nil | Val::No => Ok(false),
        Val::Bool(b) => Ok(*b),
        v => Err(mismatch(v, field, "bool")),
    }
}

/// Integers as float64, as JSON decoding leaves them in untyped places.
fn floats(v: &Val) -> Val {
    match v {
        Val::Int(i) => Val::Float(*i as f64),
        Val::List(l) => Val::list(l.v.iter().map(floats).collect()),
        Val::Map(m) => Val::map(m.entries().into_iter().map(|(k, v)| (k, floats(&v))).collect()),
        v => v.clone(),
    }
}

/// Reads Chart.yaml (or requirements.yaml) over what is known already.
pub fn read(data: &[u8], md: &mut Metadata) -> Res<()> {
    let v = decode_ints(data).map_err(|e| e.0)?;
    let m = match &v {
        Val::Nil | Val::No => return Ok(()),
        Val::Map(m) => m.entries(),
        v => return Err(format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value of type v2.Metadata", json_kind(v))),
    };
    for (k, v) in m {
        let key = k.text();
        // encoding/json matches names without regard to case.
        let key = ["name", "home", "sources", "version", "description", "keywords", "maintainers", "icon", "apiVersion", "condition", "tags", "appVersion", "deprecated", "annotations", "kubeVersion", "dependencies", "type"]
            .into_iter()
            .find(|n| n.eq_ignore_ascii_case(&key));
        let Some(key) = key else { continue };
        if !v.is_some() {
            continue;
        }
        let f = format!("Metadata.{key}");
        match key {
            "name" => md.name = text(&v, &f)?,
            "home" => md.home = text(&v, &f)?,
            "sources" => md.sources = texts(&v, &f)?,
            "version" => md.version = text(&v, &f)?,
            "description" => md.description = text(&v, &f)?,
            "keywords" => md.keywords = texts(&v, &f)?,
            "maintainers" => {
                md.maintainers = match &v {
                    Val::List(l) => l.v.iter().map(maintainer).collect::<Res<_>>()?,
                    v => return Err(mismatch(v, &f, "[]*v2.Maintainer")),
                }
            }
            "icon" => md.icon = text(&v, &f)?,
            "apiVersion" => md.api_version = text(&v, &f)?,
            "condition" => md.condition = text(&v, &f)?,
            "tags" => md.tags = text(&v, &f)?,
            "appVersion" => md.app_version = text(&v, &f)?,
            "deprecated" => md.deprecated = boolean(&v, &f)?,
            "annotations" => {
                let Val::Map(a) = &v else { return Err(mismatch(&v, &f, "map[string]string")) };
                let mut t = Tree::new();
                for (k, v) in a.entries() {
                    t.insert(k, Val::str(text(&v, &f)?));
                }
                md.annotations = Some(t);
            }
            "kubeVersion" => md.kube_version = text(&v, &f)?,
            "dependencies" => {
                md.dependencies = Some(match &v {
                    Val::List(l) => l.v.iter().map(dependency).collect::<Res<_>>()?,
                    v => return Err(mismatch(v, &f, "[]*v2.Dependency")),
                })
            }
            _ => md.kind = text(&v, &f)?,
        }
    }
    Ok(())
}

fn maintainer(v: &Val) -> Res<Maintainer> {
    let m = match v {
        Val::Map(m) => m.entries(),
        Val::Nil => return Err("validation: maintainers must not contain empty or null nodes".into()),
        v => return Err(mismatch(v, "Metadata.maintainers", "v2.Maintainer")),
    };
    let mut out = Maintainer::default();
    for (k, v) in m {
        match k.text().to_ascii_lowercase().as_str() {
            "name" => out.name = text(&v, "Metadata.maintainers.name")?,
            "email" => out.email = text(&v, "Metadata.maintainers.email")?,
            "url" => out.url = text(&v, "Metadata.maintainers.url")?,
            _ => {}
        }
    }
    Ok(out)
}

fn dependency(v: &Val) -> Res<Dependency> {
    let m = match v {
        Val::Map(m) => m.entries(),
        Val::Nil => return Err("validation: dependencies must not contain empty or null nodes".into()),
        v => return Err(mismatch(v, "Metadata.dependencies", "v2.Dependency")),
    };
    let mut d = Dependency::default();
    for (k, v) in m {
        let key = k.text().to_ascii_lowercase();
        let f = format!("Metadata.dependencies.{key}");
        match key.as_str() {
            "name" => d.name = text(&v, &f)?,
            "version" => d.version = text(&v, &f)?,
            "repository" => d.repository = text(&v, &f)?,
            "condition" => d.condition = text(&v, &f)?,
            "tags" => d.tags = texts(&v, &f)?,
            "enabled" => d.enabled = boolean(&v, &f)?,
            "import-values" => {
                d.import_values = match &v {
                    Val::Nil => Vec::new(),
                    Val::List(l) => l.v.iter().map(floats).collect(),
                    v => return Err(mismatch(v, &f, "[]interface {}")),
                }
            }
            "alias" => d.alias = text(&v, &f)?,
            _ => {}
        }
    }
    Ok(d)
}

fn sanitize(s: &mut String) {
    if s.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        return;
    }
    *s = s.chars().filter_map(|c| if is_space(c) { Some(' ') } else if is_print(c) { Some(c) } else { None }).collect();
}

impl Metadata {
    /// Helm's checks; strings lose control characters.
    pub fn validate(&mut self) -> Res<()> {
        let bad = |m: String| Err(format!("validation: {m}"));
        for s in [&mut self.name, &mut self.description, &mut self.home, &mut self.icon, &mut self.condition, &mut self.tags, &mut self.app_version, &mut self.kube_version] {
            sanitize(s);
        }
        self.sources.iter_mut().chain(&mut self.keywords).for_each(sanitize);
        if self.api_version.is_empty() {
            return bad("chart.metadata.apiVersion is required".into());
        }
        if self.name.is_empty() {
            return bad("chart.metadata.name is required".into());
        }
        let q = quote(self.name.as_bytes());
        if self.name == "." || self.name == ".." {
            return bad(format!("chart.metadata.name {q} is not allowed"));
        }
        if self.name.as_bytes() != crate::func::path_base(self.name.as_bytes()) {
            return bad(format!("chart.metadata.name {q} is invalid"));
        }
        if self.version.is_empty() {
            return bad("chart.metadata.version is required".into());
        }
        if crate::func::semver::Version::parse(&self.version).is_err() {
            return bad(format!("chart.metadata.version {} is invalid", quote(self.version.as_bytes())));
        }
        if !matches!(self.kind.as_str(), "" | "application" | "library") {
            return bad("chart.metadata.type must be application or library".into());
        }
        for m in &mut self.maintainers {
            [&mut m.name, &mut m.email, &mut m.url].into_iter().for_each(sanitize);
        }
        let mut seen = std::collections::BTreeSet::new();
        for d in self.dependencies.iter_mut().flatten() {
            for s in [&mut d.name, &mut d.version, &mut d.repository, &mut d.condition] {
                sanitize(s);
            }
            d.tags.iter_mut().for_each(sanitize);
            if !d.alias.is_empty() && !d.alias.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
                return bad(format!("dependency {} has disallowed characters in the alias", quote(d.name.as_bytes())));
            }
            let key = if d.alias.is_empty() { &d.name } else { &d.alias };
            if !seen.insert(key.clone()) {
                return bad(format!("more than one dependency with name or alias {}", quote(key.as_bytes())));
            }
        }
        Ok(())
    }

    /// Contributes only helpers?
    pub fn is_library(&self) -> bool {
        self.kind.eq_ignore_ascii_case("library")
    }

    /// `.Chart`.
    pub fn as_map(&self, root: bool) -> Val {
        let s = |t: &str| Val::str(t);
        let strings = |v: &[String]| Val::list(v.iter().map(|t| Val::str(t.as_str())).collect());
        let mut t = Tree::new();
        let mut put = |k: &str, v: Val| {
            t.insert(Str::from(k), v);
        };
        put("Name", s(&self.name));
        put("Home", s(&self.home));
        put("Sources", strings(&self.sources));
        put("Version", s(&self.version));
        put("Description", s(&self.description));
        put("Keywords", strings(&self.keywords));
        let people = self.maintainers.iter().map(|m| table(&[("Name", s(&m.name)), ("Email", s(&m.email)), ("URL", s(&m.url))])).collect();
        put("Maintainers", Val::list(people));
        put("Icon", s(&self.icon));
        put("APIVersion", s(&self.api_version));
        put("Condition", s(&self.condition));
        put("Tags", s(&self.tags));
        put("AppVersion", s(&self.app_version));
        put("Deprecated", Val::Bool(self.deprecated));
        put(
            "Annotations",
            match &self.annotations {
                Some(a) => Val::typed_map(MapTy::Str, a.clone()),
                None => Val::typed_map(MapTy::NilStr, Tree::new()),
            },
        );
        put("KubeVersion", s(&self.kube_version));
        let deps = self
            .dependencies
            .iter()
            .flatten()
            .map(|d| {
                table(&[
                    ("Name", s(&d.name)),
                    ("Version", s(&d.version)),
                    ("Repository", s(&d.repository)),
                    ("Condition", s(&d.condition)),
                    ("Tags", strings(&d.tags)),
                    ("Enabled", Val::Bool(d.enabled)),
                    ("ImportValues", Val::list(d.import_values.clone())),
                    ("Alias", s(&d.alias)),
                ])
            })
            .collect();
        put("Dependencies", Val::list(deps));
        put("Type", s(&self.kind));
        put("IsRoot", Val::Bool(root));
        Val::map(t)
    }
}

fn table(fields: &[(&str, Val)]) -> Val {
    Val::map(fields.iter().map(|(k, v)| (Str::from(*k), v.clone())).collect())
}
