//! Translates complete answers.

use super::answer::{GeminiAnswer, GeminiCandidate, finish_reason};
use super::stream::GeminiStream;
use super::usage::GeminiUsage;
use crate::adapt::chat_client::{CompletionChoice, Identity, completion};
use crate::adapt::{Answers, BadAnswer, TranslatedAnswer};
use crate::envelope::StreamError;
use crate::stream::AnswerStream;

/// Translates the answers to one request.
#[derive(Debug)]
pub(super) struct GeminiAnswers {
    pub(super) identity: Identity,
    pub(super) include_usage: bool,
}

impl Answers for GeminiAnswers {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        let answer = match serde_json::from_slice::<GeminiAnswer<'_>>(body) {
            Ok(answer) if answer.error.is_none() => answer,
            Ok(_) | Err(_) => return Err(bad_answer(body)),
        };
        if answer.candidates.is_none() && !answer.is_blocked() && answer.usage_metadata.is_none() {
            return Err(BadAnswer::Invalid("it has no candidates"));
        }
        let usage = answer.usage_metadata.as_ref().map(GeminiUsage::counts);
        let extras = answer.extras();
        let blocked = answer.is_blocked();
        let mut calls = 0;
        let candidates = answer.candidates.into_iter().flatten().enumerate();
        let mut choices: Vec<CompletionChoice<'_>> =
            candidates.map(|(position, candidate)| self.choice(position, candidate, &mut calls)).collect();
        if choices.is_empty() {
            let finish_reason = if blocked { "content_filter" } else { "stop" };
            choices.push(CompletionChoice { finish_reason, ..CompletionChoice::default() });
        }
        Ok(completion(&self.identity, &choices, usage, extras))
    }

    fn stream(&self, secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(GeminiStream::new(&self.identity, self.include_usage, secrets))
    }
}

impl GeminiAnswers {
    fn choice<'a>(
        &self,
        position: usize,
        candidate: GeminiCandidate<'a>,
        calls: &mut u64,
    ) -> CompletionChoice<'a> {
        let index = candidate.index.unwrap_or_else(|| position.try_into().unwrap_or(u64::MAX));
        let mut choice = CompletionChoice { index, ..CompletionChoice::default() };
        for part in candidate.content.and_then(|content| content.parts).into_iter().flatten() {
            if let Some(call) = part.function_call {
                choice.calls.push(call.into_call(*calls, part.thought_signature, &self.identity));
                *calls = calls.saturating_add(1);
                continue;
            }
            let text = part.text.map(|text| text.0).unwrap_or_default();
            if part.thought == Some(true) {
                choice.reasoning.push_str(&text);
            } else {
                choice.content.push_str(&text);
                choice.signature = part.thought_signature.map(|signature| signature.0).or(choice.signature);
            }
        }
        let theirs = candidate.finish_reason.map(|reason| reason.0).unwrap_or_default();
        choice.finish_reason = if choice.calls.is_empty() { finish_reason(&theirs) } else { "tool_calls" };
        choice
    }
}

/// Returns the error in a body that is not an answer: the target's error despite the success status, or an invalid
/// body.
fn bad_answer(body: &[u8]) -> BadAnswer {
    StreamError::of_odd(body)
        .map_or(BadAnswer::Invalid("it is not a generateContent response"), BadAnswer::Error)
}
