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

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    Chat,
    /// The text of a recording, in a form.
    Transcription,
}

/// Returns a request with its head, as the load generator writes it.
pub(crate) fn framed(asks: Asks, key: &str, body: &[u8]) -> Bytes {
    let (path, content_type) = match asks {
        Asks::Chat => ("/v1/chat/completions", "application/json".to_owned()),
        Asks::Transcription => {
            ("/v1/audio/transcriptions", format!("multipart/form-data; boundary={BOUNDARY}"))
        }
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: bench.test\r\nauthorization: Bearer {key}\r\n\
         user-agent: relay-bench\r\naccept: */*\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat().into()
}

const BOUNDARY: &str = "------------------------bench0123456789";
/// Bytes at the start of a request in which the name of the model lies.
pub(crate) const MODEL_WITHIN: usize = 256;

/// Returns a form with `bytes` of a recording. Like compressed audio, it has no pattern, and now and then a line break with
/// dashes, at which a search for the boundary stops.
pub(crate) fn form(bytes: usize) -> Bytes {
    let mut form = format!(
        "--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{SELECTOR}\r\n\
         --{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.mp3\"\r\n\
         content-type: audio/mpeg\r\n\r\n"
    )
    .into_bytes();
    let (from, mut state) = (form.len(), 0x9e37_79b9_7f4a_7c15_u64);
    while form.len() < from + bytes {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        form.extend_from_slice(&state.to_le_bytes());
        if form.len() % (64 << 10) < 8 {
            form.extend_from_slice(b"\r\n----");
        }
    }
    form.extend_from_slice(format!("\r\n--{BOUNDARY}--\r\n").as_bytes());
    Bytes::from(form)
}

/// Returns the answer to a form.
pub(crate) fn transcript() -> Bytes {
    let text = "The ferry is late again, and so is the post. ".repeat(20);
    Bytes::from(
        json!({"text": text, "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 220,
                                       "total_tokens": 234}})
        .to_string(),
    )
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
