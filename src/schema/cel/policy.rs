//! Types of the names that the expressions of an admission policy see, and their check against one kind of object.

use super::check::{Ty, Typed, check, of_place, of_schema};
use super::{CompileError, Program};
use crate::Kind;
use crate::shape::Shape;
use crate::table;
use std::collections::BTreeMap;
use std::sync::Arc;

const TEXT: u64 = 2048;

fn text<'s>() -> Typed<'s> {
    Typed { ty: Ty::String, size: TEXT }
}

fn fields<'s, const N: usize>(all: [(&str, Typed<'s>); N]) -> Typed<'s> {
    let all = all.into_iter().map(|(name, ty)| (name.to_owned(), ty)).collect();
    Typed { ty: Ty::Fields(Arc::new(all)), size: 1 }
}

fn texts<'s, const N: usize>(names: [&str; N]) -> Typed<'s> {
    fields(names.map(|name| (name, text())))
}

fn list<'s>(of: Typed<'s>) -> Typed<'s> {
    Typed { ty: Ty::List(Box::new(of)), size: TEXT }
}

fn map<'s>(of: Typed<'s>) -> Typed<'s> {
    Typed { ty: Ty::Map(Box::new(of)), size: TEXT }
}

fn one<'s>(ty: Ty<'s>) -> Typed<'s> {
    Typed { ty, size: 1 }
}

/// What `request` holds (`AdmissionRequest` without the objects).
fn request<'s>() -> Typed<'s> {
    let kind = || texts(["group", "version", "kind"]);
    let resource = || texts(["group", "version", "resource"]);
    let user = fields([("username", text()), ("uid", text()), ("groups", list(text())), ("extra", map(list(text())))]);
    fields([
        ("kind", kind()),
        ("resource", resource()),
        ("subResource", text()),
        ("requestKind", kind()),
        ("requestResource", resource()),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("userInfo", user),
        ("dryRun", one(Ty::Bool)),
        ("options", one(Ty::Dyn)),
    ])
}

/// What `namespaceObject` holds: the part of a Namespace that policies may depend on.
fn namespace<'s>() -> Typed<'s> {
    let metadata = fields([
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", map(text())),
        ("annotations", map(text())),
        ("UID", text()),
        ("creationTimestamp", one(Ty::Timestamp)),
        ("deletionGracePeriodSeconds", one(Ty::Int)),
        ("deletionTimestamp", one(Ty::Timestamp)),
        ("generation", one(Ty::Int)),
        ("resourceVersion", text()),
        ("finalizers", list(text())),
    ]);
    fields([("metadata", metadata), ("spec", fields([("finalizers", list(text()))])), ("status", texts(["phase"]))])
}

/// The names in scope. Kinds and the shape of metadata are borrowed.
pub struct Types<'s> {
    object: Typed<'s>,
    params: Option<Typed<'s>>,
    variables: BTreeMap<String, Typed<'s>>,
}

/// The shape of ObjectMeta, for [`Types::new`].
#[must_use]
pub fn metadata() -> Shape {
    table::named("meta.v1.ObjectMeta").unwrap_or_else(Shape::untyped)
}

fn of_kind<'s>(kind: &'s Kind, metadata: &'s Shape) -> Typed<'s> {
    let Some(custom) = kind.structural() else { return of_place(kind.shape().root()) };
    let schema = custom.schema();
    if schema.properties.is_empty() && schema.preserve {
        return one(Ty::Dyn);
    }
    let mut all: BTreeMap<String, Typed<'s>> = schema.properties.iter().map(|(name, p)| (name.clone(), of_schema(p, p.embedded))).collect();
    for (name, ty) in [("apiVersion", text()), ("kind", text()), ("metadata", of_place(metadata.root()))] {
        all.insert(name.to_owned(), ty);
    }
    one(Ty::Fields(Arc::new(all)))
}

impl<'s> Types<'s> {
    /// For objects of a kind, and parameters of another: none when the policy takes none, `Some(None)` when their kind is
    /// not known.
    #[must_use]
    pub fn new(object: &'s Kind, params: Option<Option<&'s Kind>>, metadata: &'s Shape) -> Self {
        let params = params.map(|kind| kind.map_or(one(Ty::Dyn), |kind| of_kind(kind, metadata)));
        Self { object: of_kind(object, metadata), params, variables: BTreeMap::new() }
    }

    fn scope(&self) -> Vec<(String, Typed<'s>)> {
        let variables = one(Ty::Fields(Arc::new(self.variables.clone())));
        let mut all: Vec<(String, Typed<'s>)> = [
            ("object", self.object.clone()),
            ("oldObject", self.object.clone()),
            ("request", request()),
            ("namespaceObject", namespace()),
            ("authorizer", one(Ty::Dyn)),
            ("variables", variables),
        ]
        .into_iter()
        .map(|(name, ty)| (name.to_owned(), ty))
        .collect();
        // The authorizer's own resource has a dot in its name.
        all.push(("authorizer.requestResource".to_owned(), one(Ty::Dyn)));
        all.extend(self.params.clone().map(|params| ("params".to_owned(), params)));
        all
    }

    /// Adds a variable of the policy; one that does not compile may be anything.
    pub fn variable(&mut self, name: &str, expression: &str) {
        let found = Program::parse(expression).ok().and_then(|program| check(&program.expr, self.scope()).ok());
        self.variables.insert(name.to_owned(), found.map_or(one(Ty::Dyn), |checked| checked.of));
    }

    /// Checks an expression.
    pub fn check(&self, expression: &str) -> Result<(), CompileError> {
        let program = Program::parse(expression)?;
        check(&program.expr, self.scope()).map(|_| ()).map_err(|(at, message)| CompileError::at(expression, at, message))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;
    use crate::catalog;
    use serde_json::json;

    fn deployment() -> Kind {
        Kind::native(catalog::resources().iter().find(|r| r.group == "apps" && r.version == "v1" && r.plural == "deployments").unwrap()).unwrap()
    }

    #[test]
    fn expressions_are_checked_against_built_in_kinds() {
        let (kind, meta) = (deployment(), metadata());
        let mut types = Types::new(&kind, None, &meta);
        types.variable("replicas", "object.spec.replicas");
        types.variable("broken", "object.nothing");
        for (expression, fault) in [
            ("object.spec.replicas > 1", ""),
            ("object.spec.replicas > '1'", "found no matching overload for '_>_' applied to '(int, string)'"),
            ("'wants ' + object.spec.replicas", "found no matching overload for '_+_' applied to '(string, int)'"),
            ("object.spec.template.spec.containers.all(c, c.image.startsWith('a'))", ""),
            ("object.spec.template.spec.containers.all(c, c.imag == 'a')", "undefined field 'imag'"),
            ("object.metadata.labels['a'] == 'b' && object.metadata.generation > 1", ""),
            ("variables.replicas % 2 == 1 && variables.broken.anything", ""),
            ("variables.other", "undefined field 'other'"),
            ("params.x", "undeclared reference to 'params' (in container '')"),
            ("request.userInfo.groups.exists(g, g == 'a') && request.operation == 'CREATE'", ""),
            ("namespaceObject.metadata.name == 'a'", ""),
            ("authorizer.group('a').resource('b').check('get').allowed()", ""),
            ("object == null || oldObject == null", ""),
            ("has(object.spec.strategy.rollingUpdate)", ""),
        ] {
            let found = types.check(expression).err().map(|e| e.message().to_owned()).unwrap_or_default();
            assert_eq!(found, fault, "{expression}");
        }
        let shown = types.check("object.spec.replicas > '1'").unwrap_err().to_string();
        assert_eq!(
            shown,
            "compilation failed: ERROR: <input>:1:22: found no matching overload for '_>_' applied to '(int, string)'\n | object.spec.replicas > '1'\n | .....................^"
        );
    }

    #[test]
    fn expressions_are_checked_against_custom_kinds() {
        let crd = json!({"spec": {"group": "a.io", "scope": "Namespaced", "names": {"kind": "Cron", "plural": "crons"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}, "ratio": {"type": "number"}}}}}}}]}});
        let (kind, meta) = (Kind::custom(&crd, "v1").unwrap(), metadata());
        let types = Types::new(&kind, Some(Some(&kind)), &meta);
        for (expression, fault) in [
            ("object.spec.replicas > 1 && params.spec.ratio > 1.0", ""),
            ("object.spec.replicas > '1'", "found no matching overload for '_>_' applied to '(int, string)'"),
            ("object.spec.maxRetries < 10", "undefined field 'maxRetries'"),
            ("object.metadata.name == 'a' && object.metadata.generation == 1", ""),
        ] {
            let found = types.check(expression).err().map(|e| e.message().to_owned()).unwrap_or_default();
            assert_eq!(found, fault, "{expression}");
        }
    }
}
