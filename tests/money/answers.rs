//! The upstream responses of the money test: whole responses and streams of each protocol, with the planned usage.

use serde_json::{Value, json};

use super::exact::{Counts, Used};
use super::plan::{Fate, Speaks};
use super::{bedrock, of};
use crate::support::{Answer, Gate, chat};

/// Returns the response of an upstream with this protocol to an attempt with this fate.
pub(super) fn answer(speaks: Speaks, stream: bool, fate: &Fate) -> Answer {
    match fate {
        Fate::Status(status) => Answer::json(*status, chat::error("planned", "planned")),
        Fate::LeftEarly(used, gate) => left_early(used, gate),
        Fate::Lost(used) => lost(speaks, used),
        Fate::Unanswered { is_begun: false } => Answer::hang_forever(),
        Fate::Unanswered { is_begun: true } if stream => started(speaks).hang(),
        Fate::Unanswered { is_begun: true } => unfinished(speaks),
        Fate::Served(_) if speaks == Speaks::Speech => {
            Answer::whole(200, &[("content-type", "audio/mpeg")], b"sound")
        }
        Fate::Served(used) if stream => {
            served(speaks, used).into_iter().fold(started(speaks), Answer::chunk).end()
        }
        Fate::Served(used) => Answer::json(200, whole(speaks, used).to_string()),
        Fate::ErrorEvent => started(speaks).chunk(error(speaks)).end(),
        Fate::Cut => head(speaks).close(),
        Fate::Silent => head(speaks).hang(),
    }
}

/// Returns the head of a stream.
fn started(speaks: Speaks) -> Answer {
    if speaks == Speaks::Bedrock { bedrock::stream() } else { Answer::stream() }
}

/// Returns the first half of a whole response.
fn unfinished(speaks: Speaks) -> Answer {
    let text = whole(speaks, &Used::default()).to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    Answer::new().send(format!("{head}{}", &text[..text.len() / 2])).hang()
}

/// Returns a chat stream that waits for the gate before it reports its usage.
fn left_early(used: &Used, gate: &Gate) -> Answer {
    let events = served(Speaks::Chat, used);
    let (before, after) = events.split_at(events.len() - 2);
    let begun = before.iter().fold(Answer::stream(), Answer::chunk).wait(gate);
    after.iter().fold(begun, Answer::chunk).end()
}

/// Returns a failure that reports usage: in the first event of Messages, before an error in Gemini, in a failed
/// response, and in the body of a chat error.
fn lost(speaks: Speaks, used: &Used) -> Answer {
    let before: Vec<Vec<u8>> = match speaks {
        Speaks::Messages => begin(speaks, used).into_iter().take(1).collect(),
        Speaks::Gemini => {
            vec![event(&json!({"candidates": [], "usageMetadata": gemini_usage(&used.counts)}))]
        }
        Speaks::Responses => {
            let mut failed = response("failed", used);
            failed["error"] = json!({"code": "server_error", "message": "no"});
            vec![named(&json!({"type": "response.failed", "sequence_number": 0, "response": failed}))]
        }
        _ => {
            let mut body: Value = serde_json::from_str(&chat::error("planned", "planned")).unwrap();
            body["usage"] = chat_usage(used);
            name_tier(&mut body, used);
            return Answer::json(500, body.to_string());
        }
    };
    let begun = before.iter().fold(Answer::stream(), Answer::chunk);
    if speaks == Speaks::Responses { begun.end() } else { begun.chunk(error(speaks)).end() }
}

/// Returns a stream up to its first content.
fn head(speaks: Speaks) -> Answer {
    begin(speaks, &Used::default()).into_iter().fold(started(speaks), Answer::chunk)
}

fn name_tier(body: &mut Value, used: &Used) {
    if let Some(tier) = used.tier {
        body["service_tier"] = json!(tier);
    }
}

fn chat_usage(used: &Used) -> Value {
    let counts = &used.counts;
    let prompt = of(counts, "input") + of(counts, "cache_read");
    let completion = of(counts, "output") + of(counts, "reasoning");
    let mut usage = json!({
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": of(counts, "cache_read")},
        "completion_tokens_details": {"reasoning_tokens": of(counts, "reasoning")},
    });
    if let Some(nano) = used.vendor_cost {
        let dollars = format!("{}.{:09}", nano / 1_000_000_000, nano % 1_000_000_000);
        usage["cost"] = serde_json::from_str(&dollars).unwrap();
    }
    usage
}

fn gemini_usage(counts: &Counts) -> Value {
    let audio = of(counts, "audio_input");
    let prompt = of(counts, "input") + of(counts, "cache_read") + audio;
    let (candidates, thoughts) = (of(counts, "output"), of(counts, "reasoning"));
    json!({
        "promptTokenCount": prompt, "cachedContentTokenCount": of(counts, "cache_read"),
        "candidatesTokenCount": candidates, "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + candidates + thoughts,
        "promptTokensDetails": [
            {"modality": "TEXT", "tokenCount": prompt - audio}, {"modality": "AUDIO", "tokenCount": audio},
        ],
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

fn messages_usage(used: &Used) -> Value {
    let counts = &used.counts;
    let (five, hour) = (of(counts, "cache_write"), of(counts, "cache_write_1h"));
    let mut usage = json!({
        "input_tokens": of(counts, "input"), "output_tokens": of(counts, "output"),
        "cache_read_input_tokens": of(counts, "cache_read"), "cache_creation_input_tokens": five + hour,
        "cache_creation": {"ephemeral_5m_input_tokens": five, "ephemeral_1h_input_tokens": hour},
        "server_tool_use": {"web_search_requests": of(counts, "searches")},
    });
    name_tier(&mut usage, used);
    usage
}

fn whole(speaks: Speaks, used: &Used) -> Value {
    let counts = &used.counts;
    match speaks {
        Speaks::Chat => {
            let mut answer: Value = serde_json::from_str(&chat::completion("ok")).unwrap();
            answer["usage"] = chat_usage(used);
            name_tier(&mut answer, used);
            answer
        }
        Speaks::Embeddings => json!({
            "object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}],
            "usage": {"prompt_tokens": of(counts, "input"), "total_tokens": of(counts, "input")},
        }),
        Speaks::Messages => message(used),
        Speaks::Responses => response("completed", used),
        Speaks::Gemini => generated(Some("STOP"), Some(counts)),
        Speaks::Bedrock => bedrock::whole(counts),
        // Only half of it is sent.
        Speaks::Speech => json!("sound"),
        Speaks::Transcription => {
            json!({"text": "ok", "usage": {"type": "duration", "seconds": of(counts, "audio_ms") / 1_000}})
        }
        Speaks::Images => {
            json!({"created": 1_700_000_000, "data": [{"b64_json": "aGk="}, {"b64_json": "aGk="}]})
        }
        Speaks::Videos => json!({"id": "video_1", "object": "video", "status": "queued", "progress": 0}),
    }
}

/// Returns a response of Gemini whose candidate has text.
fn generated(finish: Option<&str>, counts: Option<&Counts>) -> Value {
    let mut answer =
        json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": "ok"}]}}]});
    if let Some(reason) = finish {
        answer["candidates"][0]["finishReason"] = json!(reason);
    }
    if let Some(counts) = counts {
        answer["usageMetadata"] = gemini_usage(counts);
    }
    answer
}

fn message(used: &Used) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "stop_sequence": null, "content": [{"type": "text", "text": "ok"}], "usage": messages_usage(used),
    })
}

fn response(status: &str, used: &Used) -> Value {
    let text = json!({"type": "output_text", "text": "ok", "annotations": []});
    let output =
        json!([{"type": "message", "id": "msg_1", "status": status, "role": "assistant", "content": [text]}]);
    let mut response = json!({
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": status, "model": "m",
        "output": output, "usage": responses_usage(&used.counts),
    });
    name_tier(&mut response, used);
    response
}

fn named(event: &Value) -> Vec<u8> {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()).into_bytes()
}

fn event(data: &Value) -> Vec<u8> {
    format!("data: {data}\n\n").into_bytes()
}

/// Returns the events up to the first content.
fn begin(speaks: Speaks, used: &Used) -> Vec<Vec<u8>> {
    match speaks {
        Speaks::Embeddings | Speaks::Speech | Speaks::Transcription | Speaks::Images | Speaks::Videos => {
            Vec::new()
        }
        Speaks::Chat => vec![chat::role().to_vec(), chat::content("ok").to_vec()],
        Speaks::Gemini => vec![event(&generated(None, None))],
        Speaks::Bedrock => bedrock::begin(),
        Speaks::Messages => {
            let mut start = message(used);
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
            let mut created = response("in_progress", &Used::default());
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

/// Returns the events of a whole stream.
fn served(speaks: Speaks, used: &Used) -> Vec<Vec<u8>> {
    let mut events = begin(speaks, used);
    match speaks {
        Speaks::Embeddings | Speaks::Speech | Speaks::Transcription | Speaks::Images | Speaks::Videos => {}
        Speaks::Chat => {
            let mut last = json!({
                "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "m",
                "choices": [], "usage": chat_usage(used),
            });
            name_tier(&mut last, used);
            events.extend([chat::finish().to_vec(), event(&last), chat::done().to_vec()]);
        }
        Speaks::Gemini => events.push(event(&generated(Some("STOP"), Some(&used.counts)))),
        Speaks::Bedrock => events.extend(bedrock::end(&used.counts)),
        Speaks::Messages => events.extend([
            named(&json!({"type": "content_block_stop", "index": 0})),
            named(
                &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                "usage": messages_usage(used)}),
            ),
            named(&json!({"type": "message_stop"})),
        ]),
        Speaks::Responses => events.push(named(&json!({
            "type": "response.completed", "sequence_number": 2, "response": response("completed", used),
        }))),
    }
    events
}

/// Returns an error event without any content before it.
fn error(speaks: Speaks) -> Vec<u8> {
    match speaks {
        Speaks::Messages => {
            named(&json!({"type": "error", "error": {"type": "overloaded_error", "message": "no"}}))
        }
        Speaks::Responses => named(
            &json!({"type": "error", "sequence_number": 0, "code": "server_error", "message": "no", "param": null}),
        ),
        Speaks::Gemini => event(&json!({"error": {"code": 503, "message": "no", "status": "UNAVAILABLE"}})),
        _ => format!("data: {}\n\n", chat::error("no", "server_error")).into_bytes(),
    }
}
