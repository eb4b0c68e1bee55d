//! Heads of documents that were read before. Most of the text of a large chart, its definitions above all, is the same in every
//! render, and reading it as YAML is most of the work of a render whose templates are compiled.

use super::manifests::{Head, head};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

/// Documents below this are read as fast as they are looked up.
const SMALLEST: usize = 512;
/// Bytes of documents that are kept for a chart; a fleet's own ones push each other out.
const KEPT: usize = 8 << 20;
/// Bytes at either end that tell documents apart; equal ones are compared whole.
const END: usize = 128;

/// Heads by a digest of length and ends, each with the text that it is of.
#[derive(Default)]
pub struct Heads {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_digest: BTreeMap<u64, (Box<[u8]>, Head)>,
    bytes: usize,
}

impl std::fmt::Debug for Heads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Heads")
    }
}

impl Heads {
    /// The head of a document; the error is Helm's, and is not kept.
    pub fn of(&self, text: &[u8]) -> Result<Head, String> {
        if text.len() < SMALLEST {
            return head(text);
        }
        let mut hasher = DefaultHasher::new();
        (text.len(), &text[..END], &text[text.len() - END..]).hash(&mut hasher);
        let digest = hasher.finish();
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = lock().by_digest.get(&digest).filter(|(kept, _)| **kept == *text) {
            return Ok(known.clone());
        }
        let read = head(text)?;
        let mut kept = lock();
        if kept.bytes + text.len() > KEPT {
            *kept = Kept::default();
        }
        if text.len() <= KEPT {
            kept.bytes += text.len();
            if let Some((before, _)) = kept.by_digest.insert(digest, (text.into(), read.clone())) {
                kept.bytes -= before.len();
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_would_be_read() {
        let heads = Heads::default();
        let document = |name: &str, middle: &str| format!("kind: A\nmetadata: {{name: {name}}}\ntext: {}{middle}{}\n", "x".repeat(300), "y".repeat(300));
        // The last two differ only where the digest does not look.
        for text in [document("a", ""), document("b", ""), document("a", ""), document("a", "1"), document("a", "2"), document("a", "1")] {
            assert_eq!(heads.of(text.as_bytes()), head(text.as_bytes()));
        }
        let broken = format!("{}\n: [", document("a", "1"));
        assert!(heads.of(broken.as_bytes()).is_err() && heads.of(broken.as_bytes()) == head(broken.as_bytes()));
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let heads = Heads::default();
        for n in 0..40 {
            let text = format!("kind: A{n}\nx: {}\n", "y".repeat(1 << 20));
            assert_eq!(heads.of(text.as_bytes()).expect("read").kind, format!("A{n}"));
            let kept = heads.kept.lock().expect("not poisoned");
            assert!(kept.bytes <= KEPT && kept.bytes == kept.by_digest.values().map(|(text, _)| text.len()).sum::<usize>());
        }
    }
}
