//! Random templates: both engines say the same of each, and none of them ends in anything but a text or an error.

use crate::{Engine, Request, Val, load, template};
use proptest::prelude::*;
use std::collections::BTreeMap;

const VALUES: &str = "i: 5\nf: 1.5\ns: hello\ne: \"\"\nn: null\nt: true\nl: [a, b, 3]\nm: {z: 1, a: {b: c}, k: [x]}\nd: {}\n";

/// Expressions, as far as they stand in parentheses.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(&[
            ".", "$", "$x", ".Values.i", ".Values.f", ".Values.s", ".Values.e", ".Values.n", ".Values.t", ".Values.l", ".Values.m", ".Values.m.a.b",
            ".Values.d", ".Values.absent", ".Values.absent.more", ".Values.s.more", "$.Values.m.a", "$x.b", ".Release.Name", ".Chart.Name", "nil", "true",
            "\"text\"", "`raw`", "1", "-3", "2.5", "0x1f", "'c'", "(dict)", "(list)",
        ][..])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            (prop::sample::select(&["eq", "ne", "lt", "and", "or", "add", "default", "list", "print", "hasKey", "index", "cat", "ternary 1 2", "coalesce", "merge", "append", "has", "dig \"a\" 1"][..]), two.clone())
                .prop_map(|(f, (a, b))| format!("({f} {a} {b})")),
            (prop::sample::select(&["not", "len", "quote", "toYaml", "toJson", "kindOf", "typeOf", "int", "upper", "keys", "first", "empty", "toString", "fromYaml", "deepCopy", "printf \"%v-%d\" 7", "tpl \"{{ . }}\"", "required \"no\"", "fail"][..]), inner.clone())
                .prop_map(|(f, a)| format!("({f} {a})")),
            (inner.clone(), prop::sample::select(&["quote", "default \"d\"", "toYaml", "indent 2", "nindent 2", "trunc 3", "int", "not", "list", "print 1", "len", "and 1", "or 0"][..]))
                .prop_map(|(a, f)| format!("({a} | {f})")),
            (inner.clone(), prop::sample::select(&["a", "b", "more"][..])).prop_map(|(a, f)| format!("({a}).{f}")),
            inner.prop_map(|a| format!("(include \"part\" {a})")),
        ]
    })
}

fn body() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(&["text ", "\n", "  - x\n", "{{/* c */}}", "{{ $x = 1 }}", "{{ $x := .Values.s }}", "{{- \"t\" -}}", "<no value>"][..]).prop_map(str::to_owned),
        expression().prop_map(|e| format!("{{{{ {e} }}}}")),
        expression().prop_map(|e| format!("{{{{- {e} -}}}} ")),
        expression().prop_map(|e| format!("{{{{ $x = {e} }}}}")),
        expression().prop_map(|e| format!("{{{{ template \"part\" {e} }}}}")),
    ];
    leaf.prop_recursive(3, 32, 4, |inner| {
        let many = prop::collection::vec(inner, 0..4).prop_map(|parts| parts.concat());
        prop_oneof![
            (expression(), many.clone(), many.clone()).prop_map(|(e, a, b)| format!("{{{{ if {e} }}}}{a}{{{{ else }}}}{b}{{{{ end }}}}")),
            (expression(), expression(), many.clone()).prop_map(|(e, f, a)| format!("{{{{ if {e} }}}}{a}{{{{ else if {f} }}}}f{{{{ end }}}}")),
            (expression(), many.clone()).prop_map(|(e, a)| format!("{{{{ with {e} }}}}{a}{{{{ else }}}}-{{{{ end }}}}")),
            (expression(), many.clone()).prop_map(|(e, a)| format!("{{{{ with $x := {e} }}}}{a}{{{{ end }}}}")),
            (expression(), many.clone()).prop_map(|(e, a)| format!("{{{{ range {e} }}}}{a}{{{{ if .Values }}}}{{{{ break }}}}{{{{ end }}}};{{{{ else }}}}none{{{{ end }}}}")),
            (expression(), many.clone()).prop_map(|(e, a)| format!("{{{{ range $k, $x := {e} }}}}{{{{ $k }}}}{a}{{{{ continue }}}}never{{{{ end }}}}")),
            (expression(), many.clone(), many.clone()).prop_map(|(e, a, b)| format!("{{{{ range $y := .Values.l }}}}{{{{ range {e} }}}}{a}{{{{ $y }}}}{{{{ else }}}}{{{{ break }}}}{{{{ end }}}}{b}{{{{ $y }}}}{{{{ end }}}}")),
            (expression(), many.clone()).prop_map(|(e, a)| format!("{{{{ if and {e} ($x := 7) }}}}{{{{ $x }}}}{a}{{{{ end }}}}{{{{ $x }}}}")),
            many.prop_map(|a| format!("{{{{ $x := 0 }}}}{a}{{{{ $x }}}}")),
        ]
    })
}

fn render(text: &str, engine: Engine) -> Result<String, String> {
    let files = BTreeMap::from([
        ("Chart.yaml".to_owned(), b"apiVersion: v2\nname: c\nversion: 1.0.0\n".to_vec()),
        ("values.yaml".to_owned(), VALUES.as_bytes().to_vec()),
        ("templates/_part.tpl".to_owned(), b"{{ define \"part\" }}[{{ . }}]{{ end }}".to_vec()),
        ("templates/NOTES.txt".to_owned(), text.as_bytes().to_vec()),
    ]);
    let chart = load(files).map_err(|e| e.to_string())?;
    let request = Request { engine, values: Val::map(Default::default()), ..Request::default() };
    template(&chart, &request).map(|out| out.notes).map_err(|e| e.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_engines_agree(parts in prop::collection::vec(body(), 1..5)) {
        let text = format!("{{{{ $x := .Values.m }}}}{}", parts.concat());
        prop_assert_eq!(render(&text, Engine::Direct), render(&text, Engine::Jinja), "{}", text);
    }
}
