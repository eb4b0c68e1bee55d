//! Certificate signing requests: who may approve and sign them, and the signers of `kubernetes.io` that the embedded parent runs.

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::CertificateSigningRequestDer;
use serde_json::{json, Value};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

use super::der;
use super::pki::{Authority, Leaf};
use super::{at, quoted, strings, text, Attributes, Authorizer, Identity};

/// Client certificates for any user.
pub const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Client certificates of nodes.
pub const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of nodes.
pub const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Requests from before signers had names.
pub const LEGACY: &str = "kubernetes.io/legacy-unknown";

const GROUP: &str = "certificates.k8s.io";
/// The longest life of a signed certificate: a year.
const LONGEST: SignedDuration = SignedDuration::from_hours(365 * 24);
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);
/// Shorter certificates are backdated by no more than a hundredth of their life.
const SHORT: SignedDuration = SignedDuration::from_hours(8);

/// What a signer does with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not ours, not approved yet, or done already.
    Leave,
    /// `status.certificate`: PEM text in base64.
    Signed(String),
    /// A condition `Failed` with reason `SignerValidationFailure` and this message.
    Failed(String),
}

/// Sets who asks on a new request; whatever the body said about it is overwritten.
pub fn stamp(request: &mut Value, who: &Identity) {
    if !request["spec"].is_object() {
        return;
    }
    for (key, value) in [("username", json!(who.user)), ("uid", json!(who.uid))] {
        request["spec"][key] = value;
    }
    request["spec"]["groups"] = json!(who.groups);
    request["spec"]["extra"] = json!(who.extra);
    if let Some(spec) = request["spec"].as_object_mut() {
        spec.retain(|key, value| {
            let ours = ["uid", "username", "extra", "groups"].contains(&key.as_str());
            let empty = value.as_str() == Some("")
                || value.as_object().is_some_and(serde_json::Map::is_empty)
                || value.as_array().is_some_and(Vec::is_empty);
            !(ours && empty)
        });
    }
}

/// Whether the caller may `approve` or `sign` for a signer, by name or by its domain.
///
/// # Errors
/// The cause text of a `Forbidden` answer.
pub fn permitted(authorizer: &Authorizer, who: &Identity, verb: &str, signer: &str) -> Result<(), String> {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    let wildcard = format!("{domain}/*");
    let ask = |name: &str| authorizer.allowed(who, &Attributes::resource(verb, GROUP, "signers", "", name)).allow;
    if ask(signer) || ask(&wildcard) {
        return Ok(());
    }
    Err(format!("user not permitted to {verb} requests with signerName {}", quoted(signer)))
}

/// A request for `system:masters` through the client signer is refused at creation, whoever asks.
///
/// # Errors
/// The cause text of a `Forbidden` answer.
pub fn restricted_subject(request: &Value) -> Result<(), String> {
    if text(request, &["spec", "signerName"]) != CLIENT {
        return Ok(());
    }
    let Some(der) = request_der(request) else { return Ok(()) };
    let Ok((_, parsed)) = X509CertificationRequest::from_der(&der) else { return Ok(()) };
    let masters = parsed
        .certification_request_info
        .subject
        .iter_organization()
        .any(|o| o.as_str().is_ok_and(|o| o == super::GROUP_MASTERS));
    if masters {
        return Err(format!("use of {CLIENT} signer with {} group is not allowed", super::GROUP_MASTERS));
    }
    Ok(())
}

fn request_der(object: &Value) -> Option<Vec<u8>> {
    let pem = base64::engine::general_purpose::STANDARD.decode(text(object, &["spec", "request"])).ok()?;
    CertificateSigningRequestDer::from_pem_slice(&pem).ok().map(|der| der.to_vec())
}

/// What is wrong with `spec.request`, in Kubernetes' words where it has some.
pub fn request_fault(object: &Value) -> Option<String> {
    let Some(der) = request_der(object) else { return Some("PEM block type must be CERTIFICATE REQUEST".into()) };
    let Ok((_, parsed)) = X509CertificationRequest::from_der(&der) else {
        return Some("asn1: structure error: malformed certificate request".into());
    };
    parsed.verify_signature().is_err().then(|| "x509: signature of the certificate request does not fit its key".into())
}

/// Whether a condition of this type is there.
fn condition(object: &Value, kind: &str) -> bool {
    let list = at(object, &["status", "conditions"]).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().any(|condition| text(condition, &["type"]) == kind)
}

/// Whether a request waits for one of our signers.
pub fn waits(object: &Value) -> bool {
    [CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY].contains(&text(object, &["spec", "signerName"]))
        && condition(object, "Approved")
        && !condition(object, "Denied")
        && !condition(object, "Failed")
        && text(object, &["status", "certificate"]).is_empty()
}

/// Signs an approved request of one of our signers.
pub fn sign(authority: &Authority, object: &Value, now: Timestamp) -> Outcome {
    if !waits(object) {
        return Outcome::Leave;
    }
    let Some(der) = request_der(object) else {
        return Outcome::Failed("unable to parse csr: PEM block type must be CERTIFICATE REQUEST".into());
    };
    let Ok((_, parsed)) = X509CertificationRequest::from_der(&der) else {
        return Outcome::Failed("unable to parse csr: malformed certificate request".into());
    };
    if parsed.verify_signature().is_err() {
        return Outcome::Failed("unable to verify the signature of the request".into());
    }
    let usages = strings(object, &["spec", "usages"]);
    let names = Names::of(&parsed);
    if let Err(fault) = check(text(object, &["spec", "signerName"]), &parsed, &names, &usages) {
        return Outcome::Failed(fault);
    }
    let life = match at(object, &["spec", "expirationSeconds"]).and_then(Value::as_i64) {
        None => LONGEST,
        Some(seconds) => SignedDuration::from_secs(seconds).clamp(SHORTEST, LONGEST),
    };
    let (key_usage, purposes) = usage_bits(&usages);
    let backdate = if life < SHORT { (life / 100).min(BACKDATE) } else { BACKDATE };
    let info = &parsed.certification_request_info;
    let leaf = Leaf {
        subject: info.subject.as_raw().to_vec(),
        public_key: info.subject_pki.raw.to_vec(),
        key_usage,
        purposes,
        alt_names: names.encoded,
        not_before: now - backdate,
        not_after: now - backdate + life,
    };
    match authority.sign(leaf) {
        Ok(certificate) => {
            let pem = der::pem("CERTIFICATE", &certificate);
            Outcome::Signed(base64::engine::general_purpose::STANDARD.encode(pem))
        }
        // The random source failed: nothing about the request is wrong, so it stays to be tried again.
        Err(_) => Outcome::Leave,
    }
}

/// The alternative names of a request: counted for the checks, and encoded as they were asked.
#[derive(Default)]
struct Names {
    dns: usize,
    ip: usize,
    email: usize,
    uri: usize,
    encoded: Option<Vec<u8>>,
}

impl Names {
    fn of(request: &X509CertificationRequest<'_>) -> Self {
        let mut out = Self::default();
        for extension in request.requested_extensions().into_iter().flatten() {
            let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
            let mut parts = Vec::new();
            for name in &names.general_names {
                match name {
                    GeneralName::DNSName(dns) => {
                        out.dns += 1;
                        parts.push(der::tlv(0x82, dns.as_bytes()));
                    }
                    GeneralName::IPAddress(ip) => {
                        out.ip += 1;
                        parts.push(der::tlv(0x87, ip));
                    }
                    GeneralName::RFC822Name(email) => {
                        out.email += 1;
                        parts.push(der::tlv(0x81, email.as_bytes()));
                    }
                    GeneralName::URI(uri) => {
                        out.uri += 1;
                        parts.push(der::tlv(0x86, uri.as_bytes()));
                    }
                    _ => {}
                }
            }
            if !parts.is_empty() {
                out.encoded = Some(der::sequence(&parts));
            }
        }
        out
    }
}

fn usages_are(usages: &[String], purpose: &str) -> bool {
    let mut found: Vec<&str> = usages.iter().map(String::as_str).collect();
    found.sort_unstable();
    found.dedup();
    let mut short = vec!["digital signature", purpose];
    short.sort_unstable();
    let mut long = vec!["digital signature", "key encipherment", purpose];
    long.sort_unstable();
    found == short || found == long
}

/// The rules of each signer, with Kubernetes' words.
fn check(signer: &str, request: &X509CertificationRequest<'_>, names: &Names, usages: &[String]) -> Result<(), String> {
    let fault = |text: &str| Err(text.to_owned());
    if signer == CLIENT {
        for usage in usages {
            if !["digital signature", "key encipherment", "client auth"].contains(&usage.as_str()) {
                return Err(format!("invalid usage for client certificate: {usage}"));
            }
        }
        return if usages.iter().any(|usage| usage == "client auth") {
            Ok(())
        } else {
            fault("missing required usage for client certificate: client auth")
        };
    }
    if signer == LEGACY {
        return Ok(());
    }
    let subject = &request.certification_request_info.subject;
    let organizations: Vec<&str> = subject.iter_organization().filter_map(|o| o.as_str().ok()).collect();
    if organizations != ["system:nodes"] {
        return fault("subject organization is not system:nodes");
    }
    let serving = signer == KUBELET_SERVING;
    if serving && names.dns == 0 && names.ip == 0 {
        return fault("DNS or IP subjectAltName is required");
    }
    if !serving && names.dns > 0 {
        return fault("DNS subjectAltNames are not allowed");
    }
    if names.email > 0 {
        return fault("Email subjectAltNames are not allowed");
    }
    if !serving && names.ip > 0 {
        return fault("IP subjectAltNames are not allowed");
    }
    if names.uri > 0 {
        return fault("URI subjectAltNames are not allowed");
    }
    let named = subject.iter_common_name().next().and_then(|name| name.as_str().ok()).unwrap_or("");
    let purpose = if serving { "server auth" } else { "client auth" };
    let wrong_usages = !usages_are(usages, purpose);
    let wrong_name = !named.starts_with("system:node:");
    if wrong_usages && (serving || !wrong_name) {
        let mut wanted = ["digital signature", "key encipherment", purpose];
        wanted.sort_unstable();
        return Err(format!("usages did not match [{}]", wanted.join(" ")));
    }
    if wrong_name {
        return fault("subject common name does not begin with system:node:");
    }
    Ok(())
}

/// Key usage bits and purposes of the usage names of the API.
fn usage_bits(usages: &[String]) -> (u16, Vec<Vec<u8>>) {
    const PURPOSE: [u8; 7] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03];
    let mut bits = 0;
    let mut purposes: Vec<Vec<u8>> = Vec::new();
    for usage in usages {
        let last = match usage.as_str() {
            "signing" | "digital signature" => {
                bits |= 1;
                continue;
            }
            "content commitment" => {
                bits |= 1 << 1;
                continue;
            }
            "key encipherment" => {
                bits |= 1 << 2;
                continue;
            }
            "data encipherment" => {
                bits |= 1 << 3;
                continue;
            }
            "key agreement" => {
                bits |= 1 << 4;
                continue;
            }
            "cert sign" => {
                bits |= 1 << 5;
                continue;
            }
            "crl sign" => {
                bits |= 1 << 6;
                continue;
            }
            "encipher only" => {
                bits |= 1 << 7;
                continue;
            }
            "decipher only" => {
                bits |= 1 << 8;
                continue;
            }
            "server auth" => 1,
            "client auth" => 2,
            "code signing" => 3,
            "email protection" | "s/mime" => 4,
            "ipsec end system" => 5,
            "ipsec tunnel" => 6,
            "ipsec user" => 7,
            "timestamping" => 8,
            "ocsp signing" => 9,
            _ => continue,
        };
        let mut purpose = PURPOSE.to_vec();
        purpose.push(last);
        if !purposes.contains(&purpose) {
            purposes.push(purpose);
        }
    }
    purposes.sort();
    (bits, purposes)
}
