//! Reading from a remote: which references it has, and a pack of what is missing here (protocol version 2, and 0 for old hosts).

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use crate::error::{FetchError, TransportError};
use crate::id::ObjectId;
use crate::pkt;
use crate::transport::Session;

/// The most references that are read; a bound against a broken or hostile host.
const MAX_REFS: usize = 1_000_000;
const AGENT: &str = "agent=git/2.0-anabranch";

/// What a host says first.
pub(crate) enum Greeting {
    /// Protocol 2: its capabilities.
    Second(Vec<String>),
    /// Protocol 0: all references at once.
    Zeroth(Advert),
}

/// The references of a remote.
#[derive(Debug, Default, Clone)]
pub(crate) struct Advert {
    /// Name -> id; of annotated tags the tag object's.
    pub(crate) refs: BTreeMap<String, ObjectId>,
    /// Name of an annotated tag -> the commit behind it.
    pub(crate) peeled: BTreeMap<String, ObjectId>,
    /// The branch that HEAD points to.
    pub(crate) head: Option<String>,
    pub(crate) capabilities: Vec<String>,
}

impl Advert {
    /// The commit that a name stands for.
    pub(crate) fn commit(&self, name: &str) -> Option<ObjectId> {
        self.peeled.get(name).or_else(|| self.refs.get(name)).copied()
    }

    pub(crate) fn can(&self, capability: &str) -> bool {
        self.capabilities.iter().any(|c| c == capability)
    }
}

fn protocol(session: &Session<'_>, text: impl Into<String>) -> TransportError {
    TransportError::Protocol { host: session.host().to_owned(), text: text.into() }
}

fn line(session: &mut Session<'_>) -> Result<Option<String>, TransportError> {
    match pkt::read_line(session.answer()) {
        Ok(Some(text)) => match text.strip_prefix("ERR ") {
            Some(text) => Err(refused(session, text)),
            None => Ok(Some(text)),
        },
        Ok(None) => Ok(None),
        Err(error) => Err(session.explain(error)),
    }
}

/// What a host's `ERR` line means.
fn refused(session: &Session<'_>, text: &str) -> TransportError {
    let host = session.host().to_owned();
    let low = text.to_ascii_lowercase();
    if low.contains("not found") || low.contains("does not exist") {
        TransportError::NoRepository { url: host }
    } else if low.contains("rate limit") || low.contains("too many requests") {
        TransportError::RateLimited { host, after: None }
    } else {
        TransportError::Denied { host, text: text.trim().to_owned() }
    }
}

/// Reads the greeting of either service.
pub(crate) fn greeting(session: &mut Session<'_>) -> Result<Greeting, TransportError> {
    let first = match session.greet()? {
        Some(text) => Some(text),
        None => line(session)?,
    };
    match first.as_deref() {
        Some("version 2") => {
            let mut capabilities = Vec::new();
            while let Some(text) = line(session)? {
                capabilities.push(text);
            }
            Ok(Greeting::Second(capabilities))
        }
        Some("version 1") => {
            let first = line(session)?;
            advert(session, first).map(Greeting::Zeroth)
        }
        _ => advert(session, first).map(Greeting::Zeroth),
    }
}

fn advert(session: &mut Session<'_>, first: Option<String>) -> Result<Advert, TransportError> {
    let mut out = Advert::default();
    let mut next = first;
    while let Some(text) = next {
        let (text, capabilities) = match text.split_once('\0') {
            Some((text, capabilities)) => (text.to_owned(), Some(capabilities.to_owned())),
            None => (text, None),
        };
        if let Some(capabilities) = capabilities {
            out.capabilities = capabilities.split(' ').map(str::to_owned).collect();
            out.head = out.capabilities.iter().find_map(|c| c.strip_prefix("symref=HEAD:")).map(str::to_owned);
        }
        let (id, name) = text.split_once(' ').ok_or_else(|| protocol(session, "a reference is malformed"))?;
        if id != "shallow" {
            let id: ObjectId = id.parse().map_err(|_| protocol(session, "an object id is malformed"))?;
            if let Some(name) = name.strip_suffix("^{}") {
                out.peeled.insert(name.to_owned(), id);
            } else if name != "capabilities" {
                out.refs.insert(name.to_owned(), id);
            }
            if out.refs.len() > MAX_REFS {
                return Err(protocol(session, "it has too many references"));
            }
        }
        next = line(session)?;
    }
    Ok(out)
}

/// The references whose names begin with one of these prefixes, and HEAD when it is among them.
pub(crate) fn list(session: &mut Session<'_>, greeting: Greeting, prefixes: &[String]) -> Result<Advert, TransportError> {
    let capabilities = match greeting {
        Greeting::Zeroth(all) => return Ok(all),
        Greeting::Second(capabilities) => capabilities,
    };
    let mut request = Vec::new();
    pkt::line(&mut request, "command=ls-refs\n");
    pkt::line(&mut request, AGENT);
    pkt::delim(&mut request);
    pkt::line(&mut request, "peel\n");
    pkt::line(&mut request, "symrefs\n");
    for prefix in prefixes {
        pkt::line(&mut request, &format!("ref-prefix {prefix}\n"));
    }
    pkt::flush(&mut request);
    session.send(&request)?;
    let mut out = Advert { capabilities, ..Advert::default() };
    while let Some(text) = line(session)? {
        let mut words = text.split(' ');
        let (Some(id), Some(name)) = (words.next(), words.next()) else {
            return Err(protocol(session, "a reference is malformed"));
        };
        if id == "unborn" {
            continue;
        }
        let id: ObjectId = id.parse().map_err(|_| protocol(session, "an object id is malformed"))?;
        for word in words {
            if let Some(target) = word.strip_prefix("symref-target:") {
                if name == "HEAD" {
                    out.head = Some(target.to_owned());
                }
            } else if let Some(peeled) = word.strip_prefix("peeled:") {
                let peeled = peeled.parse().map_err(|_| protocol(session, "an object id is malformed"))?;
                out.peeled.insert(name.to_owned(), peeled);
            }
        }
        out.refs.insert(name.to_owned(), id);
        if out.refs.len() > MAX_REFS {
            return Err(protocol(session, "it has too many references"));
        }
    }
    Ok(out)
}

/// What is asked for.
pub(crate) struct Ask<'a> {
    /// Commits to bring, each without its history.
    pub(crate) wants: &'a [ObjectId],
    /// Commits that are here already, without their history.
    pub(crate) haves: &'a [ObjectId],
}

/// Brings a pack with what is missing here into `sink`.
pub(crate) fn fetch(session: &mut Session<'_>, greeting: &Greeting, ask: &Ask<'_>, sink: &mut dyn Write) -> Result<(), FetchError> {
    match greeting {
        Greeting::Second(capabilities) => second(session, capabilities, ask, sink),
        Greeting::Zeroth(advert) => zeroth(session, advert, ask, sink),
    }
}

fn gone(error: TransportError, ask: &Ask<'_>) -> FetchError {
    if let TransportError::Denied { text, .. } = &error {
        let low = text.to_ascii_lowercase();
        if low.contains("not our ref") || low.contains("unadvertised object") || low.contains("no such") || low.contains("could not find") {
            let named = ask.wants.iter().find(|id| text.contains(&id.to_string()));
            if let Some(id) = named.or(ask.wants.first()) {
                return FetchError::Gone(*id);
            }
        }
    }
    FetchError::Transport(error)
}

fn second(session: &mut Session<'_>, capabilities: &[String], ask: &Ask<'_>, sink: &mut dyn Write) -> Result<(), FetchError> {
    let features = capabilities.iter().find_map(|c| c.strip_prefix("fetch=")).unwrap_or("");
    let shallow = features.split(' ').any(|f| f == "shallow");
    let mut request = Vec::new();
    pkt::line(&mut request, "command=fetch");
    pkt::line(&mut request, AGENT);
    pkt::delim(&mut request);
    pkt::line(&mut request, "no-progress");
    pkt::line(&mut request, "ofs-delta");
    // Only when thin packs are allowed does Git look at the trees of shallow commits that are here; else it sends everything again.
    pkt::line(&mut request, "thin-pack");
    if shallow {
        for have in ask.haves {
            pkt::line(&mut request, &format!("shallow {have}\n"));
        }
        pkt::line(&mut request, "deepen 1\n");
    }
    for want in ask.wants {
        pkt::line(&mut request, &format!("want {want}\n"));
    }
    for have in ask.haves {
        pkt::line(&mut request, &format!("have {have}\n"));
    }
    pkt::line(&mut request, "done\n");
    pkt::flush(&mut request);
    session.send(&request)?;
    loop {
        let Some(section) = line(session).map_err(|e| gone(e, ask))? else {
            return Err(protocol(session, "the answer has no pack").into());
        };
        match section.as_str() {
            "packfile" => {
                return match pkt::demultiplex(session.answer(), sink) {
                    Ok(_) => Ok(()),
                    Err(error) => Err(sunk(session, error, ask)),
                };
            }
            "shallow-info" | "acknowledgments" | "wanted-refs" | "packfile-uris" => while line(session).map_err(|e| gone(e, ask))?.is_some() {},
            other => return Err(protocol(session, format!("section `{other}` is unknown")).into()),
        }
    }
}

/// An error of the sink comes wrapped with our own kind; anything else is the host's.
fn sunk(session: &mut Session<'_>, error: io::Error, ask: &Ask<'_>) -> FetchError {
    match error.downcast::<TransportError>() {
        Ok(own) => own.into(),
        Err(error) if error.kind() == io::ErrorKind::Other => {
            let denied = TransportError::Denied { host: session.host().to_owned(), text: error.to_string() };
            gone(denied, ask)
        }
        Err(error) => session.explain(error).into(),
    }
}

fn zeroth(session: &mut Session<'_>, advert: &Advert, ask: &Ask<'_>, sink: &mut dyn Write) -> Result<(), FetchError> {
    let shown: BTreeSet<ObjectId> = advert.refs.values().chain(advert.peeled.values()).copied().collect();
    let any = advert.can("allow-reachable-sha1-in-want") || advert.can("allow-any-sha1-in-want");
    let tips = any || advert.can("allow-tip-sha1-in-want");
    if let Some(hidden) = ask.wants.iter().find(|id| !shown.contains(id) && !tips) {
        return Err(FetchError::Gone(*hidden));
    }
    let mut features = vec!["ofs-delta", "thin-pack", "no-progress", AGENT];
    let band = advert.can("side-band-64k");
    if band {
        features.insert(0, "side-band-64k");
    }
    let shallow = advert.can("shallow");
    let mut request = Vec::new();
    for (at, want) in ask.wants.iter().enumerate() {
        if at == 0 {
            pkt::line(&mut request, &format!("want {want} {}\n", features.join(" ")));
        } else {
            pkt::line(&mut request, &format!("want {want}\n"));
        }
    }
    if shallow {
        for have in ask.haves {
            pkt::line(&mut request, &format!("shallow {have}\n"));
        }
        pkt::line(&mut request, "deepen 1\n");
    }
    pkt::flush(&mut request);
    for have in ask.haves {
        pkt::line(&mut request, &format!("have {have}\n"));
    }
    pkt::line(&mut request, "done\n");
    session.send(&request)?;
    if shallow {
        while line(session).map_err(|e| gone(e, ask))?.is_some() {}
    }
    // Without multi_ack: one NAK, or one ACK of the first common commit.
    match line(session).map_err(|e| gone(e, ask))? {
        Some(text) if text == "NAK" || text.starts_with("ACK ") => {}
        _ => return Err(protocol(session, "the answer has no acknowledgement").into()),
    }
    let done = if band { pkt::demultiplex(session.answer(), sink).map(|_| ()) } else { io::copy(session.answer(), sink).map(|_| ()) };
    done.map_err(|error| sunk(session, error, ask))
}
