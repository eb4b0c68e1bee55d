//! Values of expressions.

use super::*;
use serde_json::json;

fn value(source: &str) -> Result<Value, String> {
    let object = json!({"spec": {"replicas": 3, "names": ["b", "a"], "labels": {"x": "1"}, "a-b": true, "q": "500m", "empty": null}});
    let mut vars = Variables::new();
    vars.insert("self".to_owned(), json(&object));
    let p = Program::parse(source).map_err(|e| e.message().to_owned())?;
    p.eval(&vars, PER_CALL_LIMIT).0.map(|v| v.to_json()).map_err(|e| e.to_string())
}

#[test]
fn expressions() {
    for (source, want) in [
        ("self.spec.replicas + 2 * 3", json!(9)),
        ("self.spec.replicas > 2 && has(self.spec.labels.x)", json!(true)),
        ("has(self.spec.nothing) || self.spec.a__dash__b", json!(true)),
        ("self.spec.names.all(n, n.matches('^[a-z]$'))", json!(true)),
        ("self.spec.names.exists_one(n, n == 'a')", json!(true)),
        ("self.spec.names.map(n, n + '!')", json!(["b!", "a!"])),
        ("self.spec.names.filter(n, n < 'b')", json!(["a"])),
        ("self.spec.labels.exists(k, k == 'x')", json!(true)),
        ("self.spec.names.isSorted()", json!(false)),
        ("self.spec.names.sort().join('-')", json!("a-b")),
        ("'x' in self.spec.labels && 'a' in self.spec.names", json!(true)),
        ("self.spec.?missing.orValue(7)", json!(7)),
        ("self.spec.?replicas.optMap(r, r * 2).value()", json!(6)),
        ("quantity(self.spec.q).isLessThan(quantity('1'))", json!(true)),
        ("quantity('1Gi').add(quantity('1Gi')).compareTo(quantity('2Gi'))", json!(0)),
        ("ip('10.0.0.1').family() == 4 && cidr('10.0.0.0/8').containsIP('10.1.2.3')", json!(true)),
        ("url('https://a.example:8443/p?x=1').getPort()", json!("8443")),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", json!(true)),
        ("'%s has %d'.format(['x', 3])", json!("x has 3")),
        ("duration('1h30m').getMinutes()", json!(90)),
        ("timestamp('2026-11-29T10:00:00Z') - duration('1h') < timestamp('2026-11-29T10:00:00Z')", json!(true)),
        ("timestamp('2026-11-29T10:00:00Z').getDayOfWeek()", json!(0)),
        ("'abc'.substring(1) + 'ABC'.lowerAscii().charAt(0)", json!("bca")),
        ("'a,b'.split(',').size()", json!(2)),
        ("1 == 1.0 && 2u > 1", json!(true)),
        ("type(1) == int && type('') == string", json!(true)),
        ("false && (1 / 0 == 1)", json!(false)),
        ("(1 / 0 == 1) || true", json!(true)),
        ("sets.contains([1, 2, 3], [2])", json!(true)),
        ("[1, 2, 3].sum() + [4, 5].max()", json!(11)),
        ("[1, 2].transformMap(i, v, v > 1, v * 10)", json!({"1": 20})),
        ("format.dns1123Label().validate('a').hasValue()", json!(false)),
        ("Object{spec: Object.spec{replicas: 3}}", json!({"spec": {"replicas": 3}})),
        ("self.spec.empty == null", json!(true)),
    ] {
        assert_eq!(value(source), Ok(want), "{source}");
    }
}

#[test]
fn failures() {
    for (source, want) in [
        ("1 / 0", "division by zero"),
        ("self.spec.nothing", "no such key: nothing"),
        ("[1][3]", "index out of bounds: 3"),
        ("1 + 'a'", "no such overload"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("nobody", "undeclared reference to 'nobody' (in container '')"),
    ] {
        assert_eq!(value(source), Err(want.to_owned()), "{source}");
    }
    let p = Program::parse("[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, a + b > 0))").expect("parses");
    assert_eq!(p.eval(&Variables::new(), 100).0.err(), Some(EvalError::Cost));
    assert!(Program::with_variables("object.x > y", &["object"]).is_err());
}
