//! Provenance of charts: a signed text beside an archive that says what its digest must be.
//!
//! Helm's format: an OpenPGP message signed in clear (RFC 9580, section 7) of the chart's metadata and, after a line of three
//! dots, the digests of files by name. The words of faults are Helm 4.3.1's.

use pgp::composed::{CleartextSignedMessage, Deserializable as _, SignedPublicKey};
use pgp::crypto::public_key::PublicKeyAlgorithm;
use pgp::packet::Signature;
use pgp::types::{KeyDetails, VerifyingKey};
use sha2::Digest as _;

/// What was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// User ids of the key that signed.
    pub signed_by: Vec<String>,
    /// Fingerprint of that key, in capital hexadecimal digits.
    pub fingerprint: String,
    /// `sha256:…` of the archive.
    pub digest: String,
}

/// Why an archive is not what somebody known has signed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProvenanceError {
    /// The keyring is none.
    #[error("failed to load keyring: {0}")]
    Keyring(String),
    /// The provenance is no message signed in clear.
    #[error("signature block not found")]
    NoSignature,
    /// Nobody in the keyring made the signature.
    #[error("openpgp: signature made by unknown entity")]
    Unknown,
    /// The text was changed, or somebody else signed it.
    #[error("openpgp: invalid signature: {0} verification failure")]
    Invalid(&'static str),
    /// The key is no longer valid.
    #[error("openpgp: key expired")]
    Expired,
    /// The signature is no longer valid.
    #[error("openpgp: signature expired")]
    SignatureExpired,
    /// The key was revoked.
    #[error("openpgp: signature made by revoked key")]
    Revoked,
    /// There are no digests.
    #[error("message block must have at least two parts")]
    NoDigests,
    /// The digests cannot be read.
    #[error("{0}")]
    Digests(String),
    /// The archive is not among the files.
    #[error("provenance does not contain a SHA for a file named \"{0}\"")]
    NotNamed(String),
    /// The archive is another one.
    #[error("sha256 sum does not match for {file}: \"{want}\" != \"{have}\"")]
    Other {
        /// Name of the archive.
        file: String,
        /// What was signed.
        want: String,
        /// What is there.
        have: String,
    },
}

/// Checks the archive called `file` against its provenance, with the public keys of a keyring (binary or armored, as
/// `gpg --export` writes it). `now` in seconds since 1970.
pub fn verify(archive: &[u8], file: &str, provenance: &[u8], keyring: &[u8], now: u64) -> Result<Verified, ProvenanceError> {
    let keys = keys(keyring)?;
    let text = std::str::from_utf8(provenance).map_err(|_| ProvenanceError::NoSignature)?;
    let (message, _) = CleartextSignedMessage::from_string(text).map_err(|_| ProvenanceError::NoSignature)?;
    let key = signer(&message, &keys, now)?;
    let digest = format!("sha256:{}", hex::encode(sha2::Sha256::digest(archive)));
    let want = named(&message.signed_text(), file)?;
    if want != digest {
        return Err(ProvenanceError::Other { file: file.to_owned(), want, have: digest });
    }
    let signed_by = key.details.users.iter().filter_map(|user| Some(user.id.as_str()?.to_owned())).collect();
    Ok(Verified { signed_by, fingerprint: hex::encode_upper(key.fingerprint().as_bytes()), digest })
}

fn keys(keyring: &[u8]) -> Result<Vec<SignedPublicKey>, ProvenanceError> {
    // The first bit of a packet is set; an armored ring begins with dashes.
    if keyring.first().is_some_and(|first| first & 0x80 == 0) && !keyring.starts_with(b"-----BEGIN") {
        return Err(ProvenanceError::Keyring("openpgp: invalid data: tag byte does not have MSB set".to_owned()));
    }
    if keyring.is_empty() {
        return Ok(Vec::new());
    }
    let (found, _) = SignedPublicKey::from_reader_many(keyring).map_err(|error| ProvenanceError::Keyring(error.to_string()))?;
    // Keys of kinds that are not known are passed over: a ring collects for decades.
    Ok(found.filter_map(Result::ok).collect())
}

/// The key that signed, and is good at the time.
fn signer<'k>(message: &CleartextSignedMessage, keys: &'k [SignedPublicKey], now: u64) -> Result<&'k SignedPublicKey, ProvenanceError> {
    let text = message.signed_text();
    for signature in message.signatures() {
        for key in keys {
            let subkey = key.public_subkeys.iter().find(|sub| issued(signature, &sub.key));
            if subkey.is_none() && !issued(signature, &key.primary_key) {
                continue;
            }
            let (right, algorithm) = match subkey {
                Some(sub) => (signature.verify(&sub.key, text.as_bytes()).is_ok() && sub.verify_bindings(&key.primary_key).is_ok(), sub.key.algorithm()),
                None => (signature.verify(&key.primary_key, text.as_bytes()).is_ok(), key.primary_key.algorithm()),
            };
            if !right {
                return Err(ProvenanceError::Invalid(name(algorithm)));
            }
            if is_revoked(key) || subkey.is_some_and(|sub| sub.signatures.iter().any(|s| s.typ() == Some(pgp::packet::SignatureType::SubkeyRevocation))) {
                return Err(ProvenanceError::Revoked);
            }
            let own = key.details.users.iter().flat_map(|user| &user.signatures).chain(&key.details.direct_signatures).filter(|s| issued(s, &key.primary_key));
            if is_over(&key.primary_key, own, now) || subkey.is_some_and(|sub| is_over(&sub.key, sub.signatures.iter(), now)) {
                return Err(ProvenanceError::Expired);
            }
            let made = signature.created().map_or(0, |at| u64::from(at.as_secs()));
            if signature.signature_expiration_time().is_some_and(|life| life.as_secs() > 0 && made + u64::from(life.as_secs()) < now) {
                return Err(ProvenanceError::SignatureExpired);
            }
            return Ok(key);
        }
    }
    Err(ProvenanceError::Unknown)
}

/// Whether a signature names a key as its maker.
fn issued(signature: &Signature, key: &(impl VerifyingKey + KeyDetails)) -> bool {
    let prints = signature.issuer_fingerprint();
    if prints.is_empty() { signature.issuer_key_id().contains(&&key.legacy_key_id()) } else { prints.contains(&&key.fingerprint()) }
}

/// Whether the newest of a key's own signatures says that its time is over.
fn is_over<'s>(key: &impl KeyDetails, own: impl Iterator<Item = &'s Signature>, now: u64) -> bool {
    let newest = own.max_by_key(|signature| signature.created().map_or(0, |at| at.as_secs()));
    let life = newest.and_then(Signature::key_expiration_time).map_or(0, |life| life.as_secs());
    life > 0 && u64::from(key.created_at().as_secs()) + u64::from(life) < now
}

fn is_revoked(key: &SignedPublicKey) -> bool {
    key.details.revocation_signatures.iter().any(|signature| signature.verify_key(&key.primary_key).is_ok())
}

fn name(algorithm: PublicKeyAlgorithm) -> &'static str {
    match algorithm {
        PublicKeyAlgorithm::RSA | PublicKeyAlgorithm::RSASign => "RSA",
        PublicKeyAlgorithm::DSA => "DSA",
        PublicKeyAlgorithm::ECDSA => "ECDSA",
        PublicKeyAlgorithm::EdDSALegacy => "EdDSA",
        PublicKeyAlgorithm::Ed25519 => "ed25519",
        PublicKeyAlgorithm::Ed448 => "ed448",
        _ => "signature",
    }
}

/// The digest that a message gives for a file.
fn named(text: &str, file: &str) -> Result<String, ProvenanceError> {
    let text = text.replace("\r\n", "\n");
    let digests = text.split("\n...\n").nth(1).ok_or(ProvenanceError::NoDigests)?;
    let read = chart::yaml::decode::decode(digests.as_bytes()).map_err(|fault| ProvenanceError::Digests(fault.0))?.to_json();
    let wrong = |kind: &str, what: &str| ProvenanceError::Digests(format!("error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go {what}"));
    let kind = |value: &serde_json::Value| match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    };
    let files = match &read {
        serde_json::Value::Null => None,
        serde_json::Value::Object(all) => all.get("files").filter(|files| !files.is_null()),
        other => return Err(wrong(kind(other), "value of type provenance.SumCollection")),
    };
    let digest = match files {
        None => None,
        Some(serde_json::Value::Object(files)) => files.get(file),
        Some(other) => return Err(wrong(kind(other), "struct field SumCollection.files of type map[string]string")),
    };
    match digest {
        Some(serde_json::Value::String(digest)) => Ok(digest.clone()),
        // What is no text is taken as one where one is wanted.
        Some(plain @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => Ok(plain.to_string()),
        Some(serde_json::Value::Null) => Ok(String::new()),
        Some(other) => Err(wrong(kind(other), "struct field SumCollection.files of type string")),
        None => Err(ProvenanceError::NotNamed(file.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `helm template --verify` says of the same files; no words where it renders.
    #[test]
    fn helm_says_the_same() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/helm/provenance");
        let read = |name: &str| std::fs::read(folder.join(name)).expect("a recorded file");
        let archive = read("web-0.1.0.tgz");
        let table = String::from_utf8(read("expected.tsv")).expect("text");
        for line in table.lines() {
            let cells: Vec<&str> = line.split('\t').collect();
            let [provenance, file, keyring, words] = cells[..] else { panic!("{line}") };
            let said = verify(&archive, file, &read(provenance), &read(keyring), 1_796_000_000).map_err(|error| error.to_string());
            assert_eq!(said.as_ref().err().map_or("", String::as_str), words, "{line}");
        }
        let verified = verify(&archive, "web-0.1.0.tgz", &read("good.prov"), &read("ring.gpg"), 1_796_000_000).expect("verified");
        assert_eq!(verified.signed_by, ["Test Signer <signer@example.org>"]);
        assert_eq!(verified.fingerprint, "6797768B17F6CC07E94FDE0E45A3DB59FEC32F0C");
    }

    #[test]
    fn damaged_files_are_refused() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/oracle/helm/provenance");
        let read = |name: &str| std::fs::read(folder.join(name)).expect("a recorded file");
        let (archive, provenance, keyring) = (read("web-0.1.0.tgz"), read("good.prov"), read("ring.gpg"));
        for at in 0..provenance.len() {
            let mut damaged = provenance.clone();
            damaged[at] ^= 0x04;
            // The armor's own head and foot say nothing that is signed.
            if let Ok(verified) = verify(&archive, "web-0.1.0.tgz", &damaged, &keyring, 1_796_000_000) {
                assert_eq!(verified.fingerprint, "6797768B17F6CC07E94FDE0E45A3DB59FEC32F0C");
            }
            let cut = verify(&archive, "web-0.1.0.tgz", &provenance[..at], &keyring, 1_796_000_000);
            assert!(cut.is_err() || at + 40 > provenance.len(), "cut at {at}");
        }
        for at in 0..keyring.len() {
            let mut damaged = keyring.clone();
            damaged[at] ^= 0x40;
            let _ = verify(&archive, "web-0.1.0.tgz", &provenance, &damaged, 1_796_000_000);
        }
    }
}
