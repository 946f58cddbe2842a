//! The differences between servers of one protocol. Each kind has its own; an entry of the registry may override them.

use serde::{Deserialize, Serialize};

/// The differences of a server from others of the same protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// The member of a chat request that limits the output tokens.
    pub output_limit: OutputLimit,
    /// The accepted format of tool call IDs.
    pub tool_ids: ToolIds,
    /// True if tool names are words of at most 64 characters.
    pub word_tool_names: bool,
    /// True if the server supports `stream_options`, with which usage can be requested on a stream. A server that
    /// does not either sends usage unasked or rejects the request.
    pub stream_options: bool,
    /// True if answers can be constrained to a JSON schema.
    pub json_schema: bool,
    /// True if tools can be `strict`.
    pub strict_tools: bool,
    /// True if the schema of a tool may be a union (`anyOf`, `oneOf`, `allOf`) at its root.
    pub root_unions: bool,
    /// True if the role of system text is `developer`.
    pub developer_role: bool,
    /// True if system text is accepted only at the beginning, in one message: the templates of many open models
    /// reject anything else.
    pub leading_system: bool,
    /// The maximum number of stop sequences, if limited.
    pub stops_max: Option<usize>,
    /// True if tools with free-text input are supported.
    pub custom_tools: bool,
    /// True if messages may contain files.
    pub files: bool,
    /// True if `top_k` is supported.
    pub top_k: bool,
    /// True if an assistant's refusal is a separate member (`refusal`) instead of part of the text.
    pub refusals: bool,
    /// True if images are returned inline by default, and only DALL-E models accept the option that requests it.
    pub inline_images: bool,
    /// The protocol version, if the body of a Messages request contains it instead of a header, and instead of the
    /// model, which is part of the path.
    pub messages_version: Option<&'static str>,
    /// The values of `anthropic-beta` that token counting accepts, if it rejects others.
    pub count_betas: Option<&'static [&'static str]>,
    /// True if embeddings have Vertex AI's form: options in a member of their own, elements without a model, and `:predict`
    /// for models that are not of Gemini.
    pub vertex_embeddings: bool,
    /// True if the upstream takes cache marks that a client has not sent: Anthropic's own API at the top level, Bedrock after
    /// system text, tools and messages.
    pub cache_marks: bool,
    /// True if tokens are counted for a whole Gemini request, in `generateContentRequest`.
    pub counts_whole: bool,
}

/// The member of a chat request that limits the output tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is named as the member")]
pub enum OutputLimit {
    MaxTokens,
    MaxCompletionTokens,
}

impl OutputLimit {
    /// Returns the name of the member.
    pub fn field(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// The format of tool call IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolIds {
    /// 1 to 64 letters, digits, `_` and `-`.
    Word,
    /// Exactly nine letters and digits.
    Nine,
}

impl Quirks {
    /// The quirks of a server with no known peculiarities.
    pub const PLAIN: Self = Self {
        output_limit: OutputLimit::MaxTokens,
        tool_ids: ToolIds::Word,
        word_tool_names: true,
        stream_options: true,
        json_schema: true,
        strict_tools: true,
        root_unions: true,
        developer_role: false,
        leading_system: false,
        stops_max: None,
        custom_tools: false,
        files: false,
        top_k: false,
        refusals: true,
        inline_images: false,
        messages_version: None,
        count_betas: None,
        vertex_embeddings: false,
        cache_marks: false,
        counts_whole: false,
    };
}

/// Overrides of a kind's quirks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Differing {
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_limit: Option<OutputLimit>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_ids: Option<ToolIds>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<bool>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<bool>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_tools: Option<bool>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_unions: Option<bool>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<bool>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusals: Option<bool>,
}

impl Differing {
    /// Returns the quirks of `kind` with these overrides applied.
    pub fn over(&self, kind: Quirks) -> Quirks {
        Quirks {
            output_limit: self.output_limit.unwrap_or(kind.output_limit),
            tool_ids: self.tool_ids.unwrap_or(kind.tool_ids),
            stream_options: self.stream_options.unwrap_or(kind.stream_options),
            json_schema: self.json_schema.unwrap_or(kind.json_schema),
            strict_tools: self.strict_tools.unwrap_or(kind.strict_tools),
            root_unions: self.root_unions.unwrap_or(kind.root_unions),
            top_k: self.top_k.unwrap_or(kind.top_k),
            refusals: self.refusals.unwrap_or(kind.refusals),
            ..kind
        }
    }
}
