//! Canonical hashes of documents: equal values, equal hash, on every machine.

use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io;

struct Sink<'a>(&'a mut Sha256);

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// SHA-256 of the compact JSON text with sorted keys.
pub fn fingerprint(value: &Value) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // Writing a Value into a sink that never fails cannot fail: keys are strings, numbers are finite.
    let _ = serde_json::to_writer(Sink(&mut hasher), value);
    hasher.finalize().into()
}

/// [`fingerprint`] as 64 hexadecimal digits.
pub fn sha256(value: &Value) -> String {
    hex(&fingerprint(value))
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_keys_does_not_matter() {
        let one: Value = serde_json::from_str(r#"{"b":1,"a":[true,null]}"#).expect("json");
        let two: Value = serde_json::from_str(r#"{"a":[true,null],"b":1}"#).expect("json");
        assert_eq!(sha256(&one), sha256(&two));
        assert_eq!(sha256(&Value::Null), "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b");
    }
}
