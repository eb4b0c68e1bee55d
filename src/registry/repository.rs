//! HTTP repositories: index.yaml read in pieces, only the wanted chart's entries kept; archives checked against the index.

use crate::http::{Ask, basic, clean, join};
use crate::{Client, Error, Pulled, Reference, Remembered, Resolved};
use bytes::Bytes;
use chart::Val;
use http::{StatusCode, Uri};
use sha2::Digest as _;
use std::sync::Arc;

/// Longest provenance, in bytes.
const PROVENANCE: usize = 4 << 20;

/// Picks the lines of one chart out of an index as it streams by.
pub(crate) struct Picker {
    chart: String,
    line: Vec<u8>,
    state: State,
    /// Entries of the chart.
    pub block: Vec<u8>,
    /// Not laid out line by line: all was kept instead.
    pub whole: Option<Vec<u8>>,
}

#[derive(PartialEq)]
enum State {
    /// Before `entries:`.
    Head,
    /// Among charts; the indent of their names, once known.
    Charts(Option<usize>),
    /// In the wanted chart.
    Inside(usize),
    /// Past it.
    Done,
}

impl Picker {
    pub(crate) fn new(chart: &str) -> Self {
        Self { chart: chart.into(), line: Vec::new(), state: State::Head, block: Vec::new(), whole: None }
    }

    pub(crate) fn push(&mut self, b: &[u8]) {
        if let Some(w) = &mut self.whole {
            w.extend_from_slice(b);
            return;
        }
        // A JSON index has no lines to go by.
        if self.state == State::Head && self.line.is_empty() && b.iter().find(|c| !c.is_ascii_whitespace()) == Some(&b'{') {
            self.whole = Some(b.to_vec());
            return;
        }
        for piece in b.split_inclusive(|c| *c == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let l = std::mem::take(&mut self.line);
                self.take(&l);
            }
        }
    }

    pub(crate) fn finish(&mut self) {
        let l = std::mem::take(&mut self.line);
        if !l.is_empty() {
            self.take(&l);
        }
    }

    fn take(&mut self, l: &[u8]) {
        let body = l.trim_ascii_end();
        if body.is_empty() || body.trim_ascii_start().starts_with(b"#") {
            if matches!(self.state, State::Inside(_)) {
                self.block.extend_from_slice(l);
            }
            return;
        }
        let indent = body.len() - body.trim_ascii_start().len();
        let text = body.trim_ascii_start();
        match self.state {
            State::Head => {
                if indent == 0 && text == b"entries:" {
                    self.state = State::Charts(None);
                }
            }
            State::Charts(at) => {
                let at = at.unwrap_or(indent);
                if indent == 0 {
                    self.state = State::Done;
                    return;
                }
                self.state = State::Charts(Some(at));
                if indent == at
                    && let Some(name) = text.strip_suffix(b":")
                {
                    let name = String::from_utf8_lossy(name);
                    if name.trim_matches(['"', '\'']) == self.chart {
                        self.state = State::Inside(at);
                    }
                }
            }
            State::Inside(at) => {
                // Entries may stand at the indent of the name itself.
                if indent < at || indent == at && !text.starts_with(b"-") {
                    self.state = State::Done;
                    return;
                }
                self.block.extend_from_slice(l);
            }
            State::Done => {}
        }
    }
}

fn text(v: &Val, key: &str) -> String {
    v.as_map().and_then(|m| m.get(key.as_bytes())).and_then(|v| v.as_str().map(|s| s.text().into_owned())).unwrap_or_default()
}

/// Versions of a list of index entries; such without an address are left out, as are ones that are no versions.
fn entries(v: &Val) -> Vec<Resolved> {
    let Val::List(l) = v else { return Vec::new() };
    l.v.iter()
        .filter_map(|e| {
            let url = e.as_map()?.get(b"urls").and_then(|u| match u {
                Val::List(l) => l.v.first().and_then(|s| s.as_str().map(|s| s.text().into_owned())),
                _ => None,
            })?;
            let digest = Some(text(e, "digest").trim_start_matches("sha256:").to_string()).filter(|d| !d.is_empty());
            let version = text(e, "version");
            (!version.is_empty()).then_some(Resolved { version, url, digest })
        })
        .collect()
}

/// Reads what a picker kept.
pub(crate) fn read(p: &Picker) -> Result<Option<Vec<Resolved>>, String> {
    if let Some(w) = &p.whole {
        let v = chart::yaml::decode(w).map_err(|e| e.0)?;
        let list = v.as_map().and_then(|m| m.get(b"entries")).and_then(|e| e.as_map().and_then(|m| m.get(p.chart.as_bytes())));
        return Ok(list.map(|l| entries(&l)));
    }
    if p.block.is_empty() {
        return Ok(None);
    }
    Ok(Some(entries(&chart::yaml::decode_ints(&p.block).map_err(|e| e.0)?)))
}

impl Client {
    fn index_address(&self, r: &Reference) -> Result<Uri, Error> {
        format!("{}/index.yaml", r.repository.trim_end_matches('/')).parse().map_err(|_| Error::Address { url: "repository".into(), problem: "it is not valid" })
    }

    pub(crate) async fn index_versions(&self, r: &Reference) -> Result<Arc<Vec<Resolved>>, Error> {
        let uri = self.index_address(r)?;
        let key = (uri.to_string(), r.chart.clone());
        let known = self.indexes.lock().get(&key).cloned();
        let mut ask = Ask { authorization: self.options.credentials.as_ref().map(basic), ..Ask::default() };
        if let Some(k) = &known {
            ask.headers.extend(k.etag.clone().map(|e| ("if-none-match", e)));
            ask.headers.extend(k.modified.clone().map(|m| ("if-modified-since", m)));
        }
        let (at, resp) = self.http.get(&uri, &ask).await?;
        if resp.status() == StatusCode::NOT_MODIFIED
            && let Some(k) = known
        {
            return Ok(k.versions);
        }
        if !resp.status().is_success() {
            return Err(Error::Status { url: clean(&at), status: resp.status().as_u16() });
        }
        let header = |n: &str| resp.headers().get(n).and_then(|v| v.to_str().ok()).map(String::from);
        let (etag, modified) = (header("etag"), header("last-modified"));
        let mut p = Picker::new(&r.chart);
        self.http.pieces(&at, resp.into_body(), self.options.max_index, |b| p.push(b)).await?;
        p.finish();
        let versions = read(&p).map_err(|problem| Error::Format { what: "index", url: clean(&at), problem })?;
        let Some(versions) = versions else { return Err(Error::NoChart { chart: r.chart.clone(), repository: clean(&uri) }) };
        let versions = Arc::new(versions);
        self.indexes.lock().insert(key, Remembered { etag, modified, versions: versions.clone() });
        Ok(versions)
    }

    /// The body behind a link of the index, with what is added to its path.
    async fn linked(&self, r: &Reference, found: &Resolved, added: &str, most: usize) -> Result<(Uri, Bytes), Error> {
        let base = self.index_address(r)?;
        let (path, query) = found.url.split_once('?').map_or((found.url.as_str(), None), |(path, query)| (path, Some(query)));
        let link = query.map_or_else(|| format!("{path}{added}"), |query| format!("{path}{added}?{query}"));
        let uri = join(&base, &link)?;
        // Archives on another host get no credentials.
        let same = uri.host() == base.host() && uri.port_u16() == base.port_u16() || uri.authority().is_some_and(|a| base.host() == Some(a.host()) && join(&base, "x").is_ok_and(|b| b.port_u16() == uri.port_u16()));
        let ask = Ask { authorization: self.options.credentials.as_ref().filter(|_| same).map(basic), ..Ask::default() };
        let (at, resp) = self.http.get(&uri, &ask).await?;
        let (_, body) = self.http.body(&at, resp, most).await?;
        Ok((at, body))
    }

    pub(crate) async fn index_provenance(&self, r: &Reference, found: &Resolved) -> Result<Bytes, Error> {
        Ok(self.linked(r, found, ".prov", PROVENANCE).await?.1)
    }

    pub(crate) async fn index_pull(&self, r: &Reference, found: &Resolved) -> Result<Pulled, Error> {
        let (at, archive) = self.linked(r, found, "", self.options.max_archive).await?;
        let have = hex::encode(sha2::Sha256::digest(&archive));
        match &found.digest {
            Some(want) if !want.eq_ignore_ascii_case(&have) => Err(Error::Digest { url: clean(&at), want: want.clone(), have }),
            _ => Ok(Pulled { version: found.version.clone(), digest: have, archive }),
        }
    }
}
