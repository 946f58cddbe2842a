//! Maps each dialect's member names to the members that the gateway reads.

use shared::operation::Dialect;

use super::fields::{Kinds, RequestMember};

/// The members of one dialect's requests.
#[derive(Debug)]
pub(super) struct RequestShape {
    /// Maps a top-level name to its member.
    pub(super) named: fn(&[u8]) -> RequestMember,
    /// The name of [`RequestMember::Conversation`].
    pub(super) conversation: &'static str,
    /// The types that the conversation may have.
    pub(super) kinds: Kinds,
    /// True if the conversation may be missing because another member refers to one stored at the provider.
    pub(super) may_be_stored: bool,
    pub(super) system: SystemText,
    /// True if a stream reports usage only on request.
    pub(super) asks_usage: bool,
    /// True if some targets return images inline only on request.
    pub(super) asks_inline: bool,
    /// True if numbers in the conversation are tokens.
    pub(super) takes_tokens: bool,
    /// True if the conversation is spoken and billed by its characters.
    pub(super) counts_characters: bool,
    /// True for Gemini: the path contains the model, system text is an object, and media are known by their data alone.
    pub(super) is_gemini: bool,
    /// True if the model and the task of each element of the conversation are no text.
    pub(super) has_terms: bool,
}

/// The position of system text in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemText {
    /// The dialect has no system text.
    None,
    /// A message of the conversation.
    Message,
    /// [`RequestMember::System`], which has this name.
    Member(&'static str),
}

impl RequestShape {
    /// True if system text is a message of the conversation.
    pub(super) fn has_system_messages(&self) -> bool {
        self.system == SystemText::Message
    }

    pub(super) fn of(dialect: Dialect) -> &'static Self {
        match dialect {
            Dialect::Chat => &CHAT,
            Dialect::Messages => &MESSAGES,
            Dialect::Responses => &RESPONSES,
            Dialect::Embeddings => &EMBEDDINGS,
            Dialect::Speech => &SPEECH,
            Dialect::Images => &IMAGES,
            Dialect::Videos => &VIDEOS,
            Dialect::Gemini => &GEMINI,
            Dialect::GeminiEmbeddings => &EMBEDDING_BATCH,
            Dialect::Transcription | Dialect::Bedrock => &OTHER,
        }
    }
}

static CHAT: RequestShape = RequestShape {
    named: |name| match name {
        b"messages" => RequestMember::Conversation,
        b"prompt" => RequestMember::Prompt,
        b"stream_options" => RequestMember::StreamOptions,
        b"functions" => RequestMember::Functions,
        b"max_completion_tokens" => RequestMember::MaxCompletionTokens,
        b"max_tokens" => RequestMember::MaxTokens,
        b"n" => RequestMember::Count,
        b"best_of" => RequestMember::BestOf,
        b"num_completions" => RequestMember::NumCompletions,
        b"num_generations" => RequestMember::NumGenerations,
        b"service_tier" => RequestMember::Tier,
        b"web_search_options" => RequestMember::Search,
        b"prompt_cache_key" => RequestMember::CacheKey,
        b"user" | b"safety_identifier" => RequestMember::EndUser,
        _ => common(name),
    },
    conversation: "messages",
    kinds: Kinds::Array,
    may_be_stored: false,
    system: SystemText::Message,
    asks_usage: true,
    asks_inline: false,
    takes_tokens: false,
    counts_characters: false,
    is_gemini: false,
    has_terms: false,
};

static MESSAGES: RequestShape = RequestShape {
    named: |name| match name {
        b"messages" => RequestMember::Conversation,
        b"system" => RequestMember::System,
        b"max_tokens" => RequestMember::MaxTokens,
        b"anthropic_version" => RequestMember::Version,
        b"metadata" => RequestMember::Metadata,
        b"service_tier" | b"speed" | b"inference_geo" => RequestMember::Tier,
        _ => common(name),
    },
    conversation: "messages",
    kinds: Kinds::Array,
    may_be_stored: false,
    system: SystemText::Member("system"),
    asks_usage: false,
    asks_inline: false,
    takes_tokens: false,
    counts_characters: false,
    is_gemini: false,
    has_terms: false,
};

static RESPONSES: RequestShape = RequestShape {
    named: |name| match name {
        b"input" => RequestMember::Conversation,
        b"instructions" => RequestMember::System,
        b"max_output_tokens" => RequestMember::MaxOutputTokens,
        b"service_tier" => RequestMember::Tier,
        b"background" => RequestMember::Background,
        b"store" => RequestMember::Store,
        b"previous_response_id" => RequestMember::PreviousResponse,
        b"conversation" => RequestMember::StoredConversation,
        b"include" => RequestMember::Include,
        b"prompt" => RequestMember::Prompt,
        b"prompt_cache_key" => RequestMember::CacheKey,
        b"user" | b"safety_identifier" => RequestMember::EndUser,
        _ => common(name),
    },
    conversation: "input",
    kinds: Kinds::TextOrArray,
    may_be_stored: true,
    system: SystemText::Member("instructions"),
    asks_usage: false,
    asks_inline: false,
    takes_tokens: false,
    counts_characters: false,
    is_gemini: false,
    has_terms: false,
};

static EMBEDDINGS: RequestShape = RequestShape {
    named: |name| match name {
        b"encoding_format" => RequestMember::VectorFormat,
        _ => input(name),
    },
    conversation: "input",
    kinds: Kinds::TextOrArray,
    takes_tokens: true,
    ..BARE
};

static SPEECH: RequestShape =
    RequestShape { named: input, conversation: "input", kinds: Kinds::Text, counts_characters: true, ..BARE };

static IMAGES: RequestShape = RequestShape {
    named: |name| match name {
        b"prompt" => RequestMember::Conversation,
        b"n" => RequestMember::Count,
        b"size" => RequestMember::Size,
        b"quality" => RequestMember::Quality,
        b"response_format" => RequestMember::ImageFormat,
        b"user" => RequestMember::EndUser,
        _ => common(name),
    },
    conversation: "prompt",
    kinds: Kinds::Text,
    asks_inline: true,
    ..BARE
};

static VIDEOS: RequestShape = RequestShape {
    named: |name| match name {
        b"prompt" => RequestMember::Conversation,
        b"n" => RequestMember::Count,
        b"seconds" => RequestMember::Seconds,
        // A request has at most one of the two.
        b"size" | b"resolution" => RequestMember::Size,
        b"operation" => RequestMember::Operation,
        _ => common(name),
    },
    conversation: "prompt",
    kinds: Kinds::Text,
    ..BARE
};

/// Google reads each name in either spelling.
static GEMINI: RequestShape = RequestShape {
    named: |name| match name {
        b"contents" => RequestMember::Conversation,
        b"systemInstruction" | b"system_instruction" => RequestMember::System,
        b"generationConfig" | b"generation_config" => RequestMember::GenerationConfig,
        b"serviceTier" | b"service_tier" => RequestMember::Tier,
        b"stream" => RequestMember::Other,
        _ => common(name),
    },
    conversation: "contents",
    kinds: Kinds::ArrayOrObject,
    system: SystemText::Member("systemInstruction"),
    is_gemini: true,
    ..BARE
};

/// Google's request for the embedding of one content.
pub(super) static EMBEDDING: RequestShape = RequestShape {
    named: |name| match name {
        b"content" => RequestMember::Conversation,
        b"stream" => RequestMember::Other,
        _ => common(name),
    },
    conversation: "content",
    kinds: Kinds::Object,
    is_gemini: true,
    ..BARE
};

/// Google's request for the embeddings of several contents.
static EMBEDDING_BATCH: RequestShape = RequestShape {
    named: |name| match name {
        b"requests" => RequestMember::Conversation,
        b"stream" => RequestMember::Other,
        _ => common(name),
    },
    conversation: "requests",
    kinds: Kinds::Array,
    is_gemini: true,
    has_terms: true,
    ..BARE
};

const BARE: RequestShape = RequestShape {
    named: common,
    conversation: "",
    kinds: Kinds::Any,
    may_be_stored: false,
    system: SystemText::None,
    asks_usage: false,
    asks_inline: false,
    takes_tokens: false,
    counts_characters: false,
    is_gemini: false,
    has_terms: false,
};

static OTHER: RequestShape = BARE;

fn input(name: &[u8]) -> RequestMember {
    match name {
        b"input" => RequestMember::Conversation,
        b"user" => RequestMember::EndUser,
        _ => common(name),
    }
}

/// Maps the names that all dialects share, including the gateway's own members.
fn common(name: &[u8]) -> RequestMember {
    match name {
        b"model" => RequestMember::Model,
        b"stream" => RequestMember::Stream,
        b"tools" => RequestMember::Tools,
        b"fallback_timeout_ms" => RequestMember::Timeout,
        b"affinity_key" => RequestMember::Affinity,
        _ => RequestMember::Other,
    }
}
