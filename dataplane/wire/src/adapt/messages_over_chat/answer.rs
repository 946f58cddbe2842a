//! Translates a whole chat answer into a Messages answer.

use std::fmt::Write as _;

use shared::usage::TokenCounts;
use simd_json::prelude::ValueIntoString as _;

use super::request::{elements, member, text_member};
use super::{ChatAnswersAsMessages, Ending};
use crate::adapt::call_id::call_id;
use crate::adapt::{BadAnswer, TranslatedAnswer, signature_in_call_id};
use crate::chat::{self, FinishReason};
use crate::json::{self, Tree, quote};

/// Translates the answer in `body`.
pub(super) fn whole(answers: &ChatAnswersAsMessages, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
    let seen = chat::read_whole(body);
    if let Some(error) = seen.error {
        return Err(BadAnswer::Error(error));
    }
    let mut document = body.to_vec();
    let tape = json::parse(&mut document).map_err(|_| BadAnswer::Invalid("it is not JSON"))?;
    let choices = member(tape.as_value(), "choices").and_then(elements).unwrap_or_default();
    let choice = *choices.first().ok_or(BadAnswer::Invalid("it has no choices"))?;
    let message = member(choice, "message").ok_or(BadAnswer::Invalid("its choice has no message"))?;

    let mut content = BlockList { blocks: Vec::new(), count: 0 };
    let finish = text_member(choice, "finish_reason").and_then(|reason| FinishReason::of(reason.as_bytes()));
    if let Some(failure) = finish.and_then(FinishReason::failure) {
        return Err(BadAnswer::Error(failure.error()));
    }
    content.said(answers, message);
    let calls = member(message, "tool_calls").and_then(elements).unwrap_or_default();
    let cut = finish.is_some_and(FinishReason::is_cut);
    let mut written = 0_usize;
    for call in &calls {
        match content.call(*call, answers, written) {
            Ok(()) => written = written.saturating_add(1),
            // The arguments were cut off; the stop reason reports the limit.
            Err(_) if cut => break,
            Err(bad) => return Err(bad),
        }
    }
    let ending = Ending {
        finish,
        stop: text_member(choice, "stop_reason"),
        has_calls: written > 0,
        call_is_cut: written < calls.len(),
        has_refusal: text_member(message, "refusal").is_some_and(|refusal| !refusal.is_empty()),
    };
    let body = envelope(answers, &content.blocks, &ending, seen.usage);
    Ok(TranslatedAnswer {
        body: body.into(),
        usage: seen.usage,
        extras: seen.extras,
        output_bytes: seen.output_bytes,
    })
}

fn envelope(
    answers: &ChatAnswersAsMessages,
    content: &[u8],
    ending: &Ending<'_>,
    used: Option<TokenCounts>,
) -> Vec<u8> {
    let (id, model) = (&answers.id, &answers.model);
    let head = format!(
        "{{\"id\":\"{id}\",\"type\":\"message\",\"role\":\"assistant\",\"model\":{model},\"content\":["
    );
    let mut body = [head.as_bytes(), content, b"],"].concat();
    ending.write(&answers.stops, &mut body);
    body.extend_from_slice(format!(",\"usage\":{}}}", usage(used)).as_bytes());
    body
}

/// Returns a `usage` object. Counts that the upstream did not report are zero.
pub(super) fn usage(counts: Option<TokenCounts>) -> String {
    let counts = counts.unwrap_or_default();
    let (written, input) = (counts.cache_write.saturating_add(counts.cache_write_1h), counts.input_total());
    let mut usage = format!(
        "{{\"input_tokens\":{},\"cache_creation_input_tokens\":{written},\"cache_read_input_tokens\":{},\"output_tokens\":{}",
        input.saturating_sub(counts.cache_read).saturating_sub(written),
        counts.cache_read,
        counts.output_total(),
    );
    if counts.cache_write_1h > 0 {
        let _ = write!(
            usage,
            ",\"cache_creation\":{{\"ephemeral_5m_input_tokens\":{},\"ephemeral_1h_input_tokens\":{}}}",
            counts.cache_write, counts.cache_write_1h
        );
    }
    if counts.reasoning > 0 {
        let _ = write!(usage, ",\"output_tokens_details\":{{\"thinking_tokens\":{}}}", counts.reasoning);
    }
    usage.push('}');
    usage
}

/// Content blocks, separated by commas.
struct BlockList {
    blocks: Vec<u8>,
    count: usize,
}

impl BlockList {
    /// Adds thoughts, text and refusal.
    fn said(&mut self, answers: &ChatAnswersAsMessages, message: Tree<'_, '_>) {
        let thoughts =
            ["reasoning_content", "reasoning"].into_iter().find_map(|name| text_member(message, name));
        let (mut thoughts, mut text) = (thoughts.unwrap_or_default().to_owned(), String::new());
        if let Some(content) = member(message, "content") {
            text.push_str(content.into_string().unwrap_or_default());
            let parts = elements(content).into_iter().flatten();
            parts.for_each(|part| collect(part, &mut text, &mut thoughts));
        }
        if !self.signed(answers, message) && answers.thinking {
            self.block("{\"type\":\"thinking\",\"thinking\":", &thoughts, ",\"signature\":\"\"}");
        }
        self.block("{\"type\":\"text\",\"text\":", &text, "}");
        self.block("{\"type\":\"text\",\"text\":", text_member(message, "refusal").unwrap_or_default(), "}");
    }

    /// Adds Claude's signed thoughts, which already are Messages blocks. Returns true if there are any.
    fn signed(&mut self, answers: &ChatAnswersAsMessages, message: Tree<'_, '_>) -> bool {
        let blocks = member(message, "thinking_blocks").filter(|_| answers.signed).and_then(elements);
        let blocks = blocks.unwrap_or_default();
        blocks.iter().for_each(|block| self.raw(&[&written(*block)]));
        !blocks.is_empty()
    }

    fn block(&mut self, before: &str, text: &str, after: &str) {
        if !text.is_empty() {
            self.raw(&[before, &quote(text), after]);
        }
    }

    fn call(
        &mut self,
        call: Tree<'_, '_>,
        answers: &ChatAnswersAsMessages,
        position: usize,
    ) -> Result<(), BadAnswer> {
        let function = member(call, "function").ok_or(BadAnswer::Invalid("a tool call names no function"))?;
        let name =
            text_member(function, "name").ok_or(BadAnswer::Invalid("a tool call names no function"))?;
        let id = text_member(call, "id").filter(|id| !id.is_empty());
        let id = id
            .map_or_else(|| format!("toolu_{}_{position}", answers.seed).into(), |id| call_id(id, "toolu_"));
        let id = signature_in_call_id::join(id, signature(call));
        let input = match member(function, "arguments") {
            None => "{}".to_owned(),
            Some(arguments) => match arguments.into_string() {
                Some(text) if text.trim().is_empty() => "{}".to_owned(),
                Some(text) => {
                    json::parse(&mut text.as_bytes().to_vec())
                        .map_err(|_| BadAnswer::Invalid("the arguments of a tool call are no JSON object"))?;
                    text.to_owned()
                }
                None => written(arguments),
            },
        };
        self.raw(&[
            "{\"type\":\"tool_use\",\"id\":",
            &quote(&id),
            ",\"name\":",
            &quote(answers.names.restore(name)),
            ",\"input\":",
            &input,
            "}",
        ]);
        Ok(())
    }

    fn raw(&mut self, parts: &[&str]) {
        if self.count > 0 {
            self.blocks.push(b',');
        }
        self.count = self.count.saturating_add(1);
        parts.iter().for_each(|part| self.blocks.extend_from_slice(part.as_bytes()));
    }
}

/// Returns Gemini's signature of the thoughts before a call.
fn signature<'i>(call: Tree<'_, 'i>) -> Option<&'i str> {
    let extra = member(call, "extra_content")?;
    let vendors = ["google", "vertex"].into_iter();
    vendors
        .filter_map(|vendor| text_member(member(extra, vendor)?, "thought_signature"))
        .find(|text| !text.is_empty())
}

fn written(value: Tree<'_, '_>) -> String {
    let mut text = Vec::new();
    json::write(value, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

/// Appends the text or thoughts of a content part, as Mistral sends it.
fn collect(part: Tree<'_, '_>, text: &mut String, thoughts: &mut String) {
    text.push_str(text_member(part, "text").unwrap_or_default());
    if let Some(thinking) = member(part, "thinking") {
        thoughts.push_str(thinking.into_string().unwrap_or_default());
        for inner in elements(thinking).into_iter().flatten() {
            thoughts.push_str(text_member(inner, "text").unwrap_or_default());
        }
    }
}
