//! Whom we trust among the servers that extend this one: those of a CA bundle, or of the system's roots when there is none, as
//! Go's client would.

use std::sync::{Arc, OnceLock};

use base64::Engine;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Trusts what the authorities of a bundle signed, and the certificates of the bundle themselves: many a webhook has one that
/// it signed itself, which is its own authority.
#[derive(Debug)]
struct Bundle {
    certificates: Vec<CertificateDer<'static>>,
    signed: Arc<WebPkiServerVerifier>,
}

/// Trusts whoever answers: `insecureSkipTLSVerify`.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

/// Trusts nobody: there are no roots.
#[derive(Debug)]
struct Nobody(Arc<CryptoProvider>);

/// Signatures of the handshake are checked as always.
macro_rules! signatures {
    ($own:ident => $provider:expr) => {
        fn verify_tls12_signature(&$own, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(message, certificate, signature, &$provider.signature_verification_algorithms)
        }

        fn verify_tls13_signature(&$own, message: &[u8], certificate: &CertificateDer<'_>, signature: &DigitallySignedStruct) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(message, certificate, signature, &$provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&$own) -> Vec<SignatureScheme> {
            $provider.signature_verification_algorithms.supported_schemes()
        }
    };
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

impl ServerCertVerifier for Bundle {
    fn verify_server_cert(&self, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>], name: &ServerName<'_>, ocsp: &[u8], now: UnixTime) -> Result<ServerCertVerified, rustls::Error> {
        let verdict = self.signed.verify_server_cert(leaf, chain, name, ocsp, now);
        if verdict.is_ok() || !self.certificates.iter().any(|own| own == leaf) {
            return verdict;
        }
        verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| CertificateError::BadEncoding)?;
        let at = x509_parser::time::ASN1Time::from_timestamp(i64::try_from(now.as_secs()).unwrap_or(i64::MAX)).map_err(|_| CertificateError::BadEncoding)?;
        if parsed.validity().is_valid_at(at) { Ok(ServerCertVerified::assertion()) } else { Err(CertificateError::Expired.into()) }
    }

    signatures!(self => provider());
}

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(&self, _: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: &ServerName<'_>, _: &[u8], _: UnixTime) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    signatures!(self => self.0);
}

impl ServerCertVerifier for Nobody {
    fn verify_server_cert(&self, _: &CertificateDer<'_>, _: &[CertificateDer<'_>], _: &ServerName<'_>, _: &[u8], _: UnixTime) -> Result<ServerCertVerified, rustls::Error> {
        Err(CertificateError::UnknownIssuer.into())
    }

    signatures!(self => self.0);
}

/// The verifier of a bundle (base64 of PEM), or of anybody.
fn verifier(bundle: &str, anybody: bool) -> Result<Arc<dyn ServerCertVerifier>, String> {
    if anybody {
        return Ok(Arc::new(Anybody(provider())));
    }
    if bundle.is_empty() {
        return system();
    }
    let pem = base64::engine::general_purpose::STANDARD.decode(bundle).map_err(|e| e.to_string())?;
    let certificates = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().map_err(|e| e.to_string())?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|e| e.to_string())?;
    }
    if roots.is_empty() {
        return Err("it has no certificate".to_owned());
    }
    let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().map_err(|e| e.to_string())?;
    Ok(Arc::new(Bundle { certificates, signed }))
}

/// The verifier of those whom this machine trusts; they are read once. A machine without any trusts nobody, which the handshake says.
fn system() -> Result<Arc<dyn ServerCertVerifier>, String> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let roots = ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    });
    if roots.is_empty() {
        return Ok(Arc::new(Nobody(provider())));
    }
    let signed = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider()).build().map_err(|e| e.to_string())?;
    Ok(signed)
}

/// The first half of a TLS setting that trusts a bundle.
pub(crate) fn client(bundle: &str, anybody: bool) -> Result<rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert>, String> {
    let builder = rustls::ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().map_err(|e| e.to_string())?;
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier(bundle, anybody)?))
}

/// What Go says of a handshake that failed.
pub(crate) fn words(error: &std::io::Error) -> String {
    let about = |text: String| format!("tls: failed to verify certificate: x509: {text}");
    match error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            CertificateError::UnknownIssuer => about("certificate signed by unknown authority".to_owned()),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } | CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                about("certificate has expired or is not yet valid".to_owned())
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                let names: Vec<&str> = presented.iter().map(|name| name.split_once('(').map_or(name.as_str(), |(_, n)| n.trim_end_matches(')').trim_matches('"'))).collect();
                about(format!("certificate is valid for {}, not {}", names.join(", "), expected.to_str()))
            }
            other => about(other.to_string()),
        },
        _ => format!("tls: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::auth::Pki;

    #[test]
    fn a_certificate_of_the_bundle_is_its_own_authority() {
        let now = UnixTime::now();
        let mut parameters = rcgen::CertificateParams::new(vec!["hook.example.com".to_owned()]).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let own = parameters.self_signed(&key).unwrap();
        let bundle = |pem: String| base64::engine::general_purpose::STANDARD.encode(pem);
        let ask = |verifier: &Arc<dyn ServerCertVerifier>, name: &'static str| verifier.verify_server_cert(own.der(), &[], &ServerName::try_from(name).unwrap(), &[], now);
        let trusting = verifier(&bundle(own.pem()), false).unwrap();
        assert!(ask(&trusting, "hook.example.com").is_ok());
        assert!(ask(&trusting, "other.example.com").is_err());
        let other = Pki::ephemeral(&[], jiff::Timestamp::now()).unwrap();
        assert!(ask(&verifier(&bundle(other.ca.pem()), false).unwrap(), "hook.example.com").is_err());
        assert!(ask(&verifier("", true).unwrap(), "hook.example.com").is_ok());
        // Without a bundle the system's roots count: nobody there signed this one, and it is the handshake that says so.
        let refused = ask(&verifier("", false).unwrap(), "hook.example.com");
        assert!(matches!(refused, Err(rustls::Error::InvalidCertificate(_))), "{refused:?}");
        for bad in ["%", &bundle("no PEM".to_owned())] {
            assert!(verifier(bad, false).is_err(), "{bad}");
        }
    }
}
