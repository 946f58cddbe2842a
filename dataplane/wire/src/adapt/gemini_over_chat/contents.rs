//! Translates system text and contents. Calls without an ID get one, the same for the same request, and results without one
//! belong to the oldest open call of their name.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use simd_json::prelude::ValueAsScalar as _;

use super::losses::{refuse, refuse_part};
use super::request::{ChatBuilder, list};
use super::signature;
use crate::adapt::Rejection;
use crate::adapt::call_id::fitting;
use crate::adapt::path::MemberPath;
use crate::adapt::read::{self, Object, member, member_text};
use crate::adapt::tool_output::tool_output;
use crate::chat::request::{
    CallInput, ChatContent, ChatFile, ChatPart, ChatRole, MediaUrl, PartBody, RequestCall, SignedThought,
    ToolKind, append, joined,
};
use crate::json::{self, Tree};

/// Adds the system text.
pub(super) fn system<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    request: &Object<'t, 'i>,
) -> Result<(), Rejection> {
    let path = MemberPath::top("systemInstruction");
    let Some(system) = member(request, "systemInstruction") else { return Ok(()) };
    let system = read::object(system, || path.to_string())?;
    let at = path.member("parts");
    let mut texts = Vec::new();
    for (position, part) in list(&system, "parts", &at)?.into_iter().enumerate() {
        let text = part.as_object().and_then(|part| member_text(&part, "text"));
        texts.push(Cow::Borrowed(text.ok_or_else(|| at.at(position).refuse("must be text."))?));
    }
    texts.retain(|text| !text.is_empty());
    if !texts.is_empty() {
        let mut message = builder.message(ChatRole::System, &path);
        message.content = Some(ChatContent::text(joined(texts, "\n\n")));
        builder.request.messages.push(message);
    }
    Ok(())
}

/// Adds the messages.
pub(super) fn contents<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    request: &Object<'t, 'i>,
) -> Result<(), Rejection> {
    let path = MemberPath::top("contents");
    let contents = list(request, "contents", &path)?;
    if contents.is_empty() {
        return Err(path.reject("must be an array with at least one content."));
    }
    let mut calls = OpenCalls::of(&contents);
    let last = contents.len().saturating_sub(1);
    for (position, content) in contents.into_iter().enumerate() {
        let at = path.at(position);
        let content = read::object(content, || at.to_string())?;
        let parts = list(&content, "parts", &at.member("parts"))?;
        match member_text(&content, "role").unwrap_or("user") {
            "model" if position == last => return Err(refuse("contents.*.role=model", at.to_string())),
            "model" => model(builder, &parts, &mut calls, &at)?,
            "user" | "function" => user(builder, &parts, &mut calls, &at)?,
            _ => return Err(at.member("role").reject("must be 'user' or 'model'.")),
        }
    }
    Ok(())
}

/// The calls that have no result yet, and the IDs of those without one.
struct OpenCalls<'i> {
    /// The IDs that the client gave.
    given: HashSet<&'i str>,
    open: Vec<(Cow<'i, str>, &'i str)>,
    next: usize,
}

impl<'i> OpenCalls<'i> {
    fn of(contents: &[Tree<'_, 'i>]) -> Self {
        let parts = contents.iter().filter_map(|content| member(&content.as_object()?, "parts")?.as_array());
        let id = |part: Tree<'_, 'i>| {
            let call = member(&part.as_object()?, "functionCall")?.as_object()?;
            member_text(&call, "id")
        };
        let given = parts.flat_map(|parts| parts.iter().filter_map(id).collect::<Vec<_>>()).collect();
        Self { given, open: Vec::new(), next: 0 }
    }

    /// Opens a call and returns its ID.
    fn open(&mut self, id: Option<&'i str>, name: &'i str) -> Cow<'i, str> {
        let made = loop {
            let made = format!("call_{}", self.next);
            self.next = self.next.saturating_add(1);
            if !self.given.contains(made.as_str()) {
                break made;
            }
        };
        let id = id.map_or(Cow::Owned(made), Cow::Borrowed);
        self.open.push((id.clone(), name));
        id
    }

    /// Closes the call that a result belongs to, and returns its ID.
    fn close(&mut self, id: Option<&str>, name: &str) -> Option<Cow<'i, str>> {
        let fits = |(open, called): &(Cow<'_, str>, &str)| id.map_or(*called == name, |id| open == id);
        let at = self.open.iter().position(fits)?;
        Some(self.open.remove(at).0)
    }
}

/// Adds the message of a model's content.
fn model<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    parts: &[Tree<'t, 'i>],
    calls: &mut OpenCalls<'i>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let mut message = builder.message(ChatRole::Assistant, path);
    let (mut text, mut reasoning, mut pending) = (Cow::Borrowed(""), Cow::Borrowed(""), Cow::Borrowed(""));
    let path = path.member("parts");
    for (position, part) in parts.iter().enumerate() {
        let at = path.at(position);
        let part = read::object(*part, || at.to_string())?;
        let own = member_text(&part, "thoughtSignature").filter(|_| builder.target.takes_signatures());
        if let Some(call) = member(&part, "functionCall") {
            let at = at.member("functionCall");
            let call = read::object(call, || at.to_string())?;
            let name = read::needed_text(&call, "name", || at.to_string())?;
            let id = calls.open(member_text(&call, "id"), name);
            builder.trail.call(&at);
            message.calls.push(RequestCall {
                id: Some(fitted(builder, id)),
                kind: ToolKind::Function,
                name: builder.names.fit(name),
                input: member(&call, "args").map_or(CallInput::Absent, CallInput::Object),
                signature: own.map(Cow::Borrowed),
                reasoning: member_text(&part, signature::ENCRYPTED),
                cache: None,
            });
        } else if let Some(words) = member_text(&part, "text") {
            if is_thought(&part) {
                append(&mut reasoning, words);
                append(&mut pending, words);
            } else {
                append(&mut text, words);
                message.signature = own.map(Cow::Borrowed).or(message.signature);
            }
        } else if let Some(image) = image_of(&part) {
            message.images.push(image);
        } else if let Some(other) = output_of(&part) {
            return Err(refuse_part(other, &at));
        }
        if let Some(signature) = member_text(&part, signature::CLAUDE) {
            let thinking = std::mem::take(&mut pending);
            message.thoughts.push(SignedThought::Thinking { thinking, signature: signature.into() });
        } else if let Some(data) = member_text(&part, signature::REDACTED) {
            message.thoughts.push(SignedThought::Redacted { data: data.into() });
        }
    }
    message.reasoning = Some(reasoning).filter(|reasoning| !reasoning.is_empty());
    if !builder.target.extended_chat {
        message.thoughts.clear();
    }
    message.content = Some(text).filter(|text| !text.is_empty()).map(ChatContent::text);
    if message.content.is_some() || message.has_calls() || !message.images.is_empty() {
        builder.request.messages.push(message);
    } else {
        builder.trail.unsay();
    }
    Ok(())
}

fn fitted<'i>(builder: &ChatBuilder<'_, 'i>, id: Cow<'i, str>) -> Cow<'i, str> {
    match id {
        Cow::Borrowed(id) => fitting(builder.target.tool_ids, id, "call_"),
        Cow::Owned(id) => Cow::Owned(fitting(builder.target.tool_ids, &id, "call_").into_owned()),
    }
}

fn is_thought(part: &Object<'_, '_>) -> bool {
    member(part, "thought").and_then(|thought| thought.as_bool()) == Some(true)
}

/// Returns the image of an earlier answer.
fn image_of<'i>(part: &Object<'_, 'i>) -> Option<MediaUrl<'i>> {
    let data = member(part, "inlineData")?.as_object()?;
    let media_type = member_text(&data, "mimeType").filter(|kind| kind.starts_with("image/"))?;
    Some(MediaUrl::Inline { media_type, base64: member_text(&data, "data")? })
}

/// Returns the member of a part that holds content which is neither text nor a call.
fn output_of<'i>(part: &Object<'_, 'i>) -> Option<&'i str> {
    read::members(part).map(|(name, _)| name).find(|name| !NOTES.contains(name))
}

/// The members of a part that describe another one.
const NOTES: [&str; 15] = [
    "text",
    "thought",
    "thoughtSignature",
    signature::CLAUDE,
    signature::REDACTED,
    signature::ENCRYPTED,
    "videoMetadata",
    "mediaResolution",
    "mediaProcessing",
    "partMetadata",
    "speechMetadata",
    "documentMetadata",
    "spreadsheetMetadata",
    "audioMetadata",
    "metadata",
];

/// Adds the messages of a user's content: results of tools, and then everything else.
fn user<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    parts: &[Tree<'t, 'i>],
    calls: &mut OpenCalls<'i>,
    path: &MemberPath<'_>,
) -> Result<(), Rejection> {
    let mut said = Vec::new();
    let below = path.member("parts");
    for (position, part) in parts.iter().enumerate() {
        let at = below.at(position);
        let part = read::object(*part, || at.to_string())?;
        if let Some(result) = member(&part, "functionResponse") {
            let lifted = result_message(builder, result, calls, &at.member("functionResponse"))?;
            said.extend(lifted.into_iter().map(|part| (position, part)));
        } else if let Some(text) = member_text(&part, "text") {
            let text = (!text.is_empty()).then(|| PartBody::Text(text.into()));
            said.extend(text.map(|text| (position, text)));
        } else if let Some(part) = media(builder, &part, &at)? {
            said.push((position, part));
        }
    }
    if said.is_empty() {
        return Ok(());
    }
    let mut message = builder.message(ChatRole::User, path);
    let is_text = matches!(said.as_slice(), [(_, PartBody::Text(_))]);
    if !is_text {
        said.iter().for_each(|(position, _)| builder.trail.part(&below.at(*position)));
    }
    let parts = said.into_iter().map(|(_, part)| ChatPart::from(part)).collect();
    message.content = Some(ChatContent { parts, is_text });
    builder.request.messages.push(message);
    Ok(())
}

/// Adds the message of a tool's result. Returns its media for the user message that follows.
fn result_message<'t, 'i>(
    builder: &mut ChatBuilder<'t, 'i>,
    result: Tree<'t, 'i>,
    calls: &mut OpenCalls<'i>,
    path: &MemberPath<'_>,
) -> Result<Vec<PartBody<'i>>, Rejection> {
    let result = read::object(result, || path.to_string())?;
    let (id, name) = (member_text(&result, "id"), member_text(&result, "name").unwrap_or_default());
    let call = calls.close(id, name).ok_or_else(|| {
        let member = if id.is_some() { "id" } else { "name" };
        path.member(member).reject("must be that of a preceding functionCall without a result.")
    })?;
    let id = fitted(builder, call);
    let text = member(&result, "response").map(result_text).unwrap_or_default();
    let below = path.member("parts");
    let mut parts = Vec::new();
    for (position, part) in list(&result, "parts", &below)?.into_iter().enumerate() {
        let at = below.at(position);
        let part = read::object(part, || at.to_string())?;
        let image = media(builder, &part, &at)?;
        let image = image.filter(|part| matches!(part, PartBody::Image { .. }) && builder.target.images);
        let why = || refuse("contents.*.parts.*.functionResponse.parts", at.to_string());
        parts.push(image.ok_or_else(why)?);
    }
    if !text.is_empty() || parts.is_empty() {
        parts.insert(0, PartBody::Text(text));
    }
    let (content, lifted) = tool_output(parts, builder.target);
    let mut message = builder.message(ChatRole::Tool(id), path);
    message.content = Some(content);
    builder.request.messages.push(message);
    Ok(lifted)
}

/// Returns the text of a result: that of its only member, or all of it as JSON.
fn result_text<'i>(response: Tree<'_, 'i>) -> Cow<'i, str> {
    let members = response.as_object();
    let mut members = members.iter().flat_map(|members| members.iter().collect::<Vec<_>>());
    if let (Some(("output" | "result", value)), None) = (members.next(), members.next())
        && let Some(text) = read::as_text(value)
    {
        return text.into();
    }
    let mut out = Vec::new();
    json::write(response, &mut out);
    String::from_utf8(out).unwrap_or_default().into()
}

/// Returns the media of a part. `None` if it has no content.
fn media<'i>(
    builder: &ChatBuilder<'_, 'i>,
    part: &Object<'_, 'i>,
    path: &MemberPath<'_>,
) -> Result<Option<PartBody<'i>>, Rejection> {
    if let Some(data) = member(part, "inlineData") {
        let path = path.member("inlineData");
        return inline(builder, &read::object(data, || path.to_string())?, &path).map(Some);
    }
    if let Some(file) = member(part, "fileData") {
        let path = path.member("fileData");
        let file = read::object(file, || path.to_string())?;
        let text = |name| member_text(&file, name).unwrap_or_default();
        let (uri, kind) = (text("fileUri"), text("mimeType"));
        let is_stored = !uri.starts_with("https://") || uri.contains("/files/");
        if is_stored || !kind.starts_with("image/") {
            return Err(refuse("contents.*.parts.*.fileData", path.to_string()));
        }
        return Ok(Some(PartBody::Image { url: Some(MediaUrl::Url(uri)), detail: None }));
    }
    match output_of(part) {
        Some(other) => Err(refuse_part(other, path)),
        None => Ok(None),
    }
}

fn inline<'i>(
    builder: &ChatBuilder<'_, 'i>,
    data: &Object<'_, 'i>,
    path: &MemberPath<'_>,
) -> Result<PartBody<'i>, Rejection> {
    let text = |name| member_text(data, name).unwrap_or_default();
    let (media_type, base64) = (text("mimeType"), text("data"));
    let url = MediaUrl::Inline { media_type, base64 };
    let kind = media_type.split('/').next().unwrap_or_default();
    Ok(match (kind, media_type) {
        ("image", _) => PartBody::Image { url: Some(url), detail: None },
        ("video", _) => PartBody::Video(Some(url)),
        (_, "audio/wav" | "audio/x-wav" | "audio/wave") => {
            PartBody::Audio { format: Some("wav"), base64: Some(base64) }
        }
        (_, "audio/mp3" | "audio/mpeg") => PartBody::Audio { format: Some("mp3"), base64: Some(base64) },
        (_, "application/pdf") if builder.target.files => {
            let name = member_text(data, "displayName").unwrap_or("document.pdf");
            PartBody::File(Some(ChatFile { id: None, name: Some(name), data: Some(url) }))
        }
        ("text", _) | (_, "application/json") => {
            let decoded = STANDARD.decode(base64.as_bytes()).ok();
            let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            PartBody::Text(text.ok_or_else(|| path.member("data").reject("must be UTF-8."))?.into())
        }
        _ => return Err(refuse(MIME_TYPE, path.member("mimeType").to_string())),
    })
}

const MIME_TYPE: &str = "contents.*.parts.*.inlineData.mimeType";
