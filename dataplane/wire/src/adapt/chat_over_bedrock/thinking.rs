//! Thinking: the effort or budget requested, and signed thoughts of earlier turns.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::Object;

use super::contents::BedrockModel;
use crate::adapt::chat_client::{ChatMessage, ChatToolChoice, effort};
use crate::adapt::thought_signature::{self, SignedThought};
use crate::adapt::{Traits, read};
use crate::json::{JsonWriter, Tree};

/// The thinking settings, written to the fields that the target passes to the model.
#[derive(Default)]
pub(super) struct ConverseThinking<'t, 'i> {
    mode: ConverseThinkingMode<'t, 'i>,
    /// The effort word sent to Claude beside the client's own `thinking` object.
    word: Option<&'i str>,
    /// The client handles signed thinking blocks.
    pub(super) wanted: bool,
}

#[derive(Default)]
enum ConverseThinkingMode<'t, 'i> {
    /// Not sent; the model decides.
    #[default]
    Unset,
    /// Claude, with a budget in tokens.
    Tokens(u64),
    /// Claude, with an effort word.
    Word(&'i str),
    /// Claude, with the client's own `thinking` object.
    Own(Tree<'t, 'i>),
    /// gpt-oss, with an effort word.
    Effort(&'i str),
}

/// The other parts of the request that affect thinking.
pub(super) struct ThinkingContext<'a, 't, 'i> {
    pub(super) messages: &'a [ChatMessage<'t, 'i>],
    pub(super) mode: ChatToolChoice<'i>,
    /// The limit on the answer's tokens, if the request sets one.
    pub(super) tokens_max: Option<u64>,
}

const LOW: u64 = 1_024;
const MEDIUM: u64 = 4_096;
const HIGH: u64 = 16_384;

impl<'t, 'i> ConverseThinking<'t, 'i> {
    /// Derives the settings from the request, as far as the model and the rest of the request allow them.
    pub(super) fn of(
        request: &Object<'t, 'i>,
        target: &Traits<'_>,
        family: BedrockModel,
        around: &ThinkingContext<'_, 't, 'i>,
    ) -> Self {
        let own = read::member(request, "thinking").filter(|own| own.as_object().is_some());
        let wanted = own.is_some() || around.messages.iter().any(|message| is_signed(&message.members));
        let effort = effort(request, target);
        let mode = match (own, effort) {
            (_, Some(effort)) if family.is_gpt => ConverseThinkingMode::Effort(gpt_word(effort)),
            (Some(own), _) if family.is_claude && target.reasoning => ConverseThinkingMode::Own(own),
            (_, Some(effort)) if family.is_claude && effort != "none" => {
                if target.effort_words {
                    ConverseThinkingMode::Word(if effort == "minimal" { "low" } else { effort })
                } else {
                    tokens(effort, around.tokens_max)
                        .map_or(ConverseThinkingMode::Unset, ConverseThinkingMode::Tokens)
                }
            }
            _ => ConverseThinkingMode::Unset,
        };
        let word = effort.filter(|word| {
            *word != "none" && target.effort_words && matches!(mode, ConverseThinkingMode::Own(_))
        });
        let thinking = Self { mode, word, wanted };
        let forced = matches!(around.mode, ChatToolChoice::Required | ChatToolChoice::Named(_));
        // Claude does not think if a tool is forced, and cannot start thinking in the middle of a tool-use turn that
        // began without thinking.
        if thinking.is_on() && (forced || acts_unsigned(around.messages)) {
            return Self { mode: ConverseThinkingMode::Unset, word: None, wanted };
        }
        thinking
    }

    /// True if Claude is certain to think. It then accepts no sampling parameters.
    pub(super) fn is_on(&self) -> bool {
        match self.mode {
            ConverseThinkingMode::Unset | ConverseThinkingMode::Word(_) | ConverseThinkingMode::Effort(_) => {
                false
            }
            ConverseThinkingMode::Tokens(_) => true,
            ConverseThinkingMode::Own(own) => matches!(
                own.as_object().and_then(|own| read::member_text(&own, "type")),
                Some("enabled" | "adaptive")
            ),
        }
    }

    /// Returns the thinking budget, which counts towards the answer's tokens.
    pub(super) fn tokens(&self) -> Option<u64> {
        match self.mode {
            ConverseThinkingMode::Tokens(tokens) => Some(tokens),
            ConverseThinkingMode::Own(own) => read::member(&own.as_object()?, "budget_tokens")?.as_u64(),
            ConverseThinkingMode::Unset | ConverseThinkingMode::Word(_) | ConverseThinkingMode::Effort(_) => {
                None
            }
        }
    }

    /// Writes the members of `additionalModelRequestFields`.
    pub(super) fn write(&self, fields: &mut JsonWriter) {
        match &self.mode {
            ConverseThinkingMode::Unset => {}
            ConverseThinkingMode::Tokens(tokens) => {
                fields.name("thinking").object().name("type").text("enabled");
                fields.name("budget_tokens").number(*tokens).end_object();
            }
            ConverseThinkingMode::Word(word) => {
                fields.name("output_config").object().name("effort").text(word).end_object();
            }
            ConverseThinkingMode::Own(own) => {
                fields.name("thinking").tree(*own);
                if let Some(word) = self.word {
                    fields.name("output_config").object().name("effort").text(word).end_object();
                }
            }
            ConverseThinkingMode::Effort(word) => {
                fields.name("reasoning_effort").text(word);
            }
        }
    }
}

fn gpt_word(effort: &str) -> &'static str {
    match effort {
        "none" | "minimal" | "low" => "low",
        "medium" => "medium",
        _ => "high",
    }
}

/// Returns the budget for the effort, or a smaller one that leaves tokens for the answer. `None` if none fits.
fn tokens(effort: &str, tokens_max: Option<u64>) -> Option<u64> {
    let wanted = match effort {
        "minimal" | "low" => LOW,
        "medium" => MEDIUM,
        _ => HIGH,
    };
    [wanted, MEDIUM, LOW].into_iter().find(|step| *step <= wanted && tokens_max.is_none_or(|max| *step < max))
}

/// True if the assistant has called tools since the last user message without thoughts signed by the target.
fn acts_unsigned(messages: &[ChatMessage<'_, '_>]) -> bool {
    let mut unsigned = false;
    for message in messages {
        let calls = ["tool_calls", "function_call"];
        let calls = calls.iter().any(|name| read::member(&message.members, name).is_some());
        match message.role {
            "user" => unsigned = false,
            "assistant" if calls => unsigned |= !is_signed(&message.members),
            _ => {}
        }
    }
    unsigned
}

pub(super) fn is_signed(message: &Object<'_, '_>) -> bool {
    thought_signature::blocks(message, &[thought_signature::LIST], |_| {})
}

/// Writes the assistant's thoughts that the target has signed.
pub(super) fn write_signed(message: &Object<'_, '_>, json: &mut JsonWriter) {
    thought_signature::blocks(message, &[thought_signature::LIST], |block| {
        json.object().name("reasoningContent").object();
        match block {
            SignedThought::Thinking { thinking, signature } => {
                json.name("reasoningText").object().name("text").text(&thinking);
                json.name("signature").text(signature).end_object();
            }
            SignedThought::Redacted { data } => drop(json.name("redactedContent").text(data)),
        }
        json.end_object().end_object();
    });
}
