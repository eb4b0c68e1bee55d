//! Prints generated sequences of writes and what this room makes of them, one JSON object a line, to be replayed against a
//! real API server: `cargo run -p anabranch-schema --example merges -- SEED COUNT`.
//!
//! A line is `{case, group, version, plural, namespaced, steps: [{op, manager, force, body, want | conflict | invalid}]}`; `op` is
//! `apply`, `create` or `update`; `want` is the object after the step without what a server adds (uid, times, versions).

use schema::fields::{self, ApplyError, Write};
use schema::{Kind, catalog};
use serde_json::{Map, Value, json};
use std::io::Write as _;

/// A small generator of numbers: the same seed gives the same cases.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    fn yes(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let i = usize::try_from(self.roll(of.len() as u64)).unwrap_or(0);
        &of[i]
    }
    fn chosen<T: Clone>(&mut self, of: &[T], percent: u64) -> Vec<T> {
        of.iter().filter(|_| self.yes(percent)).cloned().collect()
    }
    fn some(&mut self, of: &[&str], percent: u64) -> Vec<String> {
        self.chosen(of, percent).into_iter().map(str::to_owned).collect()
    }
}

fn words(d: &mut Dice, keys: &[&str], values: &[&str]) -> Value {
    let m: Map<String, Value> = d.chosen(keys, 50).into_iter().map(|k| (k.to_owned(), json!(*d.pick(values)))).collect();
    Value::Object(m)
}

fn put(o: &mut Value, pointer: &str, v: Value) {
    let empty = match &v {
        Value::Object(m) => m.is_empty(),
        Value::Array(a) => a.is_empty(),
        _ => false,
    };
    if empty {
        return;
    }
    let mut at = o;
    let parts: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    for (i, p) in parts.iter().enumerate() {
        if i + 1 == parts.len() {
            at[*p] = v;
            return;
        }
        if !at[*p].is_object() {
            at[*p] = json!({});
        }
        at = &mut at[*p];
    }
}

fn container(d: &mut Dice, name: &str) -> Value {
    let mut c = json!({"name": name, "image": format!("i:{}", d.roll(3))});
    if d.yes(60) {
        let ports: Vec<Value> = d.chosen(&[80, 81, 82], 50).into_iter().map(|p| json!({"containerPort": p, "name": format!("p{p}")})).collect();
        put(&mut c, "/ports", json!(ports));
    }
    let env: Vec<Value> = d.chosen(&["A", "B", "C"], 50).into_iter().map(|n| json!({"name": n, "value": format!("{}", d.roll(3))})).collect();
    put(&mut c, "/env", json!(env));
    if d.yes(40) {
        put(&mut c, "/resources/requests", words(d, &["cpu", "memory"], &["1", "500m", "1000m"]));
    }
    put(&mut c, "/args", json!(d.some(&["x", "y"], 40)));
    if d.yes(20) {
        put(&mut c, "/readinessProbe", json!({"httpGet": {"port": 80, "path": "/r"}, "periodSeconds": d.roll(3) + 1}));
    }
    c
}

fn body(d: &mut Dice, kind: &str) -> Value {
    let mut o = json!({});
    put(&mut o, "/metadata/labels", words(d, &["a", "b", "c"], &["1", "2"]));
    put(&mut o, "/metadata/annotations", words(d, &["e.io/x", "e.io/y"], &["1", "2"]));
    match kind {
        "ConfigMap" => put(&mut o, "/data", words(d, &["k1", "k2", "k3", "k4"], &["v", "w"])),
        "Deployment" => {
            put(&mut o, "/spec/selector", json!({"matchLabels": {"app": "x"}}));
            put(&mut o, "/spec/template/metadata/labels", json!({"app": "x"}));
            if d.yes(50) {
                put(&mut o, "/spec/replicas", json!(d.roll(3)));
            }
            if d.yes(30) {
                put(&mut o, "/spec/strategy", json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": d.roll(2) + 1}}));
            }
            let mut cs = vec![container(d, "main")];
            for n in ["side", "extra"] {
                if d.yes(40) {
                    cs.push(container(d, n));
                }
            }
            if d.yes(30) {
                cs.reverse();
            }
            put(&mut o, "/spec/template/spec/containers", json!(cs));
            let vs: Vec<Value> = d.chosen(&["v1", "v2"], 40).into_iter().map(|n| if d.yes(50) { json!({"name": n, "emptyDir": {}}) } else { json!({"name": n, "configMap": {"name": "c"}}) }).collect();
            put(&mut o, "/spec/template/spec/volumes", json!(vs));
            if d.yes(30) {
                put(&mut o, "/spec/template/spec/tolerations", json!([{"key": format!("k{}", d.roll(2)), "operator": "Exists"}]));
            }
            if d.yes(30) {
                put(&mut o, "/spec/template/spec/nodeSelector", words(d, &["n1", "n2"], &["a", "b"]));
            }
            if d.yes(20) {
                put(&mut o, "/spec/template/spec/imagePullSecrets", json!(d.some(&["s1", "s2"], 60).iter().map(|n| json!({"name": n})).collect::<Vec<_>>()));
            }
        }
        "Service" => {
            let ports: Vec<Value> = d.chosen(&[(80, "TCP"), (80, "UDP"), (81, "TCP")], 60).into_iter().map(|(p, t)| {
                    let mut v = json!({"name": format!("p{p}{}", t.to_lowercase()), "port": p});
                    if t == "UDP" || d.yes(50) {
                        v["protocol"] = json!(t);
                    }
                    if d.yes(40) {
                        v["targetPort"] = json!(8000 + d.roll(2));
                    }
                    v
                })
                .collect();
            put(&mut o, "/spec/ports", if ports.is_empty() { json!([{"name": "p81tcp", "port": 81}]) } else { json!(ports) });
            put(&mut o, "/spec/selector", words(d, &["s", "t"], &["1", "2"]));
            if d.yes(30) {
                put(&mut o, "/spec/sessionAffinity", json!("ClientIP"));
            }
        }
        "NetworkPolicy" => {
            put(&mut o, "/spec/podSelector", json!({"matchLabels": {"r": format!("{}", d.roll(2))}}));
            if d.yes(70) {
                put(&mut o, "/spec/ingress", json!([{"ports": [{"port": 80 + d.roll(2)}]}]));
            }
            if d.yes(50) {
                put(&mut o, "/spec/policyTypes", json!(["Ingress"]));
            }
        }
        "Ingress" => {
            let paths: Vec<Value> = d.chosen(&["/a", "/b"], 60).into_iter().map(|p| json!({"path": p, "pathType": "Prefix", "backend": {"service": {"name": format!("s{}", d.roll(2)), "port": {"number": 80}}}})).collect();
            put(&mut o, "/spec/defaultBackend", json!({"service": {"name": "d", "port": {"number": 80 + d.roll(2)}}}));
            if !paths.is_empty() {
                put(&mut o, "/spec/rules", json!([{"host": "h.example", "http": {"paths": paths}}]));
            }
            put(&mut o, "/spec/tls", json!(d.some(&["t1", "t2"], 40).iter().map(|s| json!({"secretName": s})).collect::<Vec<_>>()));
        }
        "ServiceAccount" => {
            put(&mut o, "/imagePullSecrets", json!(d.some(&["a", "b", "c"], 50).iter().map(|n| json!({"name": n})).collect::<Vec<_>>()));
            if d.yes(40) {
                put(&mut o, "/automountServiceAccountToken", json!(d.yes(50)));
            }
        }
        "ClusterRole" => put(&mut o, "/rules", {
            let r = d.some(&["pods", "services"], 90);
            if r.is_empty() { json!([]) } else { json!([{"apiGroups": [""], "resources": r, "verbs": ["get"]}]) }
        }),
        _ => {
            // The custom kind: one field of every sort.
            put(&mut o, "/spec/set", json!(d.some(&["a", "b", "c"], 50)));
            put(&mut o, "/spec/atomic", json!(d.some(&["a", "b", "c"], 50)));
            put(&mut o, "/spec/list", json!(d.chosen(&["x", "y", "z"], 50).into_iter().map(|k| json!({"k": k, "v": d.roll(3)})).collect::<Vec<_>>()));
            put(&mut o, "/spec/map", words(d, &["m1", "m2"], &["1", "2"]));
            put(&mut o, "/spec/whole", words(d, &["w1", "w2"], &["1", "2"]));
            put(&mut o, "/spec/any", words(d, &["u1", "u2"], &["1", "2"]));
            if d.yes(50) {
                put(&mut o, "/spec/any/deep", json!({"l": d.some(&["p", "q"], 60), "n": d.roll(3)}));
            }
            if d.yes(50) {
                put(&mut o, "/spec/port", if d.yes(50) { json!(d.roll(3)) } else { json!("http") });
            }
            if d.yes(50) {
                put(&mut o, "/spec/n", json!(d.roll(3)));
            }
        }
    }
    o
}

/// The CRD of the custom kind.
fn crd() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "merges.test.anabranch.io"}, "spec": {
        "group": "test.anabranch.io", "scope": "Namespaced", "names": {"plural": "merges", "singular": "merge", "kind": "Merge", "listKind": "MergeList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "atomic": {"type": "array", "items": {"type": "string"}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}, "d": {"type": "string", "default": "e"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "whole": {"type": "object", "additionalProperties": {"type": "string"}, "x-kubernetes-map-type": "atomic"},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "port": {"x-kubernetes-int-or-string": true}, "n": {"type": "integer", "default": 7}}}}}}}]}})
}

/// Without what only a server knows.
fn bare(o: &Value) -> Value {
    let mut o = o.clone();
    if let Some(m) = o.get_mut("metadata").and_then(Value::as_object_mut) {
        for k in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            m.remove(k);
        }
        for e in m.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(e) = e.as_object_mut() {
                e.remove("time");
            }
        }
    }
    o
}

/// A step's outcome: the object becomes the live one, unless it is invalid.
fn keep(kind: &Kind, step: &mut Value, live: &mut Option<Value>, o: Value) {
    let faults = match &*live {
        None => kind.validate_create(&o),
        Some(l) => kind.validate_update(&o, l, None),
    };
    if faults.is_empty() {
        step["want"] = bare(&o);
        *live = Some(o);
    } else {
        step["invalid"] = json!(schema::fault::sentence(&faults));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seed: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(1);
    let count: u64 = args.next().and_then(|s| s.parse().ok()).unwrap_or(250);
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!({"crd": crd()}))?;
    let kinds = [
        ("", "ConfigMap"), ("apps", "Deployment"), ("", "Service"), ("networking.k8s.io", "NetworkPolicy"), ("networking.k8s.io", "Ingress"), ("", "ServiceAccount"),
        ("rbac.authorization.k8s.io", "ClusterRole"), ("test.anabranch.io", "Merge"), ("test.anabranch.io", "Merge"), ("apps", "Deployment"),
    ];
    for case in 0..count {
        let mut d = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(case.wrapping_mul(0x2545_F491_4F6C_DD1D)) | 1);
        for _ in 0..4 {
            d.roll(2);
        }
        let (group, name) = kinds[usize::try_from(case % kinds.len() as u64)?];
        let native = catalog::by_kind(group, "v1", name);
        let (kind, plural, namespaced) = match native {
            Some(r) => (Kind::native(r).ok_or("no schema")?, r.plural, r.namespaced),
            None => (Kind::custom(&crd(), "v1").map_err(|f| format!("{f:?}"))?, "merges", true),
        };
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        let object_name = format!("m{seed}-{case}");
        let mut live: Option<Value> = None;
        let mut steps = Vec::new();
        for step in 0..(3 + d.roll(4)) {
            let manager = *d.pick(&["alpha", "beta", "kubectl"]);
            let force = d.yes(40);
            let now = format!("2026-01-01T00:{:02}:{:02}Z", step / 60, step % 60);
            let w = Write { manager, api_version: &api_version, subresource: None, now: &now, served: &[] };
            let mut b = body(&mut d, name);
            b["apiVersion"] = json!(api_version);
            b["kind"] = json!(name);
            put(&mut b, "/metadata/name", json!(object_name));
            if namespaced {
                put(&mut b, "/metadata/namespace", json!("default"));
            }
            if live.is_some() && !d.yes(35) || live.is_none() && d.yes(50) {
                let mut s = json!({"op": "apply", "manager": manager, "force": force, "body": b});
                match fields::apply(&kind, live.as_ref(), &b, &w, force) {
                    Ok(mut o) => {
                        match &live {
                            None => {
                                o["metadata"]["uid"] = json!("u");
                                kind.prepare_create(&mut o);
                            }
                            Some(l) => kind.prepare_update(&mut o, l, None),
                        }
                        keep(&kind, &mut s, &mut live, o);
                    }
                    Err(ApplyError::Conflicts(c)) => s["conflict"] = json!(ApplyError::Conflicts(c).to_string()),
                    Err(e) => s["error"] = json!(e.to_string()),
                }
                steps.push(s);
                continue;
            }
            // A full update: some fields of the body laid over what is there.
            let sent = match &live {
                None => b,
                Some(l) => {
                    let mut n = bare(l);
                    if let Some(m) = n["metadata"].as_object_mut() {
                        m.remove("managedFields");
                    }
                    for k in ["data", "spec", "rules", "imagePullSecrets"] {
                        if let Some(v) = b.get(k) {
                            n[k] = v.clone();
                        }
                    }
                    put(&mut n, "/metadata/labels", b["metadata"]["labels"].clone());
                    n
                }
            };
            let mut o = kind.decode(sent.clone())?.object;
            kind.default(&mut o);
            if live.is_some() {
                o["metadata"]["uid"] = json!("u");
            }
            fields::track_update(&kind, live.as_ref(), &mut o, &w);
            match &live {
                None => {
                    o["metadata"]["uid"] = json!("u");
                    kind.prepare_create(&mut o);
                }
                Some(l) => kind.prepare_update(&mut o, l, None),
            }
            let mut s = json!({"op": if live.is_some() { "update" } else { "create" }, "manager": manager, "body": sent});
            keep(&kind, &mut s, &mut live, o);
            steps.push(s);
        }
        writeln!(out, "{}", json!({"case": case, "group": group, "version": "v1", "plural": plural, "namespaced": namespaced, "name": object_name, "steps": steps}))?;
    }
    Ok(())
}
