//! Writes a complete answer for a chat client.

use std::borrow::Cow;

use shared::usage::TokenCounts;

use super::{Identity, in_old_words, write_signature, write_usage};
use crate::adapt::TranslatedAnswer;
use crate::extras::Extras;
use crate::json::JsonWriter;

/// A function call.
#[derive(Debug, Default)]
pub(in crate::adapt) struct CompletionCall<'a> {
    pub(in crate::adapt) id: Cow<'a, str>,
    pub(in crate::adapt) name: Cow<'a, str>,
    /// JSON, possibly incomplete.
    pub(in crate::adapt) arguments: Cow<'a, str>,
    /// Gemini's signature of the thoughts that precede the call.
    pub(in crate::adapt) signature: Option<Cow<'a, str>>,
}

impl CompletionCall<'_> {
    pub(super) fn write(&self, json: &mut JsonWriter) {
        json.name("id").text(&self.id).name("type").text("function");
        self.write_function(json.name("function"));
        if let Some(signature) = &self.signature {
            write_signature(signature, json);
        }
    }

    fn write_function(&self, json: &mut JsonWriter) {
        json.object().name("name").text(&self.name).name("arguments").text(&self.arguments).end_object();
    }

    pub(super) fn bytes(&self) -> usize {
        self.name.len().saturating_add(self.arguments.len())
    }
}

/// One choice of a completion.
#[derive(Debug, Default)]
pub(in crate::adapt) struct CompletionChoice<'a> {
    pub(in crate::adapt) index: u64,
    pub(in crate::adapt) content: String,
    pub(in crate::adapt) reasoning: String,
    pub(in crate::adapt) calls: Vec<CompletionCall<'a>>,
    /// Gemini's signature of the thoughts that precede the text.
    pub(in crate::adapt) signature: Option<Cow<'a, str>>,
    /// Anthropic's thinking blocks: a JSON array without its brackets. Empty if there are none.
    pub(in crate::adapt) thinking_blocks: Vec<u8>,
    pub(in crate::adapt) finish_reason: &'static str,
}

impl CompletionChoice<'_> {
    fn write(&self, functions: bool, json: &mut JsonWriter) {
        json.object().name("index").number(self.index).name("message").object();
        json.name("role").text("assistant").name("content");
        if self.content.is_empty() && !self.calls.is_empty() {
            json.raw(b"null");
        } else {
            json.text(&self.content);
        }
        json.name("refusal").raw(b"null");
        if !self.reasoning.is_empty() {
            json.name("reasoning_content").text(&self.reasoning);
        }
        if !self.thinking_blocks.is_empty() {
            json.name("thinking_blocks").list().raw(&self.thinking_blocks).end_list();
        }
        match self.calls.first() {
            Some(call) if functions => call.write_function(json.name("function_call")),
            Some(_) => self.write_calls(json),
            None => {}
        }
        if let Some(signature) = &self.signature {
            write_signature(signature, json);
        }
        json.end_object().name("logprobs").raw(b"null");
        json.name("finish_reason");
        json.text(if functions { in_old_words(self.finish_reason) } else { self.finish_reason }).end_object();
    }

    fn write_calls(&self, json: &mut JsonWriter) {
        json.name("tool_calls").list();
        for call in &self.calls {
            json.object();
            call.write(json);
            json.end_object();
        }
        json.end_list();
    }

    fn bytes(&self) -> usize {
        self.calls.iter().map(CompletionCall::bytes).chain([self.content.len(), self.reasoning.len()]).sum()
    }
}

/// Returns the complete `chat.completion`.
pub(in crate::adapt) fn completion(
    identity: &Identity,
    choices: &[CompletionChoice<'_>],
    usage: Option<TokenCounts>,
    extras: Extras,
) -> TranslatedAnswer {
    let mut json = JsonWriter::default();
    json.object();
    identity.write("chat.completion", &mut json);
    json.name("choices").list();
    for choice in choices {
        choice.write(identity.functions, &mut json);
    }
    json.end_list();
    if let Some(usage) = usage {
        json.name("usage");
        write_usage(&usage, &mut json);
    }
    json.end_object();
    let output_bytes = choices.iter().map(CompletionChoice::bytes).sum::<usize>();
    let output_bytes = output_bytes.try_into().unwrap_or(u64::MAX);
    TranslatedAnswer { body: json.finish().into(), usage, extras, output_bytes }
}
