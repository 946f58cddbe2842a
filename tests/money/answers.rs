//! What the upstreams of the test send: whole answers and streams of each protocol, with the usage that is planned.

use bytes::Bytes;
use serde_json::{Value, json};

use super::exact::Counts;
use super::plan::{Fate, Speaks};
use crate::support::{Answer, Gate, chat};

/// The answer of an upstream of this protocol to a request with this fate.
pub(super) fn answer(speaks: Speaks, stream: bool, fate: &Fate) -> Answer {
    match fate {
        Fate::Status(status) => Answer::json(*status, chat::error("planned", "planned")),
        Fate::LeftEarly(counts, gate) => left_early(counts, gate),
        Fate::Lost(counts) => lost(speaks, counts),
        Fate::Served(_) if speaks == Speaks::Speech => {
            Answer::whole(200, &[("content-type", "audio/mpeg")], b"sound")
        }
        Fate::Served(counts) if stream => Answer::events(&served(speaks, counts)),
        Fate::Served(counts) => Answer::json(200, whole(speaks, counts).to_string()),
        Fate::ErrorEvent => Answer::stream().chunk(error(speaks)).end(),
        Fate::Cut => head(speaks).close(),
        Fate::Silent => head(speaks).hang(),
    }
}

/// A chat stream that waits for the gate before it tells its usage.
fn left_early(counts: &Counts, gate: &Gate) -> Answer {
    let events = served(Speaks::Chat, counts);
    let (before, after) = events.split_at(events.len() - 2);
    let begun = before.iter().fold(Answer::stream(), Answer::chunk).wait(gate);
    after.iter().fold(begun, Answer::chunk).end()
}

/// An error that reports usage: of Messages in `message_start`, of chat in the body of an error.
fn lost(speaks: Speaks, counts: &Counts) -> Answer {
    if speaks == Speaks::Messages {
        let begun = begin(speaks, counts).into_iter().next().expect("message_start");
        return Answer::stream().chunk(begun).chunk(error(speaks)).end();
    }
    let mut body: Value = serde_json::from_str(&chat::error("planned", "planned")).unwrap();
    body["usage"] = chat_usage(counts);
    Answer::json(500, body.to_string())
}

/// A stream up to its first content.
fn head(speaks: Speaks) -> Answer {
    begin(speaks, &Counts::new()).into_iter().fold(Answer::stream(), Answer::chunk)
}

fn of(counts: &Counts, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

fn chat_usage(counts: &Counts) -> Value {
    let prompt = of(counts, "input") + of(counts, "cache_read");
    let completion = of(counts, "output") + of(counts, "reasoning");
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": of(counts, "cache_read")},
        "completion_tokens_details": {"reasoning_tokens": of(counts, "reasoning")},
    })
}

fn responses_usage(counts: &Counts) -> Value {
    let input = of(counts, "input") + of(counts, "cache_read");
    let output = of(counts, "output") + of(counts, "reasoning");
    json!({
        "input_tokens": input, "output_tokens": output, "total_tokens": input + output,
        "input_tokens_details": {"cached_tokens": of(counts, "cache_read")},
        "output_tokens_details": {"reasoning_tokens": of(counts, "reasoning")},
    })
}

fn messages_usage(counts: &Counts) -> Value {
    let (five, hour) = (of(counts, "cache_write"), of(counts, "cache_write_1h"));
    json!({
        "input_tokens": of(counts, "input"), "output_tokens": of(counts, "output"),
        "cache_read_input_tokens": of(counts, "cache_read"), "cache_creation_input_tokens": five + hour,
        "cache_creation": {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour},
        "server_tool_use": {"web_search_requests": of(counts, "searches")},
    })
}

fn whole(speaks: Speaks, counts: &Counts) -> Value {
    match speaks {
        Speaks::Chat => {
            let mut answer: Value = serde_json::from_str(&chat::completion("ok")).unwrap();
            answer["usage"] = chat_usage(counts);
            answer
        }
        Speaks::Embeddings => json!({
            "object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": of(counts, "input"), "total_tokens": of(counts, "input")},
        }),
        Speaks::Messages => message(counts),
        Speaks::Responses => response("completed", counts),
        Speaks::Speech => Value::Null,
        Speaks::Transcription => {
            json!({"text": "ok", "usage": {"type": "duration", "seconds": of(counts, "audio_ms") / 1_000}})
        }
        Speaks::Images => {
            json!({"created": 1_700_000_000, "data": [{"b64_json": "aGk="}, {"b64_json": "aGk="}]})
        }
    }
}

fn message(counts: &Counts) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "stop_sequence": null, "content": [{"type": "text", "text": "ok"}], "usage": messages_usage(counts),
    })
}

fn response(status: &str, counts: &Counts) -> Value {
    let text = json!({"type": "output_text", "text": "ok", "annotations": []});
    let output =
        json!([{"type": "message", "id": "msg_1", "status": status, "role": "assistant", "content": [text]}]);
    json!({
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": status, "model": "m",
        "output": output, "usage": responses_usage(counts),
    })
}

fn named(event: &Value) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()))
}

/// The events up to the first content.
fn begin(speaks: Speaks, counts: &Counts) -> Vec<Bytes> {
    match speaks {
        Speaks::Embeddings | Speaks::Speech | Speaks::Transcription | Speaks::Images => Vec::new(),
        Speaks::Chat => vec![chat::role(), chat::content("ok")],
        Speaks::Messages => {
            let mut start = message(counts);
            start["content"] = json!([]);
            start["stop_reason"] = Value::Null;
            vec![
                named(&json!({"type": "message_start", "message": start})),
                named(&json!({"type": "content_block_start", "index": 0,
                    "content_block": {"type": "text", "text": ""}})),
                named(&json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": "ok"}})),
            ]
        }
        Speaks::Responses => {
            let mut created = response("in_progress", counts);
            created["usage"] = Value::Null;
            created["output"] = json!([]);
            vec![
                named(&json!({"type": "response.created", "sequence_number": 0, "response": created})),
                named(
                    &json!({"type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1",
                    "output_index": 0, "content_index": 0, "delta": "ok"}),
                ),
            ]
        }
    }
}

/// The events of a whole stream.
fn served(speaks: Speaks, counts: &Counts) -> Vec<Bytes> {
    let mut events = begin(speaks, counts);
    match speaks {
        Speaks::Embeddings | Speaks::Speech | Speaks::Transcription | Speaks::Images => {}
        Speaks::Chat => {
            let usage = json!({
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
                "choices": [], "usage": chat_usage(counts),
            });
            events.extend([chat::finish(), chat::event(&usage.to_string()), chat::done()]);
        }
        Speaks::Messages => events.extend([
            named(&json!({"type": "content_block_stop", "index": 0})),
            named(
                &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                "usage": messages_usage(counts)}),
            ),
            named(&json!({"type": "message_stop"})),
        ]),
        Speaks::Responses => events.push(named(&json!({
            "type": "response.completed", "sequence_number": 2, "response": response("completed", counts),
        }))),
    }
    events
}

/// An error event without any content before it.
fn error(speaks: Speaks) -> Bytes {
    match speaks {
        Speaks::Messages => {
            named(&json!({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}))
        }
        Speaks::Responses => named(
            &json!({"type": "error", "sequence_number": 0, "code": "server_error", "message": "no", "param": null}),
        ),
        Speaks::Chat | Speaks::Embeddings | Speaks::Speech | Speaks::Transcription | Speaks::Images => {
            chat::event(&chat::error("no", "server_error"))
        }
    }
}
