//! The messages of a request, and the calls in them.

use std::borrow::Cow;

use serde_json::value::RawValue;
use shared::model_rules::ReasoningMember;

use super::content::{CacheMark, ChatContent, ChatPart, MediaUrl};
use super::free_text;
use super::thought::{SignedThought, signed_thoughts};
use super::tools::ToolKind;
use crate::json::{self, Tree};
use crate::translation::Rejection;
use crate::translation::path::MemberPath;
use crate::translation::read::{self, Object};

/// A message.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChatMessage<'t, 'i> {
    pub(crate) role: ChatRole<'i>,
    pub(crate) content: Option<ChatContent<'t, 'i>>,
    pub(crate) name: Option<&'i str>,
    pub(crate) cache: Option<CacheMark<'t, 'i>>,
    // Only an assistant's message has the following members.
    pub(crate) refusal: Option<Cow<'i, str>>,
    /// The thoughts, without a signature (`reasoning_content`).
    pub(crate) reasoning: Option<Cow<'i, str>>,
    /// The member that a target reads them from, if it is not `reasoning_content`.
    pub(crate) reasoning_member: Option<ReasoningMember>,
    pub(crate) calls: Vec<RequestCall<'t, 'i>>,
    /// A call in the legacy form.
    pub(crate) function_call: Option<RequestCall<'t, 'i>>,
    /// Anthropic's signed thoughts.
    pub(crate) thoughts: Vec<SignedThought<'i>>,
    /// Gemini's signature of the thoughts that precede the text.
    pub(crate) signature: Option<Cow<'i, str>>,
    /// The images of an earlier answer, as OpenRouter's clients send them back.
    pub(crate) images: Vec<MediaUrl<'i>>,
    /// True if the message refers to audio of an earlier answer.
    pub(crate) refers_to_audio: bool,
}

/// The role of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ChatRole<'i> {
    System,
    Developer,
    #[default]
    User,
    Assistant,
    /// The result of the call with this id.
    Tool(Cow<'i, str>),
    /// The result of a call in the legacy form.
    Function,
    /// A word that is not a role of chat messages.
    Unknown(&'i str),
}

/// A call in an assistant's message.
#[derive(Clone, Debug)]
pub(crate) struct RequestCall<'t, 'i> {
    /// `None` for a legacy `function_call`, which has no id.
    pub(crate) id: Option<Cow<'i, str>>,
    /// If it is unknown, the call is that of a function as far as it can be read; the name may be empty.
    pub(crate) kind: ToolKind,
    pub(crate) name: Cow<'i, str>,
    pub(crate) input: CallInput<'t, 'i>,
    /// Gemini's signature of the thoughts that precede the call.
    pub(crate) signature: Option<Cow<'i, str>>,
    /// The encrypted reasoning of a Responses target that precedes the call, as a client carried it.
    pub(crate) reasoning: Option<&'i str>,
    pub(crate) cache: Option<CacheMark<'t, 'i>>,
}

/// The arguments of a call, or the free text for a custom tool.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallInput<'t, 'i> {
    Absent,
    Text(&'i str),
    /// Free text, which a function that stands for a custom tool has as its only argument.
    FreeText(&'i str),
    /// An object; chat has it as text, but some clients send the object itself.
    Object(Tree<'t, 'i>),
    /// Neither text nor an object.
    Malformed,
}

/// Returns the path of the messages in a request.
pub(crate) fn messages_path() -> MemberPath<'static> {
    MemberPath::top("messages")
}

impl<'t, 'i> ChatMessage<'t, 'i> {
    /// Reads the messages of a request.
    pub(super) fn all(request: &Object<'t, 'i>) -> Result<Vec<Self>, Rejection> {
        let path = messages_path();
        let list = read::member(request, "messages").ok_or_else(|| path.reject("is missing."))?;
        let list = read::array(list, || path.to_string())?;
        let mut messages = Vec::with_capacity(list.len());
        for (position, message) in list.iter().enumerate() {
            messages.push(Self::read(message, &path.at(position))?);
        }
        Ok(messages)
    }

    fn read(message: Tree<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let members = read::object(message, || path.to_string())?;
        let needed = |name| read::needed_text(&members, name, || path.to_string());
        let role = match needed("role")? {
            "system" => ChatRole::System,
            "developer" => ChatRole::Developer,
            "user" => ChatRole::User,
            "assistant" => ChatRole::Assistant,
            "tool" => ChatRole::Tool(needed("tool_call_id")?.into()),
            "function" => ChatRole::Function,
            role => ChatRole::Unknown(role),
        };
        let content = read::member(&members, "content");
        let content =
            content.map(|content| ChatContent::read(content, &path.member("content"))).transpose()?;
        let message = Self {
            role,
            content,
            name: read::member_text(&members, "name"),
            cache: CacheMark::of(&members),
            ..Self::default()
        };
        if message.role == ChatRole::Assistant { message.with_assistant(&members, path) } else { Ok(message) }
    }

    /// Adds the members of an assistant's message.
    fn with_assistant(self, members: &Object<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let text = |name| read::member_text(members, name).map(Cow::Borrowed);
        let call = read::member(members, "function_call");
        let call = call.map(|call| RequestCall::legacy(call, &path.member("function_call"))).transpose()?;
        let lists = ["thinking_blocks", "content"].into_iter();
        let lists = lists.filter_map(|name| read::member(members, name)?.as_array());
        Ok(Self {
            refusal: text("refusal"),
            reasoning: text("reasoning_content"),
            calls: RequestCall::all(members, &path.member("tool_calls"))?,
            function_call: call,
            thoughts: signed_thoughts(lists.flat_map(|list| list.iter().collect::<Vec<_>>())),
            signature: thought_signature(members).map(Cow::Borrowed),
            images: answer_images(members),
            refers_to_audio: read::member(members, "audio").is_some(),
            ..self
        })
    }

    /// Calls `each` with every part of the content and the part's path; `path` is that of the message.
    pub(crate) fn each_part<'m>(
        &'m self,
        path: &MemberPath<'_>,
        mut each: impl FnMut(&'m ChatPart<'t, 'i>, &MemberPath<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let Some(content) = &self.content else { return Ok(()) };
        let path = path.member("content");
        for (position, part) in content.parts.iter().enumerate() {
            let at = path.at(position);
            each(part, if content.is_text { &path } else { &at })?;
        }
        Ok(())
    }

    /// Calls `each` with every part and its text. Rejects parts that are not text.
    pub(crate) fn each_text<'m>(
        &'m self,
        path: &MemberPath<'_>,
        mut each: impl FnMut(&'m str, &'m ChatPart<'t, 'i>),
    ) -> Result<(), Rejection> {
        self.each_part(path, |part, path| {
            each(part.text().ok_or_else(|| path.refuse("must be text."))?, part);
            Ok(())
        })
    }

    /// Calls `each` with every call and its path; `path` is that of the message.
    pub(crate) fn each_call<'m>(
        &'m self,
        path: &MemberPath<'_>,
        mut each: impl FnMut(&'m RequestCall<'t, 'i>, &MemberPath<'_>) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        if let Some(call) = &self.function_call {
            each(call, &path.member("function_call"))?;
        }
        let path = path.member("tool_calls");
        self.calls.iter().enumerate().try_for_each(|(position, call)| each(call, &path.at(position)))
    }

    /// True if the message has nothing but images of an earlier answer.
    pub(crate) fn has_only_images(&self) -> bool {
        let is_empty = self.content.is_none() && self.refusal.is_none() && self.reasoning.is_none();
        is_empty && !self.has_calls() && self.thoughts.is_empty() && !self.images.is_empty()
    }

    /// True if the message has calls.
    pub(crate) fn has_calls(&self) -> bool {
        self.function_call.is_some() || !self.calls.is_empty()
    }
}

impl<'t, 'i> RequestCall<'t, 'i> {
    /// Returns the call of a function.
    fn function(
        id: Option<Cow<'i, str>>,
        function: Tree<'t, 'i>,
        path: &MemberPath<'_>,
    ) -> Result<Self, Rejection> {
        let function = read::object(function, || path.to_string())?;
        let name = read::needed_text(&function, "name", || path.to_string())?;
        let input = CallInput::of(read::member(&function, "arguments"));
        let (kind, name) = (ToolKind::Function, name.into());
        Ok(Self { id, kind, name, input, signature: None, reasoning: None, cache: None })
    }

    fn legacy(call: Tree<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        Self::function(None, call, path)
    }

    fn all(message: &Object<'t, 'i>, path: &MemberPath<'_>) -> Result<Vec<Self>, Rejection> {
        let Some(list) = read::member(message, "tool_calls") else { return Ok(Vec::new()) };
        let list = read::array(list, || path.to_string())?;
        list.iter().enumerate().map(|(position, call)| Self::read(call, &path.at(position))).collect()
    }

    fn read(call: Tree<'t, 'i>, path: &MemberPath<'_>) -> Result<Self, Rejection> {
        let members = read::object(call, || path.to_string())?;
        let id = read::needed_text(&members, "id", || path.to_string())?.into();
        let kind = ToolKind::read(&members, path)?;
        let member = kind.name().unwrap_or("function");
        if kind == ToolKind::Unknown && read::member(&members, member).is_none() {
            return Ok(Self::unknown(id));
        }
        let path = path.member(member);
        let called = read::member(&members, member).ok_or_else(|| path.reject("is missing."))?;
        let call = match kind {
            ToolKind::Function | ToolKind::Unknown => {
                Self { kind, ..Self::function(Some(id), called, &path)? }
            }
            ToolKind::Custom => {
                let called = read::object(called, || path.to_string())?;
                let name = read::needed_text(&called, "name", || path.to_string())?.into();
                let input = CallInput::of(read::member(&called, "input"));
                Self { id: Some(id), kind, name, input, signature: None, reasoning: None, cache: None }
            }
        };
        let signature = thought_signature(&members).map(Cow::Borrowed);
        Ok(Self { signature, cache: CacheMark::of(&members), ..call })
    }

    fn unknown(id: Cow<'i, str>) -> Self {
        let (kind, name, input) = (ToolKind::Unknown, Cow::Borrowed(""), CallInput::Absent);
        Self { id: Some(id), kind, name, input, signature: None, reasoning: None, cache: None }
    }
}

impl<'t, 'i> CallInput<'t, 'i> {
    fn of(value: Option<Tree<'t, 'i>>) -> Self {
        let Some(value) = value else { return Self::Absent };
        match read::as_text(value) {
            Some(text) => Self::Text(text),
            None if value.is_object() => Self::Object(value),
            None => Self::Malformed,
        }
    }

    /// Returns the arguments as JSON, for a target that accepts only an object: `{}` if they are empty, `None` if they
    /// are not an object.
    pub(crate) fn object(self) -> Option<Cow<'i, str>> {
        let text = match self {
            Self::Absent => return Some("{}".into()),
            Self::FreeText(text) => return Some(free_text::arguments(text).into()),
            Self::Object(value) => return Some(written(value).into()),
            Self::Text(text) => text.trim_matches([' ', '\t', '\n', '\r']),
            Self::Malformed => return None,
        };
        if text.is_empty() {
            return Some("{}".into());
        }
        is_object(text).then(|| json::without_surrogates(text))
    }

    /// Returns the text, or an object as text. `None` if it is neither.
    pub(crate) fn text(self) -> Option<Cow<'i, str>> {
        match self {
            Self::Text(text) => Some(text.into()),
            Self::FreeText(text) => Some(free_text::arguments(text).into()),
            Self::Object(value) => Some(written(value).into()),
            Self::Absent | Self::Malformed => None,
        }
    }
}

/// Returns the images of an earlier answer: `images`, a list of `image_url` parts.
fn answer_images<'i>(members: &Object<'_, 'i>) -> Vec<MediaUrl<'i>> {
    let list = read::member(members, "images").and_then(|list| list.as_array());
    let url = |image: Tree<'_, 'i>| {
        let image = read::member(&image.as_object()?, "image_url")?.as_object()?;
        read::member_text(&image, "url").map(MediaUrl::Url)
    };
    list.iter().flatten().filter_map(url).collect()
}

/// True if `text` is a JSON object.
fn is_object(text: &str) -> bool {
    if text.contains("\\u") {
        // Only the parser finds invalid escapes.
        return json::parse(&mut text.as_bytes().to_vec()).is_ok();
    }
    text.starts_with('{') && serde_json::from_str::<&RawValue>(text).is_ok()
}

fn written(value: Tree<'_, '_>) -> String {
    let mut out = Vec::new();
    json::write(value, &mut out);
    // The JSON writer produces valid UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// Returns `extra_content.google.thought_signature`, or the same member under `vertex`.
fn thought_signature<'i>(members: &Object<'_, 'i>) -> Option<&'i str> {
    let extra = read::member(members, "extra_content")?.as_object()?;
    ["google", "vertex"].into_iter().find_map(|vendor| {
        let vendor = read::member(&extra, vendor)?.as_object()?;
        read::member_text(&vendor, "thought_signature").filter(|signature| !signature.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_json_object_or_rejected() {
        let rows = [
            ("", Some("{}")),
            (" \n", Some("{}")),
            (" {\"a\": 1e3} ", Some("{\"a\": 1e3}")),
            ("[1]", None),
            ("\"x\"", None),
            ("{\"a\":", None),
            ("null", None),
            (r#"{"a":"\u00fc\n"}"#, Some(r#"{"a":"\u00fc\n"}"#)),
            (r#"{"a":"\ud800"}"#, Some(r#"{"a":"\ufffd"}"#)),
            (r#"{"a":"\x"}"#, None),
            ("{} x", None),
        ];
        for (text, want) in rows {
            assert_eq!(CallInput::Text(text).object().as_deref(), want, "{text:?}");
        }
    }
}
