//! What sets servers of one protocol apart. A kind has its own; an entry of the registry may say otherwise.

use serde::{Deserialize, Serialize};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// The member of a chat request that bounds the answer's tokens.
    pub output_limit: OutputLimit,
    /// What ids of tool calls look like.
    pub tool_ids: ToolIds,
    /// Names of tools are words of at most 64 characters.
    pub word_tool_names: bool,
    /// `stream_options` is known, so that usage can be asked for on a stream. Who does not know it sends usage unasked,
    /// or refuses the request.
    pub stream_options: bool,
    /// Answers can be held to a JSON schema.
    pub json_schema: bool,
    /// Tools can be `strict`.
    pub strict_tools: bool,
    /// System text is called `developer`.
    pub developer_role: bool,
    /// System text may stand at the beginning alone, in one message: the templates of many open models refuse more.
    pub leading_system: bool,
    /// Thoughts that led to calls of tools must come back with the results, as `reasoning_content`.
    pub reasoning_back: bool,
    /// How many sequences may end an answer, if that is bounded.
    pub stops_max: Option<usize>,
    /// Tools whose input is free text are known.
    pub custom_tools: bool,
    /// Files can stand in a message.
    pub files: bool,
    /// `top_k` is known.
    pub top_k: bool,
    /// The refusal of an assistant stands in a member of its own (`refusal`), not in the text.
    pub refusals: bool,
    /// Images come inline unasked, and only DALL-E models may be asked for it.
    pub inline_images: bool,
    /// The version of the protocol, where the body of a Messages request says it in place of a header, and in place
    /// of the model, which the path names.
    pub messages_version: Option<&'static str>,
    /// The values of `anthropic-beta` that are known where it counts tokens, if others are refused there.
    pub count_betas: Option<&'static [&'static str]>,
    /// Tokens are counted of a whole Gemini request, in `generateContentRequest`.
    pub counts_whole: bool,
}

/// The member of a chat request that bounds the answer's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is named as the member")]
pub enum OutputLimit {
    MaxTokens,
    MaxCompletionTokens,
}

impl OutputLimit {
    /// The name of the member.
    pub fn field(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

/// What ids of tool calls look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolIds {
    /// 1 to 64 letters, digits, `_` and `-`.
    Word,
    /// Exactly nine letters and digits.
    Nine,
}

impl Quirks {
    /// A server of which nothing particular is known.
    pub const PLAIN: Self = Self {
        output_limit: OutputLimit::MaxTokens,
        tool_ids: ToolIds::Word,
        word_tool_names: true,
        stream_options: true,
        json_schema: true,
        strict_tools: true,
        developer_role: false,
        leading_system: false,
        reasoning_back: false,
        stops_max: None,
        custom_tools: false,
        files: false,
        top_k: false,
        refusals: true,
        inline_images: false,
        messages_version: None,
        count_betas: None,
        counts_whole: false,
    };
}

/// Quirks that differ from those of the kind.
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
    pub top_k: Option<bool>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusals: Option<bool>,
    /// As in [`Quirks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_back: Option<bool>,
}

impl Differing {
    /// `kind`, but for what differs.
    pub fn over(&self, kind: Quirks) -> Quirks {
        Quirks {
            output_limit: self.output_limit.unwrap_or(kind.output_limit),
            tool_ids: self.tool_ids.unwrap_or(kind.tool_ids),
            stream_options: self.stream_options.unwrap_or(kind.stream_options),
            json_schema: self.json_schema.unwrap_or(kind.json_schema),
            strict_tools: self.strict_tools.unwrap_or(kind.strict_tools),
            top_k: self.top_k.unwrap_or(kind.top_k),
            refusals: self.refusals.unwrap_or(kind.refusals),
            reasoning_back: self.reasoning_back.unwrap_or(kind.reasoning_back),
            ..kind
        }
    }
}
