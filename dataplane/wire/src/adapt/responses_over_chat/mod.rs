//! Responses clients served by chat targets: the strict fallback, which keeps nothing between two requests
//! (RESP-2). What asks for a provider's memory or its built-in tools is refused.

mod answer;
mod calls;
mod chunk;
mod echo;
mod feed;
mod items;
mod losses;
mod messages;
mod request;
mod tools;

use shared::operation::Dialect;

use super::Adaptation;

/// The pair.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Responses,
    target: Dialect::Chat,
    via: None,
    losses: losses::LOSSES,
    prepare: request::prepare,
    origin: Some(request::origin),
};
