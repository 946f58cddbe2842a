//! Translates a complete Responses answer into a chat completion.

use bytes::{BufMut as _, BytesMut};

use super::answer::{Common, failure};
use super::chunks::{finish_reason, kind_and_input, put_usage};
use super::event::{ItemKind, Response, ResponseItem};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{BadAnswer, TranslatedAnswer};
use crate::envelope::StreamError;
use crate::json::meant_bytes;

/// The parts of the chat message, JSON-escaped as received.
#[derive(Default)]
struct EscapedMessage {
    content: Vec<u8>,
    refusal: Vec<u8>,
    reasoning: Vec<u8>,
    /// A JSON array without its brackets.
    calls: Vec<u8>,
    /// The first call in the legacy form.
    function_call: Vec<u8>,
    output_bytes: usize,
}

pub(super) fn whole(common: &Common, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
    let Ok(response) = Response::read(body) else {
        return Err(BadAnswer::Invalid("it is not a response"));
    };
    if response.status() == b"failed" {
        return Err(BadAnswer::Error(failure(Some(&response))));
    }
    if !response.has_output() {
        let error = StreamError::of_odd(body).map(BadAnswer::Error);
        return Err(error.unwrap_or(BadAnswer::Invalid("it holds no output")));
    }
    let mut message = EscapedMessage::default();
    response.items().for_each(|(_, item)| message.take(&item, &common.names));
    let usage = response.token_counts();
    let mut head = Vec::new();
    common.put_head("chat.completion", response.created_s().unwrap_or(common.created_s), &mut head);
    let mut out = BytesMut::from(head.as_slice());
    out.put_slice(b",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\"");
    message.put(common.functions, &mut out);
    out.put_slice(b"},\"logprobs\":null,\"finish_reason\":\"");
    let reason = finish_reason(common.functions, response.finish_reason(!message.calls.is_empty()));
    out.put_slice(reason.as_bytes());
    out.put_slice(b"\"}],\"usage\":");
    put_usage(usage.unwrap_or_default(), &mut out);
    out.put_u8(b'}');
    let output_bytes = message.output_bytes.try_into().unwrap_or(u64::MAX);
    Ok(TranslatedAnswer { body: out.freeze(), usage, extras: response.extras(), output_bytes })
}

impl EscapedMessage {
    fn take(&mut self, item: &ResponseItem<'_>, names: &ToolNames) {
        match item.kind() {
            ItemKind::Message => {
                for part in item.content() {
                    let text = if part.is_refusal() { &mut self.refusal } else { &mut self.content };
                    text.extend_from_slice(part.text());
                    self.output_bytes = self.output_bytes.saturating_add(meant_bytes(part.text()));
                }
            }
            ItemKind::Reasoning => {
                for thought in item.thoughts().filter(|thought| !thought.is_empty()) {
                    if !self.reasoning.is_empty() {
                        self.reasoning.extend_from_slice(br"\n\n");
                    }
                    self.reasoning.extend_from_slice(thought);
                    self.output_bytes = self.output_bytes.saturating_add(meant_bytes(thought));
                }
            }
            ItemKind::Function => self.call(item, false, names),
            ItemKind::Custom => self.call(item, true, names),
            ItemKind::Other => {}
        }
    }

    fn call(&mut self, item: &ResponseItem<'_>, custom: bool, names: &ToolNames) {
        let (kind, input) = kind_and_input(custom);
        let name = names.restore_escaped(item.name());
        if self.calls.is_empty() {
            let parts = [b"{\"name\":\"".as_slice(), &name, b"\",\"arguments\":\"", item.input(), b"\"}"];
            self.function_call = parts.concat();
        } else {
            self.calls.push(b',');
        }
        for part in [
            b"{\"id\":\"".as_slice(),
            item.call_id(),
            b"\",\"type\":\"",
            kind,
            b"\",\"",
            kind,
            b"\":{\"name\":\"",
            &name,
            b"\",\"",
            input,
            b"\":\"",
            item.input(),
            b"\"}}",
        ] {
            self.calls.extend_from_slice(part);
        }
        let bytes = meant_bytes(item.name()).saturating_add(meant_bytes(item.input()));
        self.output_bytes = self.output_bytes.saturating_add(bytes);
    }

    fn put(&self, functions: bool, out: &mut BytesMut) {
        let silent = self.content.is_empty() && !(self.calls.is_empty() && self.refusal.is_empty());
        put_text("content", &self.content, silent, out);
        put_text("refusal", &self.refusal, self.refusal.is_empty(), out);
        if !self.reasoning.is_empty() {
            put_text("reasoning_content", &self.reasoning, false, out);
        }
        if functions && !self.calls.is_empty() {
            out.put_slice(b",\"function_call\":");
            out.put_slice(&self.function_call);
        } else if !self.calls.is_empty() {
            out.put_slice(b",\"tool_calls\":[");
            out.put_slice(&self.calls);
            out.put_u8(b']');
        }
    }
}

fn put_text(name: &str, raw: &[u8], null: bool, out: &mut BytesMut) {
    out.put_slice(b",\"");
    out.put_slice(name.as_bytes());
    if null {
        out.put_slice(b"\":null");
        return;
    }
    for part in [b"\":\"", raw, b"\""] {
        out.put_slice(part);
    }
}
