//! The echo's answers in Responses: one message with one text. Nothing is stored.

use serde_json::{Value, json};

use super::prompt::Prompt;

const ID: &str = "resp_echo";
const MESSAGE_ID: &str = "msg_echo";
/// The number of events before the first word.
const STARTING_EVENTS: usize = 4;

/// Returns the whole answer.
pub(super) fn whole(prompt: &Prompt) -> Value {
    let reason = if prompt.is_cut { json!({"reason": "max_output_tokens"}) } else { Value::Null };
    response(prompt, status(prompt), &json!([whole_message(prompt)]), &reason, &usage(prompt))
}

/// Returns the events before the first word.
pub(super) fn start(prompt: &Prompt) -> String {
    let response = response(prompt, "in_progress", &json!([]), &Value::Null, &Value::Null);
    let item = message("in_progress", &json!([]));
    [
        event(0, "response.created", json!({"response": response})),
        event(1, "response.in_progress", json!({"response": response})),
        event(2, "response.output_item.added", json!({"output_index": 0, "item": item})),
        event(3, "response.content_part.added", in_text(json!({"part": text("")}))),
    ]
    .concat()
}

/// Returns the event of a word, which `words_before` others precede.
pub(super) fn word(word: &str, words_before: usize) -> String {
    let delta = in_text(json!({"delta": word, "logprobs": []}));
    event(STARTING_EVENTS + words_before, "response.output_text.delta", delta)
}

/// Returns the events after the last of `words` words.
pub(super) fn end(prompt: &Prompt, words: usize) -> String {
    let first = STARTING_EVENTS + words;
    let whole = whole(prompt);
    let done = if prompt.is_cut { "response.incomplete" } else { "response.completed" };
    let whole_text = in_text(json!({"text": prompt.text, "logprobs": []}));
    [
        event(first, "response.output_text.done", whole_text),
        event(first + 1, "response.content_part.done", in_text(json!({"part": text(&prompt.text)}))),
        event(
            first + 2,
            "response.output_item.done",
            json!({"output_index": 0, "item": whole_message(prompt)}),
        ),
        event(first + 3, done, json!({"response": whole})),
    ]
    .concat()
}

/// Returns the event of a failure after `words` words.
pub(super) fn error(error: &str, words: usize) -> String {
    let error = json!({"code": "server_error", "message": error, "param": null});
    event(STARTING_EVENTS + words, "error", error)
}

fn usage(prompt: &Prompt) -> Value {
    json!({
        "input_tokens": prompt.prompt_tokens, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": prompt.completion_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt.prompt_tokens + prompt.completion_tokens,
    })
}

fn response(prompt: &Prompt, status: &str, output: &Value, incomplete: &Value, usage: &Value) -> Value {
    json!({
        "id": ID, "object": "response", "created_at": 0, "status": status, "error": null,
        "incomplete_details": incomplete, "instructions": null, "metadata": {}, "model": prompt.model,
        "output": output, "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "store": false, "usage": usage,
    })
}

fn status(prompt: &Prompt) -> &'static str {
    if prompt.is_cut { "incomplete" } else { "completed" }
}

fn whole_message(prompt: &Prompt) -> Value {
    message(status(prompt), &json!([text(&prompt.text)]))
}

fn message(status: &str, content: &Value) -> Value {
    json!({"id": MESSAGE_ID, "type": "message", "status": status, "role": "assistant", "content": content})
}

fn text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// Adds the place of the text to the members of an event.
fn in_text(members: Value) -> Value {
    with(members, [("item_id", json!(MESSAGE_ID)), ("output_index", json!(0)), ("content_index", json!(0))])
}

fn event(number: usize, name: &str, members: Value) -> String {
    let members = with(members, [("type", json!(name)), ("sequence_number", json!(number))]);
    format!("event: {name}\ndata: {members}\n\n")
}

/// Returns an object with further members.
fn with<const N: usize>(mut members: Value, more: [(&str, Value); N]) -> Value {
    if let Some(object) = members.as_object_mut() {
        object.extend(more.map(|(name, value)| (name.to_owned(), value)));
    }
    members
}
