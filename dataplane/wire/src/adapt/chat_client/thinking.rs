//! Claude's thinking, which its own API and Bedrock limit in the same way.

use crate::chat::request::{ChatMessage, ChatRole};

/// Thinking budgets in tokens, by effort.
pub(in crate::adapt) const LOW: u64 = 1_024;
pub(in crate::adapt) const MEDIUM: u64 = 4_096;
pub(in crate::adapt) const HIGH: u64 = 16_384;

/// Returns the requested budget, or a smaller one that leaves tokens for the answer. `None` if none fits.
pub(in crate::adapt) fn budget_that_fits(tokens: u64, tokens_max: Option<u64>) -> Option<u64> {
    let steps = [tokens, HIGH, MEDIUM, LOW];
    let fits = |step: &u64| (LOW..=tokens).contains(step) && tokens_max.is_none_or(|max| *step < max);
    steps.into_iter().find(fits)
}

/// True if the assistant has called tools since the last user message without thoughts signed by the target. The target
/// cannot start thinking in the middle of such a turn.
pub(in crate::adapt) fn acts_unsigned(messages: &[ChatMessage<'_, '_>]) -> bool {
    let mut unsigned = false;
    for message in messages {
        match message.role {
            ChatRole::User => unsigned = false,
            ChatRole::Assistant if message.has_calls() => unsigned |= message.thoughts.is_empty(),
            ChatRole::System
            | ChatRole::Developer
            | ChatRole::Assistant
            | ChatRole::Tool(_)
            | ChatRole::Function
            | ChatRole::Unknown(_) => {}
        }
    }
    unsigned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_leave_tokens_for_the_answer() {
        let rows = [
            (MEDIUM, Some(8_000), Some(MEDIUM)),
            (HIGH, Some(HIGH), Some(MEDIUM)),
            (HIGH, Some(HIGH + 1), Some(HIGH)),
            (HIGH, Some(2_000), Some(LOW)),
            (HIGH, None, Some(HIGH)),
            (2_000, Some(8_000), Some(2_000)),
            (MEDIUM, Some(LOW), None),
            (100, Some(8_000), None),
        ];
        for (tokens, tokens_max, want) in rows {
            assert_eq!(budget_that_fits(tokens, tokens_max), want, "{tokens} of {tokens_max:?}");
        }
    }
}
