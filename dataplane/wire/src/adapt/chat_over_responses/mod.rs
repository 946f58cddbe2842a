//! Chat clients served by Responses targets: experimental, and only where an operator asked for it and the catalog
//! says so (CHAT-5). Nothing is kept by the target, so that reasoning does not go on from turn to turn.

mod answer;
mod chunks;
mod event;
mod losses;
mod messages;
mod request;
mod tools;
mod whole;

use shared::operation::Dialect;

use super::Adaptation;

/// The pair.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Responses,
    via: None,
    losses: losses::LOSSES,
    prepare: request::prepare,
    origin: None,
};
