//! Writes the conversation: `contents`, and system text separately.

use std::collections::HashMap;

use super::losses::{AUDIO_REFERENCE, LOSSES, refuse};
use crate::adapt::chat_client::ChatMessage;
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Rejection, Traits, read};
use crate::json::{self, JsonWriter};

/// Translates a conversation message by message.
#[derive(Debug)]
pub(super) struct GeminiContents<'n, 'i> {
    /// System texts.
    system: Vec<&'i str>,
    contents: JsonWriter,
    /// The role of the open content.
    role: Option<&'static str>,
    /// Maps the client's tool names to the target's.
    tool_names: &'n mut ToolNames,
    /// Function names by call id.
    names: HashMap<&'i str, &'i str>,
    /// The calls in the legacy form.
    functions: FunctionCalls<'i>,
    /// A user content has been written.
    user_spoke: bool,
    /// Calls made before the first user content, which the target rejects: their ids, or the function name if a call
    /// has no id. Their results are sent as text.
    left_out: Vec<&'i str>,
    /// The target rejects calls without signatures.
    signs_calls: bool,
}

/// Accepted by Gemini instead of a signature, for calls that it did not make or whose signature was lost.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

impl<'n, 'i> GeminiContents<'n, 'i> {
    pub(super) fn new(target: &Traits<'_>, tool_names: &'n mut ToolNames) -> Self {
        Self {
            tool_names,
            system: Vec::new(),
            contents: JsonWriter::default(),
            role: None,
            names: HashMap::new(),
            functions: FunctionCalls::default(),
            user_spoke: false,
            left_out: Vec::new(),
            signs_calls: target.model.contains("gemini-3"),
        }
    }

    /// Adds the next message.
    pub(super) fn message(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        match message.role {
            "system" | "developer" => {
                let texts = message.text_parts()?.into_iter().map(|(text, _)| text);
                self.system.extend(texts.filter(|text| !text.is_empty()));
                Ok(())
            }
            "user" => self.user(message),
            "assistant" => self.assistant(message),
            "tool" => self.tool(message),
            "function" => {
                let name = message.needed_text("name")?;
                // The target identifies such a call by its name alone.
                self.functions.answered(Some(name), &message.path)?;
                self.result((None, name), name, &message.text()?);
                Ok(())
            }
            _ => Err(Rejection::malformed(
                format!("{}.role", message.path),
                "must be a role of chat messages.",
            )),
        }
    }

    /// Writes `contents`, and `systemInstruction` if there is any.
    pub(super) fn write(mut self, json: &mut JsonWriter) -> Result<(), Rejection> {
        if self.role.is_none() {
            // The target requires at least one content, so system text without any other message is sent as the
            // user's.
            for text in std::mem::take(&mut self.system) {
                self.part("user").name("text").text(text).end_object();
            }
        }
        if self.role.is_none() {
            return Err(Rejection::malformed("messages", "must contain a message that is not empty."));
        }
        self.contents.end_list().end_object();
        json.name("contents").list().bytes(&self.contents.finish()).end_list();
        if !self.system.is_empty() {
            json.name("systemInstruction").object().name("parts").list();
            for text in self.system {
                json.object().name("text").text(text).end_object();
            }
            json.end_list().end_object();
        }
        Ok(())
    }

    fn user(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        for part in message.parts()? {
            if let Some(text) = part.text {
                if text.is_empty() {
                    continue;
                }
                self.part("user").name("text").text(text).end_object();
            } else {
                let media = part.media(LOSSES)?;
                let json = self.part("user").name("inlineData").object();
                json.name("mimeType").text(&media.media_type).name("data").text(media.base64);
                json.end_object().end_object();
            }
        }
        Ok(())
    }

    fn assistant(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        if read::member(&message.members, "audio").is_some() {
            return Err(refuse(AUDIO_REFERENCE, format!("{}.audio", message.path)));
        }
        let mut texts: Vec<&str> = message.text_parts()?.into_iter().map(|(text, _)| text).collect();
        texts.extend(message.word("refusal"));
        texts.retain(|text| !text.is_empty());
        let signature = message.signature();
        let last = texts.len().saturating_sub(1);
        for (position, text) in texts.into_iter().enumerate() {
            let json = self.part("model").name("text").text(text);
            if let Some(signature) = signature.filter(|_| position == last) {
                json.name("thoughtSignature").text(signature);
            }
            json.end_object();
        }
        self.calls(message)
    }

    fn calls(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        for (position, call) in message.calls(LOSSES)?.into_iter().enumerate() {
            match call.id {
                Some(id) => drop(self.names.insert(id, call.name)),
                None => drop(self.functions.call(call.name)),
            }
            if !self.user_spoke {
                self.left_out.push(call.id.unwrap_or(call.name));
                continue;
            }
            let waived = (self.signs_calls && position == 0).then_some(NO_SIGNATURE);
            let name = self.tool_names.fit(call.name);
            let json = self.part("model").name("functionCall").object();
            if let Some(id) = call.id {
                json.name("id").text(id);
            }
            json.name("name").text(&name).name("args").raw(call.arguments.as_bytes()).end_object();
            if let Some(signature) = call.signature().or(waived) {
                json.name("thoughtSignature").text(signature);
            }
            json.end_object();
        }
        Ok(())
    }

    fn tool(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        let id = message.needed_text("tool_call_id")?;
        let Some(name) = self.names.get(id).copied().or_else(|| message.word("name")) else {
            let why = "does not match any preceding call, whose name the target requires.";
            return Err(Rejection::malformed(format!("{}.tool_call_id", message.path), why));
        };
        self.result((Some(id), id), name, &message.text()?);
        Ok(())
    }

    /// Writes the result of a call. `id` is the call's id, if it has one; `call` is the entry in `left_out` if the
    /// call was omitted.
    fn result(&mut self, (id, call): (Option<&str>, &str), name: &str, text: &str) {
        if let Some(at) = self.left_out.iter().position(|left_out| *left_out == call) {
            self.left_out.swap_remove(at);
            let labelled = format!("Result of {name}: {text}");
            self.part("user").name("text").text(&labelled).end_object();
            return;
        }
        let name = self.tool_names.fit(name);
        let json = self.part("user").name("functionResponse").object();
        if let Some(id) = id {
            json.name("id").text(id);
        }
        json.name("name").text(&name).name("response");
        if json::parse(&mut text.as_bytes().to_vec()).is_ok() {
            json.raw(text.trim_matches([' ', '\t', '\n', '\r']).as_bytes());
        } else {
            json.object().name("result").text(text).end_object();
        }
        json.end_object().end_object();
    }

    /// Starts a part of a content of `role`, starting a new content if necessary.
    fn part(&mut self, role: &'static str) -> &mut JsonWriter {
        self.user_spoke |= role == "user";
        if self.role != Some(role) {
            if self.role.replace(role).is_some() {
                self.contents.end_list().end_object();
            }
            self.contents.object().name("role").text(role).name("parts").list();
        }
        self.contents.object()
    }
}
