//! Writes the conversation: `contents`, and system text separately.

use std::collections::HashMap;

use shared::model_rules::CallSignatures;

use super::losses::{AUDIO_REFERENCE, LOSSES, refuse};
use crate::adapt::chat_client::{arguments, media};
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::tool_output::text_or_marks;
use crate::adapt::{Rejection, Traits};
use crate::chat::request::{ChatMessage, ChatRole, PartBody};
use crate::json::{self, JsonWriter};

/// Translates a conversation message by message.
#[derive(Debug)]
pub(super) struct GeminiContents<'n, 'a> {
    /// System texts.
    system: Vec<&'a str>,
    contents: JsonWriter,
    /// The role of the open content.
    role: Option<&'static str>,
    /// Maps the client's tool names to the target's.
    tool_names: &'n mut ToolNames,
    /// Function names by call id.
    names: HashMap<&'a str, &'a str>,
    /// The calls in the legacy form.
    functions: FunctionCalls<'a>,
    /// A user content has been written.
    user_spoke: bool,
    /// Calls made before the first user content, which the target rejects: their ids, or the function name if a call
    /// has no id. Their results are sent as text.
    left_out: Vec<&'a str>,
    /// The target rejects calls without signatures.
    signs_calls: bool,
}

/// Accepted by Gemini instead of a signature, for calls that it did not make or whose signature was lost.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

impl<'n, 'a> GeminiContents<'n, 'a> {
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
            signs_calls: target.rules.call_signatures == Some(CallSignatures::Required),
        }
    }

    /// Adds the next message, which is at `path`.
    pub(super) fn message(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        match &message.role {
            ChatRole::System | ChatRole::Developer => message.each_text(path, |text, _| {
                if !text.is_empty() {
                    self.system.push(text);
                }
            }),
            ChatRole::User => self.user(message, path),
            ChatRole::Assistant => self.assistant(message, path),
            ChatRole::Tool(id) => {
                let id = &**id;
                let Some(name) = self.names.get(id).copied().or(message.name) else {
                    let why = "does not match any preceding call, whose name the target requires.";
                    return Err(path.member("tool_call_id").reject(why));
                };
                self.result((Some(id), id), name, &text_or_marks(message.content.as_ref()));
                self.media(message, path)
            }
            ChatRole::Function => {
                let name = message.name.ok_or_else(|| path.member("name").reject("is missing."))?;
                // The target identifies such a call by its name alone.
                self.functions.answered(Some(name), path)?;
                self.result((None, name), name, &text_or_marks(message.content.as_ref()));
                self.media(message, path)
            }
            ChatRole::Unknown(_) => Err(path.member("role").reject("must be a role of chat messages.")),
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

    fn user(&mut self, message: &ChatMessage<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        message.each_part(path, |part, path| {
            match part.text() {
                Some("") => {}
                Some(text) => drop(self.part("user").name("text").text(text).end_object()),
                None => self.inline("user", &part.body, path)?,
            }
            Ok(())
        })
    }

    /// Writes the media of a tool result, which follow it.
    fn media(&mut self, message: &ChatMessage<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        message.each_part(path, |part, path| match part.text() {
            Some(_) => Ok(()),
            None => self.inline("user", &part.body, path),
        })
    }

    fn inline(
        &mut self,
        role: &'static str,
        part: &PartBody<'_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        let media = media(part, path, LOSSES)?;
        let json = self.part(role).name("inlineData").object();
        json.name("mimeType").text(&media.media_type).name("data").text(media.base64);
        json.end_object().end_object();
        Ok(())
    }

    fn assistant(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        if message.refers_to_audio {
            return Err(refuse(AUDIO_REFERENCE, path.member("audio").to_string()));
        }
        let mut texts: Vec<&str> = Vec::new();
        message.each_text(path, |text, _| texts.push(text))?;
        texts.extend(message.refusal.as_deref());
        texts.retain(|text| !text.is_empty());
        let last = texts.len().saturating_sub(1);
        for (position, text) in texts.into_iter().enumerate() {
            let json = self.part("model").name("text").text(text);
            if let Some(signature) = message.signature.as_deref().filter(|_| position == last) {
                json.name("thoughtSignature").text(signature);
            }
            json.end_object();
        }
        let images = path.member("images");
        for (position, url) in message.images.iter().enumerate() {
            let image = PartBody::Image { url: Some(*url), detail: None };
            self.inline("model", &image, &images.at(position))?;
        }
        self.calls(message, path)
    }

    fn calls(&mut self, message: &'a ChatMessage<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        let mut is_first = true;
        message.each_call(path, |call, path| {
            let arguments = arguments(call, path, LOSSES)?;
            let (id, name) = (call.id.as_deref(), &*call.name);
            match id {
                Some(id) => drop(self.names.insert(id, name)),
                None => drop(self.functions.call(name)),
            }
            let waived = (self.signs_calls && is_first).then_some(NO_SIGNATURE);
            is_first = false;
            if !self.user_spoke {
                self.left_out.push(id.unwrap_or(name));
                return Ok(());
            }
            let name = self.tool_names.fit(name);
            let json = self.part("model").name("functionCall").object();
            if let Some(id) = id {
                json.name("id").text(id);
            }
            json.name("name").text(&name).name("args").raw(arguments.as_bytes()).end_object();
            if let Some(signature) = call.signature.as_deref().or(waived) {
                json.name("thoughtSignature").text(signature);
            }
            json.end_object();
            Ok(())
        })
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
        let mended = json::without_surrogates(text);
        if json::parse(&mut mended.as_bytes().to_vec()).is_ok() {
            json.raw(mended.trim_matches([' ', '\t', '\n', '\r']).as_bytes());
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
