//! Thinking: the effort or budget requested, and signed thoughts of earlier turns.

use shared::model_rules::ConverseFields;
use simd_json::prelude::ValueAsScalar as _;

use super::takes_messages_fields;
use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{ChatToolChoice, RuledThinking, acts_unsigned, effort, ruled_thinking};
use crate::adapt::{Rejection, Traits, read};
use crate::chat::request::{ChatRequest, SignedThought};
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
    /// By the members of Messages, with an effort word.
    Word(&'i str),
    /// By the members of Messages, with the client's own `thinking` object.
    Own(Tree<'t, 'i>),
    /// By the members of Chat, with an effort word.
    Effort(&'i str),
    /// By the members of Messages, as the rules of the model allow.
    Ruled(RuledThinking<'i>),
}

impl<'t, 'i> ConverseThinking<'t, 'i> {
    /// Derives the settings from the request, as far as the model and the rest of the request allow them.
    pub(super) fn of(
        request: &ChatRequest<'t, 'i>,
        target: &Traits<'_>,
        mode: ChatToolChoice<'_>,
        tokens_max: Option<u64>,
        adjusted: &mut Adjusted,
    ) -> Result<Self, Rejection> {
        let as_messages = takes_messages_fields(target.rules);
        let forced = matches!(mode, ChatToolChoice::Required | ChatToolChoice::Named(_));
        let own = request.tree("thinking").filter(|own| own.as_object().is_some());
        let has_thoughts = request.messages.iter().any(|message| !message.thoughts.is_empty());
        let wanted = own.is_some() || request.keeps_thoughts || has_thoughts;
        if as_messages && let Some(ruled) = ruled_thinking(request, target, tokens_max, adjusted)? {
            return Ok(Self { mode: ConverseThinkingMode::Ruled(ruled), word: None, wanted });
        }
        let effort = effort(request, target);
        let mode = match (own, effort) {
            (_, Some(effort)) if target.rules.converse_fields == Some(ConverseFields::Chat) => {
                ConverseThinkingMode::Effort(gpt_word(effort))
            }
            (Some(own), _) if as_messages && target.reasoning => ConverseThinkingMode::Own(own),
            (_, Some(effort)) if as_messages && effort != "none" => {
                ConverseThinkingMode::Word(if effort == "minimal" { "low" } else { effort })
            }
            _ => ConverseThinkingMode::Unset,
        };
        let word = effort.filter(|word| *word != "none" && matches!(mode, ConverseThinkingMode::Own(_)));
        let thinking = Self { mode, word, wanted };
        // Claude does not think if a tool is forced, and cannot start thinking in the middle of a tool-use turn that
        // began without thinking.
        if thinking.is_on() && (forced || acts_unsigned(&request.messages)) {
            return Ok(Self { mode: ConverseThinkingMode::Unset, word: None, wanted });
        }
        Ok(thinking)
    }

    /// True if Claude is certain to think. It then accepts no sampling parameters.
    pub(super) fn is_on(&self) -> bool {
        match &self.mode {
            ConverseThinkingMode::Unset | ConverseThinkingMode::Word(_) | ConverseThinkingMode::Effort(_) => {
                false
            }
            ConverseThinkingMode::Ruled(ruled) => ruled.is_on(),
            ConverseThinkingMode::Own(own) => matches!(
                own.as_object().and_then(|own| read::member_text(&own, "type")),
                Some("enabled" | "adaptive")
            ),
        }
    }

    /// Returns the thinking budget, which counts towards the answer's tokens.
    pub(super) fn tokens(&self) -> Option<u64> {
        match &self.mode {
            ConverseThinkingMode::Ruled(ruled) => ruled.tokens(),
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
            ConverseThinkingMode::Word(word) => {
                fields.name("output_config").object().name("effort").text(word).end_object();
            }
            ConverseThinkingMode::Own(own) => {
                fields.name("thinking").tree(*own);
                if let Some(word) = self.word {
                    fields.name("output_config").object().name("effort").text(word).end_object();
                }
            }
            ConverseThinkingMode::Ruled(ruled) => {
                ruled.write(fields);
                if let Some(word) = ruled.effort {
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

/// Writes the assistant's thoughts that the target has signed.
pub(super) fn write_signed(thoughts: &[SignedThought<'_>], json: &mut JsonWriter) {
    for thought in thoughts {
        json.object().name("reasoningContent").object();
        match thought {
            SignedThought::Thinking { thinking, signature } => {
                json.name("reasoningText").object().name("text").text(thinking);
                json.name("signature").text(signature).end_object();
            }
            SignedThought::Redacted { data } => drop(json.name("redactedContent").text(data)),
        }
        json.end_object().end_object();
    }
}
