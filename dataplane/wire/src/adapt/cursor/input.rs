//! Input items in the form of the Responses API. One message of another form may become several items, in its order.

use super::{compact, copy, same};
use crate::adapt::read::{Object, as_text, member, member_text};
use crate::json::{JsonWriter, Tree};

/// Writes the input.
pub(super) fn write(input: Tree<'_, '_>, json: &mut JsonWriter) {
    let Some(items) = input.as_array() else { return same(input, json) };
    json.list();
    for item in items.iter() {
        match item.as_object() {
            Some(object) => write_item(item, &object, json),
            None => same(item, json),
        }
    }
    json.end_list();
}

fn write_item(item: Tree<'_, '_>, object: &Object<'_, '_>, json: &mut JsonWriter) {
    let role = member_text(object, "role").unwrap_or_default();
    match (member_text(object, "type"), role) {
        // A chat answer has no reasoning that another request could continue.
        (Some("reasoning"), _) => {}
        (_, "tool") => write_output(member_text(object, "tool_call_id"), member(object, "content"), json),
        (None | Some("message"), _) => {
            match member(object, "content").and_then(|content| content.as_array()) {
                Some(blocks) => write_blocks(role, blocks.iter(), json),
                None if member(object, "content").is_some() => {
                    json.object();
                    copy(object, &[("role", "role"), ("content", "content")], json);
                    json.end_object();
                }
                None => {}
            }
            let calls = member(object, "tool_calls").and_then(|calls| calls.as_array());
            calls.iter().flat_map(|calls| calls.iter()).for_each(|call| write_chat_call(call, json));
        }
        (Some(_), _) => same(item, json),
    }
}

/// Writes the blocks of a message: its text and images as messages, calls and results as items of their own.
fn write_blocks<'t, 'i: 't>(role: &str, blocks: impl Iterator<Item = Tree<'t, 'i>>, json: &mut JsonWriter) {
    let mut is_open = false;
    for block in blocks {
        let object = block.as_object();
        let kind = object.as_ref().and_then(|object| member_text(object, "type")).unwrap_or_default();
        if let ("tool_use" | "tool_result" | "thinking" | "redacted_thinking", Some(object)) = (kind, &object)
        {
            if std::mem::take(&mut is_open) {
                json.end_list().end_object();
            }
            match kind {
                "tool_use" => write_call(object, json),
                "tool_result" => {
                    write_output(member_text(object, "tool_use_id"), member(object, "content"), json)
                }
                _ => {}
            }
            continue;
        }
        if !std::mem::replace(&mut is_open, true) {
            json.object().name("role").text(role).name("content").list();
        }
        write_part(role, kind, block, json);
    }
    if is_open {
        json.end_list().end_object();
    }
}

/// Writes a text or an image.
fn write_part(role: &str, kind: &str, block: Tree<'_, '_>, json: &mut JsonWriter) {
    let Some(object) = block.as_object() else { return same(block, json) };
    match kind {
        "text" => {
            let kind = if role == "assistant" { "output_text" } else { "input_text" };
            json.object().name("type").text(kind);
            copy(&object, &[("text", "text")], json);
            json.end_object();
        }
        "image_url" => {
            json.object().name("type").text("input_image");
            match member(&object, "image_url").and_then(|image| image.as_object()) {
                Some(image) => copy(&image, &[("url", "image_url"), ("detail", "detail")], json),
                None => copy(&object, &[("image_url", "image_url")], json),
            }
            json.end_object();
        }
        "image" => {
            let source = member(&object, "source").and_then(|source| source.as_object());
            let text = |name| source.as_ref().and_then(|source| member_text(source, name));
            let url = match (text("media_type"), text("data")) {
                (Some(media_type), Some(data)) => Some(format!("data:{media_type};base64,{data}")),
                _ => text("url").map(str::to_owned),
            };
            match url {
                Some(url) => {
                    json.object().name("type").text("input_image").name("image_url").text(&url).end_object();
                }
                None => same(block, json),
            }
        }
        _ => same(block, json),
    }
}

/// Writes a call in the form of Messages.
fn write_call(call: &Object<'_, '_>, json: &mut JsonWriter) {
    json.object().name("type").text("function_call");
    copy(call, &[("id", "call_id"), ("name", "name")], json);
    let arguments = member(call, "input").map_or_else(|| "{}".to_owned(), compact);
    json.name("arguments").text(&arguments).end_object();
}

/// Writes a call in the form of Chat.
fn write_chat_call(call: Tree<'_, '_>, json: &mut JsonWriter) {
    let Some(object) = call.as_object() else { return };
    json.object().name("type").text("function_call");
    copy(&object, &[("id", "call_id")], json);
    if let Some(function) = member(&object, "function").and_then(|function| function.as_object()) {
        copy(&function, &[("name", "name"), ("arguments", "arguments")], json);
    }
    json.end_object();
}

/// Writes the result of the call with this ID: its text, or the texts of its blocks.
fn write_output(call_id: Option<&str>, content: Option<Tree<'_, '_>>, json: &mut JsonWriter) {
    json.object().name("type").text("function_call_output");
    if let Some(id) = call_id {
        json.name("call_id").text(id);
    }
    let text_of = |block: Tree<'_, '_>| {
        block.as_object().and_then(|block| member_text(&block, "text").map(str::to_owned))
    };
    let output = match content {
        None => String::new(),
        Some(content) => match (as_text(content), content.as_array()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(blocks)) => {
                blocks.iter().map(|block| text_of(block).unwrap_or_else(|| compact(block))).collect()
            }
            (None, None) => compact(content),
        },
    };
    json.name("output").text(&output).end_object();
}
