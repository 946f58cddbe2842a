//! Translates a Messages request into a chat request.
//!
//! The request is parsed into a tree of slices and written in one pass; only joined texts are copied twice.

use simd_json::prelude::{TypedScalarValue as _, ValueAsScalar as _, ValueIntoString as _};

use super::losses::LOSSES;
use super::origin::OriginTrail;
use super::{content, options, tools};
use crate::adapt::loss::unknown;
use crate::adapt::path::MemberPath;
use crate::adapt::read::refuse_fault;
use crate::adapt::tool_names::{Rule, ToolNames, WORD_MAX};
use crate::adapt::{Asking, Fate, Rejection, Traits};
use crate::json::{self, Tree};

/// A chat request, and the data of the Messages request that its answer needs.
#[derive(Debug)]
pub(super) struct TranslatedParts {
    pub(super) body: Vec<u8>,
    pub(super) thinking: bool,
    pub(super) stops: Vec<String>,
    pub(super) trail: OriginTrail,
    pub(super) names: ToolNames,
    pub(super) dropped: Vec<String>,
}

/// Translates the request and records in `trail` the origin of each part.
pub(super) fn translate(asking: &Asking<'_>, trail: OriginTrail) -> Result<TranslatedParts, Rejection> {
    let mut document = asking.body.to_vec();
    let tape = json::parse(&mut document).map_err(refuse_fault)?;
    let body = tape.as_value();
    refuse(body)?;
    let rule = if asking.target.word_tool_names { Rule::Word(WORD_MAX) } else { Rule::Any };
    let names = ToolNames::new(rule);
    let out = Vec::with_capacity(asking.body.len());
    let mut writer = ChatRequestWriter { target: asking.target, out, trail, names };
    writer.raw("{\"model\":");
    writer.text(asking.target.model);
    content::messages(&mut writer, body)?;
    options::options(&mut writer, body)?;
    tools::tools(&mut writer, body)?;
    writer.raw("}");
    Ok(TranslatedParts {
        body: writer.out,
        thinking: wants_thinking(body),
        stops: options::stops(body),
        trail: writer.trail,
        names: writer.names,
        dropped: body.as_object().map(|members| unknown(&members, LOSSES)).unwrap_or_default(),
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

/// Marks the end of a prompt prefix to be cached.
const CACHE: &str = "cache_control";

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

/// Writes the chat request.
#[derive(Debug)]
pub(super) struct ChatRequestWriter<'a> {
    pub(super) target: &'a Traits<'a>,
    pub(super) out: Vec<u8>,
    pub(super) trail: OriginTrail,
    pub(super) names: ToolNames,
}

impl ChatRequestWriter<'_> {
    /// Writes JSON text unchanged.
    pub(super) fn raw(&mut self, json: &str) {
        self.out.extend_from_slice(json.as_bytes());
    }

    /// Writes a string.
    pub(super) fn text(&mut self, text: &str) {
        // Writing to memory cannot fail.
        let _ = serde_json::to_writer(&mut self.out, text);
    }

    /// Writes `,"cache_control":..` of `block`, if another adaptation understands it.
    pub(super) fn cache_mark(&mut self, block: Tree<'_, '_>) {
        if let Some(mark) = member(block, CACHE).filter(|_| self.target.extended_chat) {
            self.raw(",\"cache_control\":");
            self.value(mark);
        }
    }

    /// Returns true if `block` has a cache mark and the target accepts it.
    pub(super) fn marks(&self, block: Tree<'_, '_>) -> bool {
        self.target.extended_chat && member(block, CACHE).is_some()
    }

    /// Writes the name of a tool in the form that the target accepts.
    pub(super) fn tool_name(&mut self, name: &str) {
        let name = self.names.fit(name);
        self.text(&name);
    }

    /// Writes a value as the client wrote it.
    pub(super) fn value(&mut self, value: Tree<'_, '_>) {
        json::write(value, &mut self.out);
    }

    /// Writes a value as a string that contains its JSON text.
    pub(super) fn value_as_text(&mut self, value: Tree<'_, '_>) {
        let mut text = Vec::new();
        json::write(value, &mut text);
        self.text(&String::from_utf8_lossy(&text));
    }
}
