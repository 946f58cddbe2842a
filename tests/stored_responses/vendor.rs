//! A scripted vendor that stores responses by its contract: an ID is known to the key that made it until it is deleted, and
//! whatever departs from the contract is answered with 418.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::upstream::Received;
use crate::support::{Answer, Upstream};

/// A vendor whose IDs begin with its name.
pub(super) struct Vendor {
    pub(super) upstream: Upstream,
    stored: Arc<Mutex<Stored>>,
}

/// The stored responses: the key that made each, and its whole text.
#[derive(Default)]
struct Stored {
    made: usize,
    responses: HashMap<String, (String, String)>,
}

impl Vendor {
    pub(super) async fn start(name: &'static str) -> Self {
        let (upstream, stored) = (Upstream::start().await, Arc::new(Mutex::new(Stored::default())));
        let of_upstream = Arc::clone(&stored);
        upstream.answering(move |request| answer(name, request, &mut of_upstream.lock().unwrap()));
        Self { upstream, stored }
    }

    /// Returns the text that the vendor stores of a response.
    pub(super) fn text_of(&self, id: &str) -> String {
        self.stored.lock().unwrap().responses[id].1.clone()
    }

    pub(super) fn has(&self, id: &str) -> bool {
        self.stored.lock().unwrap().responses.contains_key(id)
    }
}

fn answer(name: &str, request: &Received, stored: &mut Stored) -> Answer {
    let line = request.head.lines().next().unwrap_or_default();
    let [method, target, _] = line.split(' ').collect::<Vec<_>>()[..] else { return Answer::unscripted() };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let key = request.header("authorization").unwrap_or_default();
    let has_body = !request.body.is_empty() || request.header("content-type").is_some();
    match (method, path.strip_prefix("/v1/responses").unwrap_or("?")) {
        ("POST", "") => create(name, request, key, stored),
        ("POST", "/input_tokens") => count(request, stored),
        ("POST", "/compact") => compact(request),
        // None of the others has a body.
        _ if has_body => Answer::unscripted(),
        (method, rest) => {
            let Some(rest) = rest.strip_prefix('/') else { return Answer::unscripted() };
            let (id, part) = rest.split_once('/').unwrap_or((rest, ""));
            match stored.responses.get(id) {
                Some((owner, text)) if owner == key => {
                    let text = text.clone();
                    by_id((method, id, part, query), &text, stored)
                }
                Some(_) | None => Answer::json(404, not_found(id)),
            }
        }
    }
}

fn by_id((method, id, part, query): (&str, &str, &str, &str), text: &str, stored: &mut Stored) -> Answer {
    match (method, part) {
        ("GET", "") if query.split('&').any(|member| member == "stream=true") => {
            let after = query.split('&').find_map(|member| member.strip_prefix("starting_after="));
            let after: i64 = after.map_or(-1, |after| after.parse().unwrap());
            Answer::events(
                &events(id).into_iter().skip(usize::try_from(after + 1).unwrap()).collect::<Vec<_>>(),
            )
        }
        ("GET", "") => Answer::json(200, text),
        ("DELETE", "") => {
            stored.responses.remove(id);
            Answer::json(200, json!({"id": id, "object": "response.deleted", "deleted": true}).to_string())
        }
        ("POST", "cancel") => {
            Answer::json(400, error("Cannot cancel a synchronous response.", "invalid_request_error"))
        }
        ("GET", "input_items") => Answer::json(200, input_items(id, query)),
        _ => Answer::unscripted(),
    }
}

fn create(name: &str, request: &Received, key: &str, stored: &mut Stored) -> Answer {
    let body = request.json();
    stored.made += 1;
    let id = format!("resp_{name}_{}", stored.made);
    let output = body["metadata"]["output"].as_str().unwrap_or("hello").to_owned();
    let is_failed = body["metadata"]["fails"] == "later";
    let made = response(&id, &output, &Value::Null);
    // What is fetched later differs in its spaces, and may have failed meanwhile.
    let failure = json!({"code": "server_error", "message": "It failed in the middle."});
    let kept = response(&id, &output, &if is_failed { failure } else { Value::Null });
    if body["store"] != false {
        let text = format!("{}\n", serde_json::to_string_pretty(&kept).unwrap());
        stored.responses.insert(id, (key.to_owned(), text));
    }
    Answer::json(200, made.to_string())
}

fn response(id: &str, output: &str, error: &Value) -> Value {
    let status = if error.is_null() { "completed" } else { "failed" };
    json!({"id": id, "object": "response", "created_at": 1, "status": status, "error": error, "model": "m",
        "output": [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": output, "annotations": []}]}],
        "usage": {"input_tokens": 11, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 18}})
}

/// The events of a response that failed: they end with an event that no client may take for an error of the transport.
pub(super) fn events(id: &str) -> Vec<String> {
    let error = json!({"code": "server_error", "message": "no"});
    ["response.created", "response.in_progress", "response.failed"]
        .into_iter()
        .enumerate()
        .map(|(number, kind)| {
            let event =
                json!({"type": kind, "sequence_number": number, "response": response(id, "hello", &error)});
            format!("event: {kind}\ndata: {event}\n\n")
        })
        .collect()
}

/// The list of the input, which repeats the query by which it was asked for.
pub(super) fn input_items(id: &str, query: &str) -> String {
    let item = json!({"id": "msg_0", "type": "message", "role": "user",
        "content": [{"type": "input_text", "text": format!("{id}?{query}")}]});
    json!({"object": "list", "data": [item], "first_id": "msg_0", "last_id": "msg_0", "has_more": false})
        .to_string()
}

fn count(request: &Received, stored: &Stored) -> Answer {
    let body = request.json();
    let key = request.header("authorization").unwrap_or_default();
    if let Some(id) = body["previous_response_id"].as_str()
        && stored.responses.get(id).is_none_or(|(owner, _)| owner != key)
    {
        return Answer::json(404, not_found(id));
    }
    let tokens = 1_000 + body["input"].as_str().unwrap_or_default().len();
    Answer::json(200, format!(r#"{{ "object": "response.input_tokens", "input_tokens": {tokens} }}"#))
}

/// A shorter form of a conversation. It has an ID but is no response.
pub(super) const COMPACTED: &str = r#"{ "id": "resp_compacted", "object": "response.compaction", "created_at": 2,
  "output": [{"id": "cmp_1", "type": "compaction", "encrypted_content": "gAAAAA-compact"}],
  "usage": {"input_tokens": 139, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 438,
    "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 577} }"#;

fn compact(request: &Received) -> Answer {
    let body = request.json();
    let is_valid = body["model"] == "m" && body.get("stream").is_none() && body.get("input").is_some();
    if is_valid { Answer::json(200, COMPACTED) } else { Answer::unscripted() }
}

fn not_found(id: &str) -> String {
    error(&format!("Response with id '{id}' not found."), "invalid_request_error")
}

fn error(message: &str, kind: &str) -> String {
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}}).to_string()
}
