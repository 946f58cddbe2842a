//! The requests of the test: one per operation, each with the number of its plan in its text.

use serde_json::json;

use super::plan::{Exchange, Operation};

/// Returns the text of a request; the upstream finds the plan by its number. All texts have one length, so that
/// requests of one operation to the same targets reserve the same amount.
pub(super) fn text(number: u64) -> String {
    format!("plan:{number:012}: Say hello.")
}

/// Returns the path, the content type and the body of a request.
pub(super) fn request(exchange: &Exchange, number: u64) -> (&'static str, &'static str, String) {
    let (model, text) = (exchange.selector(), text(number));
    let (stream, messages) = (exchange.stream, json!([{"role": "user", "content": text}]));
    let (path, body) = match exchange.operation {
        Operation::Chat => {
            ("/v1/chat/completions", json!({"model": model, "stream": stream, "messages": messages}))
        }
        Operation::Messages => (
            "/v1/messages",
            json!({"model": model, "stream": stream, "max_tokens": 64, "messages": messages}),
        ),
        Operation::Responses => {
            ("/v1/responses", json!({"model": model, "stream": stream, "input": text, "store": false}))
        }
        Operation::Embeddings => ("/v1/embeddings", json!({"model": model, "input": text})),
        Operation::Speech => ("/v1/audio/speech", json!({"model": model, "input": text, "voice": "alloy"})),
        Operation::Images => ("/v1/images/generations", json!({"model": model, "prompt": text, "n": 2})),
        Operation::Videos => {
            ("/v1/videos/generations", json!({"model": model, "prompt": text, "seconds": 4}))
        }
        Operation::Transcription => {
            let part = |name: &str, value: &str| {
                format!("--b\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
            };
            let (model, prompt) = (part("model", &model), part("prompt", &text));
            let file = part("file\"; filename=\"a.mp3", "sound");
            let body = format!("{model}{prompt}{file}--b--\r\n");
            return ("/v1/audio/transcriptions", "multipart/form-data; boundary=b", body);
        }
    };
    (path, "application/json", body.to_string())
}
