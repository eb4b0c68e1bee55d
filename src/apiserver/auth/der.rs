//! X.509 certificates written by hand: subject, key and names are taken over byte by byte, so repeated organizations survive.

use jiff::Timestamp;

/// OBJECT IDENTIFIERs, already encoded.
pub(crate) mod oid {
    pub(crate) const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
    pub(crate) const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
    pub(crate) const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
    pub(crate) const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    pub(crate) const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
    pub(crate) const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
    pub(crate) const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
    pub(crate) const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    pub(crate) const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
    pub(crate) const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
    pub(crate) const EXT_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
}

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// One tag, length and content.
pub(crate) fn tlv(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes = length.to_be_bytes();
        let used: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
        out.push(0x80 | used.len() as u8);
        out.extend(used);
    }
    out.extend_from_slice(content);
    out
}

pub(crate) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    tlv(SEQUENCE, &parts.concat())
}

fn integer(bytes: &[u8]) -> Vec<u8> {
    let mut content: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
    if content.first().is_none_or(|byte| byte & 0x80 != 0) {
        content.insert(0, 0);
    }
    tlv(INTEGER, &content)
}

fn bit_string(bytes: &[u8], unused: u8) -> Vec<u8> {
    let mut content = vec![unused];
    content.extend_from_slice(bytes);
    tlv(BIT_STRING, &content)
}

fn time(at: Timestamp) -> Vec<u8> {
    let civil = at.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    if (1950..2050).contains(&civil.year()) {
        tlv(UTC_TIME, format!("{:02}{rest}", civil.year() % 100).as_bytes())
    } else {
        tlv(GENERALIZED_TIME, format!("{:04}{rest}", civil.year()).as_bytes())
    }
}

/// A distinguished name of organizations and a common name, in the order Go writes them.
pub(crate) fn name(common_name: &str, organizations: &[String]) -> Vec<u8> {
    let attribute = |kind: &[u8], value: &str| sequence(&[tlv(OID, kind), tlv(UTF8_STRING, value.as_bytes())]);
    let mut sets = Vec::new();
    if !organizations.is_empty() {
        let mut all: Vec<Vec<u8>> = organizations.iter().map(|o| attribute(oid::ORGANIZATION, o)).collect();
        // The members of a SET OF are sorted by their encoding.
        all.sort();
        sets.push(tlv(SET, &all.concat()));
    }
    sets.push(tlv(SET, &attribute(oid::COMMON_NAME, common_name)));
    sequence(&sets)
}

/// The SubjectPublicKeyInfo of an uncompressed P-256 point.
pub(crate) fn ec_public_key(point: &[u8]) -> Vec<u8> {
    let algorithm = sequence(&[tlv(OID, oid::EC_PUBLIC_KEY), tlv(OID, oid::PRIME256V1)]);
    sequence(&[algorithm, bit_string(point, 0)])
}

/// Names for a SubjectAlternativeName extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AltName {
    /// A DNS name.
    Dns(String),
    /// An IP address.
    Ip(std::net::IpAddr),
}

/// The content of a SubjectAlternativeName extension.
pub(crate) fn alt_names(names: &[AltName]) -> Vec<u8> {
    let parts: Vec<Vec<u8>> = names
        .iter()
        .map(|name| match name {
            AltName::Dns(name) => tlv(0x82, name.as_bytes()),
            AltName::Ip(std::net::IpAddr::V4(ip)) => tlv(0x87, &ip.octets()),
            AltName::Ip(std::net::IpAddr::V6(ip)) => tlv(0x87, &ip.octets()),
        })
        .collect();
    sequence(&parts)
}

/// What a certificate says, before it is signed.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) serial: [u8; 16],
    /// Encoded Name of the issuer.
    pub(crate) issuer: Vec<u8>,
    /// Encoded Name of the subject.
    pub(crate) subject: Vec<u8>,
    /// Encoded SubjectPublicKeyInfo.
    pub(crate) public_key: Vec<u8>,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
    /// Bit 0 is digitalSignature, as RFC 5280 numbers them.
    pub(crate) key_usage: u16,
    /// Encoded purposes.
    pub(crate) purposes: Vec<Vec<u8>>,
    pub(crate) authority: bool,
    pub(crate) subject_key_id: Option<Vec<u8>>,
    pub(crate) authority_key_id: Option<Vec<u8>>,
    /// Encoded content of the SubjectAlternativeName extension.
    pub(crate) alt_names: Option<Vec<u8>>,
}

fn signature_algorithm() -> Vec<u8> {
    sequence(&[tlv(OID, oid::ECDSA_WITH_SHA256)])
}

fn extension(kind: &[u8], critical: bool, content: &[u8]) -> Vec<u8> {
    let mut parts = vec![tlv(OID, kind)];
    if critical {
        parts.push(vec![0x01, 0x01, 0xff]);
    }
    parts.push(tlv(OCTET_STRING, content));
    sequence(&parts)
}

fn key_usage_bits(usage: u16) -> Vec<u8> {
    let mut bytes = [0u8; 2];
    let mut last = 0;
    for bit in 0..9u32 {
        if usage & (1 << bit) != 0 {
            bytes[(bit / 8) as usize] |= 0x80 >> (bit % 8);
            last = bit;
        }
    }
    let used = (last / 8 + 1) as usize;
    bit_string(&bytes[..used], 7 - (last % 8) as u8)
}

impl Certificate {
    /// The part that gets signed.
    pub(crate) fn to_be_signed(&self) -> Vec<u8> {
        let mut extensions = Vec::new();
        if self.key_usage != 0 {
            extensions.push(extension(oid::KEY_USAGE, true, &key_usage_bits(self.key_usage)));
        }
        if !self.purposes.is_empty() {
            let purposes: Vec<Vec<u8>> = self.purposes.iter().map(|purpose| tlv(OID, purpose)).collect();
            extensions.push(extension(oid::EXT_KEY_USAGE, false, &sequence(&purposes)));
        }
        let constraints = if self.authority { vec![vec![0x01, 0x01, 0xff]] } else { Vec::new() };
        extensions.push(extension(oid::BASIC_CONSTRAINTS, true, &sequence(&constraints)));
        if let Some(id) = &self.subject_key_id {
            extensions.push(extension(oid::SUBJECT_KEY_ID, false, &tlv(OCTET_STRING, id)));
        }
        if let Some(id) = &self.authority_key_id {
            extensions.push(extension(oid::AUTHORITY_KEY_ID, false, &sequence(&[tlv(0x80, id)])));
        }
        if let Some(names) = &self.alt_names {
            extensions.push(extension(oid::SUBJECT_ALT_NAME, false, names));
        }
        sequence(&[
            tlv(0xa0, &integer(&[2])),
            integer(&self.serial),
            signature_algorithm(),
            self.issuer.clone(),
            sequence(&[time(self.not_before), time(self.not_after)]),
            self.subject.clone(),
            self.public_key.clone(),
            tlv(0xa3, &sequence(&extensions)),
        ])
    }

    /// The whole certificate from the signed part and its ASN.1 signature.
    pub(crate) fn assemble(to_be_signed: Vec<u8>, signature: &[u8]) -> Vec<u8> {
        sequence(&[to_be_signed, signature_algorithm(), bit_string(signature, 0)])
    }
}

/// A certificate request for a subject and key; `sign` gives the ASN.1 signature.
pub(crate) fn request(
    subject: Vec<u8>,
    public_key: Vec<u8>,
    names: &[AltName],
    sign: impl FnOnce(&[u8]) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    // extensionRequest of PKCS #9
    const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
    let attributes = if names.is_empty() {
        Vec::new()
    } else {
        let extensions = sequence(&[extension(oid::SUBJECT_ALT_NAME, false, &alt_names(names))]);
        sequence(&[tlv(OID, EXTENSION_REQUEST), tlv(SET, &extensions)])
    };
    let info = sequence(&[integer(&[0]), subject, public_key, tlv(0xa0, &attributes)]);
    let signature = sign(&info)?;
    Some(sequence(&[info, signature_algorithm(), bit_string(&signature, 0)]))
}

/// PEM text of one block, 64 characters a line.
pub(crate) fn pem(label: &str, bytes: &[u8]) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(bytes);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}
