//! Serves Messages clients from chat targets (MSG-1, MSG-2): a plain Claude Code session works on a target without any
//! support for Anthropic's protocol.

mod answer;
mod calls;
mod content;
mod event;
mod fold;
mod losses;
mod options;
mod origin;
mod request;
mod stream;
mod tool_changes;
mod tools;
mod user;

use shared::operation::Dialect;
use shared::usage::Finish;

use super::origin_trail::OriginTrail;
use super::through_chat::{self, AskedInChat, ChatClient, ClientSide};
use super::tool_names::ToolNames;
use super::{Adaptation, Asking, BadAnswer, Rejection, TranslatedAnswer};
use crate::chat::{ChatCompletion, ChatSink};
use crate::finish_word::is_cut;
use crate::json::{Tree, quote};

/// The adaptation of Messages clients to chat targets.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Messages,
    target: Dialect::Chat,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: |asking| through_chat::over_chat(&CLIENT, asking),
    origin: Some(origin::origin),
};

/// Messages clients of targets that are reached through chat.
pub(super) const CLIENT: ClientSide = ClientSide { document: through_chat::unchanged, ask, pair: &PAIR };

fn ask<'t, 'i>(body: Tree<'t, 'i>, asking: &Asking<'i>) -> Result<AskedInChat<'t, 'i>, Rejection> {
    let translated = request::translate(body, asking, OriginTrail::default())?;
    let form = MessagesForm {
        model: quote(asking.selector),
        id: format!("msg_{}", asking.seed),
        seed: asking.seed.to_owned(),
        thinking: translated.thinking,
        stops: translated.stops,
        names: translated.names,
        input_tokens: asking.input_tokens,
    };
    Ok(AskedInChat { request: translated.request, client: Box::new(form), dropped: translated.dropped })
}

/// The values shared by all answers to one request.
#[derive(Clone, Debug)]
struct MessagesForm {
    /// The selector, as JSON.
    model: String,
    /// The id of the message.
    id: String,
    /// The basis of ids for calls without an id.
    seed: String,
    /// True if the client wants the model's reasoning.
    thinking: bool,
    /// The client's stop sequences.
    stops: Vec<String>,
    /// The client's names of the tools that were renamed for the target.
    names: ToolNames,
    /// The estimated input, used until the upstream reports it.
    input_tokens: u64,
}

impl ChatClient for MessagesForm {
    fn whole(&self, completion: &ChatCompletion<'_>) -> Result<TranslatedAnswer, BadAnswer> {
        answer::whole(self, completion)
    }

    fn sink(&self, secrets: Vec<String>) -> Box<dyn ChatSink> {
        Box::new(stream::MessagesSink::new(self.clone(), secrets))
    }
}

/// The end of an answer, whole or streamed.
#[derive(Clone, Copy, Debug)]
struct Ending<'a> {
    /// The meaning of `finish_reason`, if there was one. A failed answer has no ending.
    finish: Option<Finish>,
    /// The stop sequence that the upstream reports.
    stop: Option<&'a str>,
    has_calls: bool,
    /// True if the last call's arguments are incomplete.
    call_is_cut: bool,
    has_refusal: bool,
}

impl Ending<'_> {
    /// Writes `"stop_reason":..,"stop_sequence":..`.
    fn write(&self, stops: &[String], out: &mut Vec<u8>) {
        let sequence = self.stop.filter(|stop| stops.iter().any(|requested| requested == stop));
        let is_cut = is_cut(self.finish);
        let reason = match self.finish {
            _ if self.has_calls && !(is_cut && self.call_is_cut) => "tool_use",
            _ if self.has_refusal => "refusal",
            Some(Finish::ContentFilter) => "refusal",
            Some(Finish::Length) => "max_tokens",
            Some(Finish::ContextFull) => "model_context_window_exceeded",
            _ if sequence.is_some() => "stop_sequence",
            _ => "end_turn",
        };
        let sequence = match sequence {
            Some(sequence) if reason == "stop_sequence" => quote(sequence),
            _ => "null".to_owned(),
        };
        for part in ["\"stop_reason\":\"", reason, "\",\"stop_sequence\":", &sequence] {
            out.extend_from_slice(part.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
