//! Chat clients served by Messages targets (CHAT-6).
//!
//! Signed thinking returns to the target only if the client keeps it. An answer contains `thinking_blocks`, as
//! LiteLLM's answers do, if the request had a `thinking` member or contained such blocks.

mod answer;
mod losses;
mod request;
mod stream;

use shared::operation::Dialect;

use super::Adaptation;
use super::through_chat::{self, TargetSide};

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Messages,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: |asking| through_chat::for_chat(&TARGET, asking),
    origin: None,
};

/// Messages targets of clients that are served through chat.
pub(super) const TARGET: TargetSide = TargetSide { dialect: Dialect::Messages, ask: request::ask };
