//! The `echo` provider: answers inside the process with the words of the prompt, deterministically, and fails on
//! demand. It produces the same bytes as a real upstream, so that the rest of the pipeline is exercised.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::id::ProviderId;
use shared::routing::EchoOptions;
use tokio::time::Sleep;

use super::request::UpstreamRequest;
use super::{Broken, KeptHeaders, UpstreamBody, UpstreamResponse};

/// Counts the requests of all echo instances, for `fail_every`.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// Answers one request according to `options`.
pub(super) async fn answer(
    provider: &ProviderId,
    options: &EchoOptions,
    request: &UpstreamRequest<'_>,
) -> UpstreamResponse {
    if options.hang {
        std::future::pending::<()>().await;
    }
    if !options.delay.is_zero() {
        tokio::time::sleep(options.delay).await;
    }
    let turn = REQUESTS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let unlucky = options.fail_every.is_some_and(|every| every > 0 && turn.is_multiple_of(every));
    if let Some(status) = options.status.or_else(|| unlucky.then_some(503)) {
        return failure(provider, status, options.retry_after);
    }
    let Some(prompt) = Prompt::read(&request.segments) else {
        return failure(provider, 400, None);
    };
    if prompt.stream { stream(&prompt, options) } else { whole(&prompt) }
}

/// The fields of a request that the echo uses.
struct Prompt {
    model: String,
    words: Vec<String>,
    prompt_tokens: usize,
    stream: bool,
    include_usage: bool,
}

#[derive(Deserialize)]
struct EchoRequestBody {
    model: String,
    messages: Vec<EchoMessage>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct EchoMessage {
    role: String,
    #[serde(default)]
    content: Value,
}

impl Prompt {
    fn read(segments: &[Bytes]) -> Option<Self> {
        let body: EchoRequestBody = serde_json::from_slice(&segments.concat()).ok()?;
        let text = |message: &EchoMessage| match &message.content {
            Value::String(text) => text.clone(),
            Value::Array(parts) => {
                parts.iter().filter_map(|part| part.get("text")?.as_str()).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        let last = body.messages.iter().rev().find(|message| message.role == "user").map(text);
        Some(Self {
            model: body.model,
            words: split_words(&last.unwrap_or_default()),
            prompt_tokens: body.messages.iter().map(|message| split_words(&text(message)).len()).sum(),
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        })
    }

    fn usage(&self, completion_tokens: usize) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self.prompt_tokens + completion_tokens,
        })
    }
}

/// Splits text into words with their trailing white space; joining them restores the text.
fn split_words(text: &str) -> Vec<String> {
    text.split_inclusive(char::is_whitespace).map(str::to_owned).collect()
}

const ID: &str = "chatcmpl-echo";

fn failure(provider: &ProviderId, status: u16, retry_after: Option<u64>) -> UpstreamResponse {
    let message = format!("The echo provider '{provider}' is configured to answer with {status}.");
    let body = json!({"error": {"message": message, "type": "echo_error", "param": null, "code": null}});
    let head = KeptHeaders::of_type("application/json");
    let head = match retry_after {
        Some(seconds) => head.asking_to_wait(seconds),
        None => head,
    };
    UpstreamResponse { status, head, body: EchoBody::whole(&body) }
}

fn whole(prompt: &Prompt) -> UpstreamResponse {
    let body = json!({
        "id": ID, "object": "chat.completion", "created": 0, "model": prompt.model,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": prompt.words.concat(), "refusal": null},
            "logprobs": null, "finish_reason": "stop",
        }],
        "usage": prompt.usage(prompt.words.len()),
    });
    UpstreamResponse {
        status: 200,
        head: KeptHeaders::of_type("application/json"),
        body: EchoBody::whole(&body),
    }
}

fn stream(prompt: &Prompt, options: &EchoOptions) -> UpstreamResponse {
    let chunk = |choices: Value, usage: Option<Value>| {
        let mut chunk = json!({
            "id": ID, "object": "chat.completion.chunk", "created": 0, "model": prompt.model, "choices": choices,
        });
        if let (Some(usage), Some(object)) = (usage, chunk.as_object_mut()) {
            object.insert("usage".to_owned(), usage);
        }
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let choice = |delta: Value, finish: Option<&str>| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
    let mut pieces = vec![chunk(choice(json!({"role": "assistant", "content": ""}), None), None)];
    let limit = options.cut_after_chunks.or(options.error_after_chunks);
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let words = prompt.words.iter().take(limit);
    pieces.extend(words.map(|word| chunk(choice(json!({"content": word}), None), None)));
    if options.error_after_chunks.is_some() {
        let error = json!({"error": {"message": "The echo provider is configured to fail.", "type": "server_error",
            "param": null, "code": null}});
        pieces.push(Bytes::from(format!("data: {error}\n\n")));
    } else if options.cut_after_chunks.is_none() {
        pieces.push(chunk(choice(json!({}), Some("stop")), None));
        if prompt.include_usage {
            pieces.push(chunk(json!([]), Some(prompt.usage(prompt.words.len()))));
        }
        pieces.push(Bytes::from_static(b"data: [DONE]\n\n"));
    }
    let body = EchoBody {
        pieces: pieces.into_iter(),
        pace: options.chunk_delay,
        sleep: None,
        cut: options.cut_after_chunks.is_some(),
    };
    UpstreamResponse {
        status: 200,
        head: KeptHeaders::of_type("text/event-stream"),
        body: UpstreamBody::Echo(Box::new(body)),
    }
}

/// Body that yields one piece per `pace`.
#[derive(Debug)]
pub(crate) struct EchoBody {
    pieces: std::vec::IntoIter<Bytes>,
    pace: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// True to break off instead of ending.
    cut: bool,
}

impl EchoBody {
    /// Returns a body that is complete at once.
    pub(super) fn whole(body: &Value) -> UpstreamBody {
        let pieces = vec![Bytes::from(body.to_string())].into_iter();
        UpstreamBody::Echo(Box::new(Self { pieces, pace: Duration::ZERO, sleep: None, cut: false }))
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        if !self.pace.is_zero() && self.pieces.len() > 0 {
            let pace = self.pace;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(pace)));
            ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
        }
        Poll::Ready(match self.pieces.next() {
            Some(piece) => Some(Ok(piece)),
            None if std::mem::take(&mut self.cut) => Some(Err(Broken)),
            None => None,
        })
    }
}
