//! Serves Responses clients from chat targets: the strict fallback, which stores nothing between requests (RESP-2).
//! Requests that need a provider's stored state or built-in tools are rejected. For targets that serve agents, the tools
//! that Codex always sends and encrypted reasoning are translated as well ([`agents`]).

mod agent_losses;
mod agents;
mod answer;
mod calls;
mod echo;
mod event_writer;
mod free_text;
mod items;
mod kept_reasoning;
mod losses;
mod messages;
mod output_item;
mod reasoning_item;
mod request;
mod tools;

use shared::operation::Dialect;

use super::Adaptation;
use super::through_chat::{self, ClientSide};

/// The adaptation of Responses clients to chat targets.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Responses,
    target: Dialect::Chat,
    via: None,
    losses: losses::LOSSES,
    agents: agent_losses::AGENT_LOSSES,
    prepare: |asking| through_chat::over_chat(&CLIENT, asking),
    origin: Some(request::origin),
};

/// Responses clients of targets that are reached through chat.
pub(super) const CLIENT: ClientSide =
    ClientSide { document: through_chat::unchanged, ask: request::ask, pair: &PAIR };
