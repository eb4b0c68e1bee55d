//! Paths of OpenAPI documents.

use super::{CustomKind, META, full, reference};
use crate::catalog::Resource;
use crate::table::table;
use serde_json::{Map, Value, json};

/// What a resource answers to, for its paths.
#[derive(Clone, Debug)]
pub struct Served<'a> {
    base: String,
    gvk: Value,
    schema: String,
    list_schema: String,
    plural: &'a str,
    kind: &'a str,
    namespaced: bool,
    verbs: Vec<&'a str>,
    native: bool,
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

fn type_of(g: &str, v: &str, k: &str) -> String {
    let t = table();
    t.kinds.get(&(g.to_owned(), v.to_owned(), k.to_owned())).map_or_else(|| format!("{META}Status"), |id| full(&t.arena.atom(*id).name))
}

/// The document of resources of the group version.
pub(super) fn list_of(group: &str, version: &str, out: &mut Map<String, Value>) {
    out.insert(
        format!("{}/", base(group, version)),
        json!({"get": {"description": "get available resources", "operationId": operation("get", group, version, "APIResources"), "tags": [tag(group, version)], "responses": response(&format!("{META}APIResourceList"))}}),
    );
}

fn tag(group: &str, version: &str) -> String {
    let g = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) };
    format!("{g}_{version}")
}

fn operation(verb: &str, group: &str, version: &str, rest: &str) -> String {
    let upper = |s: &str| {
        let mut c = s.chars();
        c.next().map_or_else(String::new, |f| f.to_uppercase().chain(c).collect::<String>())
    };
    let g = if group.is_empty() { "Core".to_owned() } else { upper(group.split('.').next().unwrap_or(group)) };
    format!("{verb}{g}{}{rest}", upper(version))
}

pub(super) fn of_native(r: &Resource, out: &mut Map<String, Value>) {
    let served = Served {
        base: base(r.group, r.version),
        gvk: json!({"group": r.group, "version": r.version, "kind": r.kind}),
        schema: type_of(r.group, r.version, r.kind),
        list_schema: type_of(r.group, r.version, &r.list_kind),
        plural: r.plural,
        kind: r.kind,
        namespaced: r.namespaced,
        verbs: r.verbs.clone(),
        native: true,
    };
    main(&served, r.group, r.version, out);
    for s in &r.subresources {
        let gvk = json!({"group": s.group, "version": s.version, "kind": s.kind});
        let schema = type_of(s.group, s.version, s.kind);
        sub(&served, r.group, r.version, s.name, &gvk, &schema, &s.verbs, out);
    }
}

pub(super) fn of_custom(group: &str, version: &str, k: &CustomKind<'_>, name: &str, out: &mut Map<String, Value>) {
    let gvk = json!({"group": group, "version": version, "kind": k.kind});
    let served = Served {
        base: base(group, version),
        gvk: gvk.clone(),
        schema: name.to_owned(),
        list_schema: format!("{name}List"),
        plural: k.plural,
        kind: k.kind,
        namespaced: k.namespaced,
        verbs: vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        native: false,
    };
    main(&served, group, version, out);
    if k.status {
        sub(&served, group, version, "status", &gvk, name, &["get", "patch", "update"], out);
    }
    if k.scale {
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        sub(&served, group, version, "scale", &scale, "io.k8s.api.autoscaling.v1.Scale", &["get", "patch", "update"], out);
    }
}

fn query(name: &str, ty: &str, words: &str) -> Value {
    json!({"name": name, "in": "query", "description": words, "schema": {"type": ty, "uniqueItems": true}})
}

fn in_path(name: &str, words: &str) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": words, "schema": {"type": "string", "uniqueItems": true}})
}

fn shared(s: &Served<'_>, namespace: bool, name: bool) -> Value {
    let mut p = Vec::new();
    if name {
        p.push(in_path("name", &format!("name of the {}", s.kind)));
    }
    if namespace {
        p.push(in_path("namespace", "object name and auth scope, such as for teams and projects"));
    }
    p.push(query("pretty", "string", "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."));
    Value::Array(p)
}

fn writes() -> Vec<Value> {
    vec![
        query("dryRun", "string", "When present, indicates that modifications should not be persisted. Valid values are: - All: all dry run stages will be processed"),
        query("fieldManager", "string", "Name of the actor or entity that makes these changes; at most 128 printable characters."),
        query("fieldValidation", "string", "What is done with unknown or duplicate fields. Valid values are: Ignore, Warn (default), Strict."),
    ]
}

fn lists() -> Vec<Value> {
    vec![
        query("allowWatchBookmarks", "boolean", "Requests watch events of type BOOKMARK."),
        query("continue", "string", "Where the next chunk of a list begins, as the server gave it."),
        query("fieldSelector", "string", "Restricts the objects by their fields. Defaults to everything."),
        query("labelSelector", "string", "Restricts the objects by their labels. Defaults to everything."),
        query("limit", "integer", "Most objects in one answer; the rest is asked for with continue."),
        query("resourceVersion", "string", "What resource versions a request may be served from."),
        query("resourceVersionMatch", "string", "How resourceVersion is applied to lists."),
        query("sendInitialEvents", "boolean", "Begins a watch with the current objects."),
        query("timeoutSeconds", "integer", "Timeout of the list or watch."),
        query("watch", "boolean", "Watch for changes and return them as a stream of add, update, and remove notifications."),
    ]
}

fn deletions() -> Vec<Value> {
    vec![
        query("dryRun", "string", "When present, indicates that modifications should not be persisted."),
        query("gracePeriodSeconds", "integer", "Seconds before the object is deleted; zero: at once."),
        query("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
        query("propagationPolicy", "string", "Whether and how dependents are deleted: Orphan, Background, Foreground."),
    ]
}

fn content(schema: &str) -> Value {
    let s = json!({"schema": reference(schema)});
    json!({"application/json": s, "application/yaml": s, "application/vnd.kubernetes.protobuf": s})
}

fn response(schema: &str) -> Value {
    json!({"200": {"description": "OK", "content": content(schema)}, "401": {"description": "Unauthorized"}})
}

fn body(schema: &str) -> Value {
    json!({"required": true, "content": {"*/*": {"schema": reference(schema)}}})
}

fn patch_body(native: bool) -> Value {
    let s = json!({"schema": reference(&format!("{META}Patch"))});
    let mut c = json!({"application/apply-patch+yaml": s, "application/json-patch+json": s, "application/merge-patch+json": s});
    if native {
        c["application/strategic-merge-patch+json"] = s;
    }
    json!({"required": true, "content": c})
}

struct Op<'a> {
    method: &'a str,
    action: &'a str,
    words: String,
    id: String,
    parameters: Vec<Value>,
    body: Option<Value>,
    answer: String,
}

fn put(item: &mut Map<String, Value>, op: Op<'_>, gvk: &Value, tag: &str) {
    let mut o = Map::new();
    o.insert("description".into(), json!(op.words));
    o.insert("operationId".into(), json!(op.id));
    o.insert("tags".into(), json!([tag]));
    if !op.parameters.is_empty() {
        o.insert("parameters".into(), Value::Array(op.parameters));
    }
    if let Some(b) = op.body {
        o.insert("requestBody".into(), b);
    }
    let mut answers = response(&op.answer);
    if matches!(op.action, "post" | "put" | "patch") {
        answers["201"] = json!({"description": "Created", "content": content(&op.answer)});
    }
    o.insert("responses".into(), answers);
    o.insert("x-kubernetes-action".into(), json!(op.action));
    o.insert("x-kubernetes-group-version-kind".into(), gvk.clone());
    item.insert(op.method.to_owned(), Value::Object(o));
}

fn main(s: &Served<'_>, group: &str, version: &str, out: &mut Map<String, Value>) {
    let tag = tag(group, version);
    let scope = if s.namespaced { "Namespaced" } else { "" };
    let (kind, root) = (s.kind, if s.namespaced { format!("{}/namespaces/{{namespace}}/{}", s.base, s.plural) } else { format!("{}/{}", s.base, s.plural) });
    let has = |v: &str| s.verbs.contains(&v);
    let op = |method, action, verb: &str, words: String, parameters, body, answer: &str| Op { method, action, words, id: operation(verb, group, version, &format!("{scope}{kind}")), parameters, body, answer: answer.to_owned() };
    let status = format!("{META}Status");
    let options = || Some(json!({"content": {"*/*": {"schema": reference(&format!("{META}DeleteOptions"))}}}));

    let mut item = Map::new();
    if has("list") {
        put(&mut item, op("get", "list", "list", format!("list or watch objects of kind {kind}"), lists(), None, &s.list_schema), &s.gvk, &tag);
    }
    if has("create") {
        put(&mut item, op("post", "post", "create", format!("create a {kind}"), writes(), Some(body(&s.schema)), &s.schema), &s.gvk, &tag);
    }
    if has("deletecollection") {
        let mut p = deletions();
        p.extend(lists().into_iter().filter(|q| q["name"] != "watch" && q["name"] != "allowWatchBookmarks"));
        let mut o = op("delete", "deletecollection", "delete", format!("delete collection of {kind}"), p, options(), &status);
        o.id = operation("delete", group, version, &format!("Collection{scope}{kind}"));
        put(&mut item, o, &s.gvk, &tag);
    }
    if !item.is_empty() {
        item.insert("parameters".into(), shared(s, s.namespaced, false));
        out.insert(root.clone(), Value::Object(item));
    }

    let mut item = Map::new();
    if has("get") {
        put(&mut item, op("get", "get", "read", format!("read the specified {kind}"), Vec::new(), None, &s.schema), &s.gvk, &tag);
    }
    if has("update") {
        put(&mut item, op("put", "put", "replace", format!("replace the specified {kind}"), writes(), Some(body(&s.schema)), &s.schema), &s.gvk, &tag);
    }
    if has("delete") {
        put(&mut item, op("delete", "delete", "delete", format!("delete a {kind}"), deletions(), options(), &status), &s.gvk, &tag);
    }
    if has("patch") {
        put(&mut item, op("patch", "patch", "patch", format!("partially update the specified {kind}"), patch_parameters(), Some(patch_body(s.native)), &s.schema), &s.gvk, &tag);
    }
    if !item.is_empty() {
        item.insert("parameters".into(), shared(s, s.namespaced, true));
        out.insert(format!("{root}/{{name}}"), Value::Object(item));
    }

    if s.namespaced && has("list") {
        let mut item = Map::new();
        let mut o = op("get", "list", "list", format!("list or watch objects of kind {kind}"), lists(), None, &s.list_schema);
        o.id = operation("list", group, version, &format!("{kind}ForAllNamespaces"));
        put(&mut item, o, &s.gvk, &tag);
        item.insert("parameters".into(), shared(s, false, false));
        out.insert(format!("{}/{}", s.base, s.plural), Value::Object(item));
    }
}

fn patch_parameters() -> Vec<Value> {
    let mut p = writes();
    p.push(query("force", "boolean", "Forces an apply: fields owned by others are taken over. Must be unset for other patches."));
    p
}

#[allow(clippy::too_many_arguments)]
fn sub(s: &Served<'_>, group: &str, version: &str, name: &str, gvk: &Value, schema: &str, verbs: &[&str], out: &mut Map<String, Value>) {
    let tag = tag(group, version);
    let scope = if s.namespaced { "Namespaced" } else { "" };
    let kind = s.kind;
    let mut label = name.chars();
    let label: String = label.next().map_or_else(String::new, |c| c.to_uppercase().chain(label).collect());
    let id = |verb: &str| operation(verb, group, version, &format!("{scope}{kind}{label}"));
    let mut item = Map::new();
    let text = matches!(name, "log" | "exec" | "attach" | "portforward" | "proxy");
    for v in verbs {
        let (method, action, verb, parameters, body) = match *v {
            "get" => ("get", if text { "connect" } else { "get" }, "read", Vec::new(), None),
            "create" => ("post", if text { "connect" } else { "post" }, "create", writes(), Some(body(schema)).filter(|_| !text)),
            "update" => ("put", if text { "connect" } else { "put" }, "replace", writes(), Some(body(schema)).filter(|_| !text)),
            "patch" => ("patch", if text { "connect" } else { "patch" }, "patch", patch_parameters(), Some(patch_body(s.native)).filter(|_| !text)),
            "delete" => ("delete", if text { "connect" } else { "delete" }, "delete", Vec::new(), None),
            _ => continue,
        };
        put(&mut item, Op { method, action, words: format!("{verb} {name} of the specified {kind}"), id: id(verb), parameters, body, answer: schema.to_owned() }, gvk, &tag);
    }
    item.insert("parameters".into(), shared(s, s.namespaced, true));
    let root = if s.namespaced { format!("{}/namespaces/{{namespace}}/{}", s.base, s.plural) } else { format!("{}/{}", s.base, s.plural) };
    out.insert(format!("{root}/{{name}}/{name}"), Value::Object(item));
}

/// A v3 schema as v2 writes it: plain references, no alternatives.
pub(super) fn to_v2_schema(v: Value) -> Value {
    match v {
        Value::Object(mut o) => {
            if let Some(Value::Array(all)) = o.get("allOf") {
                if let [one] = all.as_slice() {
                    if let Some(r) = one.get("$ref").and_then(Value::as_str) {
                        let r = r.replace("#/components/schemas/", "#/definitions/");
                        o.remove("allOf");
                        o.remove("default");
                        o.insert("$ref".into(), json!(r));
                    }
                }
            }
            if let Some(Value::String(r)) = o.get_mut("$ref") {
                *r = r.replace("#/components/schemas/", "#/definitions/");
            }
            if o.remove("oneOf").is_some() || o.remove("anyOf").is_some() {
                if !o.contains_key("type") && !o.contains_key("properties") {
                    o.insert("type".into(), json!("string"));
                }
            }
            o.remove("not");
            o.remove("allOf");
            if o.remove("nullable") == Some(json!(true)) {
                o.remove("type");
            }
            let converted = o.into_iter().map(|(k, x)| {
                let x = match (k.as_str(), x) {
                    ("default" | "enum" | "example", x) => x,
                    // Here every key is the name of a field, which may be called `default`.
                    ("properties", Value::Object(fields)) => Value::Object(fields.into_iter().map(|(name, field)| (name, to_v2_schema(field))).collect()),
                    (_, x) => to_v2_schema(x),
                };
                (k, x)
            });
            Value::Object(converted.collect())
        }
        Value::Array(a) => Value::Array(a.into_iter().map(to_v2_schema).collect()),
        v => v,
    }
}

fn to_v2_parameter(p: Value) -> Value {
    let Value::Object(mut o) = p else { return p };
    if let Some(Value::Object(s)) = o.remove("schema") {
        o.extend(s);
    }
    Value::Object(o)
}

/// A v3 path item as v2 writes it.
pub(super) fn to_v2_path(item: Value) -> Value {
    let list = |v: Option<Value>| if let Some(Value::Array(list)) = v { list } else { Vec::new() };
    let mut out = Map::new();
    let Value::Object(item) = item else { return Value::Object(out) };
    for (k, v) in item {
        if k == "parameters" {
            out.insert(k, Value::Array(list(Some(v)).into_iter().map(to_v2_parameter).collect()));
            continue;
        }
        let Value::Object(mut op) = v else { continue };
        let mut parameters: Vec<Value> = list(op.remove("parameters")).into_iter().map(to_v2_parameter).collect();
        if let Some(b) = op.remove("requestBody") {
            let types = b.get("content").and_then(Value::as_object).cloned().unwrap_or_default();
            if let Some(s) = types.values().next().and_then(|c| c.get("schema")).cloned() {
                let mut p = json!({"name": "body", "in": "body", "schema": to_v2_schema(s)});
                if b.get("required") == Some(&json!(true)) {
                    p["required"] = json!(true);
                }
                parameters.push(p);
            }
            op.insert("consumes".into(), json!(types.keys().collect::<Vec<_>>()));
        }
        if !parameters.is_empty() {
            op.insert("parameters".into(), Value::Array(parameters));
        }
        op.insert("produces".into(), json!(["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]));
        if let Some(Value::Object(answers)) = op.get_mut("responses") {
            for a in answers.values_mut() {
                let schema = a.get("content").and_then(|c| c.get("application/json")).and_then(|c| c.get("schema")).cloned();
                if let Some(o) = a.as_object_mut() {
                    o.remove("content");
                    if let Some(s) = schema {
                        o.insert("schema".into(), to_v2_schema(s));
                    }
                }
            }
        }
        op.insert("schemes".into(), json!(["https"]));
        out.insert(k, Value::Object(op));
    }
    Value::Object(out)
}
