//! Parts shared by the adaptations for chat clients: the ids and names of calls in answers, and the meaning of requests
//! at targets that have much in common.

mod media;
mod options;
mod ruled_thinking;
mod sampling;
mod thinking;
mod tools;

pub(super) use media::media;
pub(super) use options::{AnswerFormat, copy_stop, effort, format, refuse_listed};
pub(super) use ruled_thinking::{RuledThinking, ruled_thinking};
pub(super) use sampling::{output_limit, sampling};
pub(super) use thinking::{MEDIUM, acts_unsigned, budget_that_fits};
pub(super) use tools::{ChatToolChoice, ChatTools, arguments, tools};

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::adapt::tool_names::ToolNames;
use crate::adapt::{Asking, Loss, loss};
use crate::chat::request::ChatRequest;
use crate::chat::{ChatCall, ChatForm, escape};
use crate::json::compact;

/// Completes the calls in a target's answers.
#[derive(Clone, Debug)]
pub(super) struct CallIdentity {
    /// The seed for ids of calls to which the target assigned none.
    seed: String,
    /// Maps the target's tool names back to the client's.
    names: ToolNames,
}

impl CallIdentity {
    /// Creates the identity of the calls in answers to a request; `names` holds the tool names sent to the target.
    pub(super) fn new(asking: &Asking<'_>, names: ToolNames) -> Self {
        Self { seed: asking.seed.to_owned(), names }
    }

    /// Returns the call at `position`, counted over the whole answer. Without `input` it has no arguments.
    pub(super) fn call<'a>(
        &self,
        id: Option<Cow<'a, str>>,
        name: Option<Cow<'a, str>>,
        input: Option<&RawValue>,
        position: u64,
    ) -> ChatCall<'a> {
        ChatCall {
            id: self.call_id(id, position),
            name: self.tool_name(name),
            input: escape(compact(input.map_or("{}", RawValue::get)).into()),
            ..ChatCall::default()
        }
    }

    /// Returns the id of the call at `position`, counted over the whole answer; one is made if the target assigned none.
    pub(super) fn call_id<'a>(&self, id: Option<Cow<'a, str>>, position: u64) -> Cow<'a, str> {
        let id = id.filter(|id| !id.is_empty());
        id.map_or_else(|| format!("call_{}_{position}", self.seed).into(), escape)
    }

    /// Returns the client's name for the tool that the target calls `name`, escaped as in JSON.
    pub(super) fn tool_name<'a>(&self, name: Option<Cow<'a, str>>) -> Cow<'a, str> {
        let name = name.unwrap_or_default();
        match self.names.restore(&name) {
            restored if restored == name => escape(name),
            restored => escape(Cow::Owned(restored.to_owned())),
        }
    }
}

/// Returns the form of the answers to a chat client's request.
pub(super) fn form(asking: &Asking<'_>, request: &ChatRequest<'_, '_>) -> ChatForm {
    ChatForm {
        id: format!("chatcmpl-{}", asking.seed),
        created_s: asking.now_s,
        model: asking.selector.to_owned(),
        include_usage: request.include_usage,
        functions: request.tools.is_legacy(),
    }
}

/// Returns the request's top-level members that are missing from the table and therefore ignored.
pub(super) fn dropped(request: &ChatRequest<'_, '_>, losses: &[Loss]) -> Vec<String> {
    loss::unknown(request.options.iter().map(|(name, _)| *name), losses)
}
