//! Translates a complete Messages answer into a chat completion.

use serde_json::Value;
use serde_json::value::RawValue;

use super::form::ChatAnswerForm;
use super::target_types::{self, MessagesBlock, MessagesEvent};
use super::usage::RunningUsage;
use crate::adapt::write::{self, ObjectWriter};
use crate::adapt::{BadAnswer, TranslatedAnswer};
use crate::envelope::StreamError;
use crate::json::meant_bytes;

/// Translates `body` into a chat completion.
pub(super) fn whole(form: &ChatAnswerForm, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
    // JSON is UTF-8. Invalid bytes are replaced, as in a stream.
    let body = String::from_utf8_lossy(body);
    let answer = if body.trim_start().starts_with('{') { serde_json::from_str(&body).ok() } else { None };
    let answer: MessagesEvent<'_> = answer.ok_or(BadAnswer::Invalid("it is not a JSON object"))?;
    if answer.error.is_some() || target_types::word(answer.kind) == "error" {
        let document: Value = serde_json::from_str(&body).unwrap_or_default();
        return Err(BadAnswer::Error(
            StreamError::of_document(&document).unwrap_or_default().in_open_ai_words(),
        ));
    }
    let blocks: Option<Vec<&RawValue>> = target_types::read(answer.content);
    let blocks = blocks.ok_or(BadAnswer::Invalid("it has no content"))?;
    let mut message = CollectedMessage::default();
    for block in blocks {
        message.add(block)?;
    }
    message.refusal = target_types::refusal(answer.stop_details).unwrap_or_default();
    let mut usage = RunningUsage::default();
    answer.usage.into_iter().for_each(|told| usage.hear(told));

    let mut out = Vec::with_capacity(body.len());
    form.begin(&mut out);
    let mut choice = ObjectWriter::open(&mut out);
    choice.raw("index", "0");
    message.write(form, choice.key("message"));
    choice.raw("logprobs", "null");
    let stop_reason = target_types::word(answer.stop_reason);
    let finish = form.wishes.finish_reason(&stop_reason, !message.calls.is_empty());
    choice.text("finish_reason", finish);
    choice.close();
    out.extend_from_slice(br#"],"usage":"#);
    usage.write(&mut out);
    out.push(b'}');
    let output_bytes = message.output_bytes();
    Ok(TranslatedAnswer { body: out.into(), usage: usage.counts(), extras: usage.extras(), output_bytes })
}

/// The content of the answer, JSON-escaped as received.
#[derive(Default)]
struct CollectedMessage<'a> {
    text: String,
    reasoning: String,
    refusal: &'a str,
    thinking_blocks: Vec<MessagesBlock<'a>>,
    calls: Vec<CollectedCall<'a>>,
}

struct CollectedCall<'a> {
    id: &'a RawValue,
    name: &'a RawValue,
    arguments: Vec<u8>,
}

impl<'a> CollectedMessage<'a> {
    fn add(&mut self, raw: &'a RawValue) -> Result<(), BadAnswer> {
        let block: MessagesBlock<'a> =
            target_types::object(Some(raw)).ok_or(BadAnswer::Invalid("its content is no list of blocks"))?;
        match &*target_types::word(block.kind) {
            "text" => self.text.push_str(target_types::inner(block.text).unwrap_or_default()),
            "thinking" => {
                self.reasoning.push_str(target_types::inner(block.thinking).unwrap_or_default());
                self.thinking_blocks.push(block);
            }
            "redacted_thinking" => self.thinking_blocks.push(block),
            "tool_use" => {
                let named = block.id.zip(block.name).filter(|(id, name)| {
                    target_types::inner(Some(id)).is_some() && target_types::inner(Some(name)).is_some()
                });
                let (id, name) =
                    named.ok_or(BadAnswer::Invalid("it calls a tool without a name or an id"))?;
                self.calls.push(CollectedCall { id, name, arguments: arguments(block.input) });
            }
            // Tools that the target ran itself, and block types that are not known yet.
            _ => {}
        }
        Ok(())
    }

    fn write(&self, form: &ChatAnswerForm, out: &mut Vec<u8>) {
        let mut message = ObjectWriter::open(out);
        message.text("role", "assistant");
        if self.text.is_empty() && (!self.calls.is_empty() || !self.refusal.is_empty()) {
            message.raw("content", "null");
        } else {
            quoted(&self.text, message.key("content"));
        }
        match self.refusal {
            "" => message.raw("refusal", "null"),
            refusal => quoted(refusal, message.key("refusal")),
        }
        if !self.reasoning.is_empty() {
            quoted(&self.reasoning, message.key("reasoning_content"));
        }
        if form.wishes.thinking_blocks && !self.thinking_blocks.is_empty() {
            let list = message.key("thinking_blocks");
            list.push(b'[');
            for block in &self.thinking_blocks {
                write::comma(list);
                thinking_block(block, list);
            }
            list.push(b']');
        }
        match self.calls.as_slice() {
            [] => {}
            [call, ..] if form.wishes.functions => call.write_function(form, message.key("function_call")),
            calls => {
                let list = message.key("tool_calls");
                list.push(b'[');
                for call in calls {
                    write::comma(list);
                    call.write(form, list);
                }
                list.push(b']');
            }
        }
        message.close();
    }

    fn output_bytes(&self) -> u64 {
        let of_call = |call: &CollectedCall<'_>| {
            meant_bytes(call.name.get().as_bytes()).saturating_add(meant_bytes(&call.arguments))
        };
        let calls: usize = self.calls.iter().map(of_call).sum();
        let texts =
            [self.text.as_str(), &self.reasoning, self.refusal].map(|text| meant_bytes(text.as_bytes()));
        calls.saturating_add(texts.iter().sum()).try_into().unwrap_or(u64::MAX)
    }
}

impl CollectedCall<'_> {
    fn write(&self, form: &ChatAnswerForm, out: &mut Vec<u8>) {
        let mut call = ObjectWriter::open(out);
        call.raw("id", self.id.get());
        call.text("type", "function");
        self.write_function(form, call.key("function"));
        call.close();
    }

    fn write_function(&self, form: &ChatAnswerForm, out: &mut Vec<u8>) {
        let mut function = ObjectWriter::open(out);
        let name =
            form.names.restore_escaped(target_types::inner(Some(self.name)).unwrap_or_default().as_bytes());
        quoted(&String::from_utf8_lossy(&name), function.key("name"));
        // The input was valid UTF-8, and only ASCII bytes were removed from it.
        write::string(function.key("arguments"), &String::from_utf8_lossy(&self.arguments));
        function.close();
    }
}

/// Returns a tool's input as compact JSON; `{}` if it has none.
pub(super) fn arguments(input: Option<&RawValue>) -> Vec<u8> {
    let mut out = Vec::new();
    target_types::compact(input.map_or("{}", RawValue::get), &mut out);
    out
}

/// Writes a thinking block in the form that LiteLLM's clients keep and send back.
fn thinking_block(block: &MessagesBlock<'_>, out: &mut Vec<u8>) {
    let mut kept = ObjectWriter::open(out);
    match block.data {
        Some(data) => {
            kept.text("type", "redacted_thinking");
            kept.raw("data", data.get());
        }
        None => {
            kept.text("type", "thinking");
            quoted(target_types::inner(block.thinking).unwrap_or_default(), kept.key("thinking"));
            quoted(target_types::inner(block.signature).unwrap_or_default(), kept.key("signature"));
        }
    }
    kept.close();
}

/// Writes a string whose content is already JSON-escaped.
fn quoted(escaped: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(escaped.as_bytes());
    out.push(b'"');
}
