//! Reads the messages of a chat request.

use simd_json::tape::Object;

use super::part::{CacheMark, ChatPart};
use crate::adapt::{Loss, Rejection, loss, read};
use crate::json::{self, Tree};

/// One message of the request.
pub(in crate::adapt) struct ChatMessage<'t, 'i> {
    /// The path of the message in the request, for rejections.
    pub(in crate::adapt) path: String,
    pub(in crate::adapt) role: &'i str,
    pub(in crate::adapt) members: Object<'t, 'i>,
}

/// A call in an assistant message.
pub(in crate::adapt) struct AssistantCall<'t, 'i> {
    /// `None` for a legacy `function_call`, which has no id.
    pub(in crate::adapt) id: Option<&'i str>,
    pub(in crate::adapt) name: &'i str,
    /// A JSON object as text.
    pub(in crate::adapt) arguments: &'i str,
    /// The whole call.
    whole: Tree<'t, 'i>,
}

/// Reads the messages of `request`.
pub(in crate::adapt) fn messages<'t, 'i>(
    request: &Object<'t, 'i>,
) -> Result<Vec<ChatMessage<'t, 'i>>, Rejection> {
    let list =
        read::member(request, "messages").ok_or_else(|| Rejection::malformed("messages", "is missing."))?;
    let list = read::array(list, || "messages".to_owned())?;
    let mut messages = Vec::with_capacity(list.len());
    for (position, message) in list.iter().enumerate() {
        let path = format!("messages.{position}");
        let members = read::object(message, || path.clone())?;
        let role = read::needed_text(&members, "role", || path.clone())?;
        messages.push(ChatMessage { path, role, members });
    }
    Ok(messages)
}

impl<'t, 'i> ChatMessage<'t, 'i> {
    pub(in crate::adapt) fn parts(&self) -> Result<Vec<ChatPart<'t, 'i>>, Rejection> {
        ChatPart::all(&self.members, format!("{}.content", self.path))
    }

    /// Returns the parts of a message whose content may only be text, with their texts.
    pub(in crate::adapt) fn text_parts(&self) -> Result<Vec<(&'i str, ChatPart<'t, 'i>)>, Rejection> {
        let only_text = |part: ChatPart<'t, 'i>| match part.text {
            Some(text) => Ok((text, part)),
            None => Err(Rejection::new(&*part.path, "must be text.")),
        };
        self.parts()?.into_iter().map(only_text).collect()
    }

    /// Returns the text of all parts, joined with newlines.
    pub(in crate::adapt) fn text(&self) -> Result<String, Rejection> {
        let parts = self.text_parts()?;
        Ok(parts.iter().map(|(text, _)| *text).collect::<Vec<_>>().join("\n"))
    }

    /// Returns the string member `name`, if present.
    pub(in crate::adapt) fn word(&self, name: &str) -> Option<&'i str> {
        read::member_text(&self.members, name)
    }

    pub(in crate::adapt) fn needed_text(&self, name: &str) -> Result<&'i str, Rejection> {
        read::needed_text(&self.members, name, || self.path.clone())
    }

    /// Returns the message's `cache_control`, if present: the prompt is to be cached up to here.
    pub(in crate::adapt) fn cache_mark(&self) -> Option<CacheMark<'i>> {
        CacheMark::of(&self.members)
    }

    /// Returns Gemini's signature of the thoughts that precede the message's text.
    pub(in crate::adapt) fn signature(&self) -> Option<&'i str> {
        thought_signature(&self.members)
    }

    /// Returns the message's calls. `losses` contains the reason for rejecting a call of a custom (free-text) tool.
    pub(in crate::adapt) fn calls(
        &self,
        losses: &'static [Loss],
    ) -> Result<Vec<AssistantCall<'t, 'i>>, Rejection> {
        let mut calls = Vec::new();
        if let Some(list) = read::member(&self.members, "tool_calls") {
            let at = format!("{}.tool_calls", self.path);
            for (position, call) in read::array(list, || at.clone())?.iter().enumerate() {
                let path = format!("{at}.{position}");
                calls.push(tool_call(call, path, losses)?);
            }
        }
        if let Some(call) = read::member(&self.members, "function_call") {
            let path = format!("{}.function_call", self.path);
            calls.push(asked(None, call, call, &path)?);
        }
        Ok(calls)
    }
}

fn tool_call<'t, 'i>(
    whole: Tree<'t, 'i>,
    path: String,
    losses: &'static [Loss],
) -> Result<AssistantCall<'t, 'i>, Rejection> {
    let call = read::object(whole, || path.clone())?;
    if read::member_text(&call, "type") == Some("custom") {
        return Err(loss::refuse(losses, CUSTOM_CALL, path));
    }
    let id = read::needed_text(&call, "id", || path.clone())?;
    let at = format!("{path}.function");
    let function =
        read::member(&call, "function").ok_or_else(|| Rejection::malformed(&*at, "is missing."))?;
    asked(Some(id), whole, function, &at)
}

fn asked<'t, 'i>(
    id: Option<&'i str>,
    whole: Tree<'t, 'i>,
    function: Tree<'t, 'i>,
    path: &str,
) -> Result<AssistantCall<'t, 'i>, Rejection> {
    let function = read::object(function, || path.to_owned())?;
    let name = read::needed_text(&function, "name", || path.to_owned())?;
    let text = read::member(&function, "arguments").map_or(Some(""), read::as_text);
    let Some(arguments) = text.and_then(arguments) else {
        let why = "must be a string with a JSON object: the target accepts nothing else.";
        return Err(Rejection::new(format!("{path}.arguments"), why));
    };
    Ok(AssistantCall { id, name, arguments, whole })
}

impl<'i> AssistantCall<'_, 'i> {
    /// Returns Gemini's signature of the thoughts that precede the call.
    pub(in crate::adapt) fn signature(&self) -> Option<&'i str> {
        thought_signature(&self.whole.as_object()?)
    }
}

/// Returns `extra_content.google.thought_signature`, or the same member under `vertex`.
fn thought_signature<'i>(members: &Object<'_, 'i>) -> Option<&'i str> {
    let extra = read::member(members, "extra_content")?.as_object()?;
    ["google", "vertex"].into_iter().find_map(|vendor| {
        let vendor = read::member(&extra, vendor)?.as_object()?;
        read::member_text(&vendor, "thought_signature").filter(|signature| !signature.is_empty())
    })
}

/// The row for a call of a custom (free-text) tool, in the loss table of every chat adaptation.
const CUSTOM_CALL: &str = "messages.*.tool_calls.*[custom]";

/// Returns the arguments of a call, which must be a JSON object: `{}` if they are empty, `None` if they are not an
/// object.
fn arguments(text: &str) -> Option<&str> {
    let text = text.trim_matches([' ', '\t', '\n', '\r']);
    if text.is_empty() {
        return Some("{}");
    }
    json::parse(&mut text.as_bytes().to_vec()).is_ok().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_or_none() {
        let rows = [
            ("", Some("{}")),
            (" \n", Some("{}")),
            (" {\"a\": 1e3} ", Some("{\"a\": 1e3}")),
            ("[1]", None),
            ("\"x\"", None),
            ("{\"a\":", None),
            ("null", None),
        ];
        for (text, want) in rows {
            assert_eq!(arguments(text), want, "{text:?}");
        }
    }
}
