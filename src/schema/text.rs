//! Texts with rules: names, labels, qualified names, Go regular expressions; the messages are Kubernetes' own.

use regex::Regex;

/// Compiles a Go (RE2) pattern; `None` when it is none.
pub(crate) fn go_regex(pattern: &str) -> Option<Regex> {
    // RE2 and this library share syntax but for `\z` (same) and `\Q..\E`, which RE2 knows alone.
    let mut out = String::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once(r"\Q") {
        let (quoted, next) = after.split_once(r"\E").unwrap_or((after, ""));
        out.push_str(before);
        out.push_str(&regex::escape(quoted));
        rest = next;
    }
    out.push_str(rest);
    Regex::new(&out).ok()
}

const LABEL_MSG: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
const LABEL_RE: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_MSG: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
const SUBDOMAIN_RE: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035_MSG: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
const LABEL_1035_RE: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED_MSG: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_RE: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE_MSG: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const LABEL_VALUE_RE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const CONFIG_KEY_MSG: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
const CONFIG_KEY_RE: &str = "[-._a-zA-Z0-9]+";
const C_IDENTIFIER_RE: &str = "[A-Za-z_][A-Za-z0-9_]*";
const ENV_MSG: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";

/// `must be no more than N characters` (which are bytes).
pub fn max_len(n: usize) -> String {
    format!("must be no more than {n} characters")
}

fn regex_error(msg: &str, re: &str, examples: &[&str]) -> String {
    let mut s = format!("{msg} (e.g. ");
    for (i, e) in examples.iter().enumerate() {
        if i > 0 {
            s.push_str(" or ");
        }
        s.push_str(&format!("'{e}', "));
    }
    s.push_str(&format!("regex used for validation is '{re}')"));
    s
}

fn alnum(b: u8, upper: bool) -> bool {
    b.is_ascii_digit() || b.is_ascii_lowercase() || (upper && b.is_ascii_uppercase())
}

/// First and last byte alphanumeric, between them also the extra ones.
fn framed(s: &str, upper: bool, extra: &[u8]) -> bool {
    let b = s.as_bytes();
    match (b.first(), b.last()) {
        (Some(f), Some(l)) => alnum(*f, upper) && alnum(*l, upper) && b.iter().all(|c| alnum(*c, upper) || extra.contains(c)),
        _ => false,
    }
}

/// Faults of a DNS-1123 label.
pub fn dns1123_label(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > 63 {
        out.push(max_len(63));
    }
    if !framed(s, false, b"-") {
        if framed_subdomain(s) {
            out.push("must not contain dots".to_owned());
        } else {
            out.push(regex_error(LABEL_MSG, LABEL_RE, &["my-name", "123-abc"]));
        }
    }
    out
}

fn framed_subdomain(s: &str) -> bool {
    s.split('.').all(|p| framed(p, false, b"-"))
}

/// Faults of a DNS-1123 subdomain.
pub fn dns1123_subdomain(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > 253 {
        out.push(max_len(253));
    }
    if !framed_subdomain(s) {
        out.push(regex_error(SUBDOMAIN_MSG, SUBDOMAIN_RE, &["example.com"]));
    }
    out
}

/// Faults of a DNS-1035 label (Service names).
pub fn dns1035_label(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > 63 {
        out.push(max_len(63));
    }
    if !framed(s, false, b"-") || !s.starts_with(|c: char| c.is_ascii_lowercase()) {
        out.push(regex_error(LABEL_1035_MSG, LABEL_1035_RE, &["my-name", "abc-123"]));
    }
    out
}

/// Faults of a name used as a path segment (RBAC names).
pub fn path_segment(s: &str) -> Vec<String> {
    if s == "." || s == ".." {
        return vec![format!("may not be '{s}'")];
    }
    let mut out = Vec::new();
    for illegal in ["/", "%"] {
        if s.contains(illegal) {
            out.push(format!("may not contain '{illegal}'"));
        }
    }
    out
}

/// Faults of an IP address.
pub fn ip(s: &str) -> Vec<String> {
    if s.parse::<std::net::IpAddr>().is_ok() {
        return Vec::new();
    }
    let parts: Vec<&str> = s.split('.').collect();
    let zeros = parts.len() == 4 && parts.iter().all(|p| !p.is_empty() && p.len() < 4 && p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok_and(|n| n < 256));
    vec![if zeros { "must not have leading 0s" } else { "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)" }.to_owned()]
}

/// Faults of a range of addresses; a strict one has no bits behind its prefix.
pub fn cidr(s: &str, strict: bool) -> Vec<String> {
    let parsed = s.split_once('/').and_then(|(a, n)| Some((a.parse::<std::net::IpAddr>().ok()?, n.parse::<u32>().ok().filter(|_| n.bytes().all(|b| b.is_ascii_digit()))?)));
    let behind = match parsed {
        Some((std::net::IpAddr::V4(a), n)) if n <= 32 => u64::from(a.to_bits()).trailing_zeros() < 32 - n && a.to_bits() != 0,
        Some((std::net::IpAddr::V6(a), n)) if n <= 128 => a.to_bits() != 0 && a.to_bits().trailing_zeros() < 128 - n,
        _ => return vec!["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)".to_owned()],
    };
    if behind && strict { vec!["must not have bits set beyond the prefix length".to_owned()] } else { Vec::new() }
}

/// Faults of a qualified name (label and annotation keys).
pub fn qualified_name(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    let parts: Vec<&str> = s.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                out.push("prefix part must be non-empty".to_owned());
            } else {
                out.extend(dns1123_subdomain(prefix).into_iter().map(|m| format!("prefix part {m}")));
            }
            name
        }
        _ => {
            let e = regex_error(QUALIFIED_MSG, QUALIFIED_RE, &["MyName", "my.name", "123-abc"]);
            return vec![format!("a valid label key {e} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")];
        }
    };
    if name.is_empty() {
        out.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        out.push("name part must be no more than 63 bytes".to_owned());
    }
    if !framed(name, true, b"-_.") {
        out.push(format!("name part {}", regex_error(QUALIFIED_MSG, QUALIFIED_RE, &["MyName", "my.name", "123-abc"])));
    }
    out
}

/// Faults of a label value.
pub fn label_value(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > 63 {
        out.push("must be no more than 63 bytes".to_owned());
    }
    if !s.is_empty() && !framed(s, true, b"-_.") {
        out.push(regex_error(LABEL_VALUE_MSG, LABEL_VALUE_RE, &["MyValue", "my_value", "12345"]));
    }
    out
}

/// Faults of a key of a ConfigMap or Secret.
pub fn config_map_key(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > 253 {
        out.push(max_len(253));
    }
    if s.is_empty() || !s.bytes().all(|b| alnum(b, true) || b"-._".contains(&b)) {
        out.push(regex_error(CONFIG_KEY_MSG, CONFIG_KEY_RE, &["key.name", "KEY_NAME", "key-name"]));
    }
    if s == "." {
        out.push("must not be '.'".to_owned());
    } else if s == ".." {
        out.push("must not be '..'".to_owned());
    } else if s.starts_with("..") {
        out.push("must not start with '..'".to_owned());
    }
    out
}

/// Faults of an environment variable's name.
pub fn env_var_name(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.is_empty() || !s.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        out.push(ENV_MSG.to_owned());
    }
    out
}

/// Faults of a C identifier.
pub fn c_identifier(s: &str) -> Vec<String> {
    let b = s.as_bytes();
    let ok = b.first().is_some_and(|c| c.is_ascii_alphabetic() || *c == b'_') && b.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'_');
    if ok {
        return Vec::new();
    }
    vec![regex_error("a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'", C_IDENTIFIER_RE, &["my_name", "MY_NAME", "MyName"])]
}

/// Faults of a port number.
pub fn port_number(n: i64) -> Vec<String> {
    if (1..=65535).contains(&n) { Vec::new() } else { vec!["must be between 1 and 65535, inclusive".to_owned()] }
}

/// Faults of a port name (IANA service name).
pub fn port_name(s: &str) -> Vec<String> {
    let mut out = Vec::new();
    if s.len() > 15 {
        out.push(max_len(15));
    }
    if s.is_empty() || !s.bytes().all(|b| alnum(b, false) || b == b'-') {
        out.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !s.bytes().any(|b| b.is_ascii_lowercase()) {
        out.push("must contain at least one letter (a-z)".to_owned());
    }
    if s.contains("--") {
        out.push("must not contain consecutive hyphens".to_owned());
    }
    if s.starts_with('-') || s.ends_with('-') {
        out.push("must not begin or end with a hyphen".to_owned());
    }
    out
}

/// Whether the text is a percentage such as `25%`.
pub fn is_percent(s: &str) -> bool {
    s.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        assert!(dns1123_label("my-name").is_empty());
        assert_eq!(
            dns1123_label("My"),
            ["a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"]
        );
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert!(qualified_name("example.com/x_Y").is_empty());
        assert!(!qualified_name("/x").is_empty());
        assert!(!label_value("a b").is_empty());
        assert!(port_name("http-1").is_empty());
        assert_eq!(port_number(0), ["must be between 1 and 65535, inclusive"]);
    }
}
