//! How much the target is to think, and what it has thought before.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::{Array, Object};

use super::Ask;
use super::content::MessagesContent;
use super::messages::ClientMessage;
use crate::adapt::read;
use crate::adapt::signed::{self, SignedThought};
use crate::adapt::write::{self, ObjectWriter};
use crate::json::Tree;

/// Tokens for thoughts, by how hard the target is to try.
const LOW: u64 = 1_024;
const MEDIUM: u64 = 4_096;
const HIGH: u64 = 16_384;

/// Where a message may hold signed thoughts: as LiteLLM's clients keep them, or among the parts of its content.
const LISTS: [&str; 2] = [signed::LIST, "content"];

/// See the module.
#[derive(Default)]
pub(super) struct MessagesThinking<'t, 'i> {
    mode: MessagesThinkingMode<'t, 'i>,
    /// How hard to try, in the target's word.
    pub(super) effort: Option<&'static str>,
    /// The client has use for what the target signs.
    pub(super) wanted: bool,
}

#[derive(Default)]
enum MessagesThinkingMode<'t, 'i> {
    /// As the target sees fit.
    #[default]
    Unsaid,
    Off,
    Tokens(u64),
    /// The client speaks of it in the target's own words.
    Own {
        on: bool,
        said: Object<'t, 'i>,
    },
}

impl<'t, 'i> MessagesThinking<'t, 'i> {
    /// What the request asks for, as far as this target and the rest of the request go along with it.
    pub(super) fn of(
        ask: &Ask<'_, 't, 'i>,
        messages: &Array<'t, 'i>,
        max_tokens: u64,
        tool_is_forced: bool,
    ) -> Self {
        let said = ask.member("thinking").and_then(|thinking| thinking.as_object());
        let wanted = said.is_some() || messages.iter().any(|message| is_signed(message));
        if !ask.target.reasoning {
            return Self { wanted, ..Self::default() };
        }
        let (mut mode, mut effort) = (MessagesThinkingMode::Unsaid, None);
        match asked_effort(ask) {
            Some(Effort::Off) => mode = MessagesThinkingMode::Off,
            Some(Effort::Word(word, _)) if ask.target.effort_words => effort = Some(word),
            Some(Effort::Word(_, tokens) | Effort::Tokens(tokens)) => {
                mode = MessagesThinkingMode::Tokens(tokens)
            }
            None => {}
        }
        if let Some(own) = said.and_then(own_words) {
            mode = own;
        }
        mode = match mode {
            MessagesThinkingMode::Tokens(tokens) => {
                match fitting(tokens, max_tokens).filter(|_| !tool_is_forced) {
                    Some(tokens) => MessagesThinkingMode::Tokens(tokens),
                    None => MessagesThinkingMode::Unsaid,
                }
            }
            mode @ (MessagesThinkingMode::Unsaid
            | MessagesThinkingMode::Off
            | MessagesThinkingMode::Own { .. }) => mode,
        };
        let thinking = Self { mode, effort, wanted };
        // The target does not begin to think in the middle of what it has begun without.
        if thinking.is_on() && acts_unsigned(messages) {
            Self { mode: MessagesThinkingMode::Unsaid, ..thinking }
        } else {
            thinking
        }
    }

    /// Whether the target thinks for certain. It then takes no sampling parameters.
    pub(super) fn is_on(&self) -> bool {
        match self.mode {
            MessagesThinkingMode::Unsaid | MessagesThinkingMode::Off => false,
            MessagesThinkingMode::Tokens(_) => true,
            MessagesThinkingMode::Own { on, .. } => on,
        }
    }

    pub(super) fn write(&self, body: &mut ObjectWriter<'_>) {
        if matches!(self.mode, MessagesThinkingMode::Unsaid) {
            return;
        }
        let mut thinking = ObjectWriter::open(body.key("thinking"));
        match &self.mode {
            MessagesThinkingMode::Unsaid => {}
            MessagesThinkingMode::Off => thinking.text("type", "disabled"),
            MessagesThinkingMode::Tokens(tokens) => {
                thinking.text("type", "enabled");
                write::number(thinking.key("budget_tokens"), *tokens);
            }
            MessagesThinkingMode::Own { said, .. } => {
                for name in ["type", "budget_tokens", "display"] {
                    if let Some(value) = read::member(said, name) {
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
    /// The target's word, and how many tokens that is about.
    Word(&'static str, u64),
    Tokens(u64),
}

/// `reasoning_effort`, or what OpenRouter's clients say in its place.
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

fn own_words<'t, 'i>(said: Object<'t, 'i>) -> Option<MessagesThinkingMode<'t, 'i>> {
    match read::member_text(&said, "type")? {
        // What other vendors call by this name has no number.
        "enabled" if read::member(&said, "budget_tokens").is_none() => {
            Some(MessagesThinkingMode::Tokens(MEDIUM))
        }
        "enabled" | "adaptive" => Some(MessagesThinkingMode::Own { on: true, said }),
        "disabled" | "between_tools" => Some(MessagesThinkingMode::Own { on: false, said }),
        _ => None,
    }
}

/// As many tokens as are asked for, or fewer, so that some are left for the answer.
fn fitting(tokens: u64, max_tokens: u64) -> Option<u64> {
    let steps = [tokens, HIGH, MEDIUM, LOW];
    steps.into_iter().find(|step| (LOW..=tokens).contains(step) && *step < max_tokens)
}

/// Whether the assistant has called tools since the user spoke last, without thoughts that the target signed.
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
    message.as_object().is_some_and(|members| signed::blocks(&members, &LISTS, |_| {}))
}

/// Writes the thoughts of the assistant that the target has signed.
pub(super) fn write_signed(message: &ClientMessage<'_, '_>, content: &mut MessagesContent<'_>) {
    signed::blocks(&message.members, &LISTS, |block| {
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
