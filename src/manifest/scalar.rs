//! What a plain YAML scalar means: the YAML 1.1 rules of the Go library that kubectl and Helm use.
//!
//! Source of the rules: the behaviour of `sigs.k8s.io/yaml` (its fork of go-yaml v2). Differences to the YAML 1.1 text that
//! matter: no base-60 numbers, timestamps stay strings, `0o17` is an octal too.

use serde_json::{Number, Value};

/// A plain scalar that JSON cannot hold (`.inf`, `.nan`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotJson;

/// The value of an unquoted, untagged scalar.
pub fn resolve_plain(text: &str) -> Result<Value, NotJson> {
    let Some(first) = text.bytes().next() else { return Ok(Value::Null) };
    match first {
        b'y' | b'Y' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'o' | b'O' | b'~' => Ok(match text {
            "~" | "null" | "Null" | "NULL" => Value::Null,
            other => match boolean(other) {
                Some(flag) => Value::Bool(flag),
                None => Value::String(text.to_owned()),
            },
        }),
        b'.' => match text {
            ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" => Err(NotJson),
            _ if is_go_float(text) => Ok(float(text).unwrap_or_else(|| Value::String(text.to_owned()))),
            _ => Ok(Value::String(text.to_owned())),
        },
        b'+' | b'-' | b'0'..=b'9' => match text {
            "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" => Err(NotJson),
            _ => Ok(number(text).unwrap_or_else(|| Value::String(text.to_owned()))),
        },
        _ => Ok(Value::String(text.to_owned())),
    }
}

/// The boolean that YAML 1.1 reads in `text`.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Some(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Some(false),
        _ => None,
    }
}

/// Integer in any notation, or a float; `None` when it is text.
pub fn number(text: &str) -> Option<Value> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    if let Some(value) = integer(&plain) {
        return Some(value);
    }
    if is_yaml_float(&plain) { float(&plain) } else { None }
}

fn integer(plain: &str) -> Option<Value> {
    let (negative, digits) = match plain.as_bytes().first()? {
        b'-' => (true, &plain[1..]),
        b'+' => (false, &plain[1..]),
        _ => (false, plain),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, &lower[1..])
    } else {
        (10, lower.as_str())
    };
    if body.is_empty() || body.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(body, radix).ok()?;
    if !negative {
        return Some(Value::Number(Number::from(magnitude)));
    }
    if magnitude > 1 << 63 {
        return None;
    }
    Some(Value::Number(Number::from((magnitude as i64).wrapping_neg())))
}

/// `^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$`
fn is_yaml_float(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some(("", after)) => !after.is_empty() && digits(after),
        Some((before, after)) => !before.is_empty() && digits(before) && digits(after),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    mantissa_ok
        && exponent.is_none_or(|e| {
            let e = e.strip_prefix(['-', '+']).unwrap_or(e);
            !e.is_empty() && digits(e)
        })
}

/// What Go's ParseFloat accepts of a text that begins with a dot.
fn is_go_float(text: &str) -> bool {
    is_yaml_float(text)
}

fn float(text: &str) -> Option<Value> {
    let parsed: f64 = text.parse().ok()?;
    from_f64(parsed)
}

/// A JSON number as Kubernetes decodes it: a float without fraction that fits 64 bits is an integer, since Go writes it so.
pub fn from_f64(value: f64) -> Option<Value> {
    if !value.is_finite() {
        return None;
    }
    if value.fract() == 0.0 && value.abs() < 9_223_372_036_854_775_808.0 {
        return Some(Value::Number(Number::from(value as i64)));
    }
    Number::from_f64(value).map(Value::Number)
}

/// The text of a value used as a mapping key (`sigs.k8s.io/yaml`): numbers and booleans become strings, others are refused.
pub fn key_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether some YAML reader (1.1 or 1.2) would read this plain text as something other than a string.
///
/// Wider than [`resolve_plain`] on purpose: what we write must mean the same to every reader, so base-60 numbers, dates and
/// the value indicator count too.
pub fn looks_typed(text: &str) -> bool {
    if !matches!(resolve_plain(text), Ok(Value::String(_))) {
        return true;
    }
    if matches!(text, "=" | "<<" | "nan" | "NaN" | "inf" | "Inf") {
        return true;
    }
    let Some(first) = text.bytes().next() else { return true };
    if !(first.is_ascii_digit() || matches!(first, b'-' | b'+' | b'.')) {
        return false;
    }
    // Base 60 (1:30), dates (2001-01-01) and half-made numbers (1e, 0x): anything that is digits and number marks only.
    let rest = text.trim_start_matches(['-', '+']);
    rest.bytes().next().is_some_and(|b| b.is_ascii_digit())
        && (rest.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'_' | b'.' | b',')) || looks_like_date(text) || looks_like_exponent(rest))
}

fn looks_like_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 8
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && bytes[4] == b'-'
        && bytes[5..].iter().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b':' | b'T' | b't' | b'Z' | b' ' | b'.' | b'+'))
}

fn looks_like_exponent(rest: &str) -> bool {
    rest.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'e' | b'E' | b'+' | b'-' | b'.' | b'_')) && rest.contains(['e', 'E'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_scalars_mean_what_kubectl_reads() {
        let cases: &[(&str, Value)] = &[
            ("", Value::Null),
            ("~", Value::Null),
            ("null", Value::Null),
            ("nUll", json!("nUll")),
            ("y", json!(true)),
            ("Y", json!(true)),
            ("yes", json!(true)),
            ("on", json!(true)),
            ("Off", json!(false)),
            ("n", json!(false)),
            ("no", json!(false)),
            ("nope", json!("nope")),
            ("true", json!(true)),
            ("tRue", json!("tRue")),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("0644", json!(420)),
            ("-0644", json!(-420)),
            ("0o644", json!(420)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("08", json!(8)),
            ("09.5", json!(9.5)),
            ("1_000", json!(1000)),
            ("+12", json!(12)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            ("1.", json!(1)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("1e-3", json!(0.001)),
            ("1.4.2", json!("1.4.2")),
            ("1:30", json!("1:30")),
            ("2001-01-01", json!("2001-01-01")),
            ("18446744073709551615", json!(18446744073709551615u64)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("0x", json!("0x")),
            ("-", json!("-")),
            (".", json!(".")),
            ("100m", json!("100m")),
            ("--5", json!("--5")),
            ("1e", json!("1e")),
        ];
        for (text, want) in cases {
            assert_eq!(resolve_plain(text).as_ref(), Ok(want), "{text:?}");
        }
        for text in [".inf", "-.inf", "+.INF", ".nan"] {
            assert_eq!(resolve_plain(text), Err(NotJson), "{text}");
        }
    }

    #[test]
    fn text_that_any_reader_may_mistake_is_known() {
        for text in ["", "yes", "1", "0x1f", "1:30", "2001-01-01", "1e5", "1e", "=", "<<", "~", ".5", "012", "1_0", "2001-12-14t21:59:43.10"] {
            assert!(looks_typed(text), "{text}");
        }
        for text in ["web", "1.4-alpine", "v1", "app.kubernetes.io/name", "100m", "512Mi", "-x", "a:b", "25%", "10.0.0.0/8"] {
            assert!(!looks_typed(text), "{text}");
        }
    }
}
