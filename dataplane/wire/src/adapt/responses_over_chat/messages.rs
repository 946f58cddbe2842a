//! Translates the items of a Responses request into chat messages.

use super::losses::refuse;
use crate::adapt::call_id::fitting;
use crate::adapt::read::{self, Object, as_text, member, member_text};
use crate::adapt::signature_in_call_id;
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{ObjectWriter, comma, string};
use crate::adapt::{Rejection, Traits};
use crate::json::{self, Tree};

/// Writes the messages.
#[derive(Debug)]
pub(super) struct Messages<'a, 'i> {
    target: &'a Traits<'a>,
    out: &'a mut Vec<u8>,
    names: &'a mut ToolNames,
    /// The open assistant message, which further items may extend.
    turn: Option<AssistantTurn<'i>>,
    /// The item from which each message was made; `None` for the instructions.
    sources: Vec<Option<usize>>,
}

/// Consecutive text and calls of an assistant. Chat requires results of calls right after the message with the calls,
/// so text after the calls joins that message.
#[derive(Debug, Default)]
struct AssistantTurn<'i> {
    item: usize,
    text: Option<String>,
    refusal: String,
    calls: Vec<InputCall<'i>>,
}

#[derive(Debug)]
struct InputCall<'i> {
    id: &'i str,
    name: &'i str,
    /// `function` or `custom`, and the name of its input member.
    kind: (&'static str, &'static str),
    input: &'i str,
}

const FUNCTION: (&str, &str) = ("function", "arguments");
const CUSTOM: (&str, &str) = ("custom", "input");

/// Writes the messages of `request`.
pub(super) fn write<'i>(request: &Object<'_, 'i>, messages: &mut Messages<'_, 'i>) -> Result<(), Rejection> {
    messages.out.push(b'[');
    if let Some(instructions) = member(request, "instructions") {
        let text = read::text(instructions, || "instructions".to_owned())?;
        if !text.is_empty() {
            messages.begin(None);
            messages.simple(messages.system(), text);
        }
    }
    match member(request, "input") {
        Some(input) if as_text(input).is_some() => {
            messages.begin(Some(0));
            messages.simple("user", as_text(input).unwrap_or_default());
        }
        Some(input) => {
            let items = input.as_array();
            let items =
                items.ok_or_else(|| Rejection::malformed("input", "must be a string or an array."))?;
            for (position, item) in items.iter().enumerate() {
                messages.item(position, &read::object(item, || format!("input.{position}"))?)?;
            }
        }
        None => return Err(Rejection::malformed("input", "is missing.")),
    }
    messages.end_turn();
    messages.out.push(b']');
    Ok(())
}

/// Returns the member of the client's request from which the value at `rest` below `messages` was made.
pub(super) fn origin(request: &Object<'_, '_>, target: &Traits<'_>, rest: &str) -> Option<String> {
    let (mut written, mut names) = (Vec::new(), ToolNames::default());
    let mut messages = Messages::new(target, &mut names, &mut written);
    write(request, &mut messages).ok()?;
    let (index, rest) = rest.split_once('.').unwrap_or((rest, ""));
    let Some(item) = *messages.sources.get(index.parse::<usize>().ok()?)? else {
        return Some("instructions".to_owned());
    };
    let item =
        if member_text(request, "input").is_some() { "input".to_owned() } else { format!("input.{item}") };
    let part = rest.strip_prefix("content.").filter(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    Some(match part {
        Some(part) => format!("{item}.content.{}", part.split('.').next().unwrap_or_default()),
        None => item,
    })
}

impl<'a, 'i> Messages<'a, 'i> {
    /// Creates a writer without messages that writes to `out`.
    pub(super) fn new(target: &'a Traits<'a>, names: &'a mut ToolNames, out: &'a mut Vec<u8>) -> Self {
        Self { target, out, names, turn: None, sources: Vec::new() }
    }

    fn system(&self) -> &'static str {
        if self.target.developer_role { "developer" } else { "system" }
    }

    /// Begins a message that is made from this item.
    fn begin(&mut self, item: Option<usize>) {
        comma(self.out);
        self.sources.push(item);
    }

    fn simple(&mut self, role: &str, text: &str) {
        let mut message = ObjectWriter::open(self.out);
        message.text("role", role);
        message.text("content", text);
        message.close();
    }

    fn item(&mut self, position: usize, item: &Object<'_, 'i>) -> Result<(), Rejection> {
        let path = || format!("input.{position}");
        let kind = member(item, "type").map(|kind| read::text(kind, || format!("input.{position}.type")));
        let implied = if member(item, "role").is_some() { "message" } else { "item_reference" };
        match kind.transpose()?.unwrap_or(implied) {
            "message" => self.message(position, item),
            "function_call" => {
                if member(item, "namespace").is_some() {
                    let param = format!("input.{position}.namespace");
                    return Err(refuse("input.*[function_call].namespace", param));
                }
                self.call(position, FUNCTION, item)
            }
            "function_call_output" => self.output(position, item),
            "custom_tool_call" if self.target.custom_tools => self.call(position, CUSTOM, item),
            "custom_tool_call_output" if self.target.custom_tools => self.output(position, item),
            "reasoning" => match member(item, "encrypted_content") {
                Some(content) if !read::is_empty(content) => {
                    let param = format!("input.{position}.encrypted_content");
                    Err(refuse("input.*[reasoning].encrypted_content", param))
                }
                Some(_) | None => Ok(()),
            },
            "item_reference" => Err(refuse("input.*[item_reference]", path() + ".type")),
            _ => Err(refuse("input.*.type", path() + ".type")),
        }
    }

    fn message(&mut self, position: usize, item: &Object<'_, 'i>) -> Result<(), Rejection> {
        let path = || format!("input.{position}");
        let role = match read::needed_text(item, "role", path)? {
            "assistant" => return self.assistant(position, item),
            "system" | "developer" => self.system(),
            "user" => "user",
            _ => {
                let why = "must be 'user', 'assistant', 'system' or 'developer'.";
                return Err(Rejection::malformed(path() + ".role", why));
            }
        };
        let content = needed(item, "content", position)?;
        self.end_turn();
        self.begin(Some(position));
        if let Some(text) = as_text(content) {
            self.simple(role, text);
            return Ok(());
        }
        let mut message = ObjectWriter::open(self.out);
        message.text("role", role);
        let parts = read::array(content, || format!("input.{position}.content"))?;
        let mut texts = Vec::new();
        let mut written = vec![b'['];
        for (index, part) in parts.iter().enumerate() {
            let path = || format!("input.{position}.content.{index}");
            let part = read::object(part, path)?;
            if let Some(text) = write_part(&part, role, self.target, path, &mut written)? {
                texts.push(text);
            }
        }
        written.push(b']');
        if texts.len() == parts.len() {
            message.text("content", &texts.join("\n\n"));
        } else {
            message.key("content").append(&mut written);
        }
        message.close();
        Ok(())
    }

    fn assistant(&mut self, position: usize, item: &Object<'_, 'i>) -> Result<(), Rejection> {
        let content = needed(item, "content", position)?;
        let (mut text, mut refusal) = (None::<String>, String::new());
        if let Some(whole) = as_text(content) {
            text = Some(whole.to_owned());
        } else {
            let parts = read::array(content, || format!("input.{position}.content"))?;
            for (index, part) in parts.iter().enumerate() {
                let path = || format!("input.{position}.content.{index}");
                let part = read::object(part, path)?;
                match read::needed_text(&part, "type", path)? {
                    "output_text" | "input_text" => {
                        text.get_or_insert_default().push_str(read::needed_text(&part, "text", path)?);
                    }
                    "refusal" => refusal.push_str(read::needed_text(&part, "refusal", path)?),
                    _ => return Err(refuse("input.*.content.*.type", path())),
                }
            }
        }
        if self.turn.as_ref().is_some_and(|turn| turn.calls.is_empty()) {
            self.end_turn();
        }
        let turn =
            self.turn.get_or_insert_with(|| AssistantTurn { item: position, ..AssistantTurn::default() });
        match (&mut turn.text, text) {
            (Some(before), Some(text)) => before.extend(["\n\n", &text]),
            (before @ None, text) => *before = text,
            (Some(_), None) => {}
        }
        turn.refusal.push_str(&refusal);
        Ok(())
    }

    fn call(
        &mut self,
        position: usize,
        kind: (&'static str, &'static str),
        item: &Object<'_, 'i>,
    ) -> Result<(), Rejection> {
        let text = |name: &str| read::needed_text(item, name, || format!("input.{position}"));
        let call = InputCall { id: text("call_id")?, name: text("name")?, kind, input: text(kind.1)? };
        let turn =
            self.turn.get_or_insert_with(|| AssistantTurn { item: position, ..AssistantTurn::default() });
        turn.calls.push(call);
        Ok(())
    }

    fn output(&mut self, position: usize, item: &Object<'_, 'i>) -> Result<(), Rejection> {
        let id = read::needed_text(item, "call_id", || format!("input.{position}"))?;
        let output = needed(item, "output", position)?;
        self.end_turn();
        self.begin(Some(position));
        let mut message = ObjectWriter::open(self.out);
        message.raw("role", r#""tool""#);
        message
            .text("tool_call_id", &fitting(self.target.tool_ids, signature_in_call_id::split(id).0, "call_"));
        if let Some(text) = as_text(output) {
            message.text("content", text);
        } else {
            let parts = read::array(output, || format!("input.{position}.output"))?;
            let mut texts = Vec::with_capacity(parts.len());
            for (index, part) in parts.iter().enumerate() {
                let path = || format!("input.{position}.output.{index}");
                let part = read::object(part, path)?;
                match read::needed_text(&part, "type", path)? {
                    "input_text" => texts.push(read::needed_text(&part, "text", path)?),
                    _ => return Err(refuse("input.*[function_call_output].output.*.type", path())),
                }
            }
            message.text("content", &texts.join("\n"));
        }
        message.close();
        Ok(())
    }

    /// Writes the open assistant message, if there is one.
    fn end_turn(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if turn.text.is_none() && turn.refusal.is_empty() && turn.calls.is_empty() {
            return;
        }
        self.begin(Some(turn.item));
        let mut message = ObjectWriter::open(self.out);
        message.raw("role", r#""assistant""#);
        let beside = self.target.refusals && !turn.refusal.is_empty();
        let within = Some(turn.refusal.as_str()).filter(|refusal| !beside && !refusal.is_empty());
        let texts: Vec<&str> = turn.text.as_deref().into_iter().chain(within).collect();
        if texts.is_empty() {
            message.raw("content", "null");
        } else {
            message.text("content", &texts.join("\n\n"));
        }
        if beside {
            message.text("refusal", &turn.refusal);
        }
        if !turn.calls.is_empty() {
            let calls = message.key("tool_calls");
            calls.push(b'[');
            for call in &turn.calls {
                comma(calls);
                call.write(calls, self.target, self.names);
            }
            calls.push(b']');
        }
        message.close();
    }
}

impl InputCall<'_> {
    fn write(&self, out: &mut Vec<u8>, target: &Traits<'_>, names: &mut ToolNames) {
        let (kind, input) = self.kind;
        let (id, signature) = signature_in_call_id::split(self.id);
        let mut call = ObjectWriter::open(out);
        call.text("id", &fitting(target.tool_ids, id, "call_"));
        call.text("type", kind);
        let mut inner = ObjectWriter::open(call.key(kind));
        inner.text("name", &names.fit(self.name));
        inner.text(input, self.input);
        inner.close();
        if let Some(signature) = signature.filter(|_| target.takes_signatures()) {
            signature_in_call_id::write_extra(&signature, call.key("extra_content"));
        }
        call.close();
    }
}

fn needed<'t, 'i>(item: &Object<'t, 'i>, name: &str, position: usize) -> Result<Tree<'t, 'i>, Rejection> {
    member(item, name).ok_or_else(|| Rejection::malformed(format!("input.{position}.{name}"), "is missing."))
}

/// Writes one part of a message that is not the assistant's. Returns its text if it is a text part.
fn write_part<'i>(
    part: &Object<'_, 'i>,
    role: &str,
    target: &Traits<'_>,
    path: impl Fn() -> String,
    out: &mut Vec<u8>,
) -> Result<Option<&'i str>, Rejection> {
    comma(out);
    match read::needed_text(part, "type", &path)? {
        "input_text" => {
            let text = read::needed_text(part, "text", path)?;
            out.extend_from_slice(br#"{"type":"text","text":"#);
            string(out, text);
            out.push(b'}');
            return Ok(Some(text));
        }
        "input_image" if role == "user" => write_image(part, path, out)?,
        "input_file" if role == "user" => write_file(part, target, path, out)?,
        _ => return Err(refuse("input.*.content.*.type", path())),
    }
    Ok(None)
}

fn write_image(part: &Object<'_, '_>, path: impl Fn() -> String, out: &mut Vec<u8>) -> Result<(), Rejection> {
    let Some(url) = member(part, "image_url") else {
        return Err(refuse("input.*.content.*[input_image].file_id", path()));
    };
    let url = read::text(url, || path() + ".image_url")?;
    let mut image = ObjectWriter::open(out);
    image.raw("type", r#""image_url""#);
    let mut inner = ObjectWriter::open(image.key("image_url"));
    inner.text("url", url);
    if let Some(detail) = member_text(part, "detail") {
        inner.text("detail", if detail == "original" { "high" } else { detail });
    }
    inner.close();
    image.close();
    Ok(())
}

fn write_file(
    part: &Object<'_, '_>,
    target: &Traits<'_>,
    path: impl Fn() -> String,
    out: &mut Vec<u8>,
) -> Result<(), Rejection> {
    for name in ["file_id", "file_url"] {
        if member(part, name).is_some() {
            return Err(refuse(&format!("input.*.content.*[input_file].{name}"), path()));
        }
    }
    if !target.files {
        return Err(refuse("input.*.content.*.type", path()));
    }
    let data = read::needed_text(part, "file_data", path)?;
    let mut file = ObjectWriter::open(out);
    file.raw("type", r#""file""#);
    let mut inner = ObjectWriter::open(file.key("file"));
    match member(part, "filename") {
        Some(name) => json::write(name, inner.key("filename")),
        None => inner.raw("filename", r#""file""#),
    }
    inner.text("file_data", data);
    inner.close();
    file.close();
    Ok(())
}
