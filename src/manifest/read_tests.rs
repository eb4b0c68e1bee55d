//! Tables and properties of reading and writing documents.

use super::*;
use crate::emit;
use proptest::prelude::*;
use serde_json::json;

fn value(text: &str) -> Value {
    parse(text, &Limits::FILE).unwrap_or_else(|fault| panic!("{fault}\n{text}"))
}

fn fault(text: &str) -> String {
    match parse_all(text, &Limits::FILE) {
        Ok(documents) => panic!("read as {} documents", documents.len()),
        Err(fault) => fault.in_file("a.yaml"),
    }
}

#[test]
fn documents_mean_what_kubectl_reads() {
    let cases = [
        ("a: yes\nb: 0644\nc: 1_000\nd: 1.0\ne: \"yes\"\nf: 'no'\ng: !!str 5\nh: ~\ni:\n", json!({"a": true, "b": 420, "c": 1000, "d": 1, "e": "yes", "f": "no", "g": "5", "h": null, "i": null})),
        ("y: 1\n1: a\ntrue: b\n1.5: c\n", json!({"true": "b", "1": "a", "1.5": "c"})),
        ("base: &b {x: 1, y2: 2}\nderived:\n  <<: *b\n  y2: 3\n", json!({"base": {"x": 1, "y2": 2}, "derived": {"x": 1, "y2": 3}})),
        ("a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc:\n  x0: 0\n  <<: [*a, *b]\n", json!({"a": {"x": 1}, "b": {"x": 2, "z": 3}, "c": {"x0": 0, "x": 1, "z": 3}})),
        ("a: |\n  one\n  two\nb: >-\n  three\n  four\n", json!({"a": "one\ntwo\n", "b": "three four"})),
        ("{\"a\": 1.0, \"b\": \"\\ud83d\\ude00\", \"c\": [1, 2.5e3]}", json!({"a": 1, "b": "😀", "c": [1, 2500]})),
        ("{a: b, c: [d, 'e']}", json!({"a": "b", "c": ["d", "e"]})),
        ("b: !!binary aGVsbG8=\n", json!({"b": "hello"})),
        ("a: 2001-01-01\nb: 12:30\n", json!({"a": "2001-01-01", "b": "12:30"})),
        ("", json!(null)),
    ];
    for (text, want) in cases {
        if text.starts_with("y:") {
            // `y` and `true` are the same key in YAML 1.1.
            assert!(fault(text).contains("is there twice"), "{text}");
            continue;
        }
        assert_eq!(value(text), want, "{text}");
    }
}

#[test]
fn streams_keep_the_place_of_each_document() {
    let text = "# head\n---\n# only a comment\n---\na: 1\n---\n\nb: 2\n...\n---\nc: 3\n";
    let documents = parse_all(text, &Limits::FILE).expect("reads");
    let seen: Vec<_> = documents.iter().map(|d| (d.index, d.start.to_string(), d.value.to_string())).collect();
    assert_eq!(seen.iter().map(|s| (s.1.as_str(), s.2.as_str())).collect::<Vec<_>>(), [("5:1", "{\"a\":1}"), ("8:1", "{\"b\":2}"), ("11:1", "{\"c\":3}")]);
    let last = documents.last().expect("three");
    assert_eq!(locate(text, last.index, "/c"), Some(Position { line: 11, column: 4 }));
}

#[test]
fn fields_are_found_again() {
    let text = "kind: X\nspec:\n  list:\n  - name: a\n  - name: b\n    \"a/b\": [1, 2]\n";
    let cases = [("/kind", "1:7"), ("/spec", "2:1"), ("/spec/list/1/name", "5:11"), ("/spec/list/1/a~1b/1", "6:16"), ("/spec/list/9/x", "3:3"), ("", "1:1")];
    for (path, want) in cases {
        assert_eq!(locate(text, 0, path).map(|p| p.to_string()).as_deref(), Some(want), "{path}");
    }
    assert_eq!(locate("{\n \"a\": {\"b\": 1}}", 0, "/a/b").map(|p| p.to_string()).as_deref(), Some("2:13"));
}

#[test]
fn faults_say_where_and_how_to_mend() {
    let cases = [
        ("a: 1\na: 2\n", "a.yaml:2:1: the key \"a\" is there twice (remove one of the two)"),
        ("{\"a\": 1, \"a\": 2}", "a.yaml:1:10: the key \"a\" is there twice (remove one of the two)"),
        ("{\"a\": 1,}x", "a.yaml:1:9: expected a key in double quotes"),
        ("? [a]\n: 1\n", "a.yaml:1:5: a key must be text, a number or a boolean, not a list (quote the key; {{ … }} without quotes is read as a key too)"),
        ("a: .inf\n", "a.yaml:1:4: infinity and not-a-number have no place in JSON (quote it to make it text)"),
        ("a: !!int x\n", "a.yaml:1:10: \"x\" is no integer, as its tag says (remove the tag or mend the value)"),
        ("a: {<<: 5}\n", "a.yaml:1:9: a merge key needs a mapping, or a list of mappings"),
        ("a: \u{1}\n", "a.yaml:1:4: a control character is not allowed in YAML (write it as an escape in double quotes)"),
    ];
    for (text, want) in cases {
        assert_eq!(fault(text), want, "{text}");
    }
    for (text, hint) in [
        ("a:\n\tb: 1\n", "tabs"),
        ("a: b: c\n", "indentation"),
        ("a: *nothing\n", "anchor"),
        ("a: {{ .Values.x }}\n", "{{"),
        ("a:\n  - b\n c: 1\n", ""),
        ("a: [1, 2\n", ""),
    ] {
        let told = fault(text);
        assert!(told.contains(hint), "{told}");
    }
    assert_eq!(super::text(b"a: \xff\n").expect_err("not UTF-8").to_string(), "1:4: the text is not UTF-8 (save the file as UTF-8)");
}

#[test]
fn input_is_bounded() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let inner = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    assert!(fault(&bomb).contains("more than 1000000 values"), "{}", fault(&bomb));
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(fault(&deep).contains("levels deep"), "{}", fault(&deep));
    let block: String = (0..300).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(fault(&block).contains("levels deep"), "{}", fault(&block));
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
    assert!(fault(&deep).contains("levels deep"), "{}", fault(&deep));
    let large = "a: ".to_owned() + &"x".repeat(10 << 20);
    assert!(fault(&large).contains("at most 8388608 are allowed"));
    let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 10_000].join(","));
    assert!(fault(&long).contains("values"), "{}", fault(&long));
    assert!(parse("a: 1\n---\nb: 1\n", &Limits::OBJECT).is_err());
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9.:/ _-]{0,12}",
        "(yes|no|on|off|y|n|true|null|~|0x1f|0644|1e3|1:30|2001-01-01|-|---|\\.\\.\\.|<<|=|1_0|\\?|: |# |- a|\\|)",
        "[a-z \\n\\t#:'\"-]{0,24}",
        any::<String>(),
        "(line one\n){1,3}[ \n]{0,3}",
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", scalar::from_f64),
        any_text().prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::btree_map(any_text(), inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back(value in any_value()) {
        for text in [emit::emit(&value), emit::emit_sorted(&value)] {
            let back = parse(&text, &Limits::FILE);
            prop_assert_eq!(back.as_ref(), Ok(&value), "{}", text);
        }
        let other: serde_yaml::Value = serde_yaml::from_str(&emit::emit(&value)).map_err(|e| TestCaseError::fail(format!("{e}\n{}", emit::emit(&value))))?;
        let other: Value = serde_json::to_value(&other).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(other.to_string(), value.to_string(), "a YAML 1.2 reader must see the same");
    }

    #[test]
    fn nothing_panics(text in prop_oneof![any::<String>(), "[-a:\\[\\]{}&*!|>'\"%@`#,? \\n\\t<]{0,40}"]) {
        let _ = parse_all(&text, &Limits::FILE);
        let _ = positions(&text, 0);
    }
}
