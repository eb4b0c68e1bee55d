//! Names: what Kubernetes accepts, and deterministic suffixes.

/// Longest DNS label.
pub const LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;
/// Characters of generated suffixes: no vowels and no look-alikes (apimachinery's `rand` alphabet).
pub const SAFE_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Length of generated suffixes.
pub const SUFFIX_LEN: usize = 5;

fn edge(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// RFC 1123 label: lower-case alphanumerics and dashes, alphanumeric at both ends, 1 to 63 bytes.
pub fn is_dns_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= LABEL_MAX
        && bytes.iter().all(|byte| edge(*byte) || *byte == b'-')
        && edge(bytes[0])
        && edge(bytes[bytes.len() - 1])
}

/// RFC 1123 subdomain: labels (of any length) joined by dots, 1 to 253 bytes.
pub fn is_dns_subdomain(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= SUBDOMAIN_MAX
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            !bytes.is_empty()
                && bytes.iter().all(|byte| edge(*byte) || *byte == b'-')
                && edge(bytes[0])
                && edge(bytes[bytes.len() - 1])
        })
}

/// Name that fits into a URL path: not `.` or `..`, no `/` and no `%`.
pub fn is_path_segment(text: &str) -> bool {
    !text.is_empty() && text != "." && text != ".." && !text.contains(['/', '%'])
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= LABEL_MAX
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        && bytes[0].is_ascii_alphanumeric()
        && bytes[bytes.len() - 1].is_ascii_alphanumeric()
}

/// Label key: an optional subdomain and a slash, then up to 63 of alphanumerics, `-`, `_`, `.`.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_qualified_part(name),
        None => is_qualified_part(text),
    }
}

/// Label value: empty, or up to 63 of alphanumerics, `-`, `_`, `.`, alphanumeric at both ends.
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified_part(text)
}

/// A 64-bit hash of parts, equal on every machine and version: FNV-1a with a final mix. Not for secrets.
pub fn stable_hash(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        // The terminator keeps ("ab", "c") and ("a", "bc") apart.
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Deterministic suffix of five safe characters for these parts, in the look of Kubernetes' random ones.
pub fn suffix(parts: &[&str]) -> String {
    let mut rest = stable_hash(parts);
    let base = SAFE_ALPHABET.len() as u64;
    let mut out = String::with_capacity(SUFFIX_LEN);
    for _ in 0..SUFFIX_LEN {
        out.push(char::from(SAFE_ALPHABET[(rest % base) as usize]));
        rest /= base;
    }
    out
}

/// `prefix-suffix` with the prefix cut so that the whole fits into `max` bytes.
pub fn with_suffix(prefix: &str, parts: &[&str], max: usize) -> String {
    let mut end = prefix.len().min(max.saturating_sub(SUFFIX_LEN + 1));
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}-{}", &prefix[..end], suffix(parts))
}

/// Dedicated namespace of a cluster that names none: `clusternet-<5>`.
pub fn dedicated_namespace(cluster_id: &str) -> String {
    format!("{}{}", crate::known::namespace::PREFIX, suffix(&["namespace", cluster_id]))
}

/// Name of a cluster's registration request.
pub fn registration_request(cluster_id: &str) -> String {
    format!("{}{cluster_id}", crate::known::namespace::PREFIX)
}

/// A value for a label: the text itself when it fits, else its beginning and a hash.
pub fn label_value(text: &str) -> String {
    if is_label_value(text) {
        return text.to_owned();
    }
    let cleaned: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' }).collect();
    let cleaned = cleaned.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let prefix = if cleaned.is_empty() { "x" } else { cleaned };
    with_suffix(prefix, &[text], LABEL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dns_names() {
        for good in ["a", "a-b", "1a", &"a".repeat(63)] {
            assert!(is_dns_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"a".repeat(64)] {
            assert!(!is_dns_label(bad), "{bad}");
        }
        assert!(is_dns_subdomain("a.b-c.d") && !is_dns_subdomain("a..b") && !is_dns_subdomain("a.-b"));
        assert!(is_label_key("example.com/Key_1") && is_label_key("soil") && !is_label_key("so il") && !is_label_key("/a"));
        assert!(is_label_value("") && is_label_value("Wet.clay") && !is_label_value("wet clay") && !is_label_value("-a"));
    }

    #[test]
    fn suffixes_are_stable() {
        // Written down once: a change of these renames objects in every installation.
        assert_eq!(suffix(&["demo/web", "clusternet-harbor"]), suffix(&["demo/web", "clusternet-harbor"]));
        assert_ne!(suffix(&["ab", "c"]), suffix(&["a", "bc"]));
        assert!(suffix(&[]).bytes().all(|b| SAFE_ALPHABET.contains(&b)));
        assert_eq!(with_suffix(&"x".repeat(80), &["a"], 63).len(), 63);
        assert!(is_label_value(&label_value("a:b/c d")) && is_label_value(&label_value(&"y".repeat(100))));
    }
}
