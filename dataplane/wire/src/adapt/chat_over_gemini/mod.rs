//! Chat over Gemini's generateContent. The request path, which is built elsewhere, contains the model and
//! `:generateContent` or `:streamGenerateContent?alt=sse`.

mod answer;
mod config;
mod contents;
mod losses;
mod request;
mod stream;

use shared::operation::Dialect;

use super::Adaptation;
use super::through_chat::{self, TargetSide};

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Gemini,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: |asking| through_chat::for_chat(&TARGET, asking),
    origin: None,
};

/// Gemini targets of clients that are served through chat.
pub(super) const TARGET: TargetSide = TargetSide { dialect: Dialect::Gemini, ask: request::ask };
