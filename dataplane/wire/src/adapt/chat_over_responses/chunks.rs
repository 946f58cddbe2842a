//! Writes chat chunks as bytes. Text is copied in its escaped form.

use bytes::{BufMut as _, Bytes, BytesMut};
use shared::usage::TokenCounts;

use super::answer::Common;
use crate::adapt::write::number;

/// Buffers chat chunks until they are taken.
#[derive(Debug)]
pub(super) struct ResponsesChunkWriter {
    /// The start of every chunk, up to its choices.
    head: Bytes,
    /// The end of every chunk except the one with the usage.
    tail: &'static [u8],
    /// Calls are written in the legacy form (`function_call`), which can hold one call.
    functions: bool,
    out: BytesMut,
}

/// The message member to which a delta is appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChatDeltaMember {
    Content,
    Reasoning,
    Refusal,
}

/// A tool call at its start.
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

    /// Takes the buffered chunks, if there are any.
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

    /// Starts a call.
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

    /// Appends to the arguments of a call, or to its free text.
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

    /// Writes a piece of a call in the legacy form. It can hold only the first call of an answer; others are skipped.
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

    /// Returns the finish reason in the form that the client reads.
    pub(super) fn finish_reason(&self, reason: &'static str) -> &'static str {
        finish_reason(self.functions, reason)
    }

    pub(super) fn finish(&mut self, reason: &str) {
        self.open();
        self.close(format!("\"{reason}\"").as_bytes());
    }

    /// Writes the chunk that holds only the usage.
    pub(super) fn usage(&mut self, usage: TokenCounts) {
        self.out.put_slice(&self.head);
        self.out.put_slice(b",\"choices\":[],\"usage\":");
        put_usage(usage, &mut self.out);
        self.out.put_slice(b"}\n\n");
    }

    /// Appends an event that is already serialized.
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

/// Returns the `finish_reason` for the legacy form of calls if `functions` is true, else `reason`.
pub(super) fn finish_reason(functions: bool, reason: &'static str) -> &'static str {
    if functions && reason == "tool_calls" { "function_call" } else { reason }
}

/// Returns a call's type and the name of its input member.
pub(super) fn kind_and_input(custom: bool) -> (&'static [u8], &'static [u8]) {
    if custom { (b"custom", b"input") } else { (b"function", b"arguments") }
}

/// Writes usage in chat's form: the prompt includes cached and audio input; the completion includes reasoning, audio
/// and images.
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
