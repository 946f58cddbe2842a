//! Thinking: the effort or budget requested, and signed thoughts of earlier turns.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::Object;

use super::Ask;
use super::content::MessagesContent;
use crate::adapt::adjusted::Adjusted;
use crate::adapt::chat_client::{MEDIUM, RuledThinking, acts_unsigned, budget_that_fits, ruled_thinking};
use crate::adapt::{Rejection, read};
use crate::chat::request::SignedThought;
use crate::json::JsonWriter;

/// The thinking settings of a request.
#[derive(Default)]
pub(super) struct MessagesThinking<'t, 'i> {
    mode: MessagesThinkingMode<'t, 'i>,
    /// The effort, as the target's word.
    pub(super) effort: Option<&'static str>,
    /// The client handles signed thinking blocks.
    pub(super) wanted: bool,
}

#[derive(Default)]
enum MessagesThinkingMode<'t, 'i> {
    /// Not sent; the target decides.
    #[default]
    Unset,
    Off,
    Tokens(u64),
    /// The client's own `thinking` object; `on` is true if it enables thinking.
    Own {
        on: bool,
        setting: Object<'t, 'i>,
    },
    /// As the rules of the model allow.
    Ruled(RuledThinking<'i>),
}

impl<'t, 'i> MessagesThinking<'t, 'i> {
    /// Derives the settings from the request, as far as the target and the rest of the request allow them.
    pub(super) fn of(
        ask: &Ask<'_, 't, 'i>,
        max_tokens: u64,
        tool_is_forced: bool,
        adjusted: &mut Adjusted,
    ) -> Result<Self, Rejection> {
        let messages = &ask.request.messages;
        let setting = ask.request.tree("thinking").and_then(|thinking| thinking.as_object());
        let has_thoughts = messages.iter().any(|message| !message.thoughts.is_empty());
        let wanted = setting.is_some() || ask.request.keeps_thoughts || has_thoughts;
        if let Some(ruled) = ruled_thinking(ask.request, ask.target, Some(max_tokens), adjusted)? {
            let effort = ruled.effort;
            return Ok(Self { mode: MessagesThinkingMode::Ruled(ruled), effort, wanted });
        }
        if !ask.target.reasoning {
            return Ok(Self { wanted, ..Self::default() });
        }
        Ok(Self::of_unruled(ask, max_tokens, tool_is_forced, setting, wanted))
    }

    /// Derives the settings for a model whose rules are unknown.
    fn of_unruled(
        ask: &Ask<'_, 't, 'i>,
        max_tokens: u64,
        tool_is_forced: bool,
        setting: Option<Object<'t, 'i>>,
        wanted: bool,
    ) -> Self {
        let (mut mode, mut effort) = (MessagesThinkingMode::Unset, None);
        match requested_effort(ask) {
            Some(Effort::Off) => mode = MessagesThinkingMode::Off,
            Some(Effort::Word(word)) => effort = Some(word),
            Some(Effort::Tokens(tokens)) => mode = MessagesThinkingMode::Tokens(tokens),
            None => {}
        }
        if let Some(own) = setting.and_then(own_words) {
            mode = own;
        }
        mode = match mode {
            MessagesThinkingMode::Tokens(tokens) => {
                match budget_that_fits(tokens, Some(max_tokens)).filter(|_| !tool_is_forced) {
                    Some(tokens) => MessagesThinkingMode::Tokens(tokens),
                    None => MessagesThinkingMode::Unset,
                }
            }
            mode @ (MessagesThinkingMode::Unset
            | MessagesThinkingMode::Off
            | MessagesThinkingMode::Own { .. }
            | MessagesThinkingMode::Ruled(_)) => mode,
        };
        let thinking = Self { mode, effort, wanted };
        // The target cannot start thinking in the middle of a tool-use turn that began without thinking.
        if thinking.is_on() && acts_unsigned(&ask.request.messages) {
            Self { mode: MessagesThinkingMode::Unset, ..thinking }
        } else {
            thinking
        }
    }

    /// True if the target is certain to think. It then accepts no sampling parameters.
    pub(super) fn is_on(&self) -> bool {
        match &self.mode {
            MessagesThinkingMode::Unset | MessagesThinkingMode::Off => false,
            MessagesThinkingMode::Tokens(_) => true,
            MessagesThinkingMode::Own { on, .. } => *on,
            MessagesThinkingMode::Ruled(ruled) => ruled.is_on(),
        }
    }

    pub(super) fn write(&self, json: &mut JsonWriter) {
        match &self.mode {
            MessagesThinkingMode::Unset => return,
            MessagesThinkingMode::Ruled(ruled) => return ruled.write(json),
            MessagesThinkingMode::Off
            | MessagesThinkingMode::Tokens(_)
            | MessagesThinkingMode::Own { .. } => {}
        }
        json.name("thinking").object();
        match &self.mode {
            MessagesThinkingMode::Unset | MessagesThinkingMode::Ruled(_) => {}
            MessagesThinkingMode::Off => drop(json.name("type").text("disabled")),
            MessagesThinkingMode::Tokens(tokens) => {
                json.name("type").text("enabled").name("budget_tokens").number(*tokens);
            }
            MessagesThinkingMode::Own { setting, .. } => {
                for name in ["type", "budget_tokens", "display"] {
                    if let Some(value) = read::member(setting, name) {
                        json.name(name).tree(value);
                    }
                }
            }
        }
        json.end_object();
    }
}

enum Effort {
    Off,
    /// The target's word.
    Word(&'static str),
    Tokens(u64),
}

/// Reads `reasoning_effort`, or the `reasoning` object that OpenRouter's clients send instead.
fn requested_effort(ask: &Ask<'_, '_, '_>) -> Option<Effort> {
    let reasoning = ask.request.tree("reasoning").and_then(|reasoning| reasoning.as_object());
    let inner = |name: &str| reasoning.as_ref().and_then(|reasoning| read::member(reasoning, name));
    let word = match ask.request.option("reasoning_effort") {
        Some(word) => word.as_text(),
        None => inner("effort").and_then(read::as_text),
    };
    if let Some(word) = word {
        return match word {
            "none" => Some(Effort::Off),
            "minimal" | "low" => Some(Effort::Word("low")),
            "medium" => Some(Effort::Word("medium")),
            "high" => Some(Effort::Word("high")),
            "xhigh" => Some(Effort::Word("xhigh")),
            "max" => Some(Effort::Word("max")),
            _ => None,
        };
    }
    if let Some(tokens) = inner("max_tokens").and_then(|tokens| tokens.as_u64()) {
        return Some(Effort::Tokens(tokens));
    }
    match inner("enabled").and_then(|enabled| enabled.as_bool()) {
        Some(true) => Some(Effort::Word("medium")),
        Some(false) => Some(Effort::Off),
        None => None,
    }
}

fn own_words<'t, 'i>(setting: Object<'t, 'i>) -> Option<MessagesThinkingMode<'t, 'i>> {
    match read::member_text(&setting, "type")? {
        // Other vendors use `enabled` without a budget.
        "enabled" if read::member(&setting, "budget_tokens").is_none() => {
            Some(MessagesThinkingMode::Tokens(MEDIUM))
        }
        "enabled" | "adaptive" => Some(MessagesThinkingMode::Own { on: true, setting }),
        "disabled" | "between_tools" => Some(MessagesThinkingMode::Own { on: false, setting }),
        _ => None,
    }
}

/// Writes the assistant's thoughts that the target has signed.
pub(super) fn write_signed(thoughts: &[SignedThought<'_>], content: &mut MessagesContent<'_>) {
    for thought in thoughts {
        let json = content.block().object().name("type");
        match thought {
            SignedThought::Thinking { thinking, signature } => {
                json.text("thinking").name("thinking").text(thinking).name("signature").text(signature)
            }
            SignedThought::Redacted { data } => json.text("redacted_thinking").name("data").text(data),
        };
        json.end_object();
    }
}
