//! Translates a Messages request into a chat request. Only texts that are joined are copied.

use simd_json::prelude::{TypedScalarValue as _, ValueAsScalar as _, ValueIntoString as _};

use super::losses::LOSSES;
use super::{content, options, tools};
use crate::adapt::loss::unknown;
use crate::adapt::origin_trail::OriginTrail;
use crate::adapt::path::MemberPath;
use crate::adapt::read;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Fate, Rejection, Traits};
use crate::chat::request::{CacheMark, ChatMessage, ChatRequest, ChatRole};
use crate::json::Tree;

/// A chat request, and the data of the Messages request that its answer needs.
#[derive(Debug)]
pub(super) struct TranslatedParts<'t, 'i> {
    pub(super) request: ChatRequest<'t, 'i>,
    pub(super) thinking: bool,
    pub(super) stops: Vec<String>,
    pub(super) trail: OriginTrail,
    pub(super) names: ToolNames,
    pub(super) dropped: Vec<String>,
}

/// Translates the request `body` and records in `trail` the origin of each part.
pub(super) fn translate<'t, 'i>(
    body: Tree<'t, 'i>,
    asking: &Asking<'i>,
    trail: OriginTrail,
) -> Result<TranslatedParts<'t, 'i>, Rejection> {
    refuse(body)?;
    let rule = if asking.target.word_tool_names { Rule::Word(WORD_MAX) } else { Rule::Any };
    let names = ToolNames::new(rule);
    let mut builder =
        ChatRequestBuilder { target: asking.target, request: ChatRequest::default(), trail, names };
    content::messages(&mut builder, body)?;
    options::options(&mut builder, body)?;
    tools::tools(&mut builder, body)?;
    let members = body.as_object();
    let members = members.iter().flat_map(|members| read::members(members).map(|(name, _)| name));
    Ok(TranslatedParts {
        request: builder.request,
        thinking: wants_thinking(body),
        stops: options::stops(body),
        trail: builder.trail,
        names: builder.names,
        dropped: unknown(members, LOSSES),
    })
}

/// Rejects top-level members that the table rejects.
fn refuse(body: Tree<'_, '_>) -> Result<(), Rejection> {
    let members = body.as_object().into_iter().flat_map(|members| members.iter().collect::<Vec<_>>());
    for (name, value) in members.filter(|(_, value)| !is_empty(*value)) {
        let row = LOSSES.iter().find(|row| match row.field.split_once('=') {
            Some((field, word)) => field == name && value.as_str() == Some(word),
            None => row.field == name,
        });
        if let Some(row) = row.filter(|row| row.fate == Fate::Rejected) {
            return Err(refused(&MemberPath::top(name), row.note));
        }
    }
    Ok(())
}

/// Returns the rejection of the value at `path`.
pub(super) fn refused(path: &MemberPath<'_>, why: &str) -> Rejection {
    Rejection::new(path.to_string(), &format!("is not supported by this target: {why}"))
}

/// Returns the member `name`; a null member counts as absent.
pub(super) fn member<'t, 'i>(value: Tree<'t, 'i>, name: &str) -> Option<Tree<'t, 'i>> {
    value.as_object()?.get(name).filter(|member| !member.is_null())
}

/// Returns the text of the member `name`.
pub(super) fn text_member<'i>(value: Tree<'_, 'i>, name: &str) -> Option<&'i str> {
    member(value, name)?.into_string()
}

/// Returns the text of the required member `name`, or a rejection.
pub(super) fn required<'i>(
    value: Tree<'_, 'i>,
    name: &str,
    at: &MemberPath<'_>,
) -> Result<&'i str, Rejection> {
    text_member(value, name).ok_or_else(|| at.member(name).reject("must be a string"))
}

/// Returns the elements of an array.
pub(super) fn elements<'t, 'i>(value: Tree<'t, 'i>) -> Option<Vec<Tree<'t, 'i>>> {
    Some(value.as_array()?.iter().collect())
}

/// Returns true for a value that requests nothing: null, false, "", [] or {}.
fn is_empty(value: Tree<'_, '_>) -> bool {
    value.is_null()
        || value.as_bool() == Some(false)
        || value.as_str() == Some("")
        || value.as_array().is_some_and(|items| items.is_empty())
        || value.as_object().is_some_and(|members| members.is_empty())
}

/// Returns true if the client wants the model's thoughts.
fn wants_thinking(body: Tree<'_, '_>) -> bool {
    member(body, "thinking").is_some_and(|thinking| {
        text_member(thinking, "type").is_some_and(|kind| kind != "disabled")
            && text_member(thinking, "display") != Some("omitted")
    })
}

/// Builds the chat request.
#[derive(Debug)]
pub(super) struct ChatRequestBuilder<'t, 'i> {
    pub(super) target: &'i Traits<'i>,
    pub(super) request: ChatRequest<'t, 'i>,
    pub(super) trail: OriginTrail,
    pub(super) names: ToolNames,
}

impl<'t, 'i> ChatRequestBuilder<'t, 'i> {
    /// Returns the cache mark of `block`, if another adaptation understands it.
    pub(super) fn cache_mark(&self, block: Tree<'t, 'i>) -> Option<CacheMark<'t, 'i>> {
        CacheMark::of(&block.as_object()?).filter(|_| self.target.extended_chat)
    }

    /// Returns the next message, which is made from the value at `path`.
    pub(super) fn message(&mut self, role: ChatRole<'i>, path: &MemberPath<'_>) -> ChatMessage<'t, 'i> {
        self.trail.message(path);
        ChatMessage { role, ..ChatMessage::default() }
    }
}
