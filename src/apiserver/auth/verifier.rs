//! TLS side of client certificates: proves possession of the key only; whether the chain counts is decided per request, as
//! Kubernetes does, so that a stranger's certificate is a 401 and not a broken handshake.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Asks for a client certificate and takes any whose key the client holds.
#[derive(Debug)]
pub struct AskOnly {
    provider: Arc<CryptoProvider>,
    hints: Vec<DistinguishedName>,
}

impl AskOnly {
    /// `hints` are the encoded subjects of the authorities whose certificates are welcome.
    #[must_use]
    pub fn new(provider: Arc<CryptoProvider>, hints: Vec<Vec<u8>>) -> Self {
        // DistinguishedName::in_sequence wraps the content; ours is a whole Name already.
        Self { provider, hints: hints.into_iter().map(DistinguishedName::from).collect() }
    }
}

impl ClientCertVerifier for AskOnly {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
