//! URLs as Go's `url.ParseRequestURI` reads them: absolute, or a path.

/// A parsed URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    pub(crate) text: String,
    pub(crate) scheme: String,
    /// Host with port.
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) query: String,
}

impl Url {
    pub(crate) fn parse(s: &str) -> Option<Self> {
        if s.is_empty() || s.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return None;
        }
        let (scheme, rest) = match s.find(':') {
            Some(i) if !s.starts_with('/') => {
                let scheme = &s[..i];
                let ok = scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
                if !ok {
                    return None;
                }
                (scheme.to_ascii_lowercase(), &s[i + 1..])
            }
            _ => (String::new(), s),
        };
        if scheme.is_empty() && !rest.starts_with('/') {
            return None;
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) = match rest.strip_prefix("//") {
            Some(r) if !scheme.is_empty() => {
                let end = r.find('/').unwrap_or(r.len());
                let authority = &r[..end];
                let host = authority.rsplit_once('@').map_or(authority, |(_, h)| h);
                (host.to_owned(), &r[end..])
            }
            _ => (String::new(), rest),
        };
        if !scheme.is_empty() && host.is_empty() && !path.starts_with('/') {
            // Opaque (mailto:x) is no request URI.
            return None;
        }
        let port_ok = match host.rsplit_once(':') {
            Some((_, p)) if !p.ends_with(']') => p.bytes().all(|b| b.is_ascii_digit()),
            _ => true,
        };
        if !port_ok || (host.contains('[') && !host.contains(']')) {
            return None;
        }
        Some(Self { text: s.to_owned(), scheme, host, path: path.to_owned(), query: query.to_owned() })
    }

    pub(crate) fn hostname(&self) -> &str {
        if let Some(h) = self.host.strip_prefix('[') {
            return h.split(']').next().unwrap_or_default();
        }
        self.host.rsplit_once(':').map_or(self.host.as_str(), |(h, _)| h)
    }

    pub(crate) fn port(&self) -> &str {
        let after = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, a)| a);
        after.rsplit_once(':').map_or("", |(_, p)| p)
    }
}
