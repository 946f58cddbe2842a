//! Translates chat messages into input items.

use super::losses::refuse;
use crate::adapt::Rejection;
use crate::adapt::call_id::call_id;
use crate::adapt::carried_reasoning::{EncryptedReasoning, open};
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::chat::request::{
    ChatContent, ChatMessage, ChatPart, ChatRequest, ChatRole, PartBody, RequestCall, ToolKind, messages_path,
};
use crate::json::JsonWriter;

/// Writes the messages of `request` as a list of items.
pub(super) fn write(
    request: &ChatRequest<'_, '_>,
    origin: &str,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let mut items = Items { json, origin, names, custom: Vec::new(), functions: FunctionCalls::default() };
    items.json.list();
    let path = messages_path();
    for (position, message) in request.messages.iter().enumerate() {
        items.message(position, message, &path.at(position))?;
    }
    items.json.end_list();
    Ok(())
}

struct Items<'o, 'a> {
    json: &'o mut JsonWriter,
    /// The name of the target in carried reasoning.
    origin: &'o str,
    names: &'o mut ToolNames,
    /// Ids of custom (free-text) tool calls, whose results are items of another type.
    custom: Vec<&'a str>,
    /// The calls in the legacy form.
    functions: FunctionCalls<'a>,
}

impl<'a> Items<'_, 'a> {
    fn message(
        &mut self,
        position: usize,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        match &message.role {
            ChatRole::System => self.role_message("system", message, path),
            ChatRole::Developer => self.role_message("developer", message, path),
            ChatRole::User => self.role_message("user", message, path),
            ChatRole::Assistant => self.assistant(position, message, path),
            ChatRole::Tool(id) => self.result(message, id, path),
            ChatRole::Function => {
                let id = self.functions.answered(message.name, path)?;
                self.result(message, &id, path)
            }
            ChatRole::Unknown(_) => {
                let why = "must be 'system', 'developer', 'user', 'assistant', 'tool' or 'function'.";
                Err(path.member("role").reject(why))
            }
        }
    }

    fn role_message(
        &mut self,
        role: &str,
        message: &ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        needed_content(message, path)?;
        self.json.object().name("type").text("message").name("role").text(role).name("content").list();
        message.each_part(path, |part, path| write_part(part, path, self.json))?;
        self.json.end_list().end_object();
        Ok(())
    }

    fn assistant(
        &mut self,
        position: usize,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        if message.refers_to_audio {
            return Err(refuse("messages.*.audio", path.member("audio").to_string()));
        }
        let (mut text, mut refusal) = (String::new(), String::new());
        message.each_part(path, |part, path| {
            match &part.body {
                PartBody::Text(part) => text.push_str(part),
                PartBody::Refusal(part) => refusal.push_str(part),
                PartBody::Image { .. }
                | PartBody::Video(_)
                | PartBody::Audio { .. }
                | PartBody::File(_)
                | PartBody::Thought
                | PartBody::Unknown => return Err(unknown_part(path)),
            }
            Ok(())
        })?;
        refusal.push_str(message.refusal.as_deref().unwrap_or_default());
        if !text.is_empty() || !refusal.is_empty() {
            let id = format!("msg_{position}");
            let item = self.json.object().name("type").text("message").name("role").text("assistant");
            item.name("id").text(&id).name("status").text("completed");
            write_assistant(&text, &refusal, self.json.name("content"));
            self.json.end_object();
        }
        message.each_call(path, |call, path| self.call(call, path))
    }

    fn call(&mut self, call: &'a RequestCall<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        let Some(id) = &call.id else { return self.function_call(call) };
        let (kind, item, input) = match call.kind {
            ToolKind::Function => ("function", "function_call", "arguments"),
            ToolKind::Custom => ("custom", "custom_tool_call", "input"),
            ToolKind::Unknown => {
                return Err(refuse("messages.*.tool_calls.*.type", path.member("type").to_string()));
            }
        };
        if call.kind == ToolKind::Custom {
            self.custom.push(id);
        }
        if let Some(reasoning) = call.reasoning.and_then(|carried| open(self.origin, carried)) {
            self.reasoning(reasoning);
        }
        let text = call.input.text();
        let text = text.ok_or_else(|| path.member(kind).member(input).reject("must be a string."))?;
        let name = self.names.fit(&call.name);
        let json = self.json.object().name("type").text(item).name("call_id").text(&call_id(id, "call_"));
        json.name("name").text(&name).name(input).text(&text).end_object();
        Ok(())
    }

    /// Writes the reasoning before a call. Its summary is not needed.
    fn reasoning(&mut self, EncryptedReasoning { id, encrypted }: EncryptedReasoning<'_>) {
        let json = self.json.object().name("type").text("reasoning");
        if !id.is_empty() {
            json.name("id").text(id);
        }
        json.name("summary").list().end_list().name("encrypted_content").text(encrypted).end_object();
    }

    /// Writes a call in the legacy form.
    fn function_call(&mut self, call: &'a RequestCall<'_, '_>) -> Result<(), Rejection> {
        let (id, name) = (self.functions.call(&call.name), self.names.fit(&call.name));
        let text = call.input.text().filter(|text| !text.is_empty());
        let json = self.json.object().name("type").text("function_call").name("call_id").text(&id);
        json.name("name").text(&name).name("arguments").text(text.as_deref().unwrap_or("{}")).end_object();
        Ok(())
    }

    fn result(
        &mut self,
        message: &ChatMessage<'_, '_>,
        id: &str,
        path: &MemberPath<'_>,
    ) -> Result<(), Rejection> {
        let content = needed_content(message, path)?;
        let custom = self.custom.contains(&id);
        let item = if custom { "custom_tool_call_output" } else { "function_call_output" };
        let json = self.json.object().name("type").text(item).name("call_id").text(&call_id(id, "call_"));
        json.name("output");
        match content.parts.as_slice() {
            [part] if content.is_text => drop(json.text(part.text().unwrap_or_default())),
            _ => {
                json.list();
                message.each_part(path, |part, path| write_part(part, path, json))?;
                json.end_list();
            }
        }
        json.end_object();
        Ok(())
    }
}

fn needed_content<'m, 't, 'i>(
    message: &'m ChatMessage<'t, 'i>,
    path: &MemberPath<'_>,
) -> Result<&'m ChatContent<'t, 'i>, Rejection> {
    message.content.as_ref().ok_or_else(|| path.member("content").reject("is missing."))
}

fn write_assistant(text: &str, refusal: &str, json: &mut JsonWriter) {
    json.list();
    if !text.is_empty() {
        json.object().name("type").text("output_text").name("text").text(text);
        json.name("annotations").list().end_list().end_object();
    }
    if !refusal.is_empty() {
        json.object().name("type").text("refusal").name("refusal").text(refusal).end_object();
    }
    json.end_list();
}

/// Writes the part at `path`, which is not the assistant's.
fn write_part(
    part: &ChatPart<'_, '_>,
    path: &MemberPath<'_>,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    match &part.body {
        PartBody::Text(text) => {
            json.object().name("type").text("input_text").name("text").text(text).end_object();
        }
        PartBody::Image { url, detail } => {
            let url = url.ok_or_else(|| path.member("image_url").reject("is missing."))?;
            json.object().name("type").text("input_image").name("image_url").text(&url.text());
            json.name("detail").text(detail.unwrap_or("auto")).end_object();
        }
        PartBody::File(file) => {
            let file = file.ok_or_else(|| path.member("file").reject("is missing."))?;
            json.object().name("type").text("input_file");
            let data = file.data.map(|data| data.text());
            for (name, text) in
                [("file_id", file.id), ("filename", file.name), ("file_data", data.as_deref())]
            {
                if let Some(text) = text {
                    json.name(name).text(text);
                }
            }
            json.end_object();
        }
        PartBody::Refusal(_)
        | PartBody::Video(_)
        | PartBody::Audio { .. }
        | PartBody::Thought
        | PartBody::Unknown => return Err(unknown_part(path)),
    }
    Ok(())
}

fn unknown_part(path: &MemberPath<'_>) -> Rejection {
    refuse("messages.*.content.*.type", path.to_string())
}
