//! Chat clients served by Responses targets (CHAT-5). Experimental: used only if the provider instance sets
//! `force_api_support` and the model is known to speak only Responses. The target stores nothing, so reasoning is not
//! continued from turn to turn.

mod answer;
mod losses;
mod messages;
mod request;
mod stops;
mod stream;
mod tools;

use shared::operation::Dialect;

use super::Adaptation;
use super::through_chat::{self, TargetSide};

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Responses,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: |asking| through_chat::for_chat(&TARGET, asking),
    origin: None,
};

/// Responses targets of clients that are served through chat.
pub(super) const TARGET: TargetSide = TargetSide { dialect: Dialect::Responses, ask: request::ask };
