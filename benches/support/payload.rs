//! The payloads of the benchmark: chat requests of any size, a whole answer, and streams whose content events all have
//! the same length and space for the time of the upstream's write.

use bytes::Bytes;
use serde_json::json;

/// The model that clients name; the gateway replaces it by [`UPSTREAM_MODEL`].
pub(crate) const SELECTOR: &str = "chat";
/// The provider's name for the model.
pub(crate) const UPSTREAM_MODEL: &str = "gpt-bench-2026-11-21";
/// The administrator key of the gateway under test.
pub(crate) const KEY: &str = "bench-admin-key-0123456789abcdef";

/// Returns a request of about `bytes_min` bytes: alternating messages of some KB, prose with a line break every 85
/// bytes and a quoted phrase every 400. The `wire` bench has text with more quotes, which costs the scanner more.
pub(crate) fn request(bytes_min: usize, stream: bool) -> Bytes {
    let paragraph = "\
        The lighthouse at the end of the pier had not been lit since the winter of the storm,\n\
        and the keeper's ledger, which ought to have said why, said only \"fog\" and a date.\n\
        In Köln it was 12 °C; the post came late, the ferry not at all, and nobody in the inn\n\
        could say whether the harbour master had left or had never come back from the island.\n\
        So they waited, counted the bells, and wrote the names of the ships into the margins.\n";
    let mut messages = vec![json!({"role": "system", "content": "You are a careful assistant."})];
    let mut length = 250;
    while length < bytes_min {
        let role = if messages.len() % 2 == 1 { "user" } else { "assistant" };
        let text = paragraph.repeat((bytes_min - length).div_ceil(paragraph.len() + 6).clamp(1, 48));
        length += text.len() + text.len() / 60 + 32;
        messages.push(json!({"role": role, "content": text}));
    }
    let mut head = format!(r#"{{"model":"{SELECTOR}","temperature":0.7,"max_tokens":512,"#);
    if stream {
        head.push_str(r#""stream":true,"stream_options":{"include_usage":true},"#);
    }
    let messages = serde_json::to_string(&messages).unwrap();
    Bytes::from(format!("{head}\"messages\":{messages}}}"))
}

/// Returns a request with its head, as the load generator writes it.
pub(crate) fn framed(body: &[u8]) -> Bytes {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench.test\r\nauthorization: Bearer {KEY}\r\n\
         user-agent: relay-bench\r\naccept: */*\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat().into()
}

/// Returns the body of a whole answer of about 1 KB.
pub(crate) fn completion() -> Bytes {
    let text = "Loopback answers are short, but \"quoted\" and\nbroken into lines. ".repeat(9);
    Bytes::from(
        json!({
            "id": "chatcmpl-benchmark0001", "object": "chat.completion", "created": 1_795_000_000,
            "model": UPSTREAM_MODEL,
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text, "refusal": null},
                         "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 231, "completion_tokens": 143, "total_tokens": 374},
            "system_fingerprint": "fp_bench",
        })
        .to_string(),
    )
}

/// A stream as its client must receive it.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// The events: role, content, finish, usage, end marker.
    pub(crate) events: Vec<Bytes>,
    /// The same events, each as an HTTP/1.1 chunk.
    pub(crate) framed: Vec<Bytes>,
    /// The number of content events; they start at index 1.
    pub(crate) content: usize,
}

/// The offset of the timestamp in each event.
pub(crate) const STAMP_AT: usize = 22;
/// The number of digits of a timestamp, in nanoseconds since the start of the rig.
pub(crate) const STAMP_DIGITS: usize = 16;

impl Stream {
    /// Creates a stream with `content` content events of about 230 bytes.
    pub(crate) fn new(content: usize) -> Self {
        let mut events = vec![event(r#"{"role":"assistant","content":"","refusal":null}"#, "null", "null")];
        for index in 0..content {
            let delta = format!(r#"{{"content":" token{index:06}"}}"#);
            events.push(event(&delta, "null", "null"));
        }
        events.push(event("{}", "\"stop\"", "null"));
        events.push(usage_event(content));
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        let framed = events.iter().map(|event| chunk(event)).collect();
        Self { events, framed, content }
    }

    /// True if event number `index` has a timestamp.
    pub(crate) fn is_stamped(&self, index: usize) -> bool {
        (1..=self.content).contains(&index)
    }
}

fn event(delta: &str, finish: &str, usage: &str) -> Bytes {
    Bytes::from(format!(
        "data: {{\"id\":\"chatcmpl-{:0STAMP_DIGITS$}\",\"object\":\"chat.completion.chunk\",\"created\":1795000000,\
         \"model\":\"{UPSTREAM_MODEL}\",\"system_fingerprint\":\"fp_bench\",\"choices\":[{{\"index\":0,\
         \"delta\":{delta},\"finish_reason\":{finish}}}],\"usage\":{usage}}}\n\n",
        0
    ))
}

fn usage_event(content: usize) -> Bytes {
    Bytes::from(format!(
        "data: {{\"id\":\"chatcmpl-{:0STAMP_DIGITS$}\",\"object\":\"chat.completion.chunk\",\"created\":1795000000,\
         \"model\":\"{UPSTREAM_MODEL}\",\"choices\":[],\"usage\":{{\"prompt_tokens\":231,\
         \"completion_tokens\":{content},\"total_tokens\":{}}}}}\n\n",
        0,
        content + 231
    ))
}

/// Frames `bytes` as one HTTP/1.1 chunk.
fn chunk(bytes: &[u8]) -> Bytes {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    Bytes::from(framed)
}
