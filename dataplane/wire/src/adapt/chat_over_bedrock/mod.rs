//! Chat over Bedrock's Converse and ConverseStream. The request path, which is built elsewhere, contains the model and
//! `/converse` or `/converse-stream`.

mod answer;
mod contents;
mod losses;
mod media;
mod request;
mod stream;
mod thinking;

use shared::model_rules::{ConverseFields, ModelRules};
use shared::operation::Dialect;

use super::Adaptation;
use super::through_chat::{self, TargetSide};

/// Returns true if the model takes the members of Messages that Converse has none for, among them `top_k`.
pub(super) fn takes_messages_fields(rules: &ModelRules) -> bool {
    rules.converse_fields == Some(ConverseFields::Messages)
}

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Bedrock,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: |asking| through_chat::for_chat(&TARGET, asking),
    origin: None,
};

/// Bedrock targets of clients that are served through chat.
pub(super) const TARGET: TargetSide = TargetSide { dialect: Dialect::Bedrock, ask: request::ask };
