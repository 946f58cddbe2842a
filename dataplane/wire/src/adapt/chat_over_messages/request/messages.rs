//! Translates chat messages into Messages turns.
//!
//! Adjacent messages of one role become one message. Tool results come first in it, as the target requires. System
//! text is collected separately.

use super::content::{MessagesContent, end_block};
use super::{calls, parts, thinking};
use crate::adapt::chat_over_messages::losses::{AUDIO, refuse};
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Rejection, Traits};
use crate::chat::request::{CacheMark, ChatContent, ChatMessage, ChatRole, PartBody, messages_path};
use crate::json::JsonWriter;

/// Writes `messages`, and `system` if there is any.
pub(super) fn write(
    messages: &[ChatMessage<'_, '_>],
    target: &Traits<'_>,
    names: &mut ToolNames,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    json.name("messages").list();
    let mut talk = Talk {
        target,
        json,
        begun: false,
        role: None,
        results: JsonWriter::default(),
        content: MessagesContent::default(),
        system: MessagesContent::default(),
        functions: FunctionCalls::default(),
        names,
    };
    let path = messages_path();
    let last = messages.len().saturating_sub(1);
    for (position, message) in messages.iter().enumerate() {
        talk.message(message, &path.at(position), position == last)?;
    }
    talk.end_turn();
    if !talk.begun {
        // The target requires at least one message, so system text without any other message is sent as the user's.
        talk.role = Some(MessagesRole::User);
        talk.content = std::mem::take(&mut talk.system);
        talk.end_turn();
    }
    if !talk.begun {
        return Err(Rejection::malformed("messages", "must contain a message that is not empty."));
    }
    talk.json.end_list();
    if !talk.system.is_empty() {
        talk.system.write(JsonWriter::default(), talk.json.name("system"));
    }
    Ok(())
}

/// True if the message is empty and can be skipped. Tool results and unknown roles are never skipped.
fn is_silent(message: &ChatMessage<'_, '_>) -> bool {
    !matches!(message.role, ChatRole::Tool(_) | ChatRole::Function | ChatRole::Unknown(_))
        && message.content.as_ref().is_none_or(ChatContent::is_empty)
        && message.refusal.as_deref().unwrap_or_default().is_empty()
        && !message.has_calls()
        && !message.refers_to_audio
        && message.thoughts.is_empty()
}

/// A role at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagesRole {
    User,
    Assistant,
    System,
}

struct Talk<'o, 'a> {
    target: &'o Traits<'o>,
    json: &'o mut JsonWriter,
    /// A turn has been written.
    begun: bool,
    /// The role of the open turn.
    role: Option<MessagesRole>,
    /// The tool results of the open turn, without the brackets of a list.
    results: JsonWriter,
    /// The rest of the open turn.
    content: MessagesContent<'a>,
    /// System text, except for text that stays between turns.
    system: MessagesContent<'a>,
    /// The calls in the legacy form.
    functions: FunctionCalls<'a>,
    /// Maps the client's tool names to the target's.
    names: &'o mut ToolNames,
}

impl<'a> Talk<'_, 'a> {
    fn message(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
        is_last: bool,
    ) -> Result<(), Rejection> {
        if is_silent(message) {
            return Ok(());
        }
        match &message.role {
            ChatRole::User => {
                self.turn(MessagesRole::User);
                each_part(message, path, |part, path, cache| {
                    parts::user(part, path, cache, &mut self.content)
                })
            }
            ChatRole::Assistant => self.assistant(message, path, is_last),
            ChatRole::Tool(id) => self.result(message, path, &calls::portable(id)),
            ChatRole::Function => {
                let id = self.functions.answered(message.name, path)?;
                self.result(message, path, &id)
            }
            ChatRole::System | ChatRole::Developer => self.system(message, path),
            ChatRole::Unknown(_) => Err(path.member("role").reject(ROLES)),
        }
    }

    /// Makes `role` the role of the open turn, ending the previous turn if it differs.
    fn turn(&mut self, role: MessagesRole) {
        if self.role != Some(role) {
            self.end_turn();
            self.role = Some(role);
        }
    }

    fn end_turn(&mut self) {
        let Some(role) = self.role.take() else { return };
        if self.results.is_empty() && self.content.is_empty() {
            return;
        }
        self.begun = true;
        self.json.object().name("role").text(match role {
            MessagesRole::User => "user",
            MessagesRole::Assistant => "assistant",
            MessagesRole::System => "system",
        });
        let (results, content) = (std::mem::take(&mut self.results), std::mem::take(&mut self.content));
        content.write(results, self.json.name("content"));
        self.json.end_object();
    }

    fn system(&mut self, message: &'a ChatMessage<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        let is_turn = self.target.mid_system() && (self.role.is_some() || self.begun);
        if is_turn {
            self.turn(MessagesRole::System);
        }
        let content = if is_turn { &mut self.content } else { &mut self.system };
        each_part(message, path, |part, path, cache| parts::text_alone(part, path, cache, content))
    }

    fn assistant(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
        is_last: bool,
    ) -> Result<(), Rejection> {
        if message.refers_to_audio {
            return Err(refuse(AUDIO, path.member("audio").to_string()));
        }
        self.turn(MessagesRole::Assistant);
        if self.target.reasoning {
            thinking::write_signed(&message.thoughts, &mut self.content);
        }
        let ends_here = is_last && message.calls.is_empty();
        each_part(message, path, |part, path, cache| {
            parts::assistant(part, path, cache, (&mut self.content, ends_here))
        })?;
        if let Some(refusal) = &message.refusal {
            self.content.text(refusal, None);
        }
        calls::write(message, path, (&mut self.functions, self.names), &mut self.content)
    }

    fn result(
        &mut self,
        message: &'a ChatMessage<'_, '_>,
        path: &MemberPath<'_>,
        id: &str,
    ) -> Result<(), Rejection> {
        self.turn(MessagesRole::User);
        let mut content = MessagesContent::default();
        each_part(message, path, |part, path, _| parts::user(part, path, None, &mut content))?;
        let json = self.results.object().name("type").text("tool_result").name("tool_use_id").text(id);
        json.name("content");
        if content.is_empty() {
            json.text("");
        } else {
            content.write(JsonWriter::default(), json);
        }
        end_block(json, cache_of_any(message));
        Ok(())
    }
}

/// Calls `each` for every part of a message's content. A cache mark on the message applies to its last part.
fn each_part<'a, 't, 'i>(
    message: &'a ChatMessage<'t, 'i>,
    path: &MemberPath<'_>,
    mut each: impl FnMut(&'a PartBody<'i>, &MemberPath<'_>, Option<CacheMark<'t, 'i>>) -> Result<(), Rejection>,
) -> Result<(), Rejection> {
    let mut rest = message.content.as_ref().map_or(0, |content| content.parts.len());
    message.each_part(path, |part, path| {
        rest = rest.saturating_sub(1);
        each(&part.body, path, part.cache.or_else(|| message.cache.filter(|_| rest == 0)))
    })
}

/// Returns the cache mark of a tool result: the message's own, or that of its last marked part. Parts of a result have
/// no mark at the target.
fn cache_of_any<'t, 'i>(message: &ChatMessage<'t, 'i>) -> Option<CacheMark<'t, 'i>> {
    let mut parts = message.content.iter().flat_map(|content| &content.parts).rev();
    message.cache.or_else(|| parts.find_map(|part| part.cache))
}

const ROLES: &str =
    "must be `system`, `developer`, `user`, `assistant`, `tool` or, with functions, `function`.";
