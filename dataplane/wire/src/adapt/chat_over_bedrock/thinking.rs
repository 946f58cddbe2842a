//! How hard the target is to think, and what it has thought before.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::Object;

use super::contents::Family;
use crate::adapt::chat_client::{Message, Mode, effort};
use crate::adapt::signed::{self, Signed};
use crate::adapt::{Traits, read};
use crate::json::{Tree, Writer};

/// What goes among the fields that the target hands on to the model.
#[derive(Default)]
pub(super) struct Thinking<'t, 'i> {
    mode: Asked<'t, 'i>,
    /// The effort asked of Claude, beside a `thinking` member in Claude's own words.
    word: Option<&'i str>,
    /// The client has use for what the target signs.
    pub(super) wanted: bool,
}

#[derive(Default)]
enum Asked<'t, 'i> {
    /// As the model sees fit.
    #[default]
    Unsaid,
    /// Claude, with so many tokens.
    Tokens(u64),
    /// Claude, by a word.
    Word(&'i str),
    /// Claude, in its own words.
    Own(Tree<'t, 'i>),
    /// gpt-oss.
    Effort(&'i str),
}

/// What else of the request decides.
pub(super) struct Around<'a, 't, 'i> {
    pub(super) messages: &'a [Message<'t, 'i>],
    pub(super) mode: Mode<'i>,
    /// The bound of the answer's tokens, if one is named.
    pub(super) tokens_max: Option<u64>,
}

const LOW: u64 = 1_024;
const MEDIUM: u64 = 4_096;
const HIGH: u64 = 16_384;

impl<'t, 'i> Thinking<'t, 'i> {
    /// What the request asks for, as far as the model and the rest of the request go along with it.
    pub(super) fn of(
        request: &Object<'t, 'i>,
        target: &Traits<'_>,
        family: Family,
        around: &Around<'_, 't, 'i>,
    ) -> Self {
        let own = read::member(request, "thinking").filter(|own| own.as_object().is_some());
        let wanted = own.is_some() || around.messages.iter().any(|message| is_signed(&message.members));
        let effort = effort(request, target);
        let mode = match (own, effort) {
            (_, Some(effort)) if family.is_gpt => Asked::Effort(gpt_word(effort)),
            (Some(own), _) if family.is_claude && target.reasoning => Asked::Own(own),
            (_, Some(effort)) if family.is_claude && effort != "none" => {
                if target.effort_words {
                    Asked::Word(if effort == "minimal" { "low" } else { effort })
                } else {
                    tokens(effort, around.tokens_max).map_or(Asked::Unsaid, Asked::Tokens)
                }
            }
            _ => Asked::Unsaid,
        };
        let word =
            effort.filter(|word| *word != "none" && target.effort_words && matches!(mode, Asked::Own(_)));
        let thinking = Self { mode, word, wanted };
        let forced = matches!(around.mode, Mode::Required | Mode::Named(_));
        // Claude does not think where a tool is forced on it, nor begins to in the middle of what it has begun
        // without.
        if thinking.is_on() && (forced || acts_unsigned(around.messages)) {
            return Self { mode: Asked::Unsaid, word: None, wanted };
        }
        thinking
    }

    /// Whether Claude thinks for certain. It then takes no sampling parameters.
    pub(super) fn is_on(&self) -> bool {
        match self.mode {
            Asked::Unsaid | Asked::Word(_) | Asked::Effort(_) => false,
            Asked::Tokens(_) => true,
            Asked::Own(own) => matches!(
                own.as_object().and_then(|own| read::member_text(&own, "type")),
                Some("enabled" | "adaptive")
            ),
        }
    }

    /// The tokens that thoughts may take of the answer's.
    pub(super) fn tokens(&self) -> Option<u64> {
        match self.mode {
            Asked::Tokens(tokens) => Some(tokens),
            Asked::Own(own) => read::member(&own.as_object()?, "budget_tokens")?.as_u64(),
            Asked::Unsaid | Asked::Word(_) | Asked::Effort(_) => None,
        }
    }

    /// Writes members of `additionalModelRequestFields`.
    pub(super) fn write(&self, fields: &mut Writer) {
        match &self.mode {
            Asked::Unsaid => {}
            Asked::Tokens(tokens) => {
                fields.name("thinking").object().name("type").text("enabled");
                fields.name("budget_tokens").number(*tokens).end_object();
            }
            Asked::Word(word) => {
                fields.name("output_config").object().name("effort").text(word).end_object();
            }
            Asked::Own(own) => {
                fields.name("thinking").tree(*own);
                if let Some(word) = self.word {
                    fields.name("output_config").object().name("effort").text(word).end_object();
                }
            }
            Asked::Effort(word) => {
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

/// As many tokens as the word is worth, or fewer, so that some are left for the answer.
fn tokens(effort: &str, tokens_max: Option<u64>) -> Option<u64> {
    let wanted = match effort {
        "minimal" | "low" => LOW,
        "medium" => MEDIUM,
        _ => HIGH,
    };
    [wanted, MEDIUM, LOW].into_iter().find(|step| *step <= wanted && tokens_max.is_none_or(|max| *step < max))
}

/// Whether the assistant has called tools since the user spoke last, without thoughts that the target signed.
fn acts_unsigned(messages: &[Message<'_, '_>]) -> bool {
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
    signed::blocks(message, &[signed::LIST], |_| {})
}

/// Writes the thoughts of the assistant that the target has signed.
pub(super) fn write_signed(message: &Object<'_, '_>, json: &mut Writer) {
    signed::blocks(message, &[signed::LIST], |block| {
        json.object().name("reasoningContent").object();
        match block {
            Signed::Thinking { thinking, signature } => {
                json.name("reasoningText").object().name("text").text(&thinking);
                json.name("signature").text(signature).end_object();
            }
            Signed::Redacted { data } => drop(json.name("redactedContent").text(data)),
        }
        json.end_object().end_object();
    });
}
