//! Maps method and path to an operation: the only table of the data plane's paths (ROUTE-1 to ROUTE-5). Other paths go
//! to the fallback handler.

pub(crate) mod google;
pub(crate) mod stored;

use http::Method;
use shared::operation::Operation;

use self::google::{GoogleCall, GooglePath};
use self::stored::StoredPath;

/// Result of routing a method and a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning<'a> {
    /// An operation, and what the path names besides.
    Operation(Operation, Named<'a>),
    /// A known path with an unsupported method, and the value of the `Allow` header.
    WrongMethod(Option<Operation>, &'static str),
    /// `OPTIONS` on a known path, and the value of the `Allow` header.
    Options(&'static str),
    /// A path of the control service for the holder of a key: the key itself, settings, limits, telemetry.
    OwnKey,
    /// A path outside the data plane.
    Elsewhere,
}

/// What a path names besides the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named<'a> {
    Nothing,
    /// The percent-encoded id of `/v1/models/{id}`.
    Model(&'a str),
    /// A call in Google's form.
    Call(GoogleCall<'a>),
    /// A count of the tokens of a Responses request.
    ResponsesInput,
    /// A stored response.
    Stored(StoredPath<'a>),
}

const GET: &str = "GET, HEAD, OPTIONS";
const POST: &str = "POST, OPTIONS";
/// The paths that Claude Code asks with its key after its sign-in.
const SHOWN_TO_CLAUDE_CODE: [&str; 2] = ["/managed/settings", "/api/oauth/usage"];
/// The paths to which it sends its telemetry. `/metrics` without a version is the gateway's own.
const TELEMETRY: [&str; 3] = ["/v1/metrics", "/v1/logs", "/v1/traces"];

/// Looks up a path. `/v1/completions` is deliberately absent (M-159).
fn find(path: &str) -> Option<(Operation, Named<'_>)> {
    let (versioned, bare) = match path.strip_prefix("/v1") {
        Some(rest) => (true, rest),
        None => (false, path),
    };
    let operation = match bare {
        "/chat/completions" => Operation::ChatCompletions,
        "/completions" if !versioned => Operation::ChatCompletions,
        "/responses" => Operation::Responses,
        "/responses/compact" => Operation::CompactResponses,
        "/responses/input_tokens" => return Some((Operation::CountTokens, Named::ResponsesInput)),
        "/messages" => Operation::Messages,
        "/messages/count_tokens" => Operation::CountTokens,
        "/embeddings" => Operation::Embeddings,
        "/audio/transcriptions" => Operation::Transcription,
        "/audio/speech" => Operation::Speech,
        "/images/generations" => Operation::Images,
        "/videos/generations" => Operation::Videos,
        "/models" => Operation::Models,
        "/health" if !versioned => Operation::Health,
        "/ready" if !versioned => Operation::Ready,
        "/metrics" if !versioned => Operation::Metrics,
        _ => {
            if let Some(stored) = stored::read(bare) {
                return Some((Operation::StoredResponses, Named::Stored(stored)));
            }
            let id = || bare.strip_prefix("/models/").filter(|id| !id.is_empty());
            return Some(match google::read(path) {
                Some(GooglePath::Call(call)) => (call.method.operation(), Named::Call(call)),
                Some(GooglePath::Models) => (Operation::Models, Named::Nothing),
                Some(GooglePath::Model(id)) => (Operation::Models, Named::Model(id)),
                None => (Operation::Models, Named::Model(id()?)),
            });
        }
    };
    Some((operation, Named::Nothing))
}

/// Returns the path to use instead of one that is not served but exists at a vendor, or is almost one of ours.
pub(crate) fn instead(path: &str) -> Option<&'static str> {
    let path = Some(path).filter(|path| path.len() <= ALIKE_BYTES_MAX)?;
    let bare = path.trim_end_matches('/').trim_start_matches("/v1");
    ALIKE.iter().find(|(theirs, _)| *theirs == bare).map(|(_, ours)| *ours)
}

/// The maximum length of a path that is compared; it appears in the message.
const ALIKE_BYTES_MAX: usize = 64;
/// Paths below `/v1` of vendors, and of bases that repeat `/v1` or paths that end with a slash, with ours.
const ALIKE: [(&str, &str); 22] = [
    ("/completions", "/v1/chat/completions"),
    ("/completion", "/v1/chat/completions"),
    ("/chat/completion", "/v1/chat/completions"),
    ("/chat/completions", "/v1/chat/completions"),
    ("/chat", "/v1/chat/completions"),
    ("/edits", "/v1/chat/completions"),
    ("/generate", "/v1/chat/completions"),
    ("/complete", "/v1/messages"),
    ("/messages", "/v1/messages"),
    ("/messages/batches", "/v1/messages"),
    ("/messages/count_tokens", "/v1/messages/count_tokens"),
    ("/response", "/v1/responses"),
    ("/responses", "/v1/responses"),
    ("/embedding", "/v1/embeddings"),
    ("/embeddings", "/v1/embeddings"),
    ("/audio/translations", "/v1/audio/transcriptions"),
    ("/audio/transcriptions", "/v1/audio/transcriptions"),
    ("/images/edits", "/v1/images/generations"),
    ("/images/variations", "/v1/images/generations"),
    ("/images/generations", "/v1/images/generations"),
    ("/videos", "/v1/videos/generations"),
    ("/models", "/v1/models"),
];

/// Returns the operation of a path, regardless of the method.
pub(crate) fn operation(path: &str) -> Option<Operation> {
    find(path).map(|(operation, _)| operation)
}

/// Returns true if pages of the configured origins may call this path: the data plane's paths except the metrics, and
/// every path below `/v1/`, so that a client's SDK can read the error.
pub(crate) fn is_open_to_pages(path: &str) -> bool {
    match find(path) {
        Some((operation, _)) => operation != Operation::Metrics,
        None => {
            let is_vendors = path.starts_with("/v1/") || google::is_of_google(path);
            is_vendors || path == "/key" || path.starts_with("/responses/")
        }
    }
}

/// Returns true for the paths that exist for keys of Claude Code's sign-in.
pub(crate) fn is_of_claude_code(path: &str) -> bool {
    SHOWN_TO_CLAUDE_CODE.contains(&path) || TELEMETRY.contains(&path)
}

/// Routes `method` on `path`.
pub(crate) fn meaning<'a>(method: &Method, path: &'a str) -> Meaning<'a> {
    let Some((operation, named)) = find(path) else { return other(method, path) };
    let allow = match (operation, named) {
        (Operation::Models | Operation::Health | Operation::Ready | Operation::Metrics, _) => GET,
        (_, Named::Stored(stored)) => stored.part.allow(),
        _ => POST,
    };
    if fits(method, allow) {
        Meaning::Operation(operation, named)
    } else if method == Method::OPTIONS {
        Meaning::Options(allow)
    } else {
        Meaning::WrongMethod(Some(operation), allow)
    }
}

/// Routes a path that is not an operation.
fn other(method: &Method, path: &str) -> Meaning<'static> {
    let allow = match path.strip_prefix("/v1").unwrap_or(path) {
        "/key" => GET,
        _ if SHOWN_TO_CLAUDE_CODE.contains(&path) => GET,
        _ if TELEMETRY.contains(&path) => POST,
        _ => return Meaning::Elsewhere,
    };
    match method {
        method if fits(method, allow) => Meaning::OwnKey,
        &Method::OPTIONS => Meaning::Options(allow),
        _ => Meaning::WrongMethod(None, allow),
    }
}

/// Returns true if `allow` contains the method. `OPTIONS`, which stands last in it, is answered elsewhere.
fn fits(method: &Method, allow: &'static str) -> bool {
    method != Method::OPTIONS && allow.split(", ").any(|allowed| allowed == method.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_and_its_alias_have_the_same_operation() {
        let table = [
            ("/chat/completions", Operation::ChatCompletions),
            ("/responses", Operation::Responses),
            ("/messages", Operation::Messages),
            ("/messages/count_tokens", Operation::CountTokens),
            ("/embeddings", Operation::Embeddings),
            ("/audio/transcriptions", Operation::Transcription),
            ("/audio/speech", Operation::Speech),
            ("/images/generations", Operation::Images),
            ("/videos/generations", Operation::Videos),
        ];
        for (path, operation) in table {
            let want = Meaning::Operation(operation, Named::Nothing);
            assert_eq!(meaning(&Method::POST, path), want, "{path}");
            assert_eq!(meaning(&Method::POST, &format!("/v1{path}")), want, "/v1{path}");
            assert_eq!(operation.path(), format!("/v1{path}"));
            assert_eq!(meaning(&Method::GET, path), Meaning::WrongMethod(Some(operation), POST), "{path}");
        }
    }

    #[test]
    fn the_own_key_route_allows_get_and_head_only() {
        for path in ["/v1/key", "/key"] {
            assert_eq!(meaning(&Method::GET, path), Meaning::OwnKey);
            assert_eq!(meaning(&Method::HEAD, path), Meaning::OwnKey);
            assert_eq!(meaning(&Method::OPTIONS, path), Meaning::Options(GET));
            assert_eq!(meaning(&Method::DELETE, path), Meaning::WrongMethod(None, GET));
        }
        assert_eq!(meaning(&Method::GET, "/v1/key/"), Meaning::Elsewhere);
    }

    #[test]
    fn a_path_that_is_not_served_has_one_to_use_instead() {
        for (path, want) in [
            ("/v1/completions", Some("/v1/chat/completions")),
            ("/v1/chat/completions/", Some("/v1/chat/completions")),
            ("/v1/v1/chat/completions", Some("/v1/chat/completions")),
            ("/v1/v1/messages", Some("/v1/messages")),
            ("/v1/images/edits", Some("/v1/images/generations")),
            ("/v1/rerank", None),
            ("/v1/", None),
        ] {
            assert_eq!(instead(path), want, "{path}");
        }
        for (_, ours) in ALIKE {
            assert!(find(ours).is_some(), "{ours}");
        }
    }

    #[test]
    fn completions_is_served_only_without_the_version() {
        let chat = Meaning::Operation(Operation::ChatCompletions, Named::Nothing);
        assert_eq!(meaning(&Method::POST, "/completions"), chat);
        assert_eq!(meaning(&Method::POST, "/v1/completions"), Meaning::Elsewhere);
    }

    #[test]
    fn paths_below_responses_have_the_methods_of_the_vendor() {
        for (path, want) in [
            ("/v1/responses/resp_1", "GET, DELETE, OPTIONS"),
            ("/responses/resp_1/cancel", POST),
            ("/v1/responses/resp_1/input_items", "GET, OPTIONS"),
            ("/v1/responses/input_tokens", POST),
            ("/responses/compact", POST),
        ] {
            let operation = operation(path);
            for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE] {
                let is_allowed = want.split(", ").any(|allowed| allowed == method.as_str());
                match meaning(&method, path) {
                    Meaning::Operation(found, _) => {
                        assert!(is_allowed && Some(found) == operation, "{method} {path}")
                    }
                    other => {
                        assert!(!is_allowed, "{method} {path}");
                        assert_eq!(other, Meaning::WrongMethod(operation, want));
                    }
                }
            }
            assert_eq!(meaning(&Method::OPTIONS, path), Meaning::Options(want));
        }
        assert_eq!(meaning(&Method::GET, "/v1/responses/"), Meaning::Elsewhere);
    }

    #[test]
    fn a_model_id_may_hold_slashes() {
        let want = Meaning::Operation(Operation::Models, Named::Model("groq/a/b"));
        assert_eq!(meaning(&Method::GET, "/v1/models/groq/a/b"), want);
        assert_eq!(meaning(&Method::GET, "/v1/models/"), Meaning::Elsewhere);
        assert_eq!(meaning(&Method::GET, "/v1/health"), Meaning::Elsewhere);
    }
}
