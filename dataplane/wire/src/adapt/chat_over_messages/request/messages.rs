//! Translates chat messages into Messages turns.
//!
//! Adjacent messages of one role become one message. Tool results come first in it, as the target requires. System
//! text is collected separately.

use super::content::{MessagesContent, cache_control};
use super::{calls, parts, thinking};
use crate::adapt::chat_over_messages::losses::{AUDIO, refuse};
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::path::MemberPath;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{self, ObjectWriter};
use crate::adapt::{Rejection, Traits};
use crate::chat::request::{CacheMark, ChatContent, ChatMessage, ChatRole, PartBody, messages_path};

/// Writes `messages`, and `system` if there is any.
pub(super) fn write(
    messages: &[ChatMessage<'_, '_>],
    target: &Traits<'_>,
    names: &mut ToolNames,
    body: &mut ObjectWriter<'_>,
) -> Result<(), Rejection> {
    let out = body.key("messages");
    out.push(b'[');
    let mut talk = Talk {
        target,
        out,
        role: None,
        results: Vec::new(),
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
    let mut system = talk.system;
    if talk.out.last() == Some(&b'[') {
        if system.is_empty() {
            return Err(Rejection::malformed("messages", "must contain a message that is not empty."));
        }
        // The target requires at least one message, so system text without any other message is sent as the user's.
        let mut message = ObjectWriter::open(talk.out);
        message.text("role", "user");
        std::mem::take(&mut system).write(&[], message.key("content"));
        message.close();
    }
    talk.out.push(b']');
    if !system.is_empty() {
        system.write(&[], body.key("system"));
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
    out: &'o mut Vec<u8>,
    /// The role of the open turn.
    role: Option<MessagesRole>,
    /// The tool results of the open turn, joined with commas.
    results: Vec<u8>,
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
        write::comma(self.out);
        self.out.extend_from_slice(match role {
            MessagesRole::User => br#"{"role":"user","content":"#,
            MessagesRole::Assistant => br#"{"role":"assistant","content":"#,
            MessagesRole::System => br#"{"role":"system","content":"#,
        });
        self.content.write(&self.results, self.out);
        self.results.clear();
        self.out.push(b'}');
    }

    fn system(&mut self, message: &'a ChatMessage<'_, '_>, path: &MemberPath<'_>) -> Result<(), Rejection> {
        let begun = self.role.is_some() || self.out.last() != Some(&b'[');
        let is_turn = self.target.mid_system && begun;
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
        if !self.results.is_empty() {
            self.results.push(b',');
        }
        let mut block = ObjectWriter::open(&mut self.results);
        block.text("type", "tool_result");
        block.text("tool_use_id", id);
        if content.is_empty() {
            block.text("content", "");
        } else {
            content.write(&[], block.key("content"));
        }
        cache_control(&mut block, cache_of_any(message));
        block.close();
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
