//! Serves Gemini clients from chat targets. The body of a request says nothing of its stream, which the path asks for; the
//! gateway adds `stream` to it.

mod answer;
mod contents;
mod frame;
mod losses;
mod normal;
mod options;
mod origin;
mod request;
mod schema;
mod signature;
mod stream;
mod tools;

use shared::operation::Dialect;

use super::Adaptation;
use super::through_chat::{self, ClientSide};

/// The adaptation of Gemini clients to chat targets.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Gemini,
    target: Dialect::Chat,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: |asking| through_chat::over_chat(&CLIENT, asking),
    origin: Some(origin::origin),
};

/// Gemini clients of targets that are reached through chat.
pub(super) const CLIENT: ClientSide =
    ClientSide { document: normal::document, ask: request::ask, pair: &PAIR };
