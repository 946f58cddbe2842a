//! Translates chat messages into input items.

use super::losses::refuse;
use super::request::kind;
use crate::adapt::Rejection;
use crate::adapt::call_id::call_id;
use crate::adapt::function_calls::FunctionCalls;
use crate::adapt::read::{self, Object, as_text, member, member_text};
use crate::adapt::tool_names::ToolNames;
use crate::adapt::write::{ObjectWriter, comma, string};
use crate::json::Tree;

/// Writes the messages of `request` as a list of items.
pub(super) fn write(
    request: &Object<'_, '_>,
    names: &mut ToolNames,
    out: &mut Vec<u8>,
) -> Result<(), Rejection> {
    let messages =
        member(request, "messages").ok_or_else(|| Rejection::malformed("messages", "is missing."))?;
    let mut items = Items { out, names, custom: Vec::new(), functions: FunctionCalls::default() };
    items.out.push(b'[');
    for (position, message) in read::array(messages, || "messages".to_owned())?.iter().enumerate() {
        items.message(position, &read::object(message, || format!("messages.{position}"))?)?;
    }
    items.out.push(b']');
    Ok(())
}

struct Items<'a, 'i> {
    out: &'a mut Vec<u8>,
    names: &'a mut ToolNames,
    /// Ids of custom (free-text) tool calls, whose results are items of another type.
    custom: Vec<&'i str>,
    /// The calls in the legacy form.
    functions: FunctionCalls<'i>,
}

impl<'i> Items<'_, 'i> {
    fn message(&mut self, position: usize, message: &Object<'_, 'i>) -> Result<(), Rejection> {
        let path = || format!("messages.{position}");
        match read::needed_text(message, "role", path)? {
            role @ ("system" | "developer" | "user") => self.role_message(position, role, message),
            "assistant" => self.assistant(position, message),
            "tool" => {
                let id = read::needed_text(message, "tool_call_id", || format!("messages.{position}"))?;
                self.result(position, message, id)
            }
            "function" => {
                let id = self.functions.answered(member_text(message, "name"), &path())?;
                self.result(position, message, &id)
            }
            _ => {
                let why = "must be 'system', 'developer', 'user', 'assistant', 'tool' or 'function'.";
                Err(Rejection::malformed(path() + ".role", why))
            }
        }
    }

    fn role_message(
        &mut self,
        position: usize,
        role: &str,
        message: &Object<'_, 'i>,
    ) -> Result<(), Rejection> {
        let content = needed(message, position)?;
        comma(self.out);
        let mut item = ObjectWriter::open(self.out);
        item.raw("type", r#""message""#);
        item.text("role", role);
        let out = item.key("content");
        out.push(b'[');
        if let Some(text) = as_text(content) {
            input_text(text, out);
        } else {
            write_parts(position, content, out)?;
        }
        out.push(b']');
        item.close();
        Ok(())
    }

    fn assistant(&mut self, position: usize, message: &Object<'_, 'i>) -> Result<(), Rejection> {
        if member(message, "audio").is_some() {
            return Err(refuse("messages.*.audio", format!("messages.{position}.audio")));
        }
        let (text, mut refusal) = assistant_text(position, message)?;
        refusal.push_str(member_text(message, "refusal").unwrap_or_default());
        if !text.is_empty() || !refusal.is_empty() {
            comma(self.out);
            let mut item = ObjectWriter::open(self.out);
            item.raw("type", r#""message""#);
            item.raw("role", r#""assistant""#);
            item.text("id", &format!("msg_{position}"));
            item.raw("status", r#""completed""#);
            write_assistant(&text, &refusal, item.key("content"));
            item.close();
        }
        if let Some(call) = member(message, "function_call") {
            self.function_call(&format!("messages.{position}.function_call"), call)?;
        }
        let Some(calls) = member(message, "tool_calls") else { return Ok(()) };
        let path = format!("messages.{position}.tool_calls");
        for (index, call) in read::array(calls, || path.clone())?.iter().enumerate() {
            let path = format!("{path}.{index}");
            self.call(&path, &read::object(call, || path.clone())?)?;
        }
        Ok(())
    }

    /// Writes a call in the legacy form.
    fn function_call(&mut self, path: &str, call: Tree<'_, 'i>) -> Result<(), Rejection> {
        let call = read::object(call, || path.to_owned())?;
        let name = read::needed_text(&call, "name", || path.to_owned())?;
        comma(self.out);
        let mut item = ObjectWriter::open(self.out);
        item.raw("type", r#""function_call""#);
        item.text("call_id", &self.functions.call(name));
        item.text("name", &self.names.fit(name));
        let arguments = member_text(&call, "arguments").filter(|text| !text.is_empty());
        item.text("arguments", arguments.unwrap_or("{}"));
        item.close();
        Ok(())
    }

    fn call(&mut self, path: &str, call: &Object<'_, 'i>) -> Result<(), Rejection> {
        let id = read::needed_text(call, "id", || path.to_owned())?;
        let (kind, item_kind, input) = match kind(call).unwrap_or("function") {
            "function" => ("function", "function_call", "arguments"),
            "custom" => ("custom", "custom_tool_call", "input"),
            _ => return Err(refuse("messages.*.tool_calls.*.type", format!("{path}.type"))),
        };
        if kind == "custom" {
            self.custom.push(id);
        }
        let inner = format!("{path}.{kind}");
        let called = member(call, kind).ok_or_else(|| Rejection::malformed(&*inner, "is missing."))?;
        let called = read::object(called, || inner.clone())?;
        comma(self.out);
        let mut item = ObjectWriter::open(self.out);
        item.text("type", item_kind);
        item.text("call_id", &call_id(id, "call_"));
        item.text("name", &self.names.fit(read::needed_text(&called, "name", || inner.clone())?));
        item.text(input, read::needed_text(&called, input, || inner.clone())?);
        item.close();
        Ok(())
    }

    fn result(&mut self, position: usize, message: &Object<'_, 'i>, id: &str) -> Result<(), Rejection> {
        let content = needed(message, position)?;
        let custom = self.custom.contains(&id);
        comma(self.out);
        let mut item = ObjectWriter::open(self.out);
        item.text("type", if custom { "custom_tool_call_output" } else { "function_call_output" });
        item.text("call_id", &call_id(id, "call_"));
        let out = item.key("output");
        if let Some(text) = as_text(content) {
            string(out, text);
        } else {
            out.push(b'[');
            write_parts(position, content, out)?;
            out.push(b']');
        }
        item.close();
        Ok(())
    }
}

fn content_path(position: usize) -> String {
    format!("messages.{position}.content")
}

fn needed<'t, 'i>(message: &Object<'t, 'i>, position: usize) -> Result<Tree<'t, 'i>, Rejection> {
    member(message, "content").ok_or_else(|| Rejection::malformed(content_path(position), "is missing."))
}

/// Returns the text and the refusal in the content of an assistant message.
fn assistant_text(position: usize, message: &Object<'_, '_>) -> Result<(String, String), Rejection> {
    let (mut text, mut refusal) = (String::new(), String::new());
    let Some(content) = member(message, "content") else { return Ok((text, refusal)) };
    if let Some(whole) = as_text(content) {
        return Ok((whole.to_owned(), refusal));
    }
    for (index, part) in read::array(content, || content_path(position))?.iter().enumerate() {
        let path = || format!("messages.{position}.content.{index}");
        let part = read::object(part, path)?;
        match kind(&part) {
            Some("text") => text.push_str(read::needed_text(&part, "text", path)?),
            Some("refusal") => refusal.push_str(read::needed_text(&part, "refusal", path)?),
            Some(_) | None => return Err(refuse("messages.*.content.*.type", path())),
        }
    }
    Ok((text, refusal))
}

fn write_assistant(text: &str, refusal: &str, out: &mut Vec<u8>) {
    out.push(b'[');
    if !text.is_empty() {
        let mut part = ObjectWriter::open(out);
        part.raw("type", r#""output_text""#);
        part.text("text", text);
        part.raw("annotations", "[]");
        part.close();
    }
    if !refusal.is_empty() {
        comma(out);
        let mut part = ObjectWriter::open(out);
        part.raw("type", r#""refusal""#);
        part.text("refusal", refusal);
        part.close();
    }
    out.push(b']');
}

fn input_text(text: &str, out: &mut Vec<u8>) {
    let mut part = ObjectWriter::open(out);
    part.raw("type", r#""input_text""#);
    part.text("text", text);
    part.close();
}

/// Writes the elements of a content list, without its brackets.
fn write_parts(position: usize, content: Tree<'_, '_>, out: &mut Vec<u8>) -> Result<(), Rejection> {
    for (index, part) in read::array(content, || content_path(position))?.iter().enumerate() {
        let path = || format!("messages.{position}.content.{index}");
        comma(out);
        write_part(&read::object(part, path)?, path, out)?;
    }
    Ok(())
}

fn write_part(part: &Object<'_, '_>, path: impl Fn() -> String, out: &mut Vec<u8>) -> Result<(), Rejection> {
    match kind(part) {
        Some("text") => input_text(read::needed_text(part, "text", path)?, out),
        Some("image_url") => {
            let path = || path() + ".image_url";
            let image =
                member(part, "image_url").ok_or_else(|| Rejection::malformed(path(), "is missing."))?;
            let image = read::object(image, path)?;
            let mut item = ObjectWriter::open(out);
            item.raw("type", r#""input_image""#);
            item.text("image_url", read::needed_text(&image, "url", path)?);
            item.text("detail", member_text(&image, "detail").unwrap_or("auto"));
            item.close();
        }
        Some("file") => {
            let path = || path() + ".file";
            let file = member(part, "file").ok_or_else(|| Rejection::malformed(path(), "is missing."))?;
            let file = read::object(file, path)?;
            let mut item = ObjectWriter::open(out);
            item.raw("type", r#""input_file""#);
            for name in ["file_id", "filename", "file_data"] {
                if let Some(value) = member(&file, name) {
                    item.tree(name, value);
                }
            }
            item.close();
        }
        Some(_) | None => return Err(refuse("messages.*.content.*.type", path())),
    }
    Ok(())
}
