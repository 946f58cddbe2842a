//! Writes complete answers for chat clients, and the parts that they share with chunks.

use std::borrow::Cow;

use bytes::BufMut;

use super::logprobs::write_logprobs;
use super::{ChatCall, ChatChoice, ChatCompletion, ClientUsage, OutputMedia, ThinkingBlock, escape};
use crate::finish_word::finish;
use crate::json::{JsonWriter, quote};
use crate::translation::TranslatedAnswer;

/// The values shared by all answers to one request of a chat client.
#[derive(Clone, Debug)]
pub(crate) struct ChatForm {
    /// `chatcmpl-` and letters.
    pub(crate) id: String,
    /// Seconds since the Unix epoch.
    pub(crate) created_s: u64,
    /// The `model` of the answers.
    pub(crate) model: String,
    /// The client asked for usage at the end of a stream.
    pub(crate) include_usage: bool,
    /// The client reads calls only in the legacy form (`function_call`).
    pub(crate) functions: bool,
}

impl ChatForm {
    /// Writes the first members of an answer or a chunk, up to its choices.
    pub(super) fn put_head(&self, object: &str, created_s: u64, out: &mut Vec<u8>) {
        let (id, model) = (quote(&self.id), quote(&self.model));
        let head = format!(
            "{{\"id\":{id},\"object\":\"{object}\",\"created\":{created_s},\"model\":{model},\"choices\":["
        );
        out.extend_from_slice(head.as_bytes());
    }

    /// Returns the complete `chat.completion`.
    pub(crate) fn completion(&self, completion: &ChatCompletion<'_>) -> TranslatedAnswer {
        let mut head = Vec::new();
        self.put_head("chat.completion", completion.created_s.unwrap_or(self.created_s), &mut head);
        let mut json = JsonWriter::default();
        json.bytes(&head);
        for choice in &completion.choices {
            choice.write(self.functions, &mut json);
        }
        json.end_list();
        if let Some(usage) = &completion.usage {
            let mut written = Vec::new();
            put_usage(usage, &mut written);
            json.name("usage").raw(&written);
        }
        json.end_object();
        TranslatedAnswer {
            body: json.finish().into(),
            usage: completion.counts,
            extras: completion.extras.clone(),
            dropped: completion
                .choices
                .iter()
                .flat_map(|choice| choice.lost_media(|media| !media.is_image()))
                .collect(),
            finish: completion.choices.last().and_then(|choice| finish(choice.finish_reason.as_bytes())),
            output_bytes: completion
                .choices
                .iter()
                .map(ChatChoice::output_bytes)
                .fold(0, u64::saturating_add),
        }
    }
}

impl ChatChoice<'_> {
    /// Returns the escaped text, with marks for media that chat cannot express.
    fn with_marks(&self) -> Cow<'_, str> {
        let marks = self.media.iter().filter(|media| !media.is_image()).map(OutputMedia::mark);
        marks.fold(Cow::Borrowed(&*self.content), |mut content, mark| {
            content.to_mut().push_str(&escape(mark.into()));
            content
        })
    }

    fn write(&self, functions: bool, json: &mut JsonWriter) {
        json.object().name("index").number(self.index).name("message").object();
        json.name("role").text("assistant").name("content");
        let content = self.with_marks();
        if content.is_empty() && !(self.calls.is_empty() && self.refusal.is_empty()) {
            json.raw(b"null");
        } else {
            json.escaped(&content);
        }
        json.name("refusal");
        if self.refusal.is_empty() {
            json.raw(b"null");
        } else {
            json.escaped(&self.refusal);
        }
        if !self.reasoning.is_empty() {
            json.name("reasoning_content").escaped(&self.reasoning);
        }
        if self.media.iter().any(OutputMedia::is_image) {
            json.name("images").list();
            self.media.iter().filter(|media| media.is_image()).for_each(|image| image.write(None, json));
            json.end_list();
        }
        if !self.thinking_blocks.is_empty() {
            json.name("thinking_blocks").list();
            self.thinking_blocks.iter().for_each(|block| block.write(json));
            json.end_list();
        }
        match self.calls.first() {
            Some(call) if functions => call.write_called(json.name("function_call")),
            Some(_) => {
                json.name("tool_calls").list();
                self.calls.iter().for_each(|call| call.write(json));
                json.end_list();
            }
            None => {}
        }
        if let Some(signature) = &self.signature {
            json.raw(signed(&quote(signature)).as_bytes());
        }
        json.end_object().name("logprobs");
        match self.logprobs.as_slice() {
            [] => drop(json.raw(b"null")),
            tokens => write_logprobs(tokens, json),
        }
        let reason = if functions { in_old_words(&self.finish_reason) } else { &self.finish_reason };
        json.name("finish_reason").escaped(reason).end_object();
    }
}

impl ChatCall<'_> {
    fn write(&self, json: &mut JsonWriter) {
        let kind = if self.custom { "custom" } else { "function" };
        json.object().name("id").escaped(&self.id).name("type").text(kind);
        self.write_called(json.name(kind));
        if let Some(signature) = &self.signature {
            json.raw(signed(&quote(signature)).as_bytes());
        }
        json.end_object();
    }

    fn write_called(&self, json: &mut JsonWriter) {
        let input = if self.custom { "input" } else { "arguments" };
        json.object().name("name").escaped(&self.name).name(input).escaped(&self.input).end_object();
    }
}

impl ThinkingBlock<'_> {
    /// Writes the block in the form that LiteLLM's clients keep and send back: that of Messages.
    pub(crate) fn write(&self, json: &mut JsonWriter) {
        json.object().name("type");
        match self {
            Self::Thinking { text, signature } => {
                json.text("thinking").name("thinking").escaped(text).name("signature").escaped(signature)
            }
            Self::Redacted(data) => json.text("redacted_thinking").name("data").escaped(data),
        };
        json.end_object();
    }
}

/// Returns `finish_reason` for a client of the legacy form.
pub(super) fn in_old_words(reason: &str) -> &str {
    if reason == "tool_calls" { "function_call" } else { reason }
}

/// Returns the member `extra_content` with a signature, which is JSON. Gemini's own chat endpoint returns it with a call
/// or a message and expects it back.
pub(super) fn signed(signature: &str) -> String {
    format!("\"extra_content\":{{\"google\":{{\"thought_signature\":{signature}}}}}")
}

/// Writes usage in chat's form: the prompt includes cached and audio input; the completion includes reasoning, audio
/// and images (CHAT-3).
pub(super) fn put_usage(usage: &ClientUsage, out: &mut impl BufMut) {
    let counts = &usage.counts;
    let (prompt, completion) = (counts.input_total(), counts.output_total());
    let written = counts.cache_write.saturating_add(counts.cache_write_1h);
    let total = prompt.saturating_add(completion);
    let has_details = usage.has_reasoning || counts.reasoning > 0;
    let members = [
        ("{\"prompt_tokens\":", prompt, true),
        (",\"completion_tokens\":", completion, true),
        (",\"total_tokens\":", total, true),
        (",\"prompt_tokens_details\":{\"cached_tokens\":", counts.cache_read, true),
        (",\"cache_write_tokens\":", written, usage.has_cache_writes || written > 0),
        (",\"audio_tokens\":", counts.audio_input, counts.audio_input > 0),
        ("},\"completion_tokens_details\":{\"reasoning_tokens\":", counts.reasoning, has_details),
        (",\"audio_tokens\":", counts.audio_output, has_details && counts.audio_output > 0),
        (",\"image_tokens\":", counts.image_output, has_details && counts.image_output > 0),
    ];
    for (name, count, _) in members.into_iter().filter(|(_, _, is_written)| *is_written) {
        out.put_slice(name.as_bytes());
        out.put_slice(itoa::Buffer::new().format(count).as_bytes());
    }
    out.put_slice(b"}}");
}
