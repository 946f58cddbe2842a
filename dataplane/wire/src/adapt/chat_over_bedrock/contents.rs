//! The conversation: `messages`, with the texts of the system apart.

use std::collections::HashMap;

use super::losses::LOSSES;
use super::media::{DocumentNames, write_media};
use super::thinking::{is_signed, write_signed};
use crate::adapt::chat_client::{AssistantCall, CacheMark, ChatMessage, ChatPart};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Rejection, Traits, call_id, read};
use crate::json::JsonWriter;

/// A conversation as it is read, message by message.
#[derive(Debug)]
pub(super) struct ConverseContents<'n, 'i> {
    family: BedrockModel,
    /// The target takes calls and results only where tools are offered; else they are told as text.
    has_tools: bool,
    system: JsonWriter,
    messages: JsonWriter,
    /// Whose message is open.
    role: Option<&'static str>,
    /// The target's names of tools.
    tool_names: &'n mut ToolNames,
    /// The functions that were called, by the ids of the calls.
    names: HashMap<&'i str, &'i str>,
    documents: DocumentNames,
    /// Calls that had no id.
    functions: u64,
    /// Ids of calls from before the user spoke, whose results become text.
    left_out: Vec<String>,
}

/// What is known of a model by its name.
#[derive(Clone, Copy, Debug)]
pub(super) struct BedrockModel {
    pub(super) is_claude: bool,
    pub(super) is_gpt: bool,
    /// It refuses marks up to which the prompt is to be cached, unless it knows them.
    caches: bool,
}

impl BedrockModel {
    pub(super) fn of(target: &Traits<'_>) -> Self {
        let named = |part: &str| target.model.contains(part);
        let is_claude = named("anthropic") || named("claude");
        Self { is_claude, is_gpt: named("gpt-oss"), caches: is_claude || named("nova") }
    }

    pub(super) fn write_cache_point(self, mark: Option<CacheMark<'_>>, json: &mut JsonWriter) {
        let Some(mark) = mark.filter(|_| self.caches) else { return };
        json.object().name("cachePoint").object().name("type").text("default");
        if let Some(ttl) = mark.ttl.filter(|ttl| matches!(*ttl, "5m" | "1h")) {
            json.name("ttl").text(ttl);
        }
        json.end_object().end_object();
    }
}

impl<'n, 'i> ConverseContents<'n, 'i> {
    pub(super) fn new(family: BedrockModel, has_tools: bool, tool_names: &'n mut ToolNames) -> Self {
        Self {
            tool_names,
            family,
            has_tools,
            system: JsonWriter::default(),
            messages: JsonWriter::default(),
            role: None,
            names: HashMap::new(),
            documents: DocumentNames::default(),
            functions: 0,
            left_out: Vec::new(),
        }
    }

    /// The next message.
    pub(super) fn message(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        match message.role {
            "system" | "developer" => return self.system(message),
            "user" => {
                for part in message.parts()? {
                    self.part("user", &part)?;
                }
            }
            "assistant" => self.assistant(message)?,
            "tool" => self.result(message, message.needed_text("tool_call_id")?)?,
            "function" => {
                let id = function_id(self.functions);
                self.result(message, &id)?;
            }
            _ => {
                return Err(Rejection::malformed(
                    format!("{}.role", message.path),
                    "is no role of a chat message.",
                ));
            }
        }
        if self.role.is_some() {
            self.family.write_cache_point(message.cache_mark(), &mut self.messages);
        }
        Ok(())
    }

    /// Writes the members of the request.
    pub(super) fn write(mut self, json: &mut JsonWriter) -> Result<(), Rejection> {
        if self.role.is_none() && !self.system.is_empty() {
            // The target demands a message to answer to: system text that stands alone is the user's.
            self.begin("user");
            self.messages.bytes(&std::mem::take(&mut self.system).finish());
        }
        if self.role.is_none() {
            return Err(Rejection::malformed("messages", "must hold a message that says something."));
        }
        self.messages.end_list().end_object();
        json.name("messages").list().bytes(&self.messages.finish()).end_list();
        if !self.system.is_empty() {
            json.name("system").list().bytes(&self.system.finish()).end_list();
        }
        Ok(())
    }

    fn system(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        for (text, part) in message.text_parts()? {
            if !text.trim().is_empty() {
                self.system.object().name("text").text(text).end_object();
                self.family.write_cache_point(part.cache_mark(), &mut self.system);
            }
        }
        if !self.system.is_empty() {
            self.family.write_cache_point(message.cache_mark(), &mut self.system);
        }
        Ok(())
    }

    fn part(&mut self, role: &'static str, part: &ChatPart<'_, 'i>) -> Result<(), Rejection> {
        match part.text {
            Some(text) if text.trim().is_empty() => return Ok(()),
            Some(text) => self.text(role, text),
            None => {
                self.begin(role);
                write_media(part, &mut self.documents, self.messages.object())?;
                self.messages.end_object();
            }
        }
        self.family.write_cache_point(part.cache_mark(), &mut self.messages);
        Ok(())
    }

    fn text(&mut self, role: &'static str, text: &str) {
        self.begin(role);
        self.messages.object().name("text").text(text).end_object();
    }

    fn assistant(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        if read::member(&message.members, "audio").is_some() {
            return Err(read::refuse(LOSSES, "messages.*.audio", format!("{}.audio", message.path)));
        }
        if self.role.is_none() {
            return self.leave_out(message);
        }
        if self.family.is_claude && is_signed(&message.members) {
            self.begin("assistant");
            write_signed(&message.members, &mut self.messages);
        }
        for (_, part) in message.text_parts()? {
            self.part("assistant", &part)?;
        }
        if let Some(refusal) = message.word("refusal").filter(|refusal| !refusal.trim().is_empty()) {
            self.text("assistant", refusal);
        }
        for call in message.calls(LOSSES)? {
            let id = self.id_of(&call);
            self.names.extend(call.id.map(|id| (id, call.name)));
            if !self.has_tools {
                self.text("assistant", &format!("Called {} with {}", call.name, call.arguments));
                continue;
            }
            self.begin("assistant");
            let json = self.messages.object().name("toolUse").object();
            json.name("toolUseId").text(&id).name("name").text(&self.tool_names.fit(call.name));
            json.name("input").raw(call.arguments.as_bytes()).end_object().end_object();
        }
        Ok(())
    }

    /// The id by which the target knows a call.
    fn id_of(&mut self, call: &AssistantCall<'_, '_>) -> String {
        match call.id {
            Some(id) => call_id::call_id(id, PREFIX).into_owned(),
            None => {
                self.functions = self.functions.saturating_add(1);
                function_id(self.functions)
            }
        }
    }

    /// The target refuses a conversation that does not begin with the user: what the assistant said before goes.
    fn leave_out(&mut self, message: &ChatMessage<'_, 'i>) -> Result<(), Rejection> {
        for call in message.calls(LOSSES)? {
            let id = self.id_of(&call);
            self.names.extend(call.id.map(|id| (id, call.name)));
            self.left_out.push(id);
        }
        Ok(())
    }

    fn result(&mut self, message: &ChatMessage<'_, 'i>, id: &str) -> Result<(), Rejection> {
        let known = call_id::call_id(id, PREFIX);
        let left_out = self.left_out.iter().any(|left_out| *left_out == known);
        if !self.has_tools || left_out {
            let name = self.names.get(id).copied().or_else(|| message.word("name")).unwrap_or("the call");
            self.text("user", &format!("Result of {name}: {}", message.text()?));
            return Ok(());
        }
        self.begin("user");
        let json = self.messages.object().name("toolResult").object();
        json.name("toolUseId").text(&known).name("content").list();
        for part in message.parts()? {
            match part.text {
                Some(text) if text.trim().is_empty() => {}
                Some(text) => {
                    json.object().name("text").text(text).end_object();
                }
                None if matches!(part.kind, "image_url" | "file" | "video_url") => {
                    write_media(&part, &mut self.documents, json.object())?;
                    json.end_object();
                }
                None => return Err(Rejection::new(&*part.path, "is no text, image, video or document.")),
            }
        }
        json.end_list().end_object().end_object();
        Ok(())
    }

    /// Goes on with what `role` says, or begins it.
    fn begin(&mut self, role: &'static str) {
        if self.role != Some(role) {
            if self.role.replace(role).is_some() {
                self.messages.end_list().end_object();
            }
            self.messages.object().name("role").text(role).name("content").list();
        }
    }
}

/// What stands for an id that the target would refuse begins with this.
const PREFIX: &str = "tooluse_";

fn function_id(number: u64) -> String {
    format!("call_fn_{number}")
}
