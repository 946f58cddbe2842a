//! What the dialects call the members of a request that the gateway looks at.

use shared::operation::Dialect;

use super::fields::{Field, Kinds};

/// The members of one dialect's requests.
#[derive(Debug)]
pub(super) struct Shape {
    /// What a top-level member is.
    pub(super) named: fn(&[u8]) -> Field,
    /// The name of [`Field::Conversation`].
    pub(super) conversation: &'static str,
    /// What it may be.
    pub(super) kinds: Kinds,
    /// A request without it is one if it names something else at the provider that holds the conversation.
    pub(super) may_be_stored: bool,
    pub(super) system: SystemText,
    /// A stream says what was used only if it is asked to.
    pub(super) asks_usage: bool,
    /// Some targets send images inline only if they are asked to.
    pub(super) asks_inline: bool,
    /// Numbers in the conversation are tokens.
    pub(super) takes_tokens: bool,
    /// The conversation is spoken, and paid for by its characters.
    pub(super) counts_characters: bool,
}

/// How system text is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SystemText {
    /// Not at all.
    None,
    /// As a message of the conversation.
    Message,
    /// In [`Field::System`], which has this name.
    Member(&'static str),
}

impl Shape {
    /// System text is a message of the conversation.
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
            Dialect::Transcription | Dialect::Gemini | Dialect::Bedrock => &OTHER,
        }
    }
}

static CHAT: Shape = Shape {
    named: |name| match name {
        b"messages" => Field::Conversation,
        b"stream_options" => Field::StreamOptions,
        b"functions" => Field::Functions,
        b"max_completion_tokens" => Field::MaxCompletionTokens,
        b"max_tokens" => Field::MaxTokens,
        b"n" => Field::Count,
        b"best_of" => Field::BestOf,
        b"num_completions" => Field::NumCompletions,
        b"num_generations" => Field::NumGenerations,
        b"service_tier" => Field::Tier,
        b"web_search_options" => Field::Search,
        b"prompt_cache_key" => Field::CacheKey,
        b"user" | b"safety_identifier" => Field::EndUser,
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
};

static MESSAGES: Shape = Shape {
    named: |name| match name {
        b"messages" => Field::Conversation,
        b"system" => Field::System,
        b"max_tokens" => Field::MaxTokens,
        b"anthropic_version" => Field::Version,
        b"metadata" => Field::Metadata,
        b"service_tier" | b"speed" | b"inference_geo" => Field::Tier,
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
};

static RESPONSES: Shape = Shape {
    named: |name| match name {
        b"input" => Field::Conversation,
        b"instructions" => Field::System,
        b"max_output_tokens" => Field::MaxOutputTokens,
        b"service_tier" => Field::Tier,
        b"background" => Field::Background,
        b"store" => Field::Store,
        b"previous_response_id" => Field::PreviousResponse,
        b"conversation" => Field::StoredConversation,
        b"include" => Field::Include,
        b"prompt" => Field::Prompt,
        b"prompt_cache_key" => Field::CacheKey,
        b"user" | b"safety_identifier" => Field::EndUser,
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
};

static EMBEDDINGS: Shape =
    Shape { named: input, conversation: "input", kinds: Kinds::TextOrArray, takes_tokens: true, ..BARE };

static SPEECH: Shape =
    Shape { named: input, conversation: "input", kinds: Kinds::Text, counts_characters: true, ..BARE };

static IMAGES: Shape = Shape {
    named: |name| match name {
        b"prompt" => Field::Conversation,
        b"n" => Field::Count,
        b"size" => Field::Size,
        b"quality" => Field::Quality,
        b"response_format" => Field::ImageFormat,
        b"user" => Field::EndUser,
        _ => common(name),
    },
    conversation: "prompt",
    kinds: Kinds::Text,
    asks_inline: true,
    ..BARE
};

static VIDEOS: Shape = Shape {
    named: |name| match name {
        b"prompt" => Field::Conversation,
        b"n" => Field::Count,
        b"seconds" => Field::Seconds,
        // Either, but not both.
        b"size" | b"resolution" => Field::Size,
        b"operation" => Field::Operation,
        _ => common(name),
    },
    conversation: "prompt",
    kinds: Kinds::Text,
    ..BARE
};

const BARE: Shape = Shape {
    named: common,
    conversation: "",
    kinds: Kinds::Any,
    may_be_stored: false,
    system: SystemText::None,
    asks_usage: false,
    asks_inline: false,
    takes_tokens: false,
    counts_characters: false,
};

static OTHER: Shape = BARE;

fn input(name: &[u8]) -> Field {
    match name {
        b"input" => Field::Conversation,
        b"user" => Field::EndUser,
        _ => common(name),
    }
}

/// Members with the same name in every dialect, the gateway's own among them.
fn common(name: &[u8]) -> Field {
    match name {
        b"model" => Field::Model,
        b"stream" => Field::Stream,
        b"tools" => Field::Tools,
        b"fallback_timeout_ms" => Field::Timeout,
        b"affinity_key" => Field::Affinity,
        _ => Field::Other,
    }
}
