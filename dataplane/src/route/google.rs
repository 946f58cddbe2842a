//! Paths in Google's form: `/v1beta/models/MODEL:METHOD`, and Vertex AI's below `publishers/google`. The path contains the
//! model, whose name may hold slashes and colons, raw or percent-encoded: the method follows the last colon.
//!
//! Google's current SDKs use `/v1`, the tree of OpenAI's paths. There a path is Google's if its method is, or if the client
//! shows itself by its key or by a header.

use http::request::Parts;
use shared::operation::{Dialect, Operation};

/// A call of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoogleCall<'a> {
    /// The percent-encoded selector.
    pub(crate) model: &'a str,
    pub(crate) method: GoogleMethod,
}

/// The methods of models that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoogleMethod {
    Generate,
    GenerateStream,
    CountTokens,
    Embed,
    EmbedBatch,
}

impl GoogleMethod {
    /// Returns the operation that an allowlist has to contain.
    pub(super) fn operation(self) -> Operation {
        match self {
            Self::Generate | Self::GenerateStream => Operation::GenerateContent,
            Self::CountTokens => Operation::CountTokens,
            Self::Embed | Self::EmbedBatch => Operation::Embeddings,
        }
    }

    /// Returns the client's dialect.
    pub(crate) fn dialect(self) -> Dialect {
        match self {
            Self::Generate | Self::GenerateStream | Self::CountTokens => Dialect::Gemini,
            Self::Embed | Self::EmbedBatch => Dialect::GeminiEmbeddings,
        }
    }

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "generateContent" => Self::Generate,
            "streamGenerateContent" => Self::GenerateStream,
            "countTokens" => Self::CountTokens,
            "embedContent" => Self::Embed,
            "batchEmbedContents" => Self::EmbedBatch,
            _ => return None,
        })
    }
}

/// A path below one of Google's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GooglePath<'a> {
    Call(GoogleCall<'a>),
    /// The list of models.
    Models,
    /// The percent-encoded name of a model.
    Model(&'a str),
}

/// Reads a path in Google's form.
pub(super) fn read(path: &str) -> Option<GooglePath<'_>> {
    let below = below_version(path)?;
    let below = below.strip_prefix("projects/").and_then(place).unwrap_or(below);
    let below = below.strip_prefix("publishers/google/").unwrap_or(below);
    if below == "models" {
        return Some(GooglePath::Models);
    }
    let name = below.strip_prefix("models/").or_else(|| below.strip_prefix("tunedModels/"));
    let call = name.unwrap_or(below).rsplit_once(':').and_then(|(model, method)| {
        let method = GoogleMethod::named(method)?;
        (!model.is_empty()).then_some(GoogleCall { model, method })
    });
    // The AI SDK writes a model with a slash without the collection before it.
    let other = || name.filter(|name| !name.is_empty()).map(GooglePath::Model);
    call.map(GooglePath::Call).or_else(other)
}

/// Returns the rest after `PROJECT/locations/LOCATION/`.
fn place(path: &str) -> Option<&str> {
    let (_, rest) = path.split_once("/locations/")?;
    rest.split_once('/').map(|(_, rest)| rest)
}

/// Returns the path below a version of Google's APIs.
fn below_version(path: &str) -> Option<&str> {
    let (version, below) = path.strip_prefix('/')?.split_once('/')?;
    matches!(version, "v1" | "v1beta" | "v1beta1" | "v1alpha").then_some(below)
}

/// Returns true for paths that no other vendor's API has.
pub(crate) fn is_of_google(path: &str) -> bool {
    let path = path.strip_prefix("/upload").unwrap_or(path);
    let versioned = ["/v1beta/", "/v1beta1/", "/v1alpha/"].iter().any(|version| path.starts_with(version));
    versioned || path.contains(':') && matches!(read(path), Some(GooglePath::Call(_)))
}

/// Returns true if the client speaks Google's protocol: by the path or, where other vendors have the same one, by a header
/// or the member `key` of the query.
pub(crate) fn is_google(request: &Parts) -> bool {
    let path = request.uri.path();
    if is_of_google(path) {
        return true;
    }
    let shows_itself =
        request.headers.keys().any(|name| OWN_HEADERS.contains(&name.as_str())) || has_key(request);
    let below = path.strip_prefix("/v1/").or_else(|| path.strip_prefix("/upload/v1/"));
    shows_itself && below.is_some_and(|below| SHARED.iter().any(|start| below.starts_with(start)))
}

fn has_key(request: &Parts) -> bool {
    request.uri.query().is_some_and(|query| query.split('&').any(|member| member.starts_with("key=")))
}

/// Returns the call that a path contains.
pub(crate) fn call(path: &str) -> Option<GoogleCall<'_>> {
    match read(path)? {
        GooglePath::Call(call) => Some(call),
        GooglePath::Models | GooglePath::Model(_) => None,
    }
}

/// Returns true if the path asks for a stream.
pub(crate) fn streams(path: &str) -> bool {
    path.ends_with(":streamGenerateContent")
        && call(path).is_some_and(|call| call.method == GoogleMethod::GenerateStream)
}

/// Returns true if the request asks for a stream as events, and not as one JSON array.
pub(crate) fn wants_events(request: &Parts) -> bool {
    let members = request.uri.query().into_iter().flat_map(|query| query.split('&'));
    members.into_iter().any(|member| matches!(member, "alt=sse" | "$alt=sse" | "%24alt=sse"))
}

/// Returns the advice for a path of Google's APIs that is not served.
pub(crate) fn absent(path: &str) -> &'static str {
    let below = below_version(path.strip_prefix("/upload").unwrap_or(path)).unwrap_or_default();
    let first = below.split(['/', ':']).next().unwrap_or_default();
    match first {
        "files" => {
            "llmgw does not store files, so the Files API is not served. Send the data in the request, as \
             'inlineData'."
        }
        "cachedContents" => {
            "llmgw does not store contents, so explicit caches are not served. Send the contents with each \
             request; providers cache repeated prompts themselves."
        }
        "interactions" => {
            "The Interactions API is not served. Use generateContent or streamGenerateContent, and send the \
             conversation with each request."
        }
        "batches" | "operations" => {
            "Batches are not served. Send each request by itself, with generateContent."
        }
        "fileSearchStores" | "corpora" => "File search is not served: its documents are stored by Google.",
        "auth_tokens" => "Tokens for the Live API are not served. Use a project key of the gateway.",
        "models" | "tunedModels" | "publishers" | "projects" => METHODS,
        _ => "There is no such path.",
    }
}

const METHODS: &str = "There is no such method of a model here. Served are generateContent, \
     streamGenerateContent, countTokens, embedContent and batchEmbedContents.";

/// The first parts of Google's paths below `/v1`, all of which OpenAI has as well or might have.
const SHARED: [&str; 9] = [
    "models",
    "tunedModels",
    "publishers/",
    "projects/",
    "files",
    "cachedContents",
    "batches",
    "interactions",
    "fileSearchStores",
];
const OWN_HEADERS: [&str; 2] = ["x-goog-api-key", "x-goog-api-client"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_follows_the_last_colon() {
        for (path, model, method) in [
            ("/v1beta/models/g:generateContent", "g", GoogleMethod::Generate),
            ("/v1/models/g:streamGenerateContent", "g", GoogleMethod::GenerateStream),
            ("/v1alpha/tunedModels/t:generateContent", "t", GoogleMethod::Generate),
            ("/v1beta/models/groq/llama-3:8b:generateContent", "groq/llama-3:8b", GoogleMethod::Generate),
            ("/v1beta/models/groq%2Fllama%3A8b:generateContent", "groq%2Fllama%3A8b", GoogleMethod::Generate),
            ("/v1beta1/publishers/google/models/g:generateContent", "g", GoogleMethod::Generate),
            ("/v1/models/a/b:embedContent", "a/b", GoogleMethod::Embed),
            ("/v1beta/openai/gpt:8b:generateContent", "openai/gpt:8b", GoogleMethod::Generate),
            ("/v1beta/models/e:batchEmbedContents", "e", GoogleMethod::EmbedBatch),
            (
                "/v1beta1/projects/p/locations/eu/publishers/google/models/a/b:streamGenerateContent",
                "a/b",
                GoogleMethod::GenerateStream,
            ),
        ] {
            assert_eq!(read(path), Some(GooglePath::Call(GoogleCall { model, method })), "{path}");
            assert!(is_of_google(path), "{path}");
        }
        for (path, want) in [
            ("/v1beta/models", Some(GooglePath::Models)),
            ("/v1beta1/publishers/google/models", Some(GooglePath::Models)),
            ("/v1beta/models/a/b:8b", Some(GooglePath::Model("a/b:8b"))),
            ("/v1beta/models/g:frobnicate", Some(GooglePath::Model("g:frobnicate"))),
            ("/v1beta/models/:generateContent", Some(GooglePath::Model(":generateContent"))),
            ("/v1beta/models/", None),
            ("/v2/models/g:generateContent", None),
            ("/v1beta/files/f", None),
        ] {
            assert_eq!(read(path), want, "{path}");
        }
    }

    #[test]
    fn a_client_of_google_is_known_by_path_key_or_header() {
        for (uri, header, want) in [
            ("/v1beta/models", None, true),
            ("/upload/v1beta/files", None, true),
            ("/v1/models/g:generateContent", None, true),
            ("/v1/models", None, false),
            ("/v1/models?key=k", None, true),
            ("/v1/models", Some("x-goog-api-client"), true),
            ("/v1/files/f", Some("x-goog-api-key"), true),
            ("/v1/files/f", None, false),
            ("/v1/chat/completions?key=k", Some("x-goog-api-key"), false),
        ] {
            let mut request = http::Request::builder().uri(uri);
            if let Some(name) = header {
                request = request.header(name, "x");
            }
            assert_eq!(is_google(&request.body(()).unwrap().into_parts().0), want, "{uri} {header:?}");
        }
    }
}
