//! Chat over Bedrock's Converse and ConverseStream. The request path, which is built elsewhere, contains the model and
//! `/converse` or `/converse-stream`.

mod answer;
mod contents;
mod losses;
mod media;
mod request;
mod stream;
mod thinking;

use shared::operation::Dialect;

use super::through_chat::{self, TargetSide};
use super::{Adaptation, Traits};

/// Returns true if the target's model is one of Anthropic's.
pub(super) fn is_claude(target: &Traits<'_>) -> bool {
    contents::BedrockModel::of(target).is_claude
}

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Bedrock,
    via: None,
    losses: losses::LOSSES,
    prepare: |asking| through_chat::for_chat(&TARGET, asking),
    origin: None,
};

/// Bedrock targets of clients that are served through chat.
pub(super) const TARGET: TargetSide = TargetSide { dialect: Dialect::Bedrock, ask: request::ask };
