//! Answers of each target dialect, whole and as a stream.

use serde_json::{Value, json};
use shared::operation::Dialect;

use super::{Said, marker};
use crate::chat_over_bedrock;

pub(super) fn of(target: Dialect, said: &[Said]) -> (Value, Vec<u8>) {
    let marked: Vec<(Said, String)> =
        said.iter().enumerate().map(|(position, said)| (*said, marker(position + 1))).collect();
    match target {
        Dialect::Chat => chat(&marked),
        Dialect::Responses => responses(&marked),
        Dialect::Messages => messages(&marked),
        Dialect::Gemini => gemini(&marked),
        _ => bedrock(&marked),
    }
}

fn events(events: &[Value]) -> Vec<u8> {
    let event = |event: &Value| match event["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    events.iter().map(event).collect::<String>().into_bytes()
}

fn chat(said: &[(Said, String)]) -> (Value, Vec<u8>) {
    let delta = |position: usize, said: Said, mark: &str| match said {
        Said::Reasoning => json!({"reasoning_content": mark}),
        Said::Text => json!({"content": mark}),
        Said::Refusal => json!({"refusal": mark}),
        Said::Image => {
            let url = format!("data:image/png;base64,{mark}");
            json!({"images": [{"type": "image_url", "image_url": {"url": url}}]})
        }
        Said::ImageUrl => {
            json!({"images": [{"type": "image_url", "image_url": {"url": format!("https://x/{mark}")}}]})
        }
        Said::Call => {
            json!({"tool_calls": [{"index": position, "id": format!("c{position}"), "type": "function",
            "function": {"name": "f", "arguments": json!({"q": mark}).to_string()}}]})
        }
    };
    let mut message = json!({"role": "assistant", "content": ""});
    let mut chunks = Vec::new();
    for (position, (said, mark)) in said.iter().enumerate() {
        let delta = delta(position, *said, mark);
        for (name, value) in delta.as_object().unwrap() {
            match (message.get_mut(name), value) {
                (Some(Value::String(text)), Value::String(more)) => text.push_str(more),
                (Some(Value::Array(list)), Value::Array(more)) => list.extend(more.iter().cloned()),
                _ => message[name] = value.clone(),
            }
        }
        chunks.push(json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}));
    }
    let has_calls = said.iter().any(|(said, _)| *said == Said::Call);
    let reason = if has_calls { "tool_calls" } else { "stop" };
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    let whole = json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}});
    (whole, [events(&chunks), b"data: [DONE]\n\n".to_vec()].concat())
}

fn responses(said: &[(Said, String)]) -> (Value, Vec<u8>) {
    let item = |position: usize, said: Said, mark: &str| match said {
        Said::Reasoning => json!({"type": "reasoning", "id": format!("rs_{position}"),
            "summary": [{"type": "summary_text", "text": mark}]}),
        Said::Refusal => json!({"type": "message", "role": "assistant", "id": format!("m{position}"),
            "content": [{"type": "refusal", "refusal": mark}]}),
        Said::Image => json!({"type": "image_generation_call", "id": format!("ig_{position}"),
            "status": "completed", "result": mark, "output_format": "png"}),
        Said::Call => json!({"type": "function_call", "id": format!("fc{position}"),
            "call_id": format!("c{position}"), "name": "f", "arguments": json!({"q": mark}).to_string()}),
        Said::Text | Said::ImageUrl => json!({"type": "message", "role": "assistant",
            "id": format!("m{position}"), "content": [{"type": "output_text", "text": mark, "annotations": []}]}),
    };
    let items: Vec<Value> =
        said.iter().enumerate().map(|(position, (said, mark))| item(position, *said, mark)).collect();
    let response = |status: &str, output: &[Value]| {
        json!({"object": "response", "id": "resp_1", "status": status,
        "output": output, "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}})
    };
    let mut list = vec![json!({"type": "response.created", "response": response("in_progress", &[])})];
    for (position, (item, (said, mark))) in items.iter().zip(said).enumerate() {
        if *said == Said::Reasoning {
            list.push(json!({"type": "response.reasoning_summary_text.delta", "output_index": position,
                "summary_index": 0, "delta": mark}));
        }
        list.push(json!({"type": "response.output_item.done", "output_index": position, "item": item}));
    }
    list.push(json!({"type": "response.completed", "response": response("completed", &items)}));
    (response("completed", &items), events(&list))
}

fn messages(said: &[(Said, String)]) -> (Value, Vec<u8>) {
    let block = |position: usize, said: Said, mark: &str| match said {
        Said::Reasoning => json!({"type": "thinking", "thinking": mark, "signature": "c2ln"}),
        Said::Image => json!({"type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": mark}}),
        Said::ImageUrl => {
            json!({"type": "image", "source": {"type": "url", "url": format!("https://x/{mark}")}})
        }
        Said::Call => {
            json!({"type": "tool_use", "id": format!("c{position}"), "name": "f", "input": {"q": mark}})
        }
        Said::Text | Said::Refusal => json!({"type": "text", "text": mark}),
    };
    let blocks: Vec<Value> =
        said.iter().enumerate().map(|(position, (said, mark))| block(position, *said, mark)).collect();
    let has_calls = said.iter().any(|(said, _)| *said == Said::Call);
    let reason = if has_calls { "tool_use" } else { "end_turn" };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    let whole = json!({"type": "message", "id": "m", "role": "assistant", "content": blocks, "stop_reason": reason,
        "usage": usage});
    let mut list = vec![json!({"type": "message_start", "message": {"usage": usage}})];
    for (index, block) in blocks.iter().enumerate() {
        list.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        list.push(json!({"type": "content_block_stop", "index": index}));
    }
    list.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}));
    list.push(json!({"type": "message_stop"}));
    (whole, events(&list))
}

fn gemini(said: &[(Said, String)]) -> (Value, Vec<u8>) {
    let part = |said: Said, mark: &str| match said {
        Said::Reasoning => json!({"text": mark, "thought": true}),
        Said::Image => json!({"inlineData": {"mimeType": "image/png", "data": mark}}),
        Said::Call => json!({"functionCall": {"name": "f", "args": {"q": mark}}}),
        Said::Text | Said::Refusal | Said::ImageUrl => json!({"text": mark}),
    };
    let parts: Vec<Value> = said.iter().map(|(said, mark)| part(*said, mark)).collect();
    let answer = |parts: &[Value], reason: Value| {
        json!({"candidates": [{"index": 0,
        "content": {"role": "model", "parts": parts}, "finishReason": reason}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}})
    };
    let mut list: Vec<Value> =
        parts.iter().map(|part| answer(std::slice::from_ref(part), Value::Null)).collect();
    list.push(answer(&[], json!("STOP")));
    (answer(&parts, json!("STOP")), events(&list))
}

fn frame_of(kind: &str, payload: &Value) -> Vec<u8> {
    let headers = [(":message-type", "event"), (":event-type", kind)];
    chat_over_bedrock::frame(&headers, &payload.to_string())
}

fn bedrock(said: &[(Said, String)]) -> (Value, Vec<u8>) {
    let block = |position: usize, said: Said, mark: &str| match said {
        Said::Reasoning => {
            json!({"reasoningContent": {"reasoningText": {"text": mark, "signature": "c2ln"}}})
        }
        Said::Image => json!({"image": {"format": "png", "source": {"bytes": mark}}}),
        Said::Call => {
            json!({"toolUse": {"toolUseId": format!("c{position}"), "name": "f", "input": {"q": mark}}})
        }
        Said::Text | Said::Refusal | Said::ImageUrl => json!({"text": mark}),
    };
    let blocks: Vec<Value> =
        said.iter().enumerate().map(|(position, (said, mark))| block(position, *said, mark)).collect();
    let has_calls = said.iter().any(|(said, _)| *said == Said::Call);
    let reason = if has_calls { "tool_use" } else { "end_turn" };
    let usage = json!({"inputTokens": 1, "outputTokens": 1, "totalTokens": 2});
    let whole = json!({"output": {"message": {"role": "assistant", "content": blocks}}, "stopReason": reason,
        "usage": usage});
    let mut stream = frame_of("messageStart", &json!({"role": "assistant"}));
    for (index, (said, mark)) in said.iter().enumerate() {
        let (start, delta) = match said {
            Said::Reasoning => (None, json!({"reasoningContent": {"text": mark}})),
            Said::Image => {
                (Some(json!({"image": {"format": "png"}})), json!({"image": {"source": {"bytes": mark}}}))
            }
            Said::Call => (
                Some(json!({"toolUse": {"toolUseId": format!("c{index}"), "name": "f"}})),
                json!({"toolUse": {"input": json!({"q": mark}).to_string()}}),
            ),
            Said::Text | Said::Refusal | Said::ImageUrl => (None, json!({"text": mark})),
        };
        if let Some(start) = start {
            stream
                .extend(frame_of("contentBlockStart", &json!({"contentBlockIndex": index, "start": start})));
        }
        stream.extend(frame_of("contentBlockDelta", &json!({"contentBlockIndex": index, "delta": delta})));
        stream.extend(frame_of("contentBlockStop", &json!({"contentBlockIndex": index})));
    }
    stream.extend(frame_of("messageStop", &json!({"stopReason": reason})));
    stream.extend(frame_of("metadata", &json!({"usage": usage})));
    (whole, stream)
}
