//! What an API server's refusal means for the caller: one table from status codes and reasons to a class.

use std::time::Duration;

/// What kind of trouble a request met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The object, or the resource, does not exist (404).
    NotFound,
    /// A create met an object of that name (409 AlreadyExists).
    AlreadyExists,
    /// The object changed in between, or another manager owns a field (409 Conflict).
    Conflict,
    /// The resource version is too old to watch or continue from (410).
    Gone,
    /// The object is refused as it is (400, 422): trying again does not help.
    Invalid,
    /// The caller may not do this (403).
    Forbidden,
    /// The credential is not accepted (401).
    Unauthorized,
    /// The server asks to slow down (429), with its own hint when it gave one.
    Throttled(Option<Duration>),
    /// The server or the way to it is in trouble (5xx, connection): trying again may help.
    Unavailable,
    /// The answer was not understood, or the request could not be built.
    Broken,
}

/// Classifies an error of the client.
pub fn trouble(error: &kube::Error) -> Trouble {
    match error {
        kube::Error::Api(status) => {
            let retry_after = status
                .details
                .as_ref()
                .map(|d| d.retry_after_seconds)
                .filter(|s| *s > 0)
                .map(|s| Duration::from_secs(u64::from(s)));
            match (status.code, status.reason.as_str()) {
                (404, _) => Trouble::NotFound,
                (409, "AlreadyExists") => Trouble::AlreadyExists,
                (409, _) => Trouble::Conflict,
                (410, _) | (_, "Expired" | "Gone") => Trouble::Gone,
                (400 | 413 | 415 | 422, _) => Trouble::Invalid,
                (403, _) => Trouble::Forbidden,
                (401, _) => Trouble::Unauthorized,
                (429, _) => Trouble::Throttled(retry_after),
                (500..=599, _) => Trouble::Unavailable,
                _ => Trouble::Broken,
            }
        }
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => Trouble::Unavailable,
        _ => Trouble::Broken,
    }
}

/// The message of a refusal as the server wrote it; for other errors the chain of causes, joined by ": ".
pub fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        // These variants print their source themselves.
        kube::Error::HyperError(e) => chain(e),
        kube::Error::Service(e) => chain(e.as_ref()),
        other => other.to_string(),
    }
}

/// An error and its causes, joined by ": ", without saying the same twice.
pub fn chain<'a>(error: &'a (dyn std::error::Error + 'static)) -> String {
    // The client prints the whole answer of a server; its message is what people need.
    let said = |error: &(dyn std::error::Error + 'static)| match client(error) {
        Some(api @ kube::Error::Api(_)) => message(api),
        _ => error.to_string(),
    };
    // What stands behind an answer is the same answer again.
    let behind = |error: &'a (dyn std::error::Error + 'static)| if matches!(client(error), Some(kube::Error::Api(_))) { None } else { error.source() };
    let mut text = said(error);
    let mut next = behind(error);
    while let Some(cause) = next {
        let more = said(cause);
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        next = behind(cause);
    }
    text
}

/// An error of the client, also one that was boxed as a source.
fn client<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a kube::Error> {
    error.downcast_ref().or_else(|| error.downcast_ref::<Box<kube::Error>>().map(|boxed| &**boxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, reason: &str) -> kube::Error {
        kube::Error::Api(Box::new(kube::core::Status::failure("no", reason).with_code(code)))
    }

    #[test]
    fn codes_and_reasons() {
        assert_eq!(trouble(&api(404, "NotFound")), Trouble::NotFound);
        assert_eq!(trouble(&api(409, "AlreadyExists")), Trouble::AlreadyExists);
        assert_eq!(trouble(&api(409, "Conflict")), Trouble::Conflict);
        assert_eq!(trouble(&api(410, "Expired")), Trouble::Gone);
        assert_eq!(trouble(&api(422, "Invalid")), Trouble::Invalid);
        assert_eq!(trouble(&api(503, "ServiceUnavailable")), Trouble::Unavailable);
        assert_eq!(trouble(&api(429, "TooManyRequests")), Trouble::Throttled(None));
        assert_eq!(message(&api(404, "NotFound")), "no");
    }

    #[derive(Debug, thiserror::Error)]
    #[error("ask")]
    struct Asked(#[source] Box<kube::Error>);

    #[test]
    fn answers_are_told_by_their_message() {
        assert_eq!(chain(&api(401, "Unauthorized")), "no");
        assert_eq!(chain(&Asked(Box::new(api(401, "Unauthorized")))), "ask: no");
    }
}
