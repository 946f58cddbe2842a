//! The bodies that Cursor sends to `/chat/completions`: requests of the Responses API, mixed with tools and content blocks in
//! the forms of Chat and of Messages. They become chat requests (`input.rs` and `tools.rs` unify the forms, and the reader
//! of Responses requests does the rest), and what has no place in the Responses API is kept as a member of the chat request.

mod input;
mod tools;

use super::responses_over_chat;
use super::{Asking, Rejection, Traits, read};
use crate::json::{self, JsonWriter, Tree};

/// Translates such a `body` into a chat request for the client's `selector`.
pub fn chat_of_cursor(body: &[u8], selector: &str) -> Result<Vec<u8>, Rejection> {
    let mut bytes = body.to_vec();
    let tape = json::parse(&mut bytes).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), || "body".to_owned())?;
    let (mut unified, mut kept) = (JsonWriter::with_capacity(body.len()), JsonWriter::default());
    unified.object();
    kept.object();
    for (name, value) in read::members(&request) {
        match name {
            "input" => input::write(value, unified.name(name)),
            "tools" => tools::write(value, unified.name(name)),
            "tool_choice" => tools::write_choice(value, unified.name(name)),
            _ if READ.contains(&name) => drop(unified.name(name).tree(value)),
            _ if IGNORED.contains(&name) => {}
            _ => drop(kept.quoted_name(name).tree(value)),
        }
    }
    unified.end_object();
    let mut chat = translated(&unified.finish(), selector)?;
    let kept = kept.finish();
    if let Some(members) = kept.strip_prefix(b"{").filter(|members| !members.is_empty()) {
        chat.pop();
        chat.push(b',');
        chat.extend_from_slice(members);
        chat.push(b'}');
    }
    Ok(chat)
}

fn translated(body: &[u8], selector: &str) -> Result<Vec<u8>, Rejection> {
    let target = Traits {
        reasoning: true,
        output_limit_field: "max_completion_tokens",
        word_tool_names: false,
        // The client's own member is kept.
        stream_options: false,
        files: true,
        images: true,
        custom_tools: true,
        ..Traits::of(selector)
    };
    let asking = Asking { body, target: &target, selector, seed: "", now_s: 0, input_tokens: 0 };
    let mut document = body.to_vec();
    let tape = json::parse(&mut document).map_err(read::refuse_fault)?;
    let asked = (responses_over_chat::CLIENT.ask)(tape.as_value(), &asking)?;
    Ok(asked.request.write(selector, body.len()))
}

/// Writes a value as it is.
fn same(value: Tree<'_, '_>, json: &mut JsonWriter) {
    json.tree(value);
}

/// Writes the members of `object` whose names are in `names`, each under its second name.
fn copy(object: &read::Object<'_, '_>, names: &[(&str, &str)], json: &mut JsonWriter) {
    for (theirs, ours) in names {
        if let Some(value) = read::member(object, theirs) {
            json.name(ours).tree(value);
        }
    }
}

/// Returns a value as compact JSON text.
fn compact(value: Tree<'_, '_>) -> String {
    let mut out = Vec::new();
    json::write(value, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The members that the reader of Responses requests judges.
const READ: [&str; 18] = [
    "background",
    "context_management",
    "conversation",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "model",
    "moderation",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "reasoning",
    "stream",
    "temperature",
    "text",
    "top_logprobs",
    "top_p",
    "truncation",
];
/// The members that ask for what no chat answer contains, or for nothing: Cursor sends them with each request.
const IGNORED: [&str; 3] = ["client_metadata", "include", "store"];

#[cfg(test)]
mod tests;
