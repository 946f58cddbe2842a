//! Thinking: the effort or budget requested, and signed thoughts of earlier turns.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::{Array, Object};

use super::Ask;
use super::content::MessagesContent;
use super::messages::ClientMessage;
use crate::adapt::read;
use crate::adapt::thought_signature::{self, SignedThought};
use crate::adapt::write::{self, ObjectWriter};
use crate::json::Tree;

/// Thinking budgets in tokens, by effort.
const LOW: u64 = 1_024;
const MEDIUM: u64 = 4_096;
const HIGH: u64 = 16_384;

/// The members that may hold signed thoughts: LiteLLM's list, and the content parts.
const LISTS: [&str; 2] = [thought_signature::LIST, "content"];

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
}

impl<'t, 'i> MessagesThinking<'t, 'i> {
    /// Derives the settings from the request, as far as the target and the rest of the request allow them.
    pub(super) fn of(
        ask: &Ask<'_, 't, 'i>,
        messages: &Array<'t, 'i>,
        max_tokens: u64,
        tool_is_forced: bool,
    ) -> Self {
        let setting = ask.member("thinking").and_then(|thinking| thinking.as_object());
        let wanted = setting.is_some() || messages.iter().any(|message| is_signed(message));
        if !ask.target.reasoning {
            return Self { wanted, ..Self::default() };
        }
        let (mut mode, mut effort) = (MessagesThinkingMode::Unset, None);
        match asked_effort(ask) {
            Some(Effort::Off) => mode = MessagesThinkingMode::Off,
            Some(Effort::Word(word, _)) if ask.target.effort_words => effort = Some(word),
            Some(Effort::Word(_, tokens) | Effort::Tokens(tokens)) => {
                mode = MessagesThinkingMode::Tokens(tokens)
            }
            None => {}
        }
        if let Some(own) = setting.and_then(own_words) {
            mode = own;
        }
        mode = match mode {
            MessagesThinkingMode::Tokens(tokens) => {
                match fitting(tokens, max_tokens).filter(|_| !tool_is_forced) {
                    Some(tokens) => MessagesThinkingMode::Tokens(tokens),
                    None => MessagesThinkingMode::Unset,
                }
            }
            mode @ (MessagesThinkingMode::Unset
            | MessagesThinkingMode::Off
            | MessagesThinkingMode::Own { .. }) => mode,
        };
        let thinking = Self { mode, effort, wanted };
        // The target cannot start thinking in the middle of a tool-use turn that began without thinking.
        if thinking.is_on() && acts_unsigned(messages) {
            Self { mode: MessagesThinkingMode::Unset, ..thinking }
        } else {
            thinking
        }
    }

    /// True if the target is certain to think. It then accepts no sampling parameters.
    pub(super) fn is_on(&self) -> bool {
        match self.mode {
            MessagesThinkingMode::Unset | MessagesThinkingMode::Off => false,
            MessagesThinkingMode::Tokens(_) => true,
            MessagesThinkingMode::Own { on, .. } => on,
        }
    }

    pub(super) fn write(&self, body: &mut ObjectWriter<'_>) {
        if matches!(self.mode, MessagesThinkingMode::Unset) {
            return;
        }
        let mut thinking = ObjectWriter::open(body.key("thinking"));
        match &self.mode {
            MessagesThinkingMode::Unset => {}
            MessagesThinkingMode::Off => thinking.text("type", "disabled"),
            MessagesThinkingMode::Tokens(tokens) => {
                thinking.text("type", "enabled");
                write::number(thinking.key("budget_tokens"), *tokens);
            }
            MessagesThinkingMode::Own { setting, .. } => {
                for name in ["type", "budget_tokens", "display"] {
                    if let Some(value) = read::member(setting, name) {
                        thinking.tree(name, value);
                    }
                }
            }
        }
        thinking.close();
    }
}

enum Effort {
    Off,
    /// The target's word, and the approximate budget in tokens.
    Word(&'static str, u64),
    Tokens(u64),
}

/// Reads `reasoning_effort`, or the `reasoning` object that OpenRouter's clients send instead.
fn asked_effort(ask: &Ask<'_, '_, '_>) -> Option<Effort> {
    let reasoning = ask.member("reasoning").and_then(|reasoning| reasoning.as_object());
    let inner = |name: &str| reasoning.as_ref().and_then(|reasoning| read::member(reasoning, name));
    let word = ask.member("reasoning_effort").or_else(|| inner("effort"));
    if let Some(word) = word.and_then(read::as_text) {
        return match word {
            "none" => Some(Effort::Off),
            "minimal" | "low" => Some(Effort::Word("low", LOW)),
            "medium" => Some(Effort::Word("medium", MEDIUM)),
            "high" => Some(Effort::Word("high", HIGH)),
            "xhigh" => Some(Effort::Word("xhigh", HIGH)),
            "max" => Some(Effort::Word("max", HIGH)),
            _ => None,
        };
    }
    if let Some(tokens) = inner("max_tokens").and_then(|tokens| tokens.as_u64()) {
        return Some(Effort::Tokens(tokens));
    }
    match inner("enabled").and_then(|enabled| enabled.as_bool()) {
        Some(true) => Some(Effort::Word("medium", MEDIUM)),
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

/// Returns the requested budget, or a smaller one that leaves tokens for the answer. `None` if none fits.
fn fitting(tokens: u64, max_tokens: u64) -> Option<u64> {
    let steps = [tokens, HIGH, MEDIUM, LOW];
    steps.into_iter().find(|step| (LOW..=tokens).contains(step) && *step < max_tokens)
}

/// True if the assistant has called tools since the last user message without thoughts signed by the target.
fn acts_unsigned(messages: &Array<'_, '_>) -> bool {
    let mut unsigned = false;
    for message in messages {
        let Some(members) = message.as_object() else { continue };
        let role = read::member_text(&members, "role");
        let calls = ["tool_calls", "function_call"].iter().any(|name| read::member(&members, name).is_some());
        match role {
            Some("user") => unsigned = false,
            Some("assistant") if calls => unsigned |= !is_signed(message),
            Some(_) | None => {}
        }
    }
    unsigned
}

fn is_signed(message: Tree<'_, '_>) -> bool {
    message.as_object().is_some_and(|members| thought_signature::blocks(&members, &LISTS, |_| {}))
}

/// Writes the assistant's thoughts that the target has signed.
pub(super) fn write_signed(message: &ClientMessage<'_, '_>, content: &mut MessagesContent<'_>) {
    thought_signature::blocks(&message.members, &LISTS, |block| {
        let mut out = ObjectWriter::open(content.block());
        match block {
            SignedThought::Thinking { thinking, signature } => {
                out.text("type", "thinking");
                out.text("thinking", &thinking);
                out.text("signature", signature);
            }
            SignedThought::Redacted { data } => {
                out.text("type", "redacted_thinking");
                out.text("data", data);
            }
        }
        out.close();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_leave_tokens_for_the_answer() {
        let rows = [
            (MEDIUM, 8_000, Some(MEDIUM)),
            (HIGH, HIGH, Some(MEDIUM)),
            (HIGH, HIGH + 1, Some(HIGH)),
            (HIGH, 2_000, Some(LOW)),
            (2_000, 8_000, Some(2_000)),
            (MEDIUM, LOW, None),
            (100, 8_000, None),
        ];
        for (tokens, max_tokens, want) in rows {
            assert_eq!(fitting(tokens, max_tokens), want, "{tokens} of {max_tokens}");
        }
    }
}
