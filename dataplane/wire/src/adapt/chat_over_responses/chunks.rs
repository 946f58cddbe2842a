//! Chunks of a chat stream as bytes. Text comes as it is escaped.

use bytes::{BufMut as _, Bytes, BytesMut};
use shared::usage::TokenCounts;

use super::answer::Common;
use crate::adapt::write::number;

/// Chunks that are ready for the client.
#[derive(Debug)]
pub(super) struct ResponsesChunkWriter {
    /// What every chunk begins with, up to its choices.
    head: Bytes,
    /// What every chunk but the one with the usage ends with.
    tail: &'static [u8],
    /// Calls are written in the old form, which has room for one.
    functions: bool,
    out: BytesMut,
}

/// A delta that grows one member of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatDeltaMember {
    Content,
    Reasoning,
    Refusal,
}

/// A tool call as chat tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChatToolCall<'a> {
    pub(super) index: usize,
    pub(super) id: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) custom: bool,
}

impl ResponsesChunkWriter {
    pub(super) fn new(common: &Common) -> Self {
        let mut head = b"data: ".to_vec();
        common.put_head("chat.completion.chunk", common.created_s, &mut head);
        let tail: &[u8] = if common.include_usage { b",\"usage\":null}\n\n" } else { b"}\n\n" };
        Self { head: head.into(), tail, functions: common.functions, out: BytesMut::new() }
    }

    /// What is ready, if anything is.
    pub(super) fn take(&mut self) -> Option<Bytes> {
        if self.out.is_empty() { None } else { Some(self.out.split().freeze()) }
    }

    pub(super) fn role(&mut self) {
        self.delta(&[b"\"role\":\"assistant\",\"content\":\"\",\"refusal\":null"]);
    }

    #[inline]
    pub(super) fn text(&mut self, member: ChatDeltaMember, raw: &[u8]) {
        let name: &[u8] = match member {
            ChatDeltaMember::Content => b"\"content\":\"",
            ChatDeltaMember::Reasoning => b"\"reasoning_content\":\"",
            ChatDeltaMember::Refusal => b"\"refusal\":\"",
        };
        self.delta(&[name, raw, b"\""]);
    }

    /// A call begins.
    pub(super) fn call(&mut self, called: ChatToolCall<'_>) {
        if self.functions {
            self.function_call(called.index, &[b"\"name\":\"", called.name, b"\",\"arguments\":\"\""]);
            return;
        }
        let (kind, input) = kind_and_input(called.custom);
        self.open_call(called.index);
        for part in [
            b",\"id\":\"",
            called.id,
            b"\",\"type\":\"",
            kind,
            b"\",\"",
            kind,
            b"\":{\"name\":\"",
            called.name,
            b"\",\"",
            input,
            b"\":\"\"}}]",
        ] {
            self.out.put_slice(part);
        }
        self.close(b"null");
    }

    /// More of a call's arguments, or of its free text.
    pub(super) fn input(&mut self, index: usize, custom: bool, raw: &[u8]) {
        if self.functions {
            self.function_call(index, &[b"\"arguments\":\"", raw, b"\""]);
            return;
        }
        let (kind, input) = kind_and_input(custom);
        self.open_call(index);
        for part in [b",\"", kind, b"\":{\"", input, b"\":\"", raw, b"\"}}]"] {
            self.out.put_slice(part);
        }
        self.close(b"null");
    }

    /// A piece of a call in the old form. Only the first call of an answer has a place.
    fn function_call(&mut self, index: usize, members: &[&[u8]]) {
        if index > 0 {
            return;
        }
        self.open();
        self.out.put_slice(b"\"function_call\":{");
        members.iter().for_each(|part| self.out.put_slice(part));
        self.out.put_u8(b'}');
        self.close(b"null");
    }

    /// The reason in the words of the client.
    pub(super) fn finish_reason(&self, reason: &'static str) -> &'static str {
        finish_reason(self.functions, reason)
    }

    pub(super) fn finish(&mut self, reason: &str) {
        self.open();
        self.close(format!("\"{reason}\"").as_bytes());
    }

    /// The chunk with the usage alone.
    pub(super) fn usage(&mut self, usage: TokenCounts) {
        self.out.put_slice(&self.head);
        self.out.put_slice(b",\"choices\":[],\"usage\":");
        put_usage(usage, &mut self.out);
        self.out.put_slice(b"}\n\n");
    }

    /// An event that is written already.
    pub(super) fn event(&mut self, event: &[u8]) {
        self.out.put_slice(event);
    }

    #[inline]
    fn delta(&mut self, parts: &[&[u8]]) {
        self.open();
        for part in parts {
            self.out.put_slice(part);
        }
        self.close(b"null");
    }

    fn open_call(&mut self, index: usize) {
        self.open();
        self.out.put_slice(b"\"tool_calls\":[{\"index\":");
        number(&mut self.out, index.try_into().unwrap_or(u64::MAX));
    }

    #[inline]
    fn open(&mut self) {
        self.out.put_slice(&self.head);
        self.out.put_slice(b",\"choices\":[{\"index\":0,\"delta\":{");
    }

    #[inline]
    fn close(&mut self, finish_reason: &[u8]) {
        self.out.put_slice(b"},\"logprobs\":null,\"finish_reason\":");
        self.out.put_slice(finish_reason);
        self.out.put_slice(b"}]");
        self.out.put_slice(self.tail);
    }
}

/// The `finish_reason` of a client that reads calls in the old form, if `functions`, or in the new one.
pub(super) fn finish_reason(functions: bool, reason: &'static str) -> &'static str {
    if functions && reason == "tool_calls" { "function_call" } else { reason }
}

/// What a call's type is called, and what its input is called there.
pub(super) fn kind_and_input(custom: bool) -> (&'static [u8], &'static [u8]) {
    if custom { (b"custom", b"input") } else { (b"function", b"arguments") }
}

/// Cached and audio input is part of the prompt, reasoning and audio part of the completion.
pub(super) fn put_usage(usage: TokenCounts, out: &mut BytesMut) {
    let (prompt, completion) = (usage.input_total(), usage.output_total());
    let written = usage.cache_write.saturating_add(usage.cache_write_1h);
    let some = |name: &'static str, count: u64| Some((name, count)).filter(|_| count > 0);
    let members = [
        Some(("{\"prompt_tokens\":", prompt)),
        Some((",\"completion_tokens\":", completion)),
        Some((",\"total_tokens\":", prompt.saturating_add(completion))),
        Some((",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cache_read)),
        Some((",\"cache_write_tokens\":", written)),
        some(",\"audio_tokens\":", usage.audio_input),
        Some(("},\"completion_tokens_details\":{\"reasoning_tokens\":", usage.reasoning)),
        some(",\"audio_tokens\":", usage.audio_output),
        some(",\"image_tokens\":", usage.image_output),
    ];
    for (name, count) in members.into_iter().flatten() {
        out.put_slice(name.as_bytes());
        number(out, count);
    }
    out.put_slice(b"}}");
}
