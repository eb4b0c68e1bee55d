//! The room against recorded answers of Helm 4.3.1, and bounds that hold against hostile templates.

use crate::limit::Limits;
use crate::{Chart, Engine, Error, Output, Request, Val, load, template};
use proptest::prelude::*;
use std::collections::BTreeMap;

const PROBES: &str = include_str!("../../tests/oracle/helm/probes.jsonl");
const VALUES: &str = include_str!("../../tests/oracle/helm/values.yaml");

fn chart(files: &[(&str, &str)]) -> Chart {
    let mut all = BTreeMap::from([("Chart.yaml".to_string(), b"apiVersion: v2\nname: c\nversion: 0.1.0\nappVersion: \"1.0\"\n".to_vec())]);
    all.extend(files.iter().map(|(n, t)| ((*n).to_string(), t.as_bytes().to_vec())));
    load(all).expect("chart loads")
}

fn render(t: &str, values: &Val, engine: Engine) -> Result<Output, Error> {
    let c = chart(&[("templates/NOTES.txt", t), ("a.txt", "hello\nworld\n"), ("d/b.txt", "bee")]);
    template(&c, &Request { name: "rel".into(), namespace: "ns".into(), values: values.deep_copy(), engine, now: 1_800_000_000_000_000_000, ..Request::default() })
}

/// Answers that are known to differ, each with its reason.
fn excused(t: &str) -> bool {
    // TOML faults are worded by another parser; `.Files` holds strings here, not byte lists; pointers have no address here.
    t.contains("fromToml") || t.contains("$ }}") || t.contains(" . }}") || t.contains("America/New_York")
}

fn probes(engine: Engine) {
    let values = crate::yaml::decode(VALUES.as_bytes()).expect("values");
    let (mut all, mut wrong) = (0, Vec::new());
    for line in PROBES.lines() {
        let p: serde_json::Value = serde_json::from_str(line).expect("probe");
        let text = |k: &str| p.get(k).and_then(|v| v.as_str());
        let t = text("t").expect("template");
        if excused(t) {
            continue;
        }
        all += 1;
        let fix = |s: String| s.replace("NOTES.txt", "t.txt").replace("\n\nUse --debug flag to render out invalid YAML", "");
        let got = render(t, &values, engine).map(|o| fix(o.notes)).map_err(|e| fix(e.to_string()));
        let ok = match &got {
            Ok(g) => text("o") == Some(g),
            Err(g) => text("e") == Some(g),
        };
        if !ok {
            wrong.push(format!("{t}\n  want {:?} {:?}\n  got  {got:?}", text("o"), text("e")));
        }
    }
    assert!(all >= 1500, "only {all} probes");
    assert!(wrong.is_empty(), "{} of {all} differ:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

#[test]
fn probes_on_the_evaluator() {
    probes(Engine::Direct);
}

#[test]
fn probes_on_minijinja() {
    probes(Engine::Jinja);
}

#[test]
fn equal_requests_give_equal_bytes() {
    let t = "{{ randAlphaNum 20 }} {{ uuidv4 }} {{ now }} {{ encryptAES \"k\" \"x\" }}";
    let a = render(t, &Val::Nil, Engine::Direct).expect("renders").notes;
    assert_eq!(a, render(t, &Val::Nil, Engine::Jinja).expect("renders").notes);
}

#[test]
fn signed_certificates_name_their_issuer() {
    let t = "{{ $ca := genCAWithKey \"ca\" 10 (genPrivateKey \"ecdsa\") }}{{ $c := genSignedCertWithKey \"x\" (list \"10.0.0.1\") (list \"a.example\") 10 $ca (genPrivateKey \"ecdsa\") }}{{ $ca.Cert }}{{ $c.Cert }}";
    let out = render(t, &Val::Nil, Engine::Direct).expect("renders").notes;
    let mut certs = Vec::new();
    for p in x509_parser::pem::Pem::iter_from_buffer(out.as_bytes()) {
        certs.push(p.expect("pem").contents);
    }
    let (_, ca) = x509_parser::parse_x509_certificate(&certs[0]).expect("ca");
    let (_, leaf) = x509_parser::parse_x509_certificate(&certs[1]).expect("leaf");
    assert!(ca.is_ca() && !leaf.is_ca());
    assert_eq!(leaf.issuer().to_string(), "CN=ca");
    assert_eq!(leaf.subject_alternative_name().expect("readable").expect("there").value.general_names.len(), 2);
}

#[test]
fn hostile_templates_end() {
    let c = |t: &str| {
        let c = chart(&[("templates/x.yaml", t)]);
        let limits = Limits { fuel: 2_000_000, text: 64 << 20, depth: 5_000 };
        template(&c, &Request { limits, ..Request::default() }).map(|o| o.text.len())
    };
    for t in [
        "{{ range until 10000000 }}{{ range until 10000000 }}x{{ end }}{{ end }}",
        "{{ define \"a\" }}{{ template \"a\" }}{{ end }}{{ template \"a\" }}",
        "{{ define \"a\" }}{{ include \"a\" . }}{{ end }}{{ include \"a\" . }}",
        "{{ $x := \"{{ tpl . . }}\" }}{{ tpl $x $x }}",
        "{{ repeat 1000000000 \"abc\" }}",
        "{{ $s := \"ab\" }}{{ range until 60 }}{{ $s = print $s $s }}{{ end }}{{ $s }}",
        "{{ $m := dict }}{{ $_ := set $m \"m\" $m }}{{ include \"none\" (toYaml $m) }}",
        "{{ indent 100000000 \"a\\nb\\nc\" }}",
    ] {
        assert!(c(t).is_err(), "{t}");
    }
    let deep = format!("{}1{}", "(".repeat(900), ")".repeat(900));
    assert!(c(&format!("# {{{{ {deep} }}}}")).is_ok());
    let blocks = format!("# {}x{}", "{{ if true }}".repeat(1500), "{{ end }}".repeat(1500));
    assert!(c(&blocks).is_ok());
}

#[test]
fn documents_sort_and_hooks_come_last() {
    let c = chart(&[
        ("templates/a.yaml", "kind: Deployment\nmetadata: {name: d}\n---\nkind: Service\nmetadata: {name: s}\n"),
        ("templates/b.yaml", "kind: Job\nmetadata:\n  name: j\n  annotations:\n    helm.sh/hook: pre-install, test\n    helm.sh/hook-weight: \"-5\"\n"),
        ("crds/x.yaml", "kind: CustomResourceDefinition\n"),
    ]);
    let out = template(&c, &Request { include_crds: true, ..Request::default() }).expect("renders");
    assert_eq!(out.documents.iter().map(|d| d.head.kind.as_str()).collect::<Vec<_>>(), ["Service", "Deployment"]);
    assert_eq!((out.hooks[0].weight, out.hooks[0].events.len()), (-5, 2));
    assert!(out.text.starts_with("---\n# Source: c/crds/x.yaml\n"));
    let only = template(&c, &Request { skip_tests: true, show_only: vec!["templates/a.yaml".into()], ..Request::default() }).expect("renders");
    assert_eq!(only.text, "---\n# Source: c/templates/a.yaml\nkind: Service\nmetadata: {name: s}\n\n\n---\n# Source: c/templates/a.yaml\nkind: Deployment\nmetadata: {name: d}\n\n");
}

#[test]
fn schema_faults_read_like_helm() {
    let c = chart(&[
        ("values.schema.json", r#"{"type":"object","required":["image"],"properties":{"replicas":{"type":"integer","minimum":1}},"additionalProperties":false}"#),
        ("values.yaml", "replicas: 0\nextra: 1\n"),
    ]);
    let e = template(&c, &Request::default()).expect_err("refused").to_string();
    assert_eq!(
        e,
        "values don't meet the specifications of the schema(s) in the following chart(s):\nc:\n- at '': missing property 'image'\n- at '/replicas': minimum: got 0, want 1\n- at '': additional properties 'extra' not allowed\n"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_text_parses_or_is_refused(t in "(\\{\\{|\\}\\}|[-. |$:=()a-z\"'`0-9\n])*") {
        let _ = render(&t, &Val::Nil, Engine::Direct);
    }

    #[test]
    fn yaml_round_trip(s in "\\PC*", n in any::<i32>()) {
        let v = Val::map([("k", Val::str(s.as_str())), ("n", Val::Float(f64::from(n)))].into_iter().map(|(k, v)| (crate::value::Str::from(k), v)).collect());
        if let Some(y) = crate::yaml::to_yaml(&v) {
            prop_assert!(crate::yaml::decode(&y).expect("own YAML reads").deep_equal(&v));
        }
    }

    #[test]
    fn yaml_never_panics(s in "[-:?\\[\\]{},#&*!|>'\"%@` \na-c0-9]*") {
        let _ = crate::yaml::decode(s.as_bytes());
    }
}
