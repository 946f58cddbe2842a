//! Messages clients over chat targets (MSG-1, MSG-2): a plain Claude Code session works on a target that knows
//! nothing of Anthropic.

mod answer;
mod calls;
mod chunk;
mod content;
mod event;
mod fold;
mod losses;
mod options;
mod origin;
mod request;
mod stream;
mod tools;
mod user;

use shared::operation::Dialect;

use super::tool_names::ToolNames;
use super::{Adaptation, Answers, Asking, BadAnswer, Prepared, Rejection, TranslatedAnswer};
use crate::chat::FinishReason;
use crate::json::quote;
use crate::stream::AnswerStream;

/// The pair.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Messages,
    target: Dialect::Chat,
    via: None,
    losses: losses::LOSSES,
    prepare,
    origin: Some(origin::origin),
};

fn prepare(asking: &Asking<'_>) -> Result<Prepared, Rejection> {
    let said = request::say(asking, origin::OriginTrail::default())?;
    let answers = ChatAnswersAsMessages {
        model: quote(asking.selector),
        id: format!("msg_{}", asking.seed),
        seed: asking.seed.to_owned(),
        thinking: said.thinking,
        signed: asking.target.extended_chat,
        stops: said.stops,
        names: said.names,
        input_tokens: asking.input_tokens,
    };
    Ok(Prepared { body: said.body.into(), answers: Box::new(answers), dropped: said.dropped })
}

/// How the answer to one request is read.
#[derive(Clone, Debug)]
struct ChatAnswersAsMessages {
    /// The selector as JSON.
    model: String,
    /// Of the message.
    id: String,
    /// Of ids for calls that come without one.
    seed: String,
    /// The client wants to read the model's reasoning.
    thinking: bool,
    /// The answer may bear thoughts that Claude has signed, for the client to send back.
    signed: bool,
    /// The client's stop sequences.
    stops: Vec<String>,
    /// The client's names of tools that the target knows by others.
    names: ToolNames,
    /// What the input is taken for until the upstream says it.
    input_tokens: u64,
}

impl Answers for ChatAnswersAsMessages {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        answer::whole(self, body)
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(stream::MessagesFromChat::new(self.clone(), secrets))
    }
}

/// What both kinds of answers end with.
#[derive(Clone, Copy, Debug)]
struct Ending<'a> {
    /// The meaning of chat's `finish_reason`, if it named one. An answer that failed has no ending.
    finish: Option<FinishReason>,
    /// The stop sequence that the upstream says it met.
    stop: Option<&'a str>,
    has_calls: bool,
    /// The last call's arguments break off.
    call_is_cut: bool,
    has_refusal: bool,
}

impl Ending<'_> {
    /// `"stop_reason":..,"stop_sequence":..`
    fn write(&self, stops: &[String], out: &mut Vec<u8>) {
        let sequence = self.stop.filter(|stop| stops.iter().any(|asked| asked == stop));
        let is_cut = self.finish.is_some_and(FinishReason::is_cut);
        let reason = match self.finish {
            _ if self.has_calls && !(is_cut && self.call_is_cut) => "tool_use",
            _ if self.has_refusal => "refusal",
            Some(FinishReason::Filtered) => "refusal",
            Some(FinishReason::Length) => "max_tokens",
            Some(FinishReason::ContextFull) => "model_context_window_exceeded",
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
