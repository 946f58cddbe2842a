//! The rules that a model imposes on requests, as data: how it thinks, which members it refuses, and how its reasoning
//! is sent back. An absent rule is unknown, and a request is then written as for any other model.
//!
//! The rules of a model are put together when the snapshot is built. Requests only read them.

use serde::{Deserialize, Serialize};

/// The known rules of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelRules {
    /// The way in which the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// The members that it takes in `additionalModelRequestFields` of Converse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub converse_fields: Option<ConverseFields>,
    /// True if it thinks unless a request turns thinking off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinks_by_default: Option<bool>,
    /// The member that turns thinking off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_off: Option<ThinkingOff>,
    /// The smallest thinking budget in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_budget_min: Option<u64>,
    /// True if it sends its thoughts only if the request asks for their summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hides_thinking: Option<bool>,
    /// The effort words that it knows; empty if it knows none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efforts: Option<Vec<Effort>>,
    /// The sampling members (`temperature`, `top_p`, `top_k`) that it accepts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// False if a chat request with tools must not have an effort other than `none`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_with_effort: Option<bool>,
    /// False if a request that forces a tool call must not enable thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_tool_with_thinking: Option<bool>,
    /// True if it checks the signatures of thoughts, and refuses thoughts that it has not signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_thinking: Option<bool>,
    /// The messages of the assistant that must have their reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_back: Option<ReasoningBack>,
    /// The member of a message that contains its reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_member: Option<ReasoningMember>,
    /// The reasoning of a message that must have some and has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_absent: Option<String>,
    /// How it treats the signatures of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call_signatures: Option<CallSignatures>,
    /// True if system text may stand between other messages of a Messages conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_system: Option<bool>,
    /// True if a tool result may contain images and documents where the protocol leaves that to the model, as in Converse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_in_tool_results: Option<bool>,
    /// False if the schema of a tool must not be a union at its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_unions: Option<bool>,
    /// True if it accepts cache points of Converse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_points: Option<bool>,
    /// True if an image model answers with URLs unless a request asks for inline images; false if it rejects such a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_urls: Option<bool>,
    /// True if it searches the web for every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searches: Option<bool>,
    /// The image sizes and the API call of a Google image model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_family: Option<ImageFamily>,
}

/// The way in which a model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// It does not think.
    Never,
    /// Up to a number of tokens that the request gives.
    Budget,
    /// By a number of tokens, or as much as it needs.
    Either,
    /// As much as it needs; it refuses a number of tokens.
    Adaptive,
    /// As [`Adaptive`](Self::Adaptive), and it cannot be turned off.
    Always,
}

/// The members that a model takes in `additionalModelRequestFields` of Converse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConverseFields {
    /// Those of Messages: `thinking`, `output_config`, `top_k`.
    Messages,
    /// Those of Chat: `reasoning_effort`.
    Chat,
}

/// The member that turns thinking off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingOff {
    /// `thinking: {type: disabled}`.
    Thinking,
    /// `thinking: {type: between_tools}`: no thoughts before the first output.
    BetweenTools,
    /// `reasoning_effort: none`.
    ReasoningEffort,
    /// `reasoning: {enabled: false}`.
    Reasoning,
    /// `enable_thinking: false`.
    EnableThinking,
    /// `chat_template_kwargs: {enable_thinking: false}`.
    ChatTemplate,
    /// Nothing turns it off.
    Unavailable,
}

/// A word for how much a model thinks, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is named as the word")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
    Max,
}

/// The sampling members that a model accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// All.
    Any,
    /// Either `temperature` or `top_p`.
    One,
    /// All, unless it thinks.
    WithoutThinking,
    /// None.
    None,
}

/// The messages of the assistant that must have their reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningBack {
    /// None.
    Never,
    /// Those with tool calls since the last message of the user.
    ToolLoop,
    /// Those with tool calls.
    ToolCalls,
    /// All.
    All,
}

/// The member of a chat message that contains its reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each variant is named as the member")]
pub enum ReasoningMember {
    ReasoningContent,
    Reasoning,
}

/// How a model treats the signatures of tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallSignatures {
    /// It signs calls, and takes them back with or without the signature.
    Accepted,
    /// It refuses calls of its own without a signature.
    Required,
}

/// The image sizes and the API call of a Google image model. A model of an unknown family is treated as a recent Gemini model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageFamily {
    /// generateContent; one image of up to 4096 pixels a side.
    Gemini,
    /// generateContent; one image of up to 1024 pixels a side.
    Gemini2,
    /// `:predict`; up to four images of up to 2048 pixels a side.
    Imagen,
    /// `:predict`; up to four images of up to 1024 pixels a side.
    Imagen3,
}

impl ModelRules {
    /// The rules of a model of which none is known.
    pub const UNKNOWN: Self = Self {
        thinking: None,
        converse_fields: None,
        thinks_by_default: None,
        thinking_off: None,
        thinking_budget_min: None,
        hides_thinking: None,
        efforts: None,
        sampling: None,
        tools_with_effort: None,
        forced_tool_with_thinking: None,
        signed_thinking: None,
        reasoning_back: None,
        reasoning_member: None,
        reasoning_absent: None,
        call_signatures: None,
        mid_system: None,
        media_in_tool_results: None,
        root_unions: None,
        cache_points: None,
        image_urls: None,
        searches: None,
        image_family: None,
    };

    /// Returns true if no rule is known.
    pub fn is_unknown(&self) -> bool {
        *self == Self::UNKNOWN
    }

    /// Takes each rule from `self` if it is known, otherwise from `other`.
    pub fn or(self, other: &Self) -> Self {
        Self {
            thinking: self.thinking.or(other.thinking),
            converse_fields: self.converse_fields.or(other.converse_fields),
            thinks_by_default: self.thinks_by_default.or(other.thinks_by_default),
            thinking_off: self.thinking_off.or(other.thinking_off),
            thinking_budget_min: self.thinking_budget_min.or(other.thinking_budget_min),
            hides_thinking: self.hides_thinking.or(other.hides_thinking),
            efforts: self.efforts.or_else(|| other.efforts.clone()),
            sampling: self.sampling.or(other.sampling),
            tools_with_effort: self.tools_with_effort.or(other.tools_with_effort),
            forced_tool_with_thinking: self.forced_tool_with_thinking.or(other.forced_tool_with_thinking),
            signed_thinking: self.signed_thinking.or(other.signed_thinking),
            reasoning_back: self.reasoning_back.or(other.reasoning_back),
            reasoning_member: self.reasoning_member.or(other.reasoning_member),
            reasoning_absent: self.reasoning_absent.or_else(|| other.reasoning_absent.clone()),
            call_signatures: self.call_signatures.or(other.call_signatures),
            mid_system: self.mid_system.or(other.mid_system),
            media_in_tool_results: self.media_in_tool_results.or(other.media_in_tool_results),
            root_unions: self.root_unions.or(other.root_unions),
            cache_points: self.cache_points.or(other.cache_points),
            image_urls: self.image_urls.or(other.image_urls),
            searches: self.searches.or(other.searches),
            image_family: self.image_family.or(other.image_family),
        }
    }

    /// Returns the word that the model knows for `wanted`: the same one, otherwise the next lower one that still means
    /// thinking, otherwise the next higher one. Returns `None` if it knows none. All words are known unless the
    /// rules list them.
    pub fn nearest_effort(&self, wanted: Effort) -> Option<Effort> {
        let Some(known) = &self.efforts else { return Some(wanted) };
        if known.contains(&wanted) || wanted == Effort::None {
            return known.contains(&wanted).then_some(wanted);
        }
        let thinking = || known.iter().copied().filter(|word| *word != Effort::None);
        let lower = thinking().filter(|word| *word < wanted).max();
        lower.or_else(|| thinking().min())
    }

    /// Returns the word to send for `wanted`. If that is `none` and the model does not know it, this is its lowest word.
    pub fn least_effort(&self, wanted: Effort) -> Option<Effort> {
        self.nearest_effort(wanted).or_else(|| self.efforts.as_deref()?.iter().copied().min())
    }

    /// Returns true if a forced tool call and thinking exclude each other.
    pub fn forced_tool_excludes_thinking(&self) -> bool {
        self.forced_tool_with_thinking == Some(false)
    }
}

impl ThinkingOff {
    /// Returns the member and its value as JSON; `None` if nothing turns thinking off.
    pub fn member(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Thinking => Some(("thinking", r#"{"type":"disabled"}"#)),
            Self::BetweenTools => Some(("thinking", r#"{"type":"between_tools"}"#)),
            Self::ReasoningEffort => Some(("reasoning_effort", r#""none""#)),
            Self::Reasoning => Some(("reasoning", r#"{"enabled":false}"#)),
            Self::EnableThinking => Some(("enable_thinking", "false")),
            Self::ChatTemplate => Some(("chat_template_kwargs", r#"{"enable_thinking":false}"#)),
            Self::Unavailable => None,
        }
    }

    /// Returns the path of the member and its value as a word; `None` if nothing turns thinking off.
    pub fn words(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Thinking => Some(("thinking.type", "disabled")),
            Self::BetweenTools => Some(("thinking.type", "between_tools")),
            Self::ReasoningEffort => Some(("reasoning_effort", "none")),
            Self::Reasoning => Some(("reasoning.enabled", "false")),
            Self::EnableThinking => Some(("enable_thinking", "false")),
            Self::ChatTemplate => Some(("chat_template_kwargs.enable_thinking", "false")),
            Self::Unavailable => None,
        }
    }

    /// Returns true if no thoughts remain.
    pub fn is_complete(self) -> bool {
        !matches!(self, Self::BetweenTools | Self::Unavailable)
    }
}

impl Effort {
    /// Every word, in ascending order.
    pub const ALL: [Self; 7] =
        [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// Returns the effort with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.name() == name)
    }

    /// Returns the word.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

impl ReasoningMember {
    /// Returns the name of the member.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReasoningContent => "reasoning_content",
            Self::Reasoning => "reasoning",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_effort_becomes_the_nearest_known_one() {
        use Effort::{High, Low, Max, Medium, Minimal, None as Off, Xhigh};
        let rows: [(&[Effort], Effort, Option<Effort>); 8] = [
            (&[Low, Medium, High, Max], Xhigh, Some(High)),
            (&[Low, Medium, High, Max], Max, Some(Max)),
            (&[Off, Low, Medium, High], Minimal, Some(Low)),
            (&[Off, High], Medium, Some(High)),
            (&[Low, High], Off, None),
            (&[Off, Low], Off, Some(Off)),
            (&[Off], High, None),
            (&[], High, None),
        ];
        for (known, wanted, want) in rows {
            let rules = ModelRules { efforts: Some(known.to_vec()), ..ModelRules::UNKNOWN };
            assert_eq!(rules.nearest_effort(wanted), want, "{wanted:?} of {known:?}");
        }
        assert_eq!(ModelRules::UNKNOWN.nearest_effort(Max), Some(Max));
    }

    #[test]
    fn words_and_names_are_the_same() {
        for effort in Effort::ALL {
            assert_eq!(serde_json::to_value(effort).unwrap(), effort.name());
            assert_eq!(Effort::of(effort.name()), Some(effort));
        }
        for off in [ThinkingOff::Thinking, ThinkingOff::BetweenTools, ThinkingOff::ChatTemplate] {
            let (_, value) = off.member().unwrap();
            assert!(serde_json::from_str::<serde_json::Value>(value).is_ok(), "{value}");
        }
    }

    #[test]
    fn a_rule_of_the_first_source_takes_precedence() {
        let of = |text| serde_json::from_str::<ModelRules>(text).unwrap();
        let both = of(r#"{"thinking":"never"}"#).or(&of(r#"{"thinking":"always","sampling":"none"}"#));
        assert_eq!(both, of(r#"{"thinking":"never","sampling":"none"}"#));
        assert!(of("{}").is_unknown() && !both.is_unknown());
    }
}
