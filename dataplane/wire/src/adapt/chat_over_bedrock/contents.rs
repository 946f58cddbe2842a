//! Writes the conversation: `messages`, and system text separately.

use std::collections::HashMap;

use shared::model_rules::ModelRules;

use super::losses::LOSSES;
use super::media::{DocumentNames, write_media};
use super::thinking::write_signed;
use crate::adapt::chat_client::arguments;
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::tool_output::text_or_marks;
use crate::adapt::{Rejection, call_id, loss};
use crate::chat::request::{CacheMark, ChatMessage, ChatPart, ChatRole, PartBody, RequestCall};
use crate::json::JsonWriter;

/// Translates a conversation message by message.
#[derive(Debug)]
pub(super) struct ConverseContents<'n, 'a> {
    model: BedrockModel,
    /// The request offers tools. Without tools the target rejects calls and results, so they are sent as text.
    has_tools: bool,
    system: JsonWriter,
    messages: JsonWriter,
    /// The role of the open message.
    role: Option<&'static str>,
    /// Maps the client's tool names to the target's.
    tool_names: &'n mut ToolNames,
    /// Function names by call id.
    names: HashMap<&'a str, &'a str>,
    documents: DocumentNames,
    /// The calls in the legacy form.
    functions: FunctionCalls<'a>,
    /// Ids of calls made before the first user message. Their results are sent as text.
    left_out: Vec<String>,
}

/// Parts of Converse messages that not every model accepts.
#[derive(Clone, Copy, Debug)]
pub(super) struct BedrockModel {
    /// The model takes back the thoughts that it has signed.
    signs: bool,
    /// The model accepts cache points; models that do not know them reject the request.
    caches: bool,
    /// A tool result may contain images and documents; for other models they follow the result.
    media_in_results: bool,
}

impl BedrockModel {
    pub(super) fn of(rules: &ModelRules) -> Self {
        Self {
            signs: rules.signed_thinking == Some(true),
            caches: rules.cache_points == Some(true),
            media_in_results: rules.media_in_tool_results == Some(true),
        }
    }

    pub(super) fn write_cache_point(self, mark: Option<CacheMark<'_, '_>>, json: &mut JsonWriter) {
        let Some(mark) = mark.filter(|_| self.caches) else { return };
        json.object().name("cachePoint").object().name("type").text("default");
        if let Some(ttl) = mark.ttl().filter(|ttl| matches!(*ttl, "5m" | "1h")) {
            json.name("ttl").text(ttl);
        }
        json.end_object().end_object();
    }
}

impl<'n, 'a> ConverseContents<'n, 'a> {
    pub(super) fn new(model: BedrockModel, has_tools: bool, tool_names: &'n mut ToolNames) -> Self {
        Self {
            tool_names,
            model,
            has_tools,
            system: JsonWriter::default(),
            messages: JsonWriter::default(),
            role: None,
            names: HashMap::new(),
            documents: DocumentNames::default(),
            functions: FunctionCalls::default(),
            left_out: Vec::new(),
        }
    }

    /// Adds the next message, which is at `path`.
    pub(super) fn message(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        match &message.role {
            ChatRole::System | ChatRole::Developer => return self.system(message, path),
            ChatRole::User => message.each_part(path, |part, path| self.part("user", part, path))?,
            ChatRole::Assistant => self.assistant(message, path)?,
            ChatRole::Tool(id) => self.result(message, id, path)?,
            ChatRole::Function => {
                let id = self.functions.answered(message.name, path)?;
                self.result(message, &id, path)?;
            }
            ChatRole::Unknown(_) => {
                return Err(path.member("role").reject("must be a role of chat messages."));
            }
        }
        if self.role.is_some() {
            self.model.write_cache_point(message.cache, &mut self.messages);
        }
        Ok(())
    }

    /// Writes `messages`, and `system` if there is any.
    pub(super) fn write(mut self, json: &mut JsonWriter) -> Result<(), Rejection> {
        if self.role.is_none() && !self.system.is_empty() {
            // The target requires at least one message, so system text without any other message is sent as the
            // user's.
            self.begin("user");
            self.messages.bytes(&std::mem::take(&mut self.system).finish());
        }
        if self.role.is_none() {
            return Err(Rejection::malformed("messages", "must contain a message that is not empty."));
        }
        self.messages.end_list().end_object();
        json.name("messages").list().bytes(&self.messages.finish()).end_list();
        if !self.system.is_empty() {
            json.name("system").list().bytes(&self.system.finish()).end_list();
        }
        Ok(())
    }

    fn system(&mut self, message: &ChatMessage<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        message.each_text(path, |text, part| {
            if !text.trim().is_empty() {
                self.system.object().name("text").text(text).end_object();
                self.model.write_cache_point(part.cache, &mut self.system);
            }
        })?;
        if !self.system.is_empty() {
            self.model.write_cache_point(message.cache, &mut self.system);
        }
        Ok(())
    }

    fn part(
        &mut self,
        role: &'static str,
        part: &ChatPart<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        match part.text() {
            Some(text) if text.trim().is_empty() => return Ok(()),
            Some(text) => self.text(role, text),
            None => {
                self.begin(role);
                write_media(&part.body, path, &mut self.documents, self.messages.object())?;
                self.messages.end_object();
            }
        }
        self.model.write_cache_point(part.cache, &mut self.messages);
        Ok(())
    }

    fn text(&mut self, role: &'static str, text: &str) {
        self.begin(role);
        self.messages.object().name("text").text(text).end_object();
    }

    fn assistant(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        if message.refers_to_audio {
            return Err(loss::refuse(LOSSES, "messages.*.audio", path.member("audio").to_string()));
        }
        if self.role.is_none() {
            return self.leave_out(message, path);
        }
        if self.model.signs && !message.thoughts.is_empty() {
            self.begin("assistant");
            write_signed(&message.thoughts, &mut self.messages);
        }
        message.each_part(path, |part, path| match part.text() {
            Some(_) => self.part("assistant", part, path),
            None => Err(path.refuse("must be text.")),
        })?;
        if let Some(refusal) = message.refusal.as_deref().filter(|refusal| !refusal.trim().is_empty()) {
            self.text("assistant", refusal);
        }
        message.each_call(path, |call, path| {
            let arguments = arguments(call, path, LOSSES)?;
            let id = self.id_of(call);
            if !self.has_tools {
                self.text("assistant", &format!("Called {} with {arguments}", call.name));
                return Ok(());
            }
            self.begin("assistant");
            let json = self.messages.object().name("toolUse").object();
            json.name("toolUseId").text(&id).name("name").text(&self.tool_names.fit(&call.name));
            json.name("input").raw(arguments.as_bytes()).end_object().end_object();
            Ok(())
        })
    }

    /// Returns the call's id at the target.
    fn id_of(&mut self, call: &'a RequestCall<'_, '_>) -> String {
        match &call.id {
            Some(id) => {
                self.names.insert(id, &call.name);
                call_id::call_id(id, PREFIX).into_owned()
            }
            None => self.functions.call(&call.name),
        }
    }

    /// Omits an assistant message, because the target rejects a conversation that does not start with the user.
    fn leave_out(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        message.each_call(path, |call, path| {
            arguments(call, path, LOSSES)?;
            let id = self.id_of(call);
            self.left_out.push(id);
            Ok(())
        })
    }

    fn result(
        &mut self,
        message: &ChatMessage<'_, '_>,
        id: &str,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        let known = call_id::call_id(id, PREFIX);
        let left_out = self.left_out.iter().any(|left_out| *left_out == known);
        if !self.has_tools || left_out {
            let name = self.names.get(id).copied().or(message.name).unwrap_or("the call");
            self.text("user", &format!("Result of {name}: {}", text_or_marks(message.content.as_ref())));
            return self.media_after(message, path);
        }
        self.begin("user");
        let json = self.messages.object().name("toolResult").object();
        json.name("toolUseId").text(&known).name("content").list();
        if has_media(message) && !self.model.media_in_results {
            json.object().name("text").text(&text_or_marks(message.content.as_ref())).end_object();
            json.end_list().end_object().end_object();
            return self.media_after(message, path);
        }
        message.each_part(path, |part, path| {
            match (part.text(), &part.body) {
                (Some(text), _) if text.trim().is_empty() => {}
                (Some(text), _) => drop(json.object().name("text").text(text).end_object()),
                (None, body @ (PartBody::Image { .. } | PartBody::File(_) | PartBody::Video(_))) => {
                    write_media(body, path, &mut self.documents, json.object())?;
                    json.end_object();
                }
                (None, _) => return Err(path.refuse("is no text, image, video or document.")),
            }
            Ok(())
        })?;
        json.end_list().end_object().end_object();
        Ok(())
    }

    /// Writes the media of a tool result after it.
    fn media_after(&mut self, message: &ChatMessage<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        message.each_part(path, |part, path| match part.text() {
            Some(_) => Ok(()),
            None => self.part("user", part, path),
        })
    }

    /// Makes `role` the role of the open message, starting a new message if necessary.
    fn begin(&mut self, role: &'static str) {
        if self.role != Some(role) {
            if self.role.replace(role).is_some() {
                self.messages.end_list().end_object();
            }
            self.messages.object().name("role").text(role).name("content").list();
        }
    }
}

/// True if a part of the message is not text.
fn has_media(message: &ChatMessage<'_, '_>) -> bool {
    message.content.iter().flat_map(|content| &content.parts).any(|part| part.text().is_none())
}

/// The prefix of ids that replace those the target would reject.
const PREFIX: &str = "tooluse_";
