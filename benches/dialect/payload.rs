//! One request of each client dialect and one stream of each target dialect, of about the size that vendors send.

use serde_json::json;

/// The number of pieces of content in each stream.
pub(crate) const PIECES: usize = 200;

/// A row of the table: a client request and the target's stream.
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) request: String,
    /// The members of the provider.
    pub(crate) provider: &'static str,
    /// The suffix of its base URL.
    pub(crate) base: &'static str,
    pub(crate) key: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) events: Vec<Vec<u8>>,
}

/// The provider configuration and the answer of a target.
struct Target {
    provider: &'static str,
    base: &'static str,
    key: &'static str,
    content_type: &'static str,
    events: fn() -> Vec<Vec<u8>>,
}

const SSE: &str = "text/event-stream";
const KEY: &str = "upstream-secret-0123456789";

const CHAT: Target =
    Target { provider: "type: compatible", base: "/v1", key: KEY, content_type: SSE, events: chat };
const MESSAGES: Target =
    Target { provider: "type: anthropic", base: "", key: KEY, content_type: SSE, events: messages };
const RESPONSES: Target = Target {
    provider: "type: openai\nprotocols: [responses]\nforce_api_support: true\nmodels: [{id: m, protocols: [responses]}]",
    base: "/v1",
    key: KEY,
    content_type: SSE,
    events: responses,
};
const GEMINI: Target =
    Target { provider: "type: gemini", base: "/v1beta", key: KEY, content_type: SSE, events: gemini };
const BEDROCK: Target = Target {
    provider: "type: bedrock\nregion: eu-central-1",
    base: "",
    key: KEY,
    content_type: "application/vnd.amazon.eventstream",
    events: bedrock,
};

/// Returns all rows, the native chat stream first.
pub(crate) fn pairs() -> Vec<Pair> {
    let rows: [(&str, &str, &Target); 9] = [
        ("chat", "chat", &CHAT),
        ("messages", "messages", &MESSAGES),
        ("responses", "responses", &RESPONSES),
        ("messages_over_chat", "messages", &CHAT),
        ("responses_over_chat", "responses", &CHAT),
        ("chat_over_messages", "chat", &MESSAGES),
        ("chat_over_gemini", "chat", &GEMINI),
        ("chat_over_bedrock", "chat", &BEDROCK),
        ("chat_over_responses", "chat", &RESPONSES),
    ];
    rows.into_iter()
        .map(|(name, client, target)| {
            let (path, request) = ask(name, client);
            Pair {
                name,
                path,
                request,
                provider: target.provider,
                base: target.base,
                key: target.key,
                content_type: target.content_type,
                events: (target.events)(),
            }
        })
        .collect()
}

fn ask(provider: &str, client: &str) -> (&'static str, String) {
    let model = format!("{provider}/m");
    let turns =
        json!([{"role": "user", "content": "Tell the story of the lighthouse at the end of the pier."}]);
    match client {
        "messages" => (
            "/v1/messages",
            json!({"model": model, "max_tokens": 512, "stream": true, "messages": turns}).to_string(),
        ),
        "responses" => ("/v1/responses", json!({"model": model, "stream": true, "input": turns}).to_string()),
        _ => ("/v1/chat/completions", json!({"model": model, "stream": true, "messages": turns}).to_string()),
    }
}

fn text(index: usize) -> String {
    format!(" token{index:06}")
}

fn chat() -> Vec<Vec<u8>> {
    let chunk = |delta: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"chat.completion.chunk\",\"created\":1795000000,\
             \"model\":\"m\",\"system_fingerprint\":\"fp_bench\",\"choices\":[{{\"index\":0,\"delta\":{delta},\
             \"finish_reason\":{finish}}}],\"usage\":null}}\n\n"
        )
        .into_bytes()
    };
    let mut events = vec![chunk(r#"{"role":"assistant","content":"","refusal":null}"#, "null")];
    events.extend((0..PIECES).map(|index| chunk(&format!(r#"{{"content":"{}"}}"#, text(index)), "null")));
    events.push(chunk("{}", "\"stop\""));
    events.push(
        b"data: {\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"created\":1795000000,\"model\":\"m\",\
          \"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":200,\"total_tokens\":212}}\n\n"
            .to_vec(),
    );
    events.push(b"data: [DONE]\n\n".to_vec());
    events
}

fn named(name: &str, data: &str) -> Vec<u8> {
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{data}}}\n\n").into_bytes()
}

fn messages() -> Vec<Vec<u8>> {
    let start = r#","message":{"id":"msg_0123456789","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"output_tokens":1}}"#;
    let mut events = vec![
        named("message_start", start),
        named("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#),
    ];
    let delta = |index| {
        let text = text(index);
        named(
            "content_block_delta",
            &format!(r#","index":0,"delta":{{"type":"text_delta","text":"{text}"}}"#),
        )
    };
    events.extend((0..PIECES).map(delta));
    events.push(named("content_block_stop", r#","index":0"#));
    events.push(named(
        "message_delta",
        r#","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":200}"#,
    ));
    events.push(named("message_stop", ""));
    events
}

fn responses() -> Vec<Vec<u8>> {
    let item = "msg_0123456789abcdef";
    let whole: String = (0..PIECES).map(text).collect();
    let response = |status: &str, output: &str, usage: &str| {
        format!(
            r#","response":{{"id":"resp_0123456789","object":"response","created_at":1795000000,"status":"{status}","error":null,"model":"m","output":[{output}],"usage":{usage}}}"#
        )
    };
    let mut number = 0;
    let mut event = |name: &str, data: &str| {
        number += 1;
        named(name, &format!(",\"sequence_number\":{}{data}", number - 1))
    };
    let mut events = vec![
        event("response.created", &response("in_progress", "", "null")),
        event("response.in_progress", &response("in_progress", "", "null")),
        event(
            "response.output_item.added",
            &format!(
                r#","output_index":0,"item":{{"id":"{item}","type":"message","status":"in_progress","role":"assistant","content":[]}}"#
            ),
        ),
        event(
            "response.content_part.added",
            &format!(
                r#","item_id":"{item}","output_index":0,"content_index":0,"part":{{"type":"output_text","text":"","annotations":[],"logprobs":[]}}"#
            ),
        ),
    ];
    for index in 0..PIECES {
        let delta = format!(
            r#","item_id":"{item}","output_index":0,"content_index":0,"delta":"{}","logprobs":[]"#,
            text(index)
        );
        events.push(event("response.output_text.delta", &delta));
    }
    let done = format!(
        r#"{{"id":"{item}","type":"message","status":"completed","role":"assistant","content":[{{"type":"output_text","text":"{whole}","annotations":[]}}]}}"#
    );
    events.push(event("response.output_item.done", &format!(r#","output_index":0,"item":{done}"#)));
    let usage = r#"{"input_tokens":12,"output_tokens":200,"total_tokens":212}"#;
    events.push(event("response.completed", &response("completed", &done, usage)));
    events
}

fn gemini() -> Vec<Vec<u8>> {
    let frame = |text: &str, finish: &str, count: usize| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\"model\"}}{finish},\
             \"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":12,\"candidatesTokenCount\":{count},\
             \"totalTokenCount\":{}}},\"modelVersion\":\"m\",\"responseId\":\"abc\"}}\r\n\r\n",
            count + 12
        )
        .into_bytes()
    };
    let mut events: Vec<_> = (0..PIECES).map(|index| frame(&text(index), "", index + 1)).collect();
    events.push(frame("", ",\"finishReason\":\"STOP\"", PIECES));
    events
}

fn bedrock() -> Vec<Vec<u8>> {
    let mut events = vec![frame("messageStart", r#"{"role":"assistant"}"#)];
    events.extend((0..PIECES).map(|index| {
        let text = text(index);
        frame("contentBlockDelta", &format!(r#"{{"contentBlockIndex":0,"delta":{{"text":"{text}"}}}}"#))
    }));
    events.push(frame("contentBlockStop", r#"{"contentBlockIndex":0}"#));
    events.push(frame("messageStop", r#"{"stopReason":"end_turn"}"#));
    let usage =
        r#"{"usage":{"inputTokens":12,"outputTokens":200,"totalTokens":212},"metrics":{"latencyMs":1}}"#;
    events.push(frame("metadata", usage));
    events
}

/// Encodes one message of an AWS event stream.
fn frame(name: &str, payload: &str) -> Vec<u8> {
    let mut headers = Vec::new();
    for (key, value) in
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")]
    {
        headers.push(u8::try_from(key.len()).unwrap());
        headers.extend_from_slice(key.as_bytes());
        headers.push(7);
        headers.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        headers.extend_from_slice(value.as_bytes());
    }
    let total = 16 + headers.len() + payload.len();
    let mut frame = u32::try_from(total).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(&u32::try_from(headers.len()).unwrap().to_be_bytes());
    frame.extend_from_slice(&checksum(&frame).to_be_bytes());
    frame.extend_from_slice(&headers);
    frame.extend_from_slice(payload.as_bytes());
    let sum = checksum(&frame);
    frame.extend_from_slice(&sum.to_be_bytes());
    frame
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
