//! OCI registries: token authentication, tags, manifests, the chart's layer checked by its digest.

use crate::http::{Ask, basic, clean, join};
use crate::{Client, Error, Pulled, Reference, Resolved, Secret};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, Uri};
use hyper::body::Incoming;
use serde_json::Value;
use sha2::Digest as _;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const OLD_CONTENT: &str = "application/tar+gzip";
const SIGNED: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
const SMALL: usize = 8 << 20;
/// Pages of tags read at most.
const PAGES: usize = 200;

/// A version as a tag: `+` is not allowed there.
fn tag(version: &str) -> String {
    version.replace('+', "_")
}

/// Parts of a `Bearer` challenge.
fn challenge(h: &str) -> Option<(String, String, String)> {
    let rest = h.strip_prefix("Bearer ").or_else(|| h.strip_prefix("bearer "))?;
    let get = |key: &str| {
        rest.split(',').find_map(|p| {
            let (k, v) = p.trim().split_once('=')?;
            (k == key).then(|| v.trim_matches('"').to_string())
        })
    };
    // A scope may itself hold commas: take it up to its closing quote.
    let scope = rest.split_once("scope=\"").and_then(|(_, s)| s.split_once('"')).map(|(s, _)| s.to_string()).unwrap_or_default();
    Some((get("realm")?, get("service").unwrap_or_default(), scope))
}

fn encode(s: &str) -> String {
    s.bytes().map(|b| if b.is_ascii_alphanumeric() || b"-_.~".contains(&b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

impl Client {
    fn address(&self, r: &Reference, rest: &str) -> Result<Uri, Error> {
        let bad = |problem| Error::Address { url: "oci".into(), problem };
        let full = r.repository.strip_prefix("oci://").ok_or(bad("it does not begin with oci://"))?.trim_matches('/');
        let (host, base) = full.split_once('/').unwrap_or((full, ""));
        let name = match (base, r.chart.as_str()) {
            ("", c) => c.to_string(),
            (b, "") => b.to_string(),
            (b, c) => format!("{b}/{c}"),
        };
        let scheme = if self.options.plain_http { "http" } else { "https" };
        format!("{scheme}://{host}/v2/{name}/{rest}").parse().map_err(|_| bad("it is not valid"))
    }

    async fn ask(&self, uri: &Uri, accept: &'static str) -> Result<(Uri, Response<Incoming>), Error> {
        let mut ask = Ask { accept: Some(accept), ..Ask::default() };
        let (at, resp) = self.http.get(uri, &ask).await?;
        if resp.status() != StatusCode::UNAUTHORIZED {
            return Ok((at, resp));
        }
        let header = resp.headers().get("www-authenticate").and_then(|h| h.to_str().ok()).unwrap_or("").to_string();
        ask.authorization = match challenge(&header) {
            Some((realm, service, scope)) => Some(self.token(uri, &realm, &service, &scope).await?),
            None => self.options.credentials.as_ref().map(basic),
        };
        if ask.authorization.is_none() {
            return Err(Error::Status { url: clean(&at), status: 401 });
        }
        self.http.get(uri, &ask).await
    }

    /// Asks the place a registry names for a token; credentials go there only over TLS or to the registry's own host.
    async fn token(&self, registry: &Uri, realm: &str, service: &str, scope: &str) -> Result<Secret, Error> {
        let place = join(registry, realm)?;
        let query = [("service", service), ("scope", scope)].iter().filter(|(_, v)| !v.is_empty()).map(|(k, v)| format!("{k}={}", encode(v))).collect::<Vec<_>>().join("&");
        let sep = if realm.contains('?') { '&' } else { '?' };
        let uri: Uri = format!("{}{sep}{query}", if place.query().is_some() { place.to_string() } else { place.to_string().trim_end_matches('?').to_string() })
            .parse()
            .map_err(|_| Error::Address { url: clean(registry), problem: "its token service's address is not valid" })?;
        let safe = uri.scheme_str() == Some("https") || uri.host() == registry.host();
        let ask = Ask { authorization: self.options.credentials.as_ref().filter(|_| safe).map(basic), ..Ask::default() };
        let (at, resp) = self.http.get(&uri, &ask).await?;
        let (_, body) = self.http.body(&at, resp, SMALL).await?;
        let v: Value = serde_json::from_slice(&body).map_err(|e| Error::Format { what: "token", url: clean(&at), problem: e.to_string() })?;
        let t = v.get("token").or_else(|| v.get("access_token")).and_then(Value::as_str).unwrap_or("");
        if t.is_empty() {
            return Err(Error::Format { what: "token", url: clean(&at), problem: "there is none".into() });
        }
        Ok(Secret::new(format!("Bearer {t}")))
    }

    async fn fetch(&self, uri: &Uri, accept: &'static str, limit: usize) -> Result<(Uri, HeaderMap, Bytes), Error> {
        let (at, resp) = self.ask(uri, accept).await?;
        let (h, b) = self.http.body(&at, resp, limit).await?;
        Ok((at, h, b))
    }

    pub(crate) fn oci_exact(&self, r: &Reference) -> Result<Resolved, Error> {
        let url = self.address(r, &format!("manifests/{}", tag(&r.version)))?.to_string();
        Ok(Resolved { version: r.version.clone(), url, digest: None })
    }

    pub(crate) async fn oci_versions(&self, r: &Reference) -> Result<Vec<Resolved>, Error> {
        let mut out = Vec::new();
        let mut next = Some(self.address(r, "tags/list")?);
        for _ in 0..PAGES {
            let Some(uri) = next.take() else { break };
            let (at, headers, body) = match self.fetch(&uri, "application/json", SMALL).await {
                Err(Error::Status { status: 404, url }) => return Err(Error::NoChart { chart: r.chart.clone(), repository: url }),
                other => other?,
            };
            let v: Value = serde_json::from_slice(&body).map_err(|e| Error::Format { what: "tags", url: clean(&at), problem: e.to_string() })?;
            for t in v.get("tags").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
                let version = t.replace('_', "+");
                let url = self.address(r, &format!("manifests/{t}"))?.to_string();
                out.push(Resolved { version, url, digest: None });
            }
            if let Some(l) = headers.get("link").and_then(|l| l.to_str().ok())
                && let Some((target, _)) = l.strip_prefix('<').and_then(|l| l.split_once('>'))
            {
                next = Some(join(&uri, target)?);
            }
        }
        Ok(out)
    }

    /// Digest and size of the chart's layer.
    pub(crate) async fn oci_manifest(&self, r: &Reference, found: &Resolved) -> Result<String, Error> {
        self.layer(r, found, &[CONTENT, OLD_CONTENT], "it holds no chart").await
    }

    /// Digest of the first layer of a kind.
    async fn layer(&self, r: &Reference, found: &Resolved, kinds: &[&str], none: &str) -> Result<String, Error> {
        let uri: Uri = found.url.parse().map_err(|_| Error::Address { url: found.url.clone(), problem: "it is not valid" })?;
        let (at, _, body) = match self.fetch(&uri, MANIFEST, SMALL).await {
            Err(Error::Status { status: 404, url }) => return Err(Error::NoChart { chart: r.chart.clone(), repository: url }),
            other => other?,
        };
        let fault = |problem: String| Error::Format { what: "manifest", url: clean(&at), problem };
        let v: Value = serde_json::from_slice(&body).map_err(|e| fault(e.to_string()))?;
        let layer = v.get("layers").and_then(Value::as_array).into_iter().flatten().find(|l| l.get("mediaType").and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind)));
        let digest = layer.and_then(|l| l.get("digest")).and_then(Value::as_str).ok_or_else(|| fault(none.into()))?;
        match digest.strip_prefix("sha256:") {
            Some(h) if h.len() == 64 && h.bytes().all(|c| c.is_ascii_hexdigit()) => Ok(h.to_ascii_lowercase()),
            _ => Err(fault("its digest is not sha256".into())),
        }
    }

    /// A blob, checked against its digest.
    async fn blob(&self, r: &Reference, want: String, most: usize) -> Result<(String, Bytes), Error> {
        let uri = self.address(r, &format!("blobs/sha256:{want}"))?;
        let (at, _, body) = self.fetch(&uri, "*/*", most).await?;
        let have = hex::encode(sha2::Sha256::digest(&body));
        if have != want {
            return Err(Error::Digest { url: clean(&at), want, have });
        }
        Ok((have, body))
    }

    pub(crate) async fn oci_provenance(&self, r: &Reference, found: &Resolved) -> Result<Bytes, Error> {
        let want = self.layer(r, found, &[SIGNED], "it holds no provenance").await?;
        Ok(self.blob(r, want, SMALL).await?.1)
    }

    pub(crate) async fn oci_pull(&self, r: &Reference, found: &Resolved) -> Result<Pulled, Error> {
        let want = self.oci_manifest(r, found).await?;
        let (digest, archive) = self.blob(r, want, self.options.max_archive).await?;
        Ok(Pulled { version: found.version.clone(), digest, archive })
    }
}
