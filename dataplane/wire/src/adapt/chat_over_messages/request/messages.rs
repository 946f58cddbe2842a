//! Translates chat messages into Messages turns.
//!
//! Adjacent messages of one role become one message. Tool results come first in it, as the target requires. System
//! text is collected separately.

use simd_json::tape::{Array, Object};

use super::calls;
use super::content::{MessagesContent, cache_control, cache_of};
use super::parts;
use super::thinking;
use crate::adapt::chat_over_messages::losses::{AUDIO, refuse};
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{self, ObjectWriter};
use crate::adapt::{Rejection, Traits, read};
use crate::json::Tree;

/// Writes `messages`, and `system` if there is any.
pub(super) fn write(
    messages: &Array<'_, '_>,
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
    let last = messages.len().saturating_sub(1);
    for (position, message) in messages.iter().enumerate() {
        talk.message(&ClientMessage::of(message, position, position == last)?)?;
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

/// A message of the client's request.
pub(super) struct ClientMessage<'t, 'i> {
    pub(super) members: Object<'t, 'i>,
    pub(super) position: usize,
    is_last: bool,
}

impl<'t, 'i> ClientMessage<'t, 'i> {
    fn of(message: Tree<'t, 'i>, position: usize, is_last: bool) -> Result<Self, Rejection> {
        let members = read::object(message, || format!("messages.{position}"))?;
        Ok(Self { members, position, is_last })
    }

    pub(super) fn member(&self, name: &str) -> Option<Tree<'t, 'i>> {
        read::member(&self.members, name)
    }

    /// True if the message is empty and can be skipped. Tool results are never skipped.
    fn is_silent(&self) -> bool {
        let speaks = ["content", "refusal", "tool_calls", "function_call", "audio", "thinking_blocks"];
        let answers = ["tool", "function"];
        let role = read::member_text(&self.members, "role");
        role.is_some_and(|role| !answers.contains(&role))
            && speaks.iter().filter_map(|name| self.member(name)).all(read::is_empty)
    }

    pub(super) fn path(&self, name: &str) -> String {
        format!("messages.{}.{name}", self.position)
    }
}

/// A role at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagesRole {
    User,
    Assistant,
    System,
}

struct Talk<'a, 'i> {
    target: &'a Traits<'a>,
    out: &'a mut Vec<u8>,
    /// The role of the open turn.
    role: Option<MessagesRole>,
    /// The tool results of the open turn, joined with commas.
    results: Vec<u8>,
    /// The rest of the open turn.
    content: MessagesContent<'i>,
    /// System text, except for text that stays between turns.
    system: MessagesContent<'i>,
    /// The calls in the legacy form.
    functions: FunctionCalls<'i>,
    /// Maps the client's tool names to the target's.
    names: &'a mut ToolNames,
}

impl<'i> Talk<'_, 'i> {
    fn message(&mut self, message: &ClientMessage<'_, 'i>) -> Result<(), Rejection> {
        if message.is_silent() {
            return Ok(());
        }
        match read::needed_text(&message.members, "role", || format!("messages.{}", message.position))? {
            "user" => {
                self.turn(MessagesRole::User);
                self.each_part(message, |content, part, path, cache| parts::user(part, path, cache, content))
            }
            "assistant" => self.assistant(message),
            "tool" => {
                let id = read::needed_text(&message.members, "tool_call_id", || {
                    format!("messages.{}", message.position)
                })?;
                self.result(message, &calls::portable(id))
            }
            "function" => {
                let name = read::member_text(&message.members, "name");
                let id = self.functions.answered(name, &format!("messages.{}", message.position))?;
                self.result(message, &id)
            }
            "system" | "developer" => self.system(message),
            _ => Err(Rejection::malformed(message.path("role"), ROLES)),
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

    fn system(&mut self, message: &ClientMessage<'_, 'i>) -> Result<(), Rejection> {
        let begun = self.role.is_some() || self.out.last() != Some(&b'[');
        if self.target.mid_system && begun {
            self.turn(MessagesRole::System);
            return self.each_part(message, parts::text_alone);
        }
        std::mem::swap(&mut self.system, &mut self.content);
        let result = self.each_part(message, parts::text_alone);
        std::mem::swap(&mut self.system, &mut self.content);
        result
    }

    fn assistant(&mut self, message: &ClientMessage<'_, 'i>) -> Result<(), Rejection> {
        if message.member("audio").is_some() {
            return Err(refuse(AUDIO, message.path("audio")));
        }
        self.turn(MessagesRole::Assistant);
        if self.target.reasoning {
            thinking::write_signed(message, &mut self.content);
        }
        let calls = read::member(&message.members, "tool_calls");
        let ends_here = message.is_last && calls.is_none();
        self.each_part(message, |content, part, path, cache| {
            parts::assistant(part, path, cache, (content, ends_here))
        })?;
        if let Some(refusal) = message.member("refusal").and_then(read::as_text) {
            self.content.text(refusal, None);
        }
        calls::write(message, &mut self.functions, self.names, &mut self.content)
    }

    fn result(&mut self, message: &ClientMessage<'_, 'i>, id: &str) -> Result<(), Rejection> {
        self.turn(MessagesRole::User);
        let mut own_content = MessagesContent::default();
        std::mem::swap(&mut own_content, &mut self.content);
        let result = self.each_part(message, |content, part, path, _| parts::user(part, path, None, content));
        std::mem::swap(&mut own_content, &mut self.content);
        result?;
        if !self.results.is_empty() {
            self.results.push(b',');
        }
        let mut block = ObjectWriter::open(&mut self.results);
        block.text("type", "tool_result");
        block.text("tool_use_id", id);
        if own_content.is_empty() {
            block.text("content", "");
        } else {
            own_content.write(&[], block.key("content"));
        }
        cache_control(&mut block, cache_of_any(message));
        block.close();
        Ok(())
    }

    /// Calls `each` for every part of a message's content. A string is one text part. A cache mark on the message
    /// applies to its last part.
    fn each_part<'t>(
        &mut self,
        message: &ClientMessage<'t, 'i>,
        each: impl Fn(
            &mut MessagesContent<'i>,
            &ClientPart<'t, 'i>,
            &dyn Fn() -> String,
            Option<Tree<'t, 'i>>,
        ) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let cache = cache_of(&message.members);
        let Some(content) = message.member("content") else { return Ok(()) };
        if let Some(text) = read::as_text(content) {
            return each(&mut self.content, &ClientPart::Text(text), &|| message.path("content"), cache);
        }
        let Some(list) = content.as_array() else {
            return Err(Rejection::malformed(
                message.path("content"),
                "must be a string or an array of parts.",
            ));
        };
        let last = list.len().saturating_sub(1);
        for (position, part) in list.iter().enumerate() {
            let path = || format!("messages.{}.content.{position}", message.position);
            let members = read::object(part, path)?;
            let cache = cache_of(&members).or_else(|| cache.filter(|_| position == last));
            each(&mut self.content, &ClientPart::Typed(members), &path, cache)?;
        }
        Ok(())
    }
}

/// Returns the cache mark of a tool result: the message's own, or that of its last marked part. Parts of a result have
/// no mark at the target.
fn cache_of_any<'t, 'i>(message: &ClientMessage<'t, 'i>) -> Option<Tree<'t, 'i>> {
    let parts = message.member("content").and_then(|content| content.as_array());
    let marks = parts.iter().flatten().filter_map(|part| cache_of(&part.as_object()?));
    cache_of(&message.members).or_else(|| marks.last())
}

/// A part of a message.
pub(super) enum ClientPart<'t, 'i> {
    Text(&'i str),
    Typed(Object<'t, 'i>),
}

const ROLES: &str =
    "must be `system`, `developer`, `user`, `assistant`, `tool` or, with functions, `function`.";
