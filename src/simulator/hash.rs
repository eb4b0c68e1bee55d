//! Short stable names for templates, in Kubernetes' alphabet of letters that make no words.

use serde_json::Value;

const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// FNV-1a over 32 bits.
fn fnv(bytes: impl IntoIterator<Item = u8>, start: u32) -> u32 {
    bytes.into_iter().fold(start, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The hash of a template, salted with the number of collisions seen, as a label value.
///
/// Kubernetes hashes the memory of its own structs, which nothing else can repeat; the form (at most ten letters of the same
/// alphabet) is the same. Objects keep their fields sorted, so equal templates have equal hashes.
pub(crate) fn template(template: &Value, collisions: Option<i64>) -> String {
    let mut hash = fnv(template.to_string().into_bytes(), 0x811c_9dc5);
    if let Some(count) = collisions {
        hash = fnv(count.to_le_bytes(), hash);
    }
    hash.to_string().bytes().map(|digit| char::from(ALPHABET[usize::from(digit) % ALPHABET.len()])).collect()
}
