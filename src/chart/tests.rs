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

/// Answers of Helm 4.3.1.
#[test]
fn what_comes_through_a_pipe_is_evaluated_first() {
    for engine in [Engine::Direct, Engine::Jinja] {
        let text = |t: &str| render(t, &Val::map(BTreeMap::default()), engine).map(|out| out.notes).map_err(|e| e.to_string());
        let told = text("{{ $d := dict }}{{ set $d \"a\" 1 | print $d.a | quote }} {{ len (set $d \"b\" 2) | eq (len $d) }} {{ $d.a | or 7 }} {{ $d.x | and 7 | quote }}");
        assert_eq!(told.as_deref(), Ok("\"1 map[a:1]\" true 7 "), "{engine:?}");
        assert!(text("{{ fail \"x\" | and 0 }}").is_err_and(|e| e.contains("1:3): x")), "{engine:?}");
    }
}

#[test]
fn probes_on_the_evaluator() {
    probes(Engine::Direct);
}

#[test]
fn probes_on_minijinja() {
    probes(Engine::Jinja);
}

/// Answers of Helm 4.3.1, recorded by `tests/oracle/helm/record-schemas`.
#[test]
fn schemas_are_refused_as_helm_does() {
    let sorted = |text: &str| {
        // Helm names several faults of one place in the order of a Go map.
        // Why an address is none is said in other words.
        let mut lines: Vec<String> = text.lines().map(|line| line.split_once("): ").filter(|_| line.contains("ParseAddr(")).map_or(line, |(said, _)| said).to_owned()).collect();
        lines.sort();
        lines
    };
    let (mut all, mut wrong) = (0, Vec::new());
    for line in include_str!("../../tests/oracle/helm/schemas.jsonl").lines() {
        let case: serde_json::Value = serde_json::from_str(line).expect("case");
        let (schema, values) = (case["s"].as_str().expect("schema"), case["v"].as_str().expect("values"));
        // What the network says of an unknown draft.
        if schema.contains("example.com") {
            continue;
        }
        all += 1;
        let values = crate::yaml::decode(values.as_bytes()).expect("values");
        let values = if values.is_some() { values } else { Val::map(BTreeMap::default()) };
        let got = template(&chart(&[("values.schema.json", schema)]), &Request { values, ..Request::default() }).err().map(|e| e.to_string());
        let want = case["e"].as_str();
        if got.as_deref().map(sorted) != want.map(sorted) {
            wrong.push(format!("{schema} {}\n  want {want:?}\n  got  {got:?}", case["v"]));
        }
    }
    assert!(all >= 200, "only {all} cases");
    assert!(wrong.is_empty(), "{} of {all} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn charts_of_other_versions_are_refused() {
    for (version, want) in [("v1", None), ("v2", None), ("", None), ("v3", Some("invalid chart apiVersion")), ("x", Some("unsupported chart version"))] {
        let files = BTreeMap::from([("Chart.yaml".to_owned(), format!("apiVersion: {version}\nname: c\nversion: 0.1.0\n").into_bytes())]);
        assert_eq!(load(files).err().map(|e| e.to_string()).as_deref(), want, "{version}");
    }
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

/// Charts written in Jinja.
mod jinja {
    use crate::{Error, Request, load, template};

    const HELPERS: &str = "{{- define \"c.labels\" -}}\napp: {{ .Chart.Name }}\nrelease: {{ .Release.Name }}\n{{- end -}}";

    fn render(files: &[(&str, &str)]) -> Result<String, Error> {
        let mut all = vec![("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"), ("values.yaml", "count: 3\nhalf: 0.5\nlist: [a, b]\nmap: {x: 1, z: two}\nempty: \"\"\nnothing: null\ntext: \"{{ .Release.Name }}\"\n"), ("templates/_h.tpl", HELPERS)];
        all.extend_from_slice(files);
        let chart = load(all.into_iter().map(|(p, t)| (p.to_owned(), t.as_bytes().to_vec())).collect()).expect("a chart");
        let out = template(&chart, &Request::default())?;
        Ok(out.documents.iter().map(|d| d.content.as_str()).collect::<Vec<_>>().join("---\n"))
    }

    #[track_caller]
    fn check(source: &str, want: &str) {
        let text = format!("kind: K\napiVersion: v1\nis: |-\n  [{source}]\n");
        let got = render(&[("templates/a.yaml.j2", &text)]).unwrap_or_else(|e| panic!("{source}: {e}"));
        assert_eq!(got, format!("kind: K\napiVersion: v1\nis: |-\n  [{want}]\n"), "{source}");
    }

    #[track_caller]
    fn fails(source: &str, want: &str) {
        let error = render(&[("templates/a.yaml.j2", source)]).expect_err(source).to_string();
        assert!(error.contains(want), "{source}: {error}");
    }

    #[test]
    fn values_functions_and_helpers_are_shared() {
        check("{{ Values.count + 1 }} {{ Values.half }} {{ Values.list }} {{ Values.map }}", "4 0.5 [\"a\",\"b\"] {\"x\":1,\"z\":\"two\"}");
        check("{% for k, v in Values.map | items %}{{ k }}={{ v }};{% endfor %}", "x=1;z=two;");
        check("{{ Values.list | join('-') }} {{ Values.list[1] }} {{ Values.list | length }}", "a-b b 2");
        check("{{ include('c.labels', root) | nindent(4) }}", "\n    app: c\n    release: release-name");
        check("{{ tpl(Values.text, root) }} {{ Release.Name | quote }} {{ 'a' | b64enc }}", "release-name \"release-name\" YQ==");
        check("{{ Values.map | toYaml | nindent(2) }}", "\n  x: 1\n  z: two");
        check("{{ Capabilities.KubeVersion.Version | trimPrefix('v') | trunc(2) }} {{ Capabilities.APIVersions.Has('apps/v1') }}", "1. true");
        check("{{ Values.missing }}{{ Values.nothing }}|{{ Values.missing | default('d') }} {{ ternary('y', 'n', Values.empty == '') }}", "|d y");
        check("{{ printf('%03d', Values.count) }} {{ semverCompare('>=1.2.0', '1.3.0') }} {{ sha256sum('a') | trunc(4) }}", "003 true ca97");
        check("{% set m = fromYaml('a: 1') %}{{ set(m, 'b', [1, {'c': true}]) | toJson }}", "{\"a\":1,\"b\":[1,{\"c\":true}]}");
        check("{{ [3, 1] | sort }} {{ {'b': none} }} {{ 1.5 + 1 }} {{ true }}", "[1,3] {\"b\":null} 2.5 true");
    }

    #[test]
    fn files_import_each_other_and_hooks_and_notes_work() {
        let macros = "{% macro name(x) %}{{ x }}-{{ Release.Name }}{% endmacro %}";
        let text = "{% import '_m.j2' as m with context %}\nkind: K\napiVersion: v1\n{% if Values.count > 2 %}\nname: {{ m.name('a') }}\n{% endif %}\n";
        let got = render(&[("templates/_m.j2", macros), ("templates/a.yaml.j2", text)]).expect("rendered");
        assert_eq!(got, "kind: K\napiVersion: v1\nname: a-release-name\n");
        let all = vec![("Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n"), ("templates/NOTES.txt.j2", "made {{ Chart.Name }}"), ("templates/h.yaml.j2", "kind: Job\napiVersion: batch/v1\nmetadata: {name: x, annotations: {helm.sh/hook: pre-install}}\n")];
        let chart = load(all.into_iter().map(|(p, t)| (p.to_owned(), t.as_bytes().to_vec())).collect()).expect("a chart");
        let out = template(&chart, &Request::default()).expect("rendered");
        assert_eq!((out.notes.as_str(), out.hooks.len(), out.documents.len()), ("made c", 1, 0));
    }

    #[test]
    fn faults_have_their_place_and_nothing_runs_away() {
        fails("a: b\nc: {{ Values.x.y }}\n", "(c/templates/a.yaml.j2:2)");
        fails("a: {% if %}\n", "parse error at (c/templates/a.yaml.j2:1)");
        fails("\n\n{{ fail('no oil') }}", "execution error at (c/templates/a.yaml.j2:3): no oil");
        fails("{{ required('need it', Values.empty) }}", "need it");
        fails("{{ nindent('x', 'y') }}", "wrong type for value; expected int; got string");
        fails("{{ upper('a', 'b') }}", "wrong number of args for upper: want 1 got 2");
        fails("{{ nope(1) }}", "unknown function");
        fails("{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}", "fuel");
        fails("{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}", "fuel");
        fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion");
        fails("{% include 'a.yaml.j2' %}", "recursion");
        fails("{{ 'x' * 2000000000 }}", "fuel");
        fails(&format!("{}{}", "{{ ".to_owned() + &"(".repeat(5000), "1".to_owned() + &")".repeat(5000) + " }}"), "parse error");
    }
}
