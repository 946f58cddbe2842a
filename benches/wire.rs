//! Measures the code that every byte passes through: the request scan and splice, the stream relay, the decoder.
//!
//! `cargo bench --bench wire` prints one line per piece; a word after `--` selects the lines that contain it. Each
//! figure is the best of several rounds, because noise on a shared machine only adds time.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench, not a product")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::operation::Dialect;
use wire::adapt::{Asking, Traits};
use wire::native::{self, WholeScan};
use wire::request::{HeadScan, Naming};
use wire::stream::StreamOptions;

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with("--")).unwrap_or_default();
    let bench = Bench { wanted };
    heads(&bench);
    streams(&bench);
    adaptations(&bench);
    others(&bench);
}

fn heads(bench: &Bench) {
    let long = |bytes: usize| body(1, bytes, "The quick brown fox. ");
    let prose = "The quick brown fox. ".repeat(19) + r#"\"Jumps\"."#;
    let bodies = [
        ("head: 1 KB, one message", body(1, 900, "The quick brown fox. ")),
        ("head: 100 KB, ten long strings", body(10, 10_000, "The quick brown fox. ")),
        ("head: 1 MB, ten long strings", body(10, 100_000, "The quick brown fox. ")),
        ("head: 1 MB, one string", long(1_000_000)),
        ("head: 1 MB, an escape every 20 bytes", body(10, 100_000, r#"The quick \"brown\" \n"#)),
        ("head: 1 MB, a quoted word every 400 bytes", body(10, 100_000, &prose)),
        ("head: 1 MB of source code", body(10, 100_000, CODE)),
        ("head: 1 MB of \\u escapes", body(10, 100_000, r"\u654f\u6377\u7684")),
        ("head: 1 MB of Chinese", body(10, 100_000, "敏捷的")),
        ("head: 1 MB, an image in base64", image()),
        ("head: 1 MB, 8,000 small messages", body(8_000, 80, "The quick brown fox. ")),
        ("head: 1 MB of tool schemas", tools()),
    ];
    for (name, body) in &bodies {
        bench.run(name, body.len(), 1, || {
            let mut scan = HeadScan::new(Dialect::Chat);
            scan.push(body).unwrap();
            scan.finish().unwrap()
        });
    }
    let body = Bytes::from(long(1_000_000));
    let mut scan = HeadScan::new(Dialect::Chat);
    scan.push(&body).unwrap();
    let head = scan.finish().unwrap();
    let segments = [body];
    bench.run("build: 1 MB", 0, 1, || {
        wire::request::build(&segments, &head, Naming::Model("target-model"), true, None)
    });
}

fn streams(bench: &Bench) {
    for (name, usage) in [("", "null"), (" with running usage", RUNNING)] {
        for per_push in [1, 40] {
            let chunk = Bytes::from(event(usage).repeat(per_push));
            let name = format!("stream: {per_push} events a push{name}");
            let options = StreamOptions { drop_usage_only: true, secrets: Vec::new() };
            let (mut stream, mut out) = (native::stream(Dialect::Chat, options), Vec::with_capacity(8));
            bench.run(&name, chunk.len(), per_push, || {
                stream.push(chunk.clone(), &mut out);
                out.clear();
            });
            assert!(!bench.wants(&name) || stream.state().content_events > 0);
        }
    }
    for (name, dialect, event) in
        [("messages", Dialect::Messages, MESSAGES), ("responses", Dialect::Responses, RESPONSES)]
    {
        for per_push in [1, 40] {
            let chunk = Bytes::from(event.repeat(per_push));
            let name = format!("stream: {per_push} {name} events a push");
            let (mut stream, mut out) =
                (native::stream(dialect, StreamOptions::default()), Vec::with_capacity(8));
            bench.run(&name, chunk.len(), per_push, || {
                stream.push(chunk.clone(), &mut out);
                out.clear();
            });
            assert!(!bench.wants(&name) || stream.state().content_events > 0);
        }
    }
    let chunk = Bytes::from(event("null").repeat(40));
    let (mut stream, mut out) =
        (native::stream(Dialect::Chat, StreamOptions::default()), Vec::with_capacity(8));
    let mut at = 0;
    bench.run("stream: pieces of 100 bytes, cutting events", 100, 1, || {
        stream.push(chunk.slice(at..at + 100), &mut out);
        at = (at + 100) % 9_200;
        out.clear();
    });
}

/// Measures a text chunk in every adaptation of an SSE stream, with one and with many chunks per read.
fn adaptations(bench: &Bench) {
    let chat = event("null");
    let rows = [
        (Dialect::Messages, Dialect::Chat, chat.as_str()),
        (Dialect::Responses, Dialect::Chat, &chat),
        (Dialect::Chat, Dialect::Messages, MESSAGES_EVENT),
        (Dialect::Chat, Dialect::Responses, RESPONSES),
        (Dialect::Chat, Dialect::Gemini, GEMINI),
    ];
    for (client, upstream, event) in rows {
        let request = match client {
            Dialect::Messages => {
                r#"{"max_tokens":9,"stream":true,"messages":[{"role":"user","content":"x"}]}"#
            }
            Dialect::Responses => r#"{"stream":true,"input":"x"}"#,
            _ => r#"{"stream":true,"messages":[{"role":"user","content":"x"}]}"#,
        };
        let target = Traits::of("up-model");
        let asking = Asking {
            body: request.as_bytes(),
            target: &target,
            selector: "m",
            seed: "S",
            now_s: 1,
            input_tokens: 0,
        };
        let answers = (wire::adapt::find(client, upstream).unwrap().prepare)(&asking).unwrap().answers;
        for per_push in [1, 40] {
            let chunk = Bytes::from(event.repeat(per_push));
            let name = format!("{} over {}: {per_push} events a push", client.name(), upstream.name());
            let (mut stream, mut out) = (answers.stream(Vec::new()), Vec::with_capacity(8));
            bench.run(&name, chunk.len(), per_push, || {
                stream.push(chunk.clone(), &mut out);
                out.clear();
            });
        }
    }
}

fn others(bench: &Bench) {
    let chunk = event("null").repeat(40);
    let mut decoder = wire::sse::SseDecoder::default();
    bench.run("decoder: 40 events a push", chunk.len(), 40, || {
        decoder.push(chunk.as_bytes()).unwrap();
        while let Some(event) = decoder.next_event() {
            black_box(event);
        }
    });
    let answer = format!(
        r#"{{"id":"x","choices":[{{"index":0,"message":{{"role":"assistant","content":"{}"}},"finish_reason":"stop"}}],"usage":{RUNNING}}}"#,
        "The quick brown fox. ".repeat(50)
    );
    bench.run("whole answer: 1 KB", answer.len(), 1, || {
        let mut scan = WholeScan::new(Dialect::Chat);
        scan.push(answer.as_bytes());
        scan.finish()
    });
    let text = "Rate limit reached for gpt-4o in organization org-abc on requests per min. Limit: 3 / min.";
    bench.run("sanitize: an error message", text.len(), 1, || {
        shared::sanitize::diagnostic(text, &["sk-proj-0123456789abcdefghij"]).len()
    });
}

const MESSAGES_EVENT: &str = "event: content_block_delta\n\
    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" fox\"}}\n\n";
const GEMINI: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\" fox\"}],\"role\":\"model\"},\"index\":0}],\
    \"usageMetadata\":{\"promptTokenCount\":12,\"candidatesTokenCount\":3,\"totalTokenCount\":15},\
    \"modelVersion\":\"m\",\"responseId\":\"abc\"}\r\n\r\n";
const RUNNING: &str = r#"{"prompt_tokens":120,"completion_tokens":30,"total_tokens":150}"#;

const MESSAGES: &str = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" token\"}}\n\n";
const RESPONSES: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":7,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\" token\",\"logprobs\":[],\"obfuscation\":\"abc\"}\n\n";

/// Returns an event of about 230 bytes.
fn event(usage: &str) -> String {
    let text = format!(
        r#"data: {{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1795000000,"model":"up-model","system_fingerprint":"fp_1","choices":[{{"index":0,"delta":{{"content":" token"}},"logprobs":null,"finish_reason":null}}],"usage":{usage}}}"#
    );
    text + "\n\n"
}

fn body(messages: usize, bytes: usize, text: &str) -> Vec<u8> {
    let content = text.repeat(bytes / text.len() + 1);
    let message = format!(r#"{{"role":"user","content":"{content}"}}"#);
    let messages = vec![message; messages].join(",");
    format!(r#"{{"model":"gpt-4o","stream":true,"temperature":0.7,"messages":[{messages}]}}"#).into_bytes()
}

/// Source code in a string of JSON.
const CODE: &str = r#"    if (value != null && map.get(\"key\") == value) {\n        print(\"found: \" + value);\n    }\n\n"#;

fn image() -> Vec<u8> {
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAUA/+AAAFCAYAAACNbyblAAAAHElEQVQI12P4".repeat(16_000);
    let image = format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{data}"}}}}"#);
    format!(r#"{{"model":"gpt-4o","messages":[{{"role":"user","content":[{image}]}}]}}"#).into_bytes()
}

fn tools() -> Vec<u8> {
    let tool = r#"{"type":"function","function":{"name":"get_weather","description":"Weather of a place","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city"]}}}"#;
    let tools = vec![tool; 1_000_000 / tool.len()].join(",");
    format!(r#"{{"model":"gpt-4o","messages":[],"tools":[{tools}]}}"#).into_bytes()
}

struct Bench {
    wanted: String,
}

impl Bench {
    fn wants(&self, name: &str) -> bool {
        name.contains(&self.wanted)
    }

    /// Times `work`, which processes `bytes` bytes and `items` events.
    fn run<T>(&self, name: &str, bytes: usize, items: usize, mut work: impl FnMut() -> T) {
        if !self.wants(name) {
            return;
        }
        let started = Instant::now();
        black_box(work());
        let one = started.elapsed().max(Duration::from_nanos(50));
        let times = (Duration::from_millis(30).as_nanos() / one.as_nanos()).clamp(1, 1_000_000);
        let best = (0..9).map(|_| round(times, &mut work)).fold(f64::INFINITY, f64::min);
        let rate = if bytes == 0 { String::new() } else { format!("{:8.2} GB/s", bytes as f64 / best) };
        println!("{name:48} {:10.1} ns  {rate}", best / items as f64);
    }
}

/// Returns the nanoseconds per call.
fn round<T>(times: u128, work: &mut impl FnMut() -> T) -> f64 {
    let started = Instant::now();
    for _ in 0..times {
        black_box(work());
    }
    started.elapsed().as_nanos() as f64 / times as f64
}
