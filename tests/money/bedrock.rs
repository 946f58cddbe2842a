//! Responses of Bedrock's Converse: whole ones, and streams of binary messages.

use serde_json::{Value, json};

use super::exact::Counts;
use super::of;
use crate::support::Answer;

pub(super) fn whole(counts: &Counts) -> Value {
    json!({
        "output": {"message": {"role": "assistant", "content": [{"text": "ok"}]}}, "stopReason": "end_turn",
        "usage": usage(counts), "metrics": {"latencyMs": 1},
    })
}

fn usage(counts: &Counts) -> Value {
    let (five, hour) = (of(counts, "cache_write"), of(counts, "cache_write_1h"));
    let (input, output, read) = (of(counts, "input"), of(counts, "output"), of(counts, "cache_read"));
    let details = json!([{"inputTokens": five, "ttl": "5m"}, {"inputTokens": hour, "ttl": "1h"}]);
    json!({
        "inputTokens": input, "outputTokens": output, "totalTokens": input + output + read + five + hour,
        "cacheReadInputTokens": read, "cacheWriteInputTokens": five + hour, "cacheDetails": details,
    })
}

/// Returns the head of a stream.
pub(super) fn stream() -> Answer {
    Answer::new().send(
        "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\ntransfer-encoding: chunked\r\n\r\n",
    )
}

/// Returns the messages up to the first content.
pub(super) fn begin() -> Vec<Vec<u8>> {
    vec![
        message("messageStart", &json!({"role": "assistant"})),
        message("contentBlockDelta", &json!({"contentBlockIndex": 0, "delta": {"text": "ok"}})),
    ]
}

/// Returns the messages after the first content.
pub(super) fn end(counts: &Counts) -> Vec<Vec<u8>> {
    vec![
        message("contentBlockStop", &json!({"contentBlockIndex": 0})),
        message("messageStop", &json!({"stopReason": "end_turn"})),
        message("metadata", &json!({"usage": usage(counts), "metrics": {"latencyMs": 1}})),
    ]
}

/// Encodes one message: lengths, headers and payload, each part followed by its checksum.
fn message(kind: &str, payload: &Value) -> Vec<u8> {
    let mut headers = Vec::new();
    for (name, value) in
        [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")]
    {
        headers.push(u8::try_from(name.len()).unwrap());
        headers.extend_from_slice(name.as_bytes());
        headers.push(STRING);
        headers.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let payload = payload.to_string();
    let length = FRAME_BYTES + headers.len() + payload.len();
    let mut out = u32::try_from(length).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(&u32::try_from(headers.len()).unwrap().to_be_bytes());
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out.extend_from_slice(&headers);
    out.extend_from_slice(payload.as_bytes());
    out.extend_from_slice(&crc32(&out).to_be_bytes());
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// The type code of string header values.
const STRING: u8 = 7;
/// The size of two lengths and two checksums.
const FRAME_BYTES: usize = 16;
