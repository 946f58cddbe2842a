//! A chat request as typed values: read from a client's document, or made from a request of another dialect.
//!
//! Texts borrow from the client's document. Values that are only passed on, such as schemas and sampling options, stay
//! values of that document.

mod content;
pub(crate) mod free_text;
mod message;
mod thought;
mod tools;
mod write;

pub(crate) use content::{CacheMark, ChatContent, ChatFile, ChatPart, MediaUrl, PartBody};
pub(crate) use message::{CallInput, ChatMessage, ChatRole, RequestCall, messages_path};
pub(crate) use thought::{SignedThought, signed_thoughts};
pub(crate) use tools::{
    ChatFunction, ChatTool, CustomTool, FreeTextFormat, NamedTool, ObjectSchema, RequestToolChoice,
    RequestTools, ToolKind,
};

use std::borrow::Cow;

use simd_json::prelude::{ValueAsScalar as _, ValueIntoString as _};

use crate::json::{JsonWriter, Tree};
use crate::translation::Rejection;
use crate::translation::read::{self, Object};

/// A chat request.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChatRequest<'t, 'i> {
    pub(crate) messages: Vec<ChatMessage<'t, 'i>>,
    pub(crate) tools: RequestTools<'t, 'i>,
    pub(crate) format: Option<ChatResponseFormat<'t, 'i>>,
    /// True if a stream is to end with its usage.
    pub(crate) include_usage: bool,
    /// True if the client keeps signed thoughts and sends them back, so that the answer is to contain them, although no member
    /// of the request says so.
    pub(crate) keeps_thoughts: bool,
    /// True if the client sends the signature of a call back on that call, so that it can carry encrypted reasoning.
    pub(crate) carries_reasoning: bool,
    /// All other top-level members except `model`, in document order.
    pub(crate) options: Vec<(&'i str, OptionValue<'t, 'i>)>,
}

/// The value of an option: a value of the client's document, or one made from it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OptionValue<'t, 'i> {
    Tree(Tree<'t, 'i>),
    Text(&'i str),
    Bool(bool),
    Number(u64),
    /// Any other value, as JSON.
    Json(&'static str),
}

/// The format of the answer (`response_format`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChatResponseFormat<'t, 'i> {
    /// `text`, `json_object` or `json_schema`.
    pub(crate) kind: &'i str,
    /// The member `json_schema`.
    pub(crate) schema: Option<AnswerSchema<'t, 'i>>,
}

/// The schema that the answer must match.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerSchema<'t, 'i> {
    pub(crate) name: Option<OptionValue<'t, 'i>>,
    pub(crate) description: Option<OptionValue<'t, 'i>>,
    pub(crate) schema: Option<Tree<'t, 'i>>,
    pub(crate) strict: Option<OptionValue<'t, 'i>>,
}

impl<'t, 'i> ChatRequest<'t, 'i> {
    /// Reads a client's request.
    pub(crate) fn read(request: &Object<'t, 'i>) -> Result<Self, Rejection> {
        let mut options = Vec::new();
        for (name, value) in read::members(request).filter(|(name, _)| !TYPED.contains(name)) {
            options.push((name, OptionValue::Tree(value)));
        }
        let usage = read::member(request, "stream_options").and_then(|options| options.as_object());
        let include_usage = usage.and_then(|usage| read::member(&usage, "include_usage")?.as_bool());
        Ok(Self {
            messages: ChatMessage::all(request)?,
            tools: RequestTools::read(request)?,
            format: ChatResponseFormat::read(request)?,
            include_usage: include_usage == Some(true),
            keeps_thoughts: false,
            carries_reasoning: false,
            options,
        })
    }

    /// Returns the option `name`, if the request has it. Of several, it is the first.
    pub(crate) fn option(&self, name: &str) -> Option<OptionValue<'t, 'i>> {
        self.options.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// Returns the option `name`, if it is a value of the client's document.
    pub(crate) fn tree(&self, name: &str) -> Option<Tree<'t, 'i>> {
        self.option(name)?.tree()
    }

    /// Iterates over the options that are values of the client's document.
    pub(crate) fn trees(&self) -> impl Iterator<Item = (&'i str, Tree<'t, 'i>)> {
        self.options.iter().filter_map(|(name, value)| Some((*name, value.tree()?)))
    }

    /// Returns the text of the option `name`, if it is a string.
    pub(crate) fn text(&self, name: &str) -> Option<&'i str> {
        self.option(name)?.as_text()
    }

    /// Removes the option `name`. Returns true if the request had it.
    pub(crate) fn remove(&mut self, name: &str) -> bool {
        let before = self.options.len();
        self.options.retain(|(known, _)| *known != name);
        self.options.len() < before
    }

    /// Sets the option `name`.
    pub(crate) fn set(&mut self, name: &'i str, value: OptionValue<'t, 'i>) {
        match self.options.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.options.push((name, value)),
        }
    }

    /// Returns the number of choices that the answer is to have.
    pub(crate) fn choices(&self) -> u64 {
        let wanted = self.tree("n").and_then(read::as_whole);
        wanted.unwrap_or(1).max(1)
    }

    /// True if the answer is to be a stream.
    pub(crate) fn is_stream(&self) -> bool {
        self.option("stream").is_some_and(|stream| stream.as_bool() == Some(true))
    }
}

/// The members that are not options.
const TYPED: [&str; 8] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "response_format",
    "stream_options",
];

impl<'t, 'i> OptionValue<'t, 'i> {
    pub(crate) fn tree(self) -> Option<Tree<'t, 'i>> {
        match self {
            Self::Tree(value) => Some(value),
            Self::Text(_) | Self::Bool(_) | Self::Number(_) | Self::Json(_) => None,
        }
    }

    pub(crate) fn as_text(self) -> Option<&'i str> {
        match self {
            Self::Tree(value) => value.into_string(),
            Self::Text(text) => Some(text),
            Self::Bool(_) | Self::Number(_) | Self::Json(_) => None,
        }
    }

    pub(crate) fn as_bool(self) -> Option<bool> {
        match self {
            Self::Tree(value) => value.as_bool(),
            Self::Text(_) | Self::Number(_) | Self::Json(_) => None,
            Self::Bool(value) => Some(value),
        }
    }

    /// Writes the value.
    pub(crate) fn write(self, json: &mut JsonWriter) {
        match self {
            Self::Tree(value) => json.tree(value),
            Self::Text(text) => json.text(text),
            Self::Bool(true) => json.raw(b"true"),
            Self::Bool(false) => json.raw(b"false"),
            Self::Number(value) => json.number(value),
            Self::Json(value) => json.raw(value.as_bytes()),
        };
    }
}

impl<'t, 'i> ChatResponseFormat<'t, 'i> {
    fn read(request: &Object<'t, 'i>) -> Result<Option<Self>, Rejection> {
        const FORMAT: &str = "response_format";
        let Some(format) = read::member(request, FORMAT) else { return Ok(None) };
        let format = read::object(format, || FORMAT.to_owned())?;
        let kind = read::needed_text(&format, "type", || FORMAT.to_owned())?;
        let schema = read::member(&format, "json_schema").map(|schema| {
            let schema = read::object(schema, || format!("{FORMAT}.json_schema"))?;
            let member = |name| read::member(&schema, name).map(OptionValue::Tree);
            Ok(AnswerSchema {
                name: member("name"),
                description: member("description"),
                schema: read::member(&schema, "schema"),
                strict: member("strict"),
            })
        });
        Ok(Some(Self { kind, schema: schema.transpose()? }))
    }
}

/// Appends `more` to `text`, which stays borrowed if it was empty.
pub(crate) fn append<'i>(text: &mut Cow<'i, str>, more: &'i str) {
    if text.is_empty() {
        *text = Cow::Borrowed(more);
    } else {
        text.to_mut().push_str(more);
    }
}

/// Joins texts with `separator`. One text alone stays as it is.
pub(crate) fn joined<'i>(mut texts: Vec<Cow<'i, str>>, separator: &str) -> Cow<'i, str> {
    match texts.len() {
        1 => texts.pop().unwrap_or_default(),
        _ => Cow::Owned(texts.join(separator)),
    }
}
