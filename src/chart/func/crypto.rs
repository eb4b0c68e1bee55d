//! Keys, certificates, password hashes and ciphers, all from the render's seeded generator and its clock.

use super::Ty::{Cert as C, Int, List as L, Str as S, Uint32};
use super::{Func, GoErr, Out, err, f, int, s, text};
use crate::run::Runtime;
use crate::value::{Cert, Obj, Val};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use num_bigint_dig::{BigUint, RandBigInt as _, RandPrime as _, prime::probably_prime};
use rand::RngCore as _;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm, SigningKey};
use rsa::pkcs1::{DecodeRsaPrivateKey as _, EncodeRsaPrivateKey as _, EncodeRsaPublicKey as _};
use rsa::pkcs8::DecodePrivateKey as _;
use rsa::rand_core::{CryptoRng, Error as CoreError, RngCore as CoreRng};
use rsa::{Pkcs1v15Sign, RsaPrivateKey};
use sha2::{Digest as _, Sha256};

pub(super) fn table() -> Vec<Func> {
    vec![
        f("bcrypt", &[S], |rt, a| Ok(Val::str(bcrypt_hash(rt, s(&a[0]))))),
        f("htpasswd", &[S, S], |rt, a| {
            let user = text(&a[0]);
            if user.contains(':') {
                return Ok(Val::str(format!("invalid username: {user}")));
            }
            let h = bcrypt_hash(rt, s(&a[1]));
            Ok(Val::str(format!("{user}:{h}")))
        }),
        f("derivePassword", &[Uint32, S, S, S, S], |rt, a| {
            rt.burn(1_000_000)?;
            Ok(Val::str(derive(int(&a[0]) as u32, &text(&a[1]), s(&a[2]), s(&a[3]), s(&a[4]))))
        }),
        f("genPrivateKey", &[S], gen_key),
        f("genCA", &[S, Int], |rt, a| {
            let k = Key::rsa(rt, 2048)?;
            make(rt, Want { cn: text(&a[0]).into(), ips: None, dns: None, days: int(&a[1]), ca: true }, k, None)
        }),
        f("genCAWithKey", &[S, Int, S], |rt, a| {
            let k = parse(&text(&a[2]))?;
            make(rt, Want { cn: text(&a[0]).into(), ips: None, dns: None, days: int(&a[1]), ca: true }, k, None)
        }),
        f("genSelfSignedCert", &[S, L, L, Int], |rt, a| {
            let k = Key::rsa(rt, 2048)?;
            make(rt, Want::leaf(a), k, None)
        }),
        f("genSelfSignedCertWithKey", &[S, L, L, Int, S], |rt, a| {
            let k = parse(&text(&a[4]))?;
            make(rt, Want::leaf(a), k, None)
        }),
        f("genSignedCert", &[S, L, L, Int, C], |rt, a| {
            let k = Key::rsa(rt, 2048)?;
            make(rt, Want::leaf(a), k, cert(&a[4]))
        }),
        f("genSignedCertWithKey", &[S, L, L, Int, C, S], |rt, a| {
            let k = parse(&text(&a[5]))?;
            make(rt, Want::leaf(a), k, cert(&a[4]))
        }),
        f("buildCustomCert", &[S, S], build),
        f("encryptAES", &[S, S], encrypt),
        f("decryptAES", &[S, S], decrypt),
    ]
}

/// The render's generator in the older interface of the key crates.
struct Core<'a>(&'a mut rand::rngs::StdRng);

impl CoreRng for Core<'_> {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
    fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }
    fn fill_bytes(&mut self, dest: &mut [u8]) {
        self.0.fill_bytes(dest);
    }
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), CoreError> {
        self.0.fill_bytes(dest);
        Ok(())
    }
}

impl CryptoRng for Core<'_> {}

fn bcrypt_hash(rt: &mut Runtime, password: &[u8]) -> String {
    if password.len() > 72 {
        return "failed to encrypt string with bcrypt: bcrypt: password length exceeds 72 bytes".into();
    }
    let mut salt = [0u8; 16];
    rt.rng.0.fill_bytes(&mut salt);
    // Go's library writes version 2a, cost 10.
    match bcrypt::hash_with_salt(password, 10, salt) {
        Ok(h) => h.format_for_version(bcrypt::Version::TwoA),
        Err(e) => format!("failed to encrypt string with bcrypt: {e}"),
    }
}

fn derive(counter: u32, kind: &str, password: &[u8], user: &[u8], site: &[u8]) -> String {
    const SEED: &[u8] = b"com.lyndir.masterpassword";
    let templates: &[&str] = match kind {
        "maximum" => &["anoxxxxxxxxxxxxxxxxx", "axxxxxxxxxxxxxxxxxno"],
        "long" => &[
            "CvcvnoCvcvCvcv", "CvcvCvcvnoCvcv", "CvcvCvcvCvcvno", "CvccnoCvcvCvcv", "CvccCvcvnoCvcv", "CvccCvcvCvcvno", "CvcvnoCvccCvcv", "CvcvCvccnoCvcv", "CvcvCvccCvcvno", "CvcvnoCvcvCvcc", "CvcvCvcvnoCvcc", "CvcvCvcvCvccno", "CvccnoCvccCvcv", "CvccCvccnoCvcv",
            "CvccCvccCvcvno", "CvcvnoCvccCvcc", "CvcvCvccnoCvcc", "CvcvCvccCvccno", "CvccnoCvcvCvcc", "CvccCvcvnoCvcc", "CvccCvcvCvccno",
        ],
        "medium" => &["CvcnoCvc", "CvcCvcno"],
        "short" => &["Cvcn"],
        "basic" => &["aaanaaan", "aannaaan", "aaannaaa"],
        "pin" => &["nnnn"],
        k => return format!("cannot find password template {k}"),
    };
    let chars = |c: char| -> &[u8] {
        match c {
            'V' => b"AEIOU",
            'C' => b"BCDFGHJKLMNPQRSTVWXYZ",
            'v' => b"aeiou",
            'c' => b"bcdfghjklmnpqrstvwxyz",
            'A' => b"AEIOUBCDFGHJKLMNPQRSTVWXYZ",
            'a' => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz",
            'n' => b"0123456789",
            'o' => b"@&%?,=[]_:-+*$#!'^~;()/.",
            _ => b"AEIOUaeiouBCDFGHJKLMNPQRSTVWXYZbcdfghjklmnpqrstvwxyz0123456789!@#$%^&*()",
        }
    };
    let with = |part: &[u8]| [SEED, &(part.len() as u32).to_be_bytes(), part].concat();
    let mut key = [0u8; 64];
    let Ok(params) = scrypt::Params::new(15, 8, 2, 64) else { return "failed to derive password".into() };
    if let Err(e) = scrypt::scrypt(password, &with(user), &params, &mut key) {
        return format!("failed to derive password: {e}");
    }
    let Ok(mut mac) = <Hmac<Sha256> as hmac::Mac>::new_from_slice(&key) else { return "failed to derive password".into() };
    mac.update(&with(site));
    mac.update(&counter.to_be_bytes());
    let seed = mac.finalize().into_bytes();
    let t = templates[seed[0] as usize % templates.len()];
    t.chars()
        .zip(seed.iter().skip(1))
        .map(|(c, b)| {
            let set = chars(c);
            set[*b as usize % set.len()] as char
        })
        .collect()
}

fn pem(kind: &str, der: &[u8]) -> String {
    let b = STANDARD.encode(der);
    let mut o = format!("-----BEGIN {kind}-----\n");
    for l in b.as_bytes().chunks(64) {
        o.push_str(&crate::text::lossy(l));
        o.push('\n');
    }
    o.push_str(&format!("-----END {kind}-----\n"));
    o
}

fn unpem(t: &str) -> Option<(String, Vec<u8>)> {
    let start = t.find("-----BEGIN ")?;
    let rest = &t[start + 11..];
    let (kind, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once(&format!("-----END {kind}-----"))?;
    let clean: String = body.lines().filter(|l| !l.contains(':')).flat_map(|l| l.chars()).filter(|c| !c.is_whitespace()).collect();
    Some((kind.into(), STANDARD.decode(clean).ok()?))
}

/// DER of a value with its tag.
fn der(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut o = vec![tag];
    let n = body.len();
    if n < 128 {
        o.push(n as u8);
    } else {
        let b = n.to_be_bytes();
        let b = &b[b.iter().position(|c| *c != 0).unwrap_or(7)..];
        o.push(0x80 | b.len() as u8);
        o.extend_from_slice(b);
    }
    o.extend_from_slice(body);
    o
}

fn der_int(v: &BigUint) -> Vec<u8> {
    let mut b = v.to_bytes_be();
    if b.is_empty() || b[0] & 0x80 != 0 {
        b.insert(0, 0);
    }
    der(2, &b)
}

enum Kind {
    Rsa(Box<RsaPrivateKey>, Vec<u8>),
    Other(Box<KeyPair>),
}

/// A private key with the PEM text it is printed as.
struct Key {
    kind: Kind,
    text: String,
}

impl Key {
    fn rsa(rt: &mut Runtime, bits: usize) -> Result<Key, GoErr> {
        rt.burn(20_000_000)?;
        let k = RsaPrivateKey::new(&mut Core(&mut rt.rng.0), bits).map_err(|e| GoErr::new(format!("error generating rsa key: {e}")))?;
        Key::from_rsa(k)
    }

    fn from_rsa(k: RsaPrivateKey) -> Result<Key, GoErr> {
        let fault = |e: rsa::pkcs1::Error| GoErr::new(format!("error pem-encoding key: {e}"));
        let text = pem("RSA PRIVATE KEY", k.to_pkcs1_der().map_err(fault)?.as_bytes());
        let public = k.to_public_key().to_pkcs1_der().map_err(fault)?.as_bytes().to_vec();
        Ok(Key { kind: Kind::Rsa(Box::new(k), public), text })
    }
}

impl PublicKeyData for Key {
    fn der_bytes(&self) -> &[u8] {
        match &self.kind {
            Kind::Rsa(_, p) => p,
            Kind::Other(k) => k.der_bytes(),
        }
    }
    fn algorithm(&self) -> &'static SignatureAlgorithm {
        match &self.kind {
            Kind::Rsa(..) => &rcgen::PKCS_RSA_SHA256,
            Kind::Other(k) => k.algorithm(),
        }
    }
}

impl SigningKey for Key {
    fn sign(&self, msg: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        match &self.kind {
            Kind::Rsa(k, _) => {
                const PREFIX: [u8; 19] = [0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05, 0x00, 0x04, 0x20];
                let scheme = Pkcs1v15Sign { hash_len: Some(32), prefix: Box::new(PREFIX) };
                k.sign(scheme, &Sha256::digest(msg)).map_err(|_| rcgen::Error::RemoteKeyError)
            }
            Kind::Other(k) => k.sign(msg),
        }
    }
}

const P256_OID: [u8; 10] = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

/// SEC1 and PKCS#8 forms of a P-256 key.
fn ec_forms(secret: &p256::SecretKey) -> (Vec<u8>, Vec<u8>) {
    use p256::elliptic_curve::sec1::ToEncodedPoint as _;
    let scalar = secret.to_bytes();
    let point = secret.public_key().to_encoded_point(false);
    let bits = der(3, &[&[0u8], point.as_bytes()].concat());
    let head = [&[2u8, 1, 1][..], &der(4, &scalar)].concat();
    let sec1 = der(0x30, &[&head[..], &der(0xA0, &P256_OID), &der(0xA1, &bits)].concat());
    let inner = der(0x30, &[&head[..], &der(0xA1, &bits)].concat());
    let alg = der(0x30, &[&[0x06u8, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01][..], &P256_OID].concat());
    let pkcs8 = der(0x30, &[&[2u8, 1, 0][..], &alg, &der(4, &inner)].concat());
    (sec1, pkcs8)
}

fn random_p256(rt: &mut Runtime) -> Result<p256::SecretKey, GoErr> {
    for _ in 0..100 {
        if let Ok(k) = p256::SecretKey::from_slice(&rt.rng.bytes(32)) {
            return Ok(k);
        }
    }
    err("failed to generate private key")
}

fn gen_key(rt: &mut Runtime, a: &[Val]) -> Out {
    let t = match &*text(&a[0]) {
        "" | "rsa" => Key::rsa(rt, 4096)?.text,
        "ecdsa" => pem("EC PRIVATE KEY", &ec_forms(&random_p256(rt)?).0),
        "ed25519" => {
            let seed = rt.rng.bytes(32);
            pem("PRIVATE KEY", &[&[0x30u8, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20][..], &seed].concat())
        }
        "dsa" => dsa(rt)?,
        t => format!("Unknown type {t}"),
    };
    Ok(Val::str(t))
}

/// A DSA key of 2048 and 256 bits.
fn dsa(rt: &mut Runtime) -> Result<String, GoErr> {
    rt.burn(50_000_000)?;
    let rng = &mut Core(&mut rt.rng.0);
    let one = BigUint::from(1u8);
    let q = rng.gen_prime(256);
    let twice = &q * BigUint::from(2u8);
    let p = loop {
        let mut x = rng.gen_biguint(2048);
        x |= &one << 2047usize;
        let c = &x % &twice;
        let p = x - c + &one;
        if p.bits() == 2048 && probably_prime(&p, 10) {
            break p;
        }
    };
    let e = (&p - &one) / &q;
    let mut h = BigUint::from(2u8);
    let g = loop {
        let g = h.modpow(&e, &p);
        if g != one {
            break g;
        }
        h += &one;
    };
    let x = rng.gen_biguint_below(&(&q - &one)) + &one;
    let y = g.modpow(&x, &p);
    let body: Vec<u8> = [der(2, &[0]), der_int(&p), der_int(&q), der_int(&g), der_int(&y), der_int(&x)].concat();
    Ok(pem("DSA PRIVATE KEY", &der(0x30, &body)))
}

fn parse_key(t: &str) -> Result<Key, String> {
    let Some((kind, bytes)) = unpem(t) else { return Err("no PEM data in input".into()) };
    if kind == "PRIVATE KEY" {
        if let Ok(k) = RsaPrivateKey::from_pkcs8_der(&bytes) {
            return Key::from_rsa(k).map_err(|e| e.text());
        }
        let pair = KeyPair::try_from(bytes.as_slice()).map_err(|e| format!("decoding PEM as PKCS#8: {e}"))?;
        let text = pem("PRIVATE KEY", &bytes);
        return Ok(Key { kind: Kind::Other(Box::new(pair)), text });
    }
    match kind.strip_suffix(" PRIVATE KEY") {
        None => Err(format!("no private key data in PEM block of type {kind}")),
        Some("RSA") => RsaPrivateKey::from_pkcs1_der(&bytes).map_err(|e| format!("parsing RSA private key from PEM: {e}")).and_then(|k| Key::from_rsa(k).map_err(|e| e.text())),
        Some("EC") => {
            let fault = "parsing EC private key from PEM: x509: unknown elliptic curve".to_string();
            let scalar = bytes.windows(5).position(|w| w == [2, 1, 1, 4, 0x20]).and_then(|i| bytes.get(i + 5..i + 37)).ok_or(fault.clone())?;
            let secret = p256::SecretKey::from_slice(scalar).map_err(|_| fault.clone())?;
            let (sec1, pkcs8) = ec_forms(&secret);
            let pair = KeyPair::try_from(pkcs8.as_slice()).map_err(|_| fault)?;
            Ok(Key { kind: Kind::Other(Box::new(pair)), text: pem("EC PRIVATE KEY", &sec1) })
        }
        Some("DSA") => Err("unable to use a DSA key for certificates".into()),
        Some(k) => Err(format!("invalid private key type {k}")),
    }
}

fn parse(t: &str) -> Result<Key, GoErr> {
    parse_key(t).map_err(|e| GoErr::new(format!("parsing private key: {e}")))
}

fn cert(v: &Val) -> Option<Cert> {
    match v {
        Val::Obj(o) => match &**o {
            Obj::Cert(c) => Some(c.clone()),
            _ => None,
        },
        _ => None,
    }
}

struct Want {
    cn: String,
    ips: Option<Vec<Val>>,
    dns: Option<Vec<Val>>,
    days: i64,
    ca: bool,
}

impl Want {
    fn leaf(a: &[Val]) -> Want {
        let list = |v: &Val| match v {
            Val::List(l) => Some(l.v.clone()),
            _ => None,
        };
        Want { cn: text(&a[0]).into(), ips: list(&a[1]), dns: list(&a[2]), days: int(&a[3]), ca: false }
    }
}

fn go_ip(t: &str) -> Option<std::net::IpAddr> {
    t.parse().ok()
}

fn make(rt: &mut Runtime, want: Want, key: Key, signer: Option<Cert>) -> Out {
    let show = crate::text::fmt::sprint;
    // A signer is looked at before the names, as the original does.
    let issuer_key = match &signer {
        None => None,
        Some(c) => {
            let Some((_, bytes)) = unpem(&c.cert) else { return err("unable to decode certificate") };
            if let Err(e) = x509_parser::parse_x509_certificate(&bytes) {
                return err(format!("error parsing certificate: decodedSignerCert.Bytes: {e}"));
            }
            Some(parse_key(&c.key).map_err(|e| GoErr::new(format!("error parsing private key: {e}")))?)
        }
    };
    let mut san = Vec::new();
    for d in want.dns.iter().flatten() {
        let Val::Str(d) = d else { return err(format!("error processing alternate dns name: {} is not a string", show(d))) };
        match d.text().into_owned().try_into() {
            Ok(n) => san.push(SanType::DnsName(n)),
            Err(_) => return err(format!("error creating certificate: x509: {} cannot be encoded as an IA5String", crate::text::quote::quote(d.as_bytes()))),
        }
    }
    for ip in want.ips.iter().flatten() {
        let Val::Str(t) = ip else { return err(format!("error parsing ip: {} is not a string", show(ip))) };
        match go_ip(&t.text()) {
            Some(ip) => san.push(SanType::IpAddress(ip)),
            None => return err(format!("error parsing ip: {t}")),
        }
    }
    let mut p = CertificateParams::default();
    p.distinguished_name = DistinguishedName::new();
    if !want.cn.is_empty() {
        p.distinguished_name.push(DnType::CommonName, want.cn.as_str());
    }
    p.subject_alt_names = san;
    let start = rt.now().nanos.div_euclid(1_000_000_000) as i64;
    let at = |s: i64| {
        let q = super::date::parts(&crate::value::Time { nanos: s as i128 * 1_000_000_000, zone: (0, String::new()), mono: None });
        rcgen::date_time_ymd(q.year.clamp(1, 9999) as i32, q.month as u8, q.day as u8) + std::time::Duration::from_secs(q.hour as u64 * 3600 + q.minute as u64 * 60 + q.second as u64)
    };
    p.not_before = at(start);
    // Beyond the year 9999 nothing can be written.
    p.not_after = at(start.saturating_add(want.days.saturating_mul(86_400)).clamp(-62_135_596_800, 253_402_300_799));
    let mut serial = rt.rng.bytes(16);
    serial[0] &= 0x7f;
    p.serial_number = Some(SerialNumber::from_slice(&serial));
    p.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    p.is_ca = IsCa::ExplicitNoCa;
    if want.ca {
        p.key_usages.push(KeyUsagePurpose::KeyCertSign);
        p.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    p.use_authority_key_identifier_extension = signer.is_some();
    let fault = |e: rcgen::Error| GoErr::new(format!("error creating certificate: {e}"));
    let made = match (signer, issuer_key) {
        (Some(c), Some(k)) => {
            let issuer = Issuer::from_ca_cert_pem(&c.cert, k).map_err(fault)?;
            p.signed_by(&key, &issuer)
        }
        _ => p.self_signed(&key),
    }
    .map_err(fault)?;
    Ok(Val::obj(Obj::Cert(Cert { cert: pem("CERTIFICATE", made.der()), key: key.text })))
}

fn build(_: &mut Runtime, a: &[Val]) -> Out {
    let Ok(c) = STANDARD.decode(s(&a[0])) else { return err("unable to decode base64 certificate") };
    let Ok(k) = STANDARD.decode(s(&a[1])) else { return err("unable to decode base64 private key") };
    let (c, k) = (crate::text::lossy(&c).into_owned(), crate::text::lossy(&k).into_owned());
    let Some((_, bytes)) = unpem(&c) else { return err("unable to decode certificate") };
    if let Err(e) = x509_parser::parse_x509_certificate(&bytes) {
        return err(format!("error parsing certificate: decodedCert.Bytes: {e}"));
    }
    if let Err(e) = parse_key(&k) {
        return err(format!("error parsing private key: {e}"));
    }
    Ok(Val::obj(Obj::Cert(Cert { cert: c, key: k })))
}

fn aes_key(v: &Val) -> [u8; 32] {
    let mut k = [0; 32];
    for (d, c) in k.iter_mut().zip(s(v)) {
        *d = *c;
    }
    k
}

fn encrypt(rt: &mut Runtime, a: &[Val]) -> Out {
    use cbc::cipher::{BlockEncryptMut as _, KeyIvInit as _, block_padding::Pkcs7};
    if s(&a[1]).is_empty() {
        return Ok(Val::str(""));
    }
    let mut iv = [0u8; 16];
    rt.rng.0.fill_bytes(&mut iv);
    let body = cbc::Encryptor::<aes::Aes256>::new(&aes_key(&a[0]).into(), &iv.into()).encrypt_padded_vec_mut::<Pkcs7>(s(&a[1]));
    Ok(Val::str(STANDARD.encode([&iv[..], &body].concat())))
}

fn decrypt(_: &mut Runtime, a: &[Val]) -> Out {
    use cbc::cipher::{BlockDecryptMut as _, KeyIvInit as _, block_padding::NoPadding};
    if s(&a[1]).is_empty() {
        return Ok(Val::str(""));
    }
    let data = match STANDARD.decode(s(&a[1])) {
        Ok(d) => d,
        Err(_) => return err("illegal base64 data at input byte 0"),
    };
    if data.len() < 16 {
        return err(format!("runtime error: slice bounds out of range [:16] with capacity {}", data.len()));
    }
    let (iv, body) = data.split_at(16);
    let mut fixed = [0u8; 16];
    fixed.copy_from_slice(iv);
    let Ok(plain) = cbc::Decryptor::<aes::Aes256>::new(&aes_key(&a[0]).into(), &fixed.into()).decrypt_padded_vec_mut::<NoPadding>(body) else {
        return err("crypto/cipher: input not full blocks");
    };
    let Some(&n) = plain.last() else { return err("runtime error: index out of range [-1]") };
    if n as usize > plain.len() {
        return err("runtime error: slice bounds out of range");
    }
    Ok(Val::str(&plain[..plain.len() - n as usize]))
}
