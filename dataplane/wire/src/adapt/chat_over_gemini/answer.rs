//! Reads complete answers.

use super::stream::GeminiReader;
use crate::adapt::BadAnswer;
use crate::adapt::chat_client::CallIdentity;
use crate::adapt::through_chat::ChatTarget;
use crate::chat::{
    ChatCall, ChatChoice, ChatCompletion, ChatSource, ChatTextKind, ChoiceEnd, ClientUsage, SseSource, escape,
};
use crate::envelope::StreamError;
use crate::finish_word::in_chat_words;
use crate::gemini::{
    FunctionCall, GeminiAnswer, GeminiBlob, GeminiCandidate, GeminiPart, GeminiUsage, read_logprobs,
};
use crate::json::BorrowedText;

/// Reads the answers to one request.
#[derive(Debug)]
pub(super) struct GeminiTarget {
    pub(super) calls: CallIdentity,
}

impl ChatTarget for GeminiTarget {
    fn whole<'a>(&self, body: &'a str) -> Result<ChatCompletion<'a>, BadAnswer> {
        let answer = match serde_json::from_str::<GeminiAnswer<'_>>(body) {
            Ok(answer) if answer.error.is_none() => answer,
            Ok(_) | Err(_) => return Err(bad_answer(body)),
        };
        let usage = answer.usage();
        let (counts, extras) = (usage.as_ref().map(GeminiUsage::counts), answer.extras(usage.as_ref()));
        let blocked = answer.is_blocked();
        let mut calls = 0;
        let candidates = answer.candidates.into_iter().flatten().enumerate();
        let choices: Result<Vec<ChatChoice<'_>>, BadAnswer> =
            candidates.map(|(position, candidate)| self.choice(position, candidate, &mut calls)).collect();
        let mut choices = choices?;
        if choices.is_empty() && !blocked {
            return Err(BadAnswer::Invalid("it has no candidates"));
        }
        if choices.is_empty() {
            choices.push(ChatChoice { finish_reason: "content_filter".into(), ..ChatChoice::default() });
        }
        let usage = counts.map(ClientUsage::with_reasoning);
        Ok(ChatCompletion { choices, created_s: None, counts, usage, extras })
    }

    fn source(&self) -> Box<dyn ChatSource> {
        Box::new(SseSource::new(GeminiReader::new(self.calls.clone())))
    }
}

impl GeminiTarget {
    fn choice<'a>(
        &self,
        position: usize,
        candidate: GeminiCandidate<'a>,
        calls: &mut u64,
    ) -> Result<ChatChoice<'a>, BadAnswer> {
        if let Some(failure) = end_of(&candidate).failure() {
            return Err(BadAnswer::Error(failure));
        }
        let index = candidate.index.unwrap_or_else(|| position.try_into().unwrap_or(u64::MAX));
        let logprobs = read_logprobs(candidate.logprobs_result);
        let mut choice = ChatChoice { index, logprobs, ..ChatChoice::default() };
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            if let Some(call) = part.function_call {
                choice.calls.push(chat_call(call, *calls, part.thought_signature, &self.calls));
                *calls = calls.saturating_add(1);
                continue;
            }
            let is_thought = part.is_thought();
            if let Some(media) = part.inline_data.and_then(GeminiBlob::media) {
                // A draft among the thoughts is no part of the answer.
                match is_thought {
                    true => choice.reasoning.push_str(&escape(media.mark().into())),
                    false => choice.media.push(media),
                }
            }
            let text = escape(part.text.map(|text| text.0).unwrap_or_default());
            if is_thought {
                choice.reasoning.push_str(&text);
            } else {
                choice.content.push_str(&text);
                choice.signature = part.thought_signature.map(|signature| signature.0).or(choice.signature);
            }
        }
        let theirs = candidate.finish_reason.map(|reason| reason.0).unwrap_or_default();
        let reason = if choice.calls.is_empty() {
            in_chat_words(&theirs, false).to_owned().into()
        } else {
            "tool_calls".into()
        };
        choice.finish_reason = reason;
        Ok(choice)
    }
}

/// Returns the error in a body that is not an answer: the target's error despite the success status, or an invalid
/// body.
fn bad_answer(body: &str) -> BadAnswer {
    StreamError::of_odd(body.as_bytes())
        .map_or(BadAnswer::Invalid("it is not a generateContent response"), BadAnswer::Error)
}

/// Returns the end of a candidate. Its reason is empty if it has not ended.
pub(super) fn end_of<'a>(candidate: &'a GeminiCandidate<'_>) -> ChoiceEnd<'a> {
    let text = |text: &'a Option<BorrowedText<'_>>| text.as_ref().map_or("", |text| &*text.0);
    ChoiceEnd {
        reason: text(&candidate.finish_reason),
        words: text(&candidate.finish_message),
        ..ChoiceEnd::default()
    }
}

/// Returns the kind of a part's text.
pub(super) fn kind_of(part: &GeminiPart<'_>) -> ChatTextKind {
    if part.is_thought() { ChatTextKind::Reasoning } else { ChatTextKind::Content }
}

/// Converts to the call at `position`, counted over the whole answer.
pub(super) fn chat_call<'a>(
    call: FunctionCall<'a>,
    position: u64,
    signature: Option<BorrowedText<'a>>,
    identity: &CallIdentity,
) -> ChatCall<'a> {
    let (id, name) = (call.id.map(|id| id.0), call.name.map(|name| name.0));
    let signature = signature.map(|signature| signature.0);
    ChatCall { signature, ..identity.call(id, name, call.args, position) }
}
