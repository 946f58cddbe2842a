//! Collects an event stream into the whole answer that it stands for, for a client that asked for one and a target that
//! sends events nevertheless.

use serde_json::Value;
use shared::operation::Dialect;

use crate::envelope::StreamError;
use crate::sse::SseDecoder;
use crate::translation::BadAnswer;
use crate::{chat, gemini, messages, responses};

/// The maximum size of a stream that is collected, in bytes.
pub const COLLECTED_BYTES_MAX: usize = 16 << 20;

/// Returns the whole answer that `stream`, a complete answer in events of the target's `dialect`, stands for.
pub fn collect(dialect: Dialect, stream: &[u8]) -> Result<Vec<u8>, BadAnswer> {
    let events = events(stream)?;
    let whole = match dialect {
        Dialect::Chat => chat::collect(&events),
        Dialect::Messages => messages::collect(&events),
        Dialect::Responses => responses::collect(&events),
        Dialect::Gemini => gemini::collect(&events),
        Dialect::Bedrock
        | Dialect::Embeddings
        | Dialect::GeminiEmbeddings
        | Dialect::Speech
        | Dialect::Transcription
        | Dialect::Images
        | Dialect::Videos => return Err(BadAnswer::Invalid("it is a stream, which was not requested")),
    };
    whole.map(|whole| whole.to_string().into_bytes())
}

/// Returns the JSON of all events before `[DONE]`. An error event of any shape is an error.
fn events(stream: &[u8]) -> Result<Vec<Value>, BadAnswer> {
    let mut decoder = SseDecoder::new(COLLECTED_BYTES_MAX);
    // The last event may lack its blank line.
    let pushed = decoder.push(stream).and_then(|()| decoder.push(b"\n\n"));
    pushed.map_err(|_| BadAnswer::Invalid("an event is too large"))?;
    let mut events = Vec::new();
    while let Some(event) = decoder.next_event() {
        if event.data.starts_with("[DONE]") {
            events.push(Value::Null);
            break;
        }
        let Ok(mut document) = serde_json::from_str::<Value>(&event.data) else { continue };
        let is_error = document.get("error").is_some_and(StreamError::is_error)
            || document.get("type").is_some_and(|kind| kind == "error");
        if event.event == "error" || is_error {
            let error = StreamError::of_document(&document);
            return Err(BadAnswer::Error(error.unwrap_or_else(|| StreamError::of_member(&document))));
        }
        if let Some(members) = document.as_object_mut()
            && !members.contains_key("type")
        {
            members.insert("type".to_owned(), event.event.into());
        }
        events.push(document);
    }
    Ok(events)
}

/// Returns the length of a complete JSON answer that is followed by events: some gateways append the end of a stream to
/// it. `None` if nothing or something else follows.
pub fn length_before_events(body: &[u8]) -> Option<usize> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    let end = values.byte_offset();
    let rest = body.get(end..)?.trim_ascii_start();
    let follows = [b"data:".as_slice(), b"event:", b":"].into_iter().any(|field| rest.starts_with(field));
    follows.then_some(end)
}
