//! Reads complete Responses answers.

use super::stops::StopCut;
use super::stream::{ResponseReader, failure, for_client};
use crate::adapt::BadAnswer;
use crate::adapt::carried_reasoning::{EncryptedReasoning, carry};
use crate::adapt::through_chat::ChatTarget;
use crate::adapt::tool_names::ToolNames;
use crate::chat::{
    AnswerText, ChatCall, ChatChoice, ChatCompletion, ChatSource, ChoiceEnd, SseSource, escape,
};
use crate::envelope::StreamError;
use crate::responses::document::{ItemKind, Response, ResponseItem};

/// Reads the answers to one request.
#[derive(Clone, Debug)]
pub(super) struct ResponsesTarget {
    /// Maps the target's tool names back to the client's.
    pub(super) names: ToolNames,
    /// The name of the target in the reasoning that the client carries; `None` if it carries none.
    pub(super) origin: Option<String>,
    /// Cuts the answer at the client's stop sequences.
    pub(super) stops: StopCut,
}

impl ChatTarget for ResponsesTarget {
    fn whole<'a>(&self, body: &'a str) -> Result<ChatCompletion<'a>, BadAnswer> {
        let Ok(response) = Response::read(body) else {
            return Err(BadAnswer::Invalid("it is not a response"));
        };
        if response.status() == "failed" {
            return Err(BadAnswer::Error(failure(Some(&response))));
        }
        if !response.has_output() {
            let error = StreamError::of_odd(body.as_bytes()).map(BadAnswer::Error);
            return Err(error.unwrap_or(BadAnswer::Invalid("it has no output")));
        }
        let (mut choice, mut signature) = (ChatChoice::default(), None);
        response.items().for_each(|(_, item)| self.item(&item, &mut signature, &mut choice));
        self.cut(&mut choice);
        let reason = match choice.stop {
            Some(_) => "stop",
            None => response.finish_reason(!choice.calls.is_empty()),
        };
        if let Some(failure) = (ChoiceEnd { reason, ..ChoiceEnd::default() }).failure() {
            return Err(BadAnswer::Error(failure));
        }
        choice.finish_reason = reason.into();
        let counts = response.token_counts();
        Ok(ChatCompletion {
            choices: vec![choice],
            created_s: response.created_s(),
            counts,
            usage: Some(for_client(counts)),
            extras: response.extras(),
        })
    }

    fn source(&self) -> Box<dyn ChatSource> {
        Box::new(SseSource::new(ResponseReader::new(self.clone())))
    }
}

impl ResponsesTarget {
    /// Cuts the text at a stop sequence. Nothing follows that.
    fn cut(&self, choice: &mut ChatChoice<'_>) {
        if self.stops.is_idle() {
            return;
        }
        let mut stops = self.stops.clone();
        let text = AnswerText::Escaped(&choice.content).plain().into_owned();
        let before = [stops.push(&text), stops.finish().into()].concat();
        if let Some(stop) = stops.found() {
            choice.content = escape(before.into()).into_owned();
            choice.stop = Some(stop.to_owned());
            choice.calls.clear();
            choice.media.clear();
        }
    }

    /// Adds an item to the choice. `signature` carries the reasoning before the next call.
    fn item<'a>(&self, item: &ResponseItem<'a>, signature: &mut Option<String>, choice: &mut ChatChoice<'a>) {
        match item.kind() {
            ItemKind::Message => {
                for part in item.content() {
                    let text = if part.is_refusal() { &mut choice.refusal } else { &mut choice.content };
                    text.push_str(part.text());
                }
            }
            ItemKind::Reasoning => {
                for thought in item.thoughts().filter(|thought| !thought.is_empty()) {
                    if !choice.reasoning.is_empty() {
                        choice.reasoning.push_str(r"\n\n");
                    }
                    choice.reasoning.push_str(thought);
                }
                *signature = self.origin.as_deref().and_then(|origin| signature_of(origin, item));
            }
            kind @ (ItemKind::Function | ItemKind::Custom) => choice.calls.push(ChatCall {
                id: item.call_id().into(),
                name: self.names.restore_escaped(item.name()),
                input: item.input().into(),
                custom: kind == ItemKind::Custom,
                signature: signature.take().map(Into::into),
            }),
            ItemKind::Image => choice.media.extend(item.image()),
            ItemKind::Other => {}
        }
    }
}

/// Returns the signature with which a client carries this item of reasoning.
pub(super) fn signature_of(origin: &str, item: &ResponseItem<'_>) -> Option<String> {
    carry(origin, EncryptedReasoning { id: item.id(), encrypted: item.encrypted_content() })
}
