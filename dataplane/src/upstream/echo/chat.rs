//! The echo's answers in Chat Completions.

use serde_json::{Value, json};

use super::prompt::Prompt;

const ID: &str = "chatcmpl-echo";

/// Returns the whole answer.
pub(super) fn whole(prompt: &Prompt) -> Value {
    json!({
        "id": ID, "object": "chat.completion", "created": 0, "model": prompt.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": prompt.text, "refusal": null},
            "logprobs": null, "finish_reason": finish_reason(prompt),
        }],
        "usage": usage(prompt),
    })
}

/// Returns the event before the first word.
pub(super) fn start(prompt: &Prompt) -> String {
    choice(prompt, &json!({"role": "assistant", "content": ""}), None)
}

/// Returns the event of a word.
pub(super) fn word(prompt: &Prompt, word: &str) -> String {
    choice(prompt, &json!({"content": word}), None)
}

/// Returns the events after the last word.
pub(super) fn end(prompt: &Prompt) -> String {
    let finish = choice(prompt, &json!({}), Some(finish_reason(prompt)));
    let usage =
        if prompt.include_usage { chunk(prompt, &json!([]), Some(usage(prompt))) } else { String::new() };
    format!("{finish}{usage}data: [DONE]\n\n")
}

/// Returns the event of a failure.
pub(super) fn error(message: &str) -> String {
    let error = json!({"error": {"message": message, "type": "server_error", "param": null, "code": null}});
    format!("data: {error}\n\n")
}

fn usage(prompt: &Prompt) -> Value {
    json!({
        "prompt_tokens": prompt.prompt_tokens,
        "completion_tokens": prompt.completion_tokens,
        "total_tokens": prompt.prompt_tokens + prompt.completion_tokens,
    })
}

fn finish_reason(prompt: &Prompt) -> &'static str {
    if prompt.is_cut { "length" } else { "stop" }
}

fn choice(prompt: &Prompt, delta: &Value, finish: Option<&str>) -> String {
    let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    chunk(prompt, &choice, None)
}

fn chunk(prompt: &Prompt, choices: &Value, usage: Option<Value>) -> String {
    let mut chunk = json!({
        "id": ID, "object": "chat.completion.chunk", "created": 0, "model": prompt.model,
        "choices": choices,
    });
    if let (Some(usage), Some(object)) = (usage, chunk.as_object_mut()) {
        object.insert("usage".to_owned(), usage);
    }
    format!("data: {chunk}\n\n")
}
