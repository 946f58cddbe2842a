//! Tests of properties of every kind and of the paths of each.

use super::path::{Missing, Paths, Place, UpstreamCall};
use super::*;

const PLACE: Place<'_> = Place {
    region: Some("eu-west-1"),
    project: Some("p-1"),
    location: Some("europe-west4"),
    provider: Some("acme"),
    api_version: None,
    is_implied: false,
};

#[test]
fn every_provider_kind_is_complete() {
    for kind in KINDS {
        assert!(KINDS.iter().filter(|other| other.name == kind.name).count() == 1, "{}", kind.name);
        for (name, value) in kind.headers {
            http::HeaderName::from_lowercase(name.as_bytes()).expect(kind.name);
            http::HeaderValue::from_str(value).expect(kind.name);
        }
        let layout = kind.layout("");
        assert_eq!(layout.is_none(), kind.is_in_process(), "{}", kind.name);
        let paths: Vec<Paths> = kind
            .layouts
            .iter()
            .map(|layout| Paths::new(layout, layout.base_ends, &PLACE).expect(kind.name))
            .collect();
        for dialect in kind.dialects {
            let is_found = paths.is_empty() || paths.iter().any(|paths| paths.has(*dialect));
            assert!(is_found, "{} has no address for {}", kind.name, dialect.name());
        }
        for model in kind.models {
            assert!(!model.is_empty() && !model.contains(' '), "{}", kind.name);
        }
    }
}

/// (kind, path of the base URL, dialect, call, want)
const CASES: &[(&str, &str, Dialect, UpstreamCall, &str)] = &[
    ("openai", "/v1", Dialect::Chat, UpstreamCall::Stream, "/v1/chat/completions"),
    ("openai", "/v1", Dialect::Responses, UpstreamCall::Whole, "/v1/responses"),
    ("openai", "/v1", Dialect::Responses, UpstreamCall::Stored, "/v1/responses/a-1%3A0"),
    ("openai", "/v1", Dialect::Responses, UpstreamCall::Cancel, "/v1/responses/a-1%3A0/cancel"),
    ("openai", "/v1", Dialect::Responses, UpstreamCall::InputItems, "/v1/responses/a-1%3A0/input_items"),
    ("openai", "/v1", Dialect::Responses, UpstreamCall::Count, "/v1/responses/input_tokens"),
    ("openai", "/v1", Dialect::Responses, UpstreamCall::Compact, "/v1/responses/compact"),
    (
        "azure_openai",
        "",
        Dialect::Responses,
        UpstreamCall::Stored,
        "/openai/responses/a-1%3A0?api-version=2025-04-01-preview",
    ),
    ("openai", "/v1", Dialect::Embeddings, UpstreamCall::Whole, "/v1/embeddings"),
    ("openai", "/v1", Dialect::Speech, UpstreamCall::Whole, "/v1/audio/speech"),
    ("openai", "/v1", Dialect::Transcription, UpstreamCall::Whole, "/v1/audio/transcriptions"),
    ("openai", "/v1", Dialect::Images, UpstreamCall::Whole, "/v1/images/generations"),
    ("openai", "/v1", Dialect::Videos, UpstreamCall::Start, "/v1/videos"),
    ("openai", "/v1", Dialect::Videos, UpstreamCall::Content, "/v1/videos/a-1%3A0/content"),
    ("compatible", "/api/paas/v4", Dialect::Chat, UpstreamCall::Whole, "/api/paas/v4/chat/completions"),
    ("compatible", "", Dialect::Messages, UpstreamCall::Count, "/messages/count_tokens"),
    (
        "azure_openai",
        "",
        Dialect::Chat,
        UpstreamCall::Stream,
        "/openai/deployments/a-1%3A0/chat/completions?api-version=2025-04-01-preview",
    ),
    (
        "azure_openai",
        "",
        Dialect::Responses,
        UpstreamCall::Whole,
        "/openai/responses?api-version=2025-04-01-preview",
    ),
    ("azure_openai", "/openai/v1", Dialect::Chat, UpstreamCall::Whole, "/openai/v1/chat/completions"),
    ("anthropic", "", Dialect::Messages, UpstreamCall::Stream, "/v1/messages"),
    (
        "anthropic",
        "/anthropic",
        Dialect::Messages,
        UpstreamCall::Count,
        "/anthropic/v1/messages/count_tokens",
    ),
    ("gemini", "", Dialect::Gemini, UpstreamCall::Whole, "/v1beta/models/a-1%3A0:generateContent"),
    (
        "gemini",
        "/v1beta",
        Dialect::Gemini,
        UpstreamCall::Stream,
        "/v1beta/models/a-1%3A0:streamGenerateContent?alt=sse",
    ),
    ("gemini", "/x/v1", Dialect::Gemini, UpstreamCall::Count, "/x/v1/models/a-1%3A0:countTokens"),
    (
        "vertex",
        "",
        Dialect::Gemini,
        UpstreamCall::Start,
        "/v1/projects/p-1/locations/europe-west4/publishers/google/models/a-1%3A0:predictLongRunning",
    ),
    ("gemini", "", Dialect::Gemini, UpstreamCall::Poll, "/v1beta/a-1%3A0"),
    (
        "gemini",
        "",
        Dialect::GeminiEmbeddings,
        UpstreamCall::Batch,
        "/v1beta/models/a-1%3A0:batchEmbedContents",
    ),
    (
        "vertex",
        "",
        Dialect::GeminiEmbeddings,
        UpstreamCall::Batch,
        "/v1beta1/projects/p-1/locations/europe-west4/publishers/google/models/a-1%3A0:batchEmbedContents",
    ),
    ("gemini", "/v1", Dialect::GeminiEmbeddings, UpstreamCall::Whole, "/v1/models/a-1%3A0:embedContent"),
    (
        "vertex",
        "",
        Dialect::Gemini,
        UpstreamCall::PollByPost,
        "/v1/projects/p-1/locations/europe-west4/publishers/google/models/a-1%3A0:fetchPredictOperation",
    ),
    ("extension", "/base", Dialect::Chat, UpstreamCall::Whole, "/base/v1/acme/invoke?dialect=chat"),
    ("extension", "", Dialect::Messages, UpstreamCall::Stream, "/v1/acme/stream?dialect=messages"),
    ("bedrock", "", Dialect::Bedrock, UpstreamCall::Whole, "/model/a-1%3A0/converse"),
    ("bedrock", "", Dialect::Bedrock, UpstreamCall::Stream, "/model/a-1%3A0/converse-stream"),
    ("bedrock", "", Dialect::Chat, UpstreamCall::Whole, "/openai/v1/chat/completions"),
];

#[test]
fn the_path_of_each_operation_matches_the_vendors_documentation() {
    for (name, base, dialect, call, want) in CASES {
        let layout = kind(name).unwrap().layout(base).unwrap();
        let paths = Paths::new(layout, base, &PLACE).unwrap();
        let path = paths.of(*dialect, *call, "a-1:0").map(|path| path.as_str().to_owned());
        assert_eq!(path.as_deref(), Some(*want), "{name} {} {call:?}", dialect.name());
    }
}

#[test]
fn a_configured_api_version_overrides_the_default() {
    let place = Place { api_version: Some("preview"), ..PLACE };
    for (base, want) in [
        ("", "/openai/deployments/m/embeddings?api-version=preview"),
        ("/openai/v1", "/openai/v1/embeddings?api-version=preview"),
    ] {
        let layout = kind("azure_openai").unwrap().layout(base).unwrap();
        let paths = Paths::new(layout, base, &place).unwrap();
        assert_eq!(paths.of(Dialect::Embeddings, UpstreamCall::Whole, "m").unwrap().as_str(), want);
    }
}

#[test]
fn cloud_addresses_follow_from_region_and_location() {
    let address = |name: &str, place: &Place<'_>| match kind(name).unwrap().reach {
        Reach::Placed(address) => address(place),
        other => panic!("{other:?}"),
    };
    let located = |location| Place { location: Some(location), ..PLACE };
    let placed = |region| Place { region: Some(region), ..PLACE };
    for (name, place, want) in [
        ("vertex", located("global"), "https://aiplatform.googleapis.com"),
        ("vertex", located("us"), "https://aiplatform.us.rep.googleapis.com"),
        ("vertex", located("us-central1"), "https://us-central1-aiplatform.googleapis.com"),
        ("bedrock", placed("us-east-1"), "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("bedrock", placed("cn-north-1"), "https://bedrock-runtime.cn-north-1.amazonaws.com.cn"),
    ] {
        assert_eq!(address(name, &place).as_deref(), Ok(want));
    }
    assert_eq!(address("bedrock", &Place::default()), Err(Missing("region")));
}

#[test]
fn lists_of_bedrock_models_are_in_the_domain_of_their_region() {
    let layout = kind("bedrock").unwrap().layout("").unwrap();
    for (region, domain) in [("eu-west-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")] {
        let place = Place { region: Some(region), ..PLACE };
        let lists = layout.lists("https://runtime", false, &place).unwrap();
        let urls: Vec<&str> = lists.iter().map(|list| list.url.as_str()).collect();
        let address = format!("https://bedrock.{region}.{domain}");
        assert_eq!(
            urls,
            [format!("{address}/foundation-models"), format!("{address}/inference-profiles?maxResults=1000")]
        );
    }
}
