//! What a request path and method mean: verb, group, version, namespace, resource, name, subresource.

use http::Method;

/// A request to the resource API, or another path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Info {
    /// Kubernetes' verb; for other paths the HTTP method in lower case.
    pub verb: &'static str,
    /// Group, empty for core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Namespace, empty at the cluster scope.
    pub namespace: String,
    /// Plural resource; empty: not a resource request.
    pub resource: String,
    /// Object name.
    pub name: String,
    /// Subresource, empty for the object itself.
    pub subresource: String,
    /// What follows the subresource (`proxy/a/b` has `a/b`).
    pub rest: String,
}

/// Reads a path; segments are percent-decoded, so a name can hold anything but cannot escape its place.
#[must_use]
pub fn parse(method: &Method, path: &str, watch: bool) -> Info {
    let mut info = Info { verb: plain_verb(method), ..Info::default() };
    let parts: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
    let mut parts = parts.as_slice();
    match parts {
        [api, version, rest @ ..] if api == "api" => {
            info.version.clone_from(version);
            parts = rest;
        }
        [apis, group, version, rest @ ..] if apis == "apis" => {
            info.group.clone_from(group);
            info.version.clone_from(version);
            parts = rest;
        }
        _ => return info,
    }
    let mut watch = watch;
    // The deprecated `watch/` prefix still works.
    if let [first, rest @ ..] = parts
        && first == "watch"
        && !rest.is_empty()
    {
        watch = true;
        parts = rest;
    }
    match parts {
        [] => return info,
        // `namespaces` is both a resource and the way into one.
        [first, namespace, rest @ ..] if first == "namespaces" => {
            info.namespace.clone_from(namespace);
            match rest {
                [] => {
                    info.resource = "namespaces".into();
                    info.name.clone_from(namespace);
                }
                [sub] if matches!(sub.as_str(), "status" | "finalize") => {
                    info.resource = "namespaces".into();
                    info.name.clone_from(namespace);
                    info.subresource.clone_from(sub);
                }
                rest => object(&mut info, rest),
            }
        }
        rest => object(&mut info, rest),
    }
    info.verb = match *method {
        Method::GET | Method::HEAD if watch => "watch",
        Method::GET | Method::HEAD if info.name.is_empty() => "list",
        Method::GET | Method::HEAD => "get",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if info.name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        _ => "",
    };
    info
}

fn object(info: &mut Info, parts: &[String]) {
    if let [resource, rest @ ..] = parts {
        info.resource.clone_from(resource);
        if let [name, rest @ ..] = rest {
            info.name.clone_from(name);
            if let [sub, rest @ ..] = rest {
                info.subresource.clone_from(sub);
                info.rest = rest.join("/");
            }
        }
    }
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

/// Percent-decodes; what is not valid stays as it is.
#[must_use]
pub fn decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |i: usize| bytes.get(i).and_then(|b| char::from(*b).to_digit(16));
        if bytes[at] == b'%'
            && let (Some(high), Some(low)) = (hex(at + 1), hex(at + 2))
        {
            out.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]
    use super::*;

    fn said(method: &Method, path: &str, watch: bool) -> String {
        let i = parse(method, path, watch);
        format!("{} {}|{}|{}|{}|{}|{}|{}", i.verb, i.group, i.version, i.namespace, i.resource, i.name, i.subresource, i.rest)
    }

    #[test]
    fn paths_mean_what_kubernetes_means() {
        for (method, path, watch, expected) in [
            (Method::GET, "/api/v1/pods", false, "list |v1||pods|||"),
            (Method::GET, "/api/v1/namespaces/a/pods/b/log", false, "get |v1|a|pods|b|log|"),
            (Method::GET, "/api/v1/namespaces", true, "watch |v1||namespaces|||"),
            (Method::GET, "/api/v1/namespaces/a", false, "get |v1|a|namespaces|a||"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", false, "update |v1|a|namespaces|a|finalize|"),
            (Method::DELETE, "/apis/apps/v1/namespaces/a/deployments", false, "deletecollection apps|v1|a|deployments|||"),
            (Method::GET, "/apis/apps/v1/watch/namespaces/a/deployments/x", false, "watch apps|v1|a|deployments|x||"),
            (Method::POST, "/apis/p.io/v1/sockets/c/proxy/direct/api/v1", false, "create p.io|v1||sockets|c|proxy|direct/api/v1"),
            (Method::GET, "/healthz", false, "get |||||||".trim_end_matches('|')),
            (Method::GET, "/api/v1/namespaces/a/configmaps/x%2Fy", false, "get |v1|a|configmaps|x/y||"),
        ] {
            assert_eq!(said(&method, path, watch).trim_end_matches('|'), expected.trim_end_matches('|'), "{method} {path}");
        }
    }
}
