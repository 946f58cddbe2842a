//! The operations of the data plane, and the wire protocols of clients and targets.

use serde::{Deserialize, Serialize};

/// The operation of a data-plane path (ROUTE-1 to ROUTE-5). Aliases of a path have the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is named as the path it stands for")]
pub enum Operation {
    ChatCompletions,
    Responses,
    StoredResponses,
    CompactResponses,
    Messages,
    CountTokens,
    GenerateContent,
    Embeddings,
    Transcription,
    Speech,
    Images,
    Videos,
    Models,
    Health,
    Ready,
    Metrics,
}

impl Operation {
    /// The operations that an allowlist may contain: everything that a project key can be used for.
    pub const GRANTABLE: [Self; 11] = [
        Self::ChatCompletions,
        Self::Responses,
        Self::Messages,
        Self::CountTokens,
        Self::GenerateContent,
        Self::Embeddings,
        Self::Transcription,
        Self::Speech,
        Self::Images,
        Self::Videos,
        Self::Models,
    ];

    /// Returns the operation with this [`name`](Self::name).
    pub fn named(name: &str) -> Option<Self> {
        let others =
            [Self::StoredResponses, Self::CompactResponses, Self::Health, Self::Ready, Self::Metrics];
        Self::GRANTABLE.into_iter().chain(others).find(|operation| operation.name() == name)
    }

    /// Returns the operation that an allowlist must contain for this one: operations on stored responses belong to those that
    /// store them.
    pub fn permission(self) -> Self {
        match self {
            Self::StoredResponses | Self::CompactResponses => Self::Responses,
            other => other,
        }
    }

    /// Returns the client's wire protocol for this operation; `None` if the operation calls no upstream.
    pub fn dialect(self) -> Option<Dialect> {
        Some(match self {
            Self::ChatCompletions => Dialect::Chat,
            Self::Responses | Self::StoredResponses | Self::CompactResponses => Dialect::Responses,
            Self::Messages | Self::CountTokens => Dialect::Messages,
            Self::GenerateContent => Dialect::Gemini,
            Self::Embeddings => Dialect::Embeddings,
            Self::Transcription => Dialect::Transcription,
            Self::Speech => Dialect::Speech,
            Self::Images => Dialect::Images,
            Self::Videos => Dialect::Videos,
            Self::Models | Self::Health | Self::Ready | Self::Metrics => return None,
        })
    }

    /// Returns the path of clients. There may be aliases of it.
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::StoredResponses => "/v1/responses/{id}",
            Self::CompactResponses => "/v1/responses/compact",
            Self::Messages => "/v1/messages",
            Self::CountTokens => "/v1/messages/count_tokens",
            Self::GenerateContent => "/v1beta/models/{model}:generateContent",
            Self::Embeddings => "/v1/embeddings",
            Self::Transcription => "/v1/audio/transcriptions",
            Self::Speech => "/v1/audio/speech",
            Self::Images => "/v1/images/generations",
            Self::Videos => "/v1/videos/generations",
            Self::Models => "/v1/models",
            Self::Health => "/health",
            Self::Ready => "/ready",
            Self::Metrics => "/metrics",
        }
    }

    /// Returns the `gen_ai.operation.name` of OpenTelemetry.
    pub fn genai_name(self) -> &'static str {
        match self {
            Self::ChatCompletions | Self::Responses | Self::Messages => "chat",
            other => other.name(),
        }
    }

    /// Returns the name for logs, metrics and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions",
            Self::Responses => "responses",
            Self::StoredResponses => "stored_responses",
            Self::CompactResponses => "compact_responses",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::GenerateContent => "generate_content",
            Self::Embeddings => "embeddings",
            Self::Transcription => "transcription",
            Self::Speech => "speech",
            Self::Images => "images",
            Self::Videos => "videos",
            Self::Models => "models",
            Self::Health => "health",
            Self::Ready => "ready",
            Self::Metrics => "metrics",
        }
    }
}

/// A wire protocol with its own request, response and stream shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is the name of a vendor's protocol")]
pub enum Dialect {
    Chat,
    Responses,
    Messages,
    Embeddings,
    Speech,
    Transcription,
    Images,
    Videos,
    Gemini,
    Bedrock,
    GeminiEmbeddings,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 11] = [
        Self::Chat,
        Self::Responses,
        Self::Messages,
        Self::Embeddings,
        Self::Speech,
        Self::Transcription,
        Self::Images,
        Self::Videos,
        Self::Gemini,
        Self::Bedrock,
        Self::GeminiEmbeddings,
    ];

    /// The dialects in which videos can be requested.
    pub const OF_VIDEOS: [Self; 2] = [Self::Videos, Self::Gemini];

    /// Returns the dialects to which requests in this one can be adapted, in order of preference.
    pub fn adapted_to(self) -> &'static [Self] {
        match self {
            Self::Chat => &[Self::Messages, Self::Responses, Self::Gemini, Self::Bedrock],
            Self::Messages => &[Self::Chat, Self::Gemini, Self::Bedrock, Self::Responses],
            Self::Responses => &[Self::Chat, Self::Messages, Self::Gemini, Self::Bedrock],
            Self::Images => &[Self::Gemini],
            Self::Gemini => &[Self::Chat, Self::Messages, Self::Bedrock, Self::Responses],
            Self::Embeddings => &[Self::GeminiEmbeddings],
            Self::GeminiEmbeddings => &[Self::Embeddings],
            Self::Speech | Self::Transcription | Self::Videos | Self::Bedrock => &[],
        }
    }

    /// Returns true for dialects of conversations, which may fail over (FAIL-1) and are counted in tokens.
    pub fn is_conversation(self) -> bool {
        matches!(self, Self::Chat | Self::Responses | Self::Messages | Self::Gemini)
    }

    /// Returns the name for the configuration and the `protocols` lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Embeddings => "embeddings",
            Self::Speech => "speech",
            Self::Transcription => "transcription",
            Self::Images => "images",
            Self::Videos => "videos",
            Self::Gemini => "gemini",
            Self::Bedrock => "bedrock",
            Self::GeminiEmbeddings => "gemini_embeddings",
        }
    }
}
