//! Requests of each client dialect.

use serde_json::{Value, json};
use shared::operation::Dialect;

use super::{Kind, Markers, Turn};

pub(super) fn of(client: Dialect, turns: &[Turn]) -> (Value, usize) {
    let mut marks = Markers::default();
    let request = match client {
        Dialect::Chat => chat(turns, &mut marks),
        Dialect::Responses => responses(turns, &mut marks),
        Dialect::Gemini => gemini(turns, &mut marks),
        _ => messages(turns, &mut marks),
    };
    (request, marks.0)
}

fn data(kind: &str, marks: &mut Markers) -> String {
    format!("data:{kind};base64,{}", marks.next())
}

fn chat_part(kind: Kind, marks: &mut Markers) -> Option<Value> {
    Some(match kind {
        Kind::Text => json!({"type": "text", "text": marks.next()}),
        Kind::Image => json!({"type": "image_url", "image_url": {"url": data("image/png", marks)}}),
        Kind::ImageUrl => {
            json!({"type": "image_url", "image_url": {"url": format!("https://x/{}", marks.next())}})
        }
        Kind::File => {
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": data("application/pdf", marks)}})
        }
        Kind::Audio => {
            json!({"type": "input_audio", "input_audio": {"format": "wav", "data": marks.next()}})
        }
        Kind::Refusal | Kind::Reasoning | Kind::SignedReasoning => return None,
    })
}

fn chat(turns: &[Turn], marks: &mut Markers) -> Value {
    let (mut messages, mut calls) = (Vec::new(), 0);
    for turn in turns {
        match turn {
            Turn::System => messages.push(json!({"role": "system", "content": marks.next()})),
            Turn::User(parts) => {
                let parts: Vec<Value> = parts.iter().filter_map(|kind| chat_part(*kind, marks)).collect();
                messages.push(json!({"role": "user", "content": parts}));
            }
            Turn::Assistant(kinds, results) => {
                let mut message = json!({"role": "assistant", "content": null});
                for kind in kinds {
                    match kind {
                        Kind::Refusal => message["refusal"] = json!(marks.next()),
                        Kind::Reasoning => message["reasoning_content"] = json!(marks.next()),
                        Kind::SignedReasoning => {
                            message["thinking_blocks"] = json!([{"type": "thinking",
                                "thinking": marks.next(), "signature": "c2ln"}]);
                        }
                        Kind::Image => {
                            let url = data("image/png", marks);
                            message["images"] = json!([{"type": "image_url", "image_url": {"url": url}}]);
                        }
                        Kind::Text => message["content"] = json!(marks.next()),
                        Kind::ImageUrl | Kind::File | Kind::Audio => {}
                    }
                }
                let ids: Vec<String> = results
                    .iter()
                    .map(|_| {
                        calls += 1;
                        format!("c{calls}")
                    })
                    .collect();
                let called = |id: &String, marks: &mut Markers| {
                    json!({"id": id, "type": "function",
                    "function": {"name": "f", "arguments": json!({"q": marks.next()}).to_string()}})
                };
                if !ids.is_empty() {
                    message["tool_calls"] = ids.iter().map(|id| called(id, marks)).collect();
                }
                if message.as_object().unwrap().len() > 2 || !message["content"].is_null() {
                    messages.push(message);
                }
                for (id, parts) in ids.iter().zip(results) {
                    let parts: Vec<Value> = parts.iter().filter_map(|kind| chat_part(*kind, marks)).collect();
                    messages.push(json!({"role": "tool", "tool_call_id": id, "content": parts}));
                }
            }
        }
    }
    json!({"model": "m", "messages": messages, "tools": [{"type": "function", "function": {"name": "f"}}]})
}

fn responses_part(kind: Kind, marks: &mut Markers) -> Option<Value> {
    Some(match kind {
        Kind::Text => json!({"type": "input_text", "text": marks.next()}),
        Kind::Image => json!({"type": "input_image", "image_url": data("image/png", marks)}),
        Kind::ImageUrl => {
            json!({"type": "input_image", "image_url": format!("https://x/{}", marks.next())})
        }
        Kind::File => {
            json!({"type": "input_file", "filename": "a.pdf", "file_data": data("application/pdf", marks)})
        }
        Kind::Audio => {
            json!({"type": "input_audio", "input_audio": {"format": "wav", "data": marks.next()}})
        }
        Kind::Refusal | Kind::Reasoning | Kind::SignedReasoning => return None,
    })
}

fn responses(turns: &[Turn], marks: &mut Markers) -> Value {
    let (mut items, mut calls) = (Vec::new(), 0);
    for turn in turns {
        match turn {
            Turn::System => items.push(json!({"role": "developer", "content": marks.next()})),
            Turn::User(parts) => {
                let parts: Vec<Value> =
                    parts.iter().filter_map(|kind| responses_part(*kind, marks)).collect();
                items.push(json!({"role": "user", "content": parts}));
            }
            Turn::Assistant(kinds, results) => {
                for kind in kinds {
                    match kind {
                        Kind::Text => items.push(json!({"type": "message", "role": "assistant",
                            "content": [{"type": "output_text", "text": marks.next()}]})),
                        Kind::Refusal => items.push(json!({"type": "message", "role": "assistant",
                            "content": [{"type": "refusal", "refusal": marks.next()}]})),
                        Kind::Reasoning => items.push(json!({"type": "reasoning",
                            "summary": [{"type": "summary_text", "text": marks.next()}]})),
                        Kind::SignedReasoning => items.push(json!({"type": "reasoning", "summary": [],
                            "encrypted_content": marks.next()})),
                        Kind::Image => items.push(json!({"type": "image_generation_call", "id": "i",
                            "status": "completed", "result": marks.next()})),
                        Kind::ImageUrl | Kind::File | Kind::Audio => {}
                    }
                }
                let ids: Vec<String> = results
                    .iter()
                    .map(|_| {
                        calls += 1;
                        format!("c{calls}")
                    })
                    .collect();
                for id in &ids {
                    items.push(json!({"type": "function_call", "call_id": id, "name": "f",
                        "arguments": json!({"q": marks.next()}).to_string()}));
                }
                for (id, parts) in ids.iter().zip(results) {
                    let parts: Vec<Value> =
                        parts.iter().filter_map(|kind| responses_part(*kind, marks)).collect();
                    items.push(json!({"type": "function_call_output", "call_id": id, "output": parts}));
                }
            }
        }
    }
    json!({"model": "m", "input": items, "tools": [{"type": "function", "name": "f"}]})
}

fn messages_block(kind: Kind, marks: &mut Markers) -> Option<Value> {
    let bytes = |media_type: &str, marks: &mut Markers| json!({"type": "base64", "media_type": media_type, "data": marks.next()});
    Some(match kind {
        Kind::Text => json!({"type": "text", "text": marks.next()}),
        Kind::Image => json!({"type": "image", "source": bytes("image/png", marks)}),
        Kind::ImageUrl => {
            json!({"type": "image", "source": {"type": "url", "url": format!("https://x/{}", marks.next())}})
        }
        Kind::File => json!({"type": "document", "source": bytes("application/pdf", marks)}),
        Kind::Audio => json!({"type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": marks.next()}}),
        Kind::Refusal | Kind::Reasoning | Kind::SignedReasoning => return None,
    })
}

fn messages(turns: &[Turn], marks: &mut Markers) -> Value {
    let (mut messages, mut calls) = (Vec::new(), 0);
    for turn in turns {
        match turn {
            Turn::System => messages.push(json!({"role": "system", "content": marks.next()})),
            Turn::User(parts) => {
                let blocks: Vec<Value> =
                    parts.iter().filter_map(|kind| messages_block(*kind, marks)).collect();
                messages.push(json!({"role": "user", "content": blocks}));
            }
            Turn::Assistant(kinds, results) => {
                let mut blocks = Vec::new();
                for kind in kinds {
                    match kind {
                        Kind::Reasoning => blocks.push(json!({"type": "thinking", "thinking": marks.next(),
                            "signature": ""})),
                        Kind::SignedReasoning => blocks.push(json!({"type": "thinking",
                            "thinking": marks.next(), "signature": "c2ln"})),
                        Kind::Text => blocks.push(json!({"type": "text", "text": marks.next()})),
                        Kind::Image | Kind::ImageUrl | Kind::File | Kind::Audio | Kind::Refusal => {}
                    }
                }
                let ids: Vec<String> = results
                    .iter()
                    .map(|_| {
                        calls += 1;
                        format!("c{calls}")
                    })
                    .collect();
                for id in &ids {
                    blocks.push(
                        json!({"type": "tool_use", "id": id, "name": "f", "input": {"q": marks.next()}}),
                    );
                }
                if !blocks.is_empty() {
                    messages.push(json!({"role": "assistant", "content": blocks}));
                }
                let mut answers = Vec::new();
                for (id, parts) in ids.iter().zip(results) {
                    let parts: Vec<Value> =
                        parts.iter().filter_map(|kind| messages_block(*kind, marks)).collect();
                    answers.push(json!({"type": "tool_result", "tool_use_id": id, "content": parts}));
                }
                if !answers.is_empty() {
                    messages.push(json!({"role": "user", "content": answers}));
                }
            }
        }
    }
    json!({"model": "m", "max_tokens": 100, "messages": messages,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}]})
}

fn gemini_part(kind: Kind, marks: &mut Markers) -> Option<Value> {
    let inline = |kind: &str, data: String| json!({"inlineData": {"mimeType": kind, "data": data}});
    Some(match kind {
        Kind::Text => json!({"text": marks.next()}),
        Kind::Image => inline("image/png", marks.next()),
        Kind::ImageUrl => {
            json!({"fileData": {"mimeType": "image/png", "fileUri": format!("https://x/{}", marks.next())}})
        }
        Kind::File => inline("application/pdf", marks.next()),
        Kind::Audio => inline("audio/wav", marks.next()),
        Kind::Refusal | Kind::Reasoning | Kind::SignedReasoning => return None,
    })
}

/// A Gemini client has no refusals and no system text between contents. Thoughts are hints.
fn gemini(turns: &[Turn], marks: &mut Markers) -> Value {
    let (mut system, mut contents, mut calls) = (Vec::new(), Vec::new(), 0);
    for turn in turns {
        match turn {
            Turn::System => system.push(json!({"text": marks.next()})),
            Turn::User(parts) => {
                let parts: Vec<Value> = parts.iter().filter_map(|kind| gemini_part(*kind, marks)).collect();
                contents.push(json!({"role": "user", "parts": parts}));
            }
            Turn::Assistant(kinds, results) => {
                let kinds = kinds.iter().filter(|kind| matches!(kind, Kind::Text | Kind::Image));
                let mut parts: Vec<Value> = kinds.filter_map(|kind| gemini_part(*kind, marks)).collect();
                let first = calls + 1;
                for _ in results {
                    calls += 1;
                    let args = json!({"q": marks.next()});
                    parts.push(
                        json!({"functionCall": {"id": format!("c{calls}"), "name": "f", "args": args}}),
                    );
                }
                if !parts.is_empty() {
                    contents.push(json!({"role": "model", "parts": parts}));
                }
                let answered = results.iter().enumerate().map(|(position, kinds)| {
                    let mut parts: Vec<Value> = kinds.iter().filter_map(|kind| gemini_part(*kind, marks)).collect();
                    let is_text = |part: &Value| part.get("text").is_some();
                    let texts: Vec<Value> = parts.iter().filter(|part| is_text(part)).cloned().collect();
                    parts.retain(|part| !is_text(part));
                    let id = format!("c{}", first + position);
                    json!({"functionResponse": {"id": id, "name": "f", "response": {"all": texts}, "parts": parts}})
                });
                let answered: Vec<Value> = answered.collect();
                if !answered.is_empty() {
                    contents.push(json!({"role": "user", "parts": answered}));
                }
            }
        }
    }
    json!({"contents": contents, "systemInstruction": {"parts": system},
        "tools": [{"functionDeclarations": [{"name": "f"}]}]})
}
