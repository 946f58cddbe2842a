//! The `echo` provider: answers inside the process with the words of the prompt, deterministically, and fails on
//! demand. It produces the same bytes as a real upstream, so that the rest of the pipeline is exercised. Each chunk of a
//! stream is made when it is read, and the text of an answer is bounded, so that a large prompt holds up no other request.

use std::borrow::Cow;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use shared::id::ProviderId;
use shared::routing::EchoOptions;
use tokio::time::Sleep;

use super::request::UpstreamRequest;
use super::{Broken, KeptHeaders, UpstreamBody, UpstreamResponse};
use crate::offload;

/// Counts the requests of all echo instances, for `fail_every`.
static REQUESTS: AtomicU32 = AtomicU32::new(0);
/// The maximum number of words in an answer, and of bytes. A longer one ends there, as if it had reached the limit of its
/// tokens.
const WORDS_MAX: usize = 16_384;
const TEXT_BYTES_MAX: usize = 256 << 10;

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
    let segments = request.segments.clone();
    let bytes = segments.iter().map(Bytes::len).sum();
    let Some(prompt) = offload::run(bytes, move || Prompt::read(&segments)).await else {
        return failure(provider, 400, None);
    };
    let mut answer = if prompt.stream { stream(prompt, options) } else { whole(&prompt) };
    if options.hang_after_head {
        answer.body = EchoBody::silent();
    }
    answer
}

/// The parts of a request that the echo uses.
#[derive(Debug)]
struct Prompt {
    model: String,
    /// The text of the answer.
    text: String,
    /// The numbers of words in the prompt and in the answer.
    prompt_tokens: usize,
    completion_tokens: usize,
    /// True if the text is shorter than that of the prompt.
    is_cut: bool,
    stream: bool,
    include_usage: bool,
}

#[derive(Deserialize)]
struct EchoRequestBody<'a> {
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow)]
    messages: Vec<EchoMessage<'a>>,
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
struct EchoMessage<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct EchoPart<'a> {
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
}

impl Prompt {
    fn read(segments: &[Bytes]) -> Option<Self> {
        let whole = match segments {
            [one] => Cow::Borrowed(&**one),
            several => Cow::Owned(several.concat()),
        };
        let body: EchoRequestBody<'_> = serde_json::from_slice(&whole).ok()?;
        let last = body.messages.iter().rposition(|message| message.role == "user");
        let (mut prompt_tokens, mut asked) = (0, String::new());
        for (position, message) in body.messages.iter().enumerate() {
            let text = message.text();
            prompt_tokens += words(&text).count();
            if Some(position) == last {
                asked = text;
            }
        }
        let completion_tokens = words(&asked).count();
        let text: String = words(within(&asked, TEXT_BYTES_MAX)).take(WORDS_MAX).collect();
        Some(Self {
            model: body.model.into_owned(),
            prompt_tokens,
            completion_tokens: completion_tokens.min(words(&text).count()),
            is_cut: text.len() < asked.len(),
            text,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
        })
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        })
    }

    fn finish_reason(&self) -> &'static str {
        if self.is_cut { "length" } else { "stop" }
    }
}

impl EchoMessage<'_> {
    /// Returns the text of the message, or the texts of its parts joined by line ends.
    fn text(&self) -> String {
        let Some(content) = self.content else { return String::new() };
        text_of(content).unwrap_or_else(|| {
            let parts: Vec<EchoPart<'_>> = serde_json::from_str(content.get()).unwrap_or_default();
            let texts: Vec<String> = parts.iter().filter_map(|part| text_of(part.text?)).collect();
            texts.join("\n")
        })
    }
}

/// Returns the text of a string.
fn text_of(value: &RawValue) -> Option<String> {
    value.get().starts_with('"').then(|| serde_json::from_str(value.get()).ok())?
}

/// Splits text into words with their trailing white space; joining them restores the text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(char::is_whitespace)
}

/// Returns the first characters of `text` that fit into `bytes_max`.
fn within(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default()
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
            "message": {"role": "assistant", "content": prompt.text, "refusal": null},
            "logprobs": null, "finish_reason": prompt.finish_reason(),
        }],
        "usage": prompt.usage(),
    });
    UpstreamResponse {
        status: 200,
        head: KeptHeaders::of_type("application/json"),
        body: EchoBody::whole(&body),
    }
}

fn stream(prompt: Prompt, options: &EchoOptions) -> UpstreamResponse {
    let EchoOptions { hang_after_chunks, cut_after_chunks, error_after_chunks, .. } = *options;
    let limit = hang_after_chunks.or(cut_after_chunks).or(error_after_chunks);
    let end = match (hang_after_chunks, cut_after_chunks, error_after_chunks) {
        (Some(_), ..) => EchoEnd::Silence,
        (None, _, Some(_)) => EchoEnd::Error,
        (None, Some(_), None) => EchoEnd::Cut,
        (None, None, None) => EchoEnd::Complete,
    };
    let chunks = EchoChunks {
        prompt,
        at: 0,
        words_left: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
        end,
        next: Some(EchoChunk::Role),
    };
    let body = EchoBody { pieces: EchoPieces::Chunks(chunks), pace: options.chunk_delay, sleep: None };
    UpstreamResponse {
        status: 200,
        head: KeptHeaders::of_type("text/event-stream"),
        body: UpstreamBody::Echo(Box::new(body)),
    }
}

/// Body that yields one piece per `pace`.
#[derive(Debug)]
pub(crate) struct EchoBody {
    pieces: EchoPieces,
    pace: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum EchoPieces {
    Whole(Option<Bytes>),
    /// Nothing ever comes.
    Silence,
    Chunks(EchoChunks),
}

/// The chunks of a stream that have not been read.
#[derive(Debug)]
struct EchoChunks {
    prompt: Prompt,
    /// The position in the text of the next word.
    at: usize,
    /// The number of words until the configured end.
    words_left: usize,
    end: EchoEnd,
    /// The next chunk; `None` after the last.
    next: Option<EchoChunk>,
}

#[derive(Clone, Copy, Debug)]
enum EchoChunk {
    Role,
    Word,
    Finish,
    Usage,
    Done,
    Error,
    /// The stream breaks off.
    Cut,
    /// Nothing more comes.
    Silence,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug)]
enum EchoEnd {
    Complete,
    Error,
    Cut,
    Silence,
}

impl EchoBody {
    /// Returns a body that is complete at once.
    pub(super) fn whole(body: &Value) -> UpstreamBody {
        let pieces = EchoPieces::Whole(Some(Bytes::from(body.to_string())));
        UpstreamBody::Echo(Box::new(Self { pieces, pace: Duration::ZERO, sleep: None }))
    }

    /// Returns a body of which nothing ever comes.
    fn silent() -> UpstreamBody {
        let pieces = EchoPieces::Silence;
        UpstreamBody::Echo(Box::new(Self { pieces, pace: Duration::ZERO, sleep: None }))
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let chunks = match &mut self.pieces {
            EchoPieces::Whole(body) => return Poll::Ready(body.take().map(Ok)),
            EchoPieces::Silence => return Poll::Pending,
            EchoPieces::Chunks(chunks) => chunks,
        };
        if matches!(chunks.next, Some(EchoChunk::Silence)) {
            return Poll::Pending;
        }
        if !self.pace.is_zero() && !matches!(chunks.next, Some(EchoChunk::Cut) | None) {
            let pace = self.pace;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(pace)));
            ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
        }
        Poll::Ready(chunks.next())
    }
}

impl Iterator for EchoChunks {
    type Item = Result<Bytes, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        let chunk = self.next.take()?;
        let (text, next) = match chunk {
            EchoChunk::Role => {
                (self.choice(&json!({"role": "assistant", "content": ""}), None), Some(self.word_or_end()))
            }
            EchoChunk::Word => {
                let rest = self.prompt.text.get(self.at..).unwrap_or_default();
                let word = words(rest).next().unwrap_or_default();
                let text = self.choice(&json!({"content": word}), None);
                self.at += word.len();
                self.words_left = self.words_left.saturating_sub(1);
                (text, Some(self.word_or_end()))
            }
            EchoChunk::Finish => {
                let after = if self.prompt.include_usage { EchoChunk::Usage } else { EchoChunk::Done };
                (self.choice(&json!({}), Some(self.prompt.finish_reason())), Some(after))
            }
            EchoChunk::Usage => (self.chunk(&json!([]), Some(self.prompt.usage())), Some(EchoChunk::Done)),
            EchoChunk::Done => ("[DONE]".to_owned(), None),
            EchoChunk::Error => (
                json!({"error": {"message": "The echo provider is configured to fail.",
                    "type": "server_error", "param": null, "code": null}})
                .to_string(),
                None,
            ),
            EchoChunk::Cut => return Some(Err(Broken)),
            EchoChunk::Silence => return None,
        };
        self.next = next;
        Some(Ok(Bytes::from(format!("data: {text}\n\n"))))
    }
}

impl EchoChunks {
    /// Returns the next chunk after the role or a word.
    fn word_or_end(&self) -> EchoChunk {
        match self.end {
            _ if self.words_left > 0 && self.at < self.prompt.text.len() => EchoChunk::Word,
            EchoEnd::Complete => EchoChunk::Finish,
            EchoEnd::Error => EchoChunk::Error,
            EchoEnd::Cut => EchoChunk::Cut,
            EchoEnd::Silence => EchoChunk::Silence,
        }
    }

    fn choice(&self, delta: &Value, finish: Option<&str>) -> String {
        let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        self.chunk(&choice, None)
    }

    fn chunk(&self, choices: &Value, usage: Option<Value>) -> String {
        let mut chunk = json!({
            "id": ID, "object": "chat.completion.chunk", "created": 0, "model": self.prompt.model,
            "choices": choices,
        });
        if let (Some(usage), Some(object)) = (usage, chunk.as_object_mut()) {
            object.insert("usage".to_owned(), usage);
        }
        chunk.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str, stream: bool) -> Prompt {
        let body = json!({"model": "echo", "stream": stream, "stream_options": {"include_usage": true},
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]});
        Prompt::read(&[Bytes::from(body.to_string())]).unwrap()
    }

    fn chunks(prompt: Prompt, options: &EchoOptions) -> EchoChunks {
        let UpstreamBody::Echo(body) = stream(prompt, options).body else { panic!() };
        let EchoPieces::Chunks(chunks) = body.pieces else { panic!() };
        chunks
    }

    fn text_of_chunks(chunks: EchoChunks) -> (String, Vec<Value>) {
        let events: Vec<String> =
            chunks.map_while(Result::ok).map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect();
        let data = events.iter().map(|event| event.strip_prefix("data: ").unwrap().trim_end());
        let values: Vec<Value> = data.filter_map(|data| serde_json::from_str(data).ok()).collect();
        let text = values.iter().filter_map(|value| value["choices"][0]["delta"]["content"].as_str());
        (text.collect(), values)
    }

    #[test]
    fn a_stream_repeats_the_prompt_word_by_word() {
        let prompt = prompt("one  two\nthr\"ee", true);
        assert_eq!((prompt.prompt_tokens, prompt.completion_tokens), (6, 4));
        let (text, values) = text_of_chunks(chunks(prompt, &EchoOptions::default()));
        assert_eq!(text, "one  two\nthr\"ee");
        assert_eq!(values.len(), 1 + 4 + 2, "the role, four words, the end and the usage");
        assert_eq!(values[5]["choices"][0]["finish_reason"], "stop");
        assert_eq!(
            values[6]["usage"],
            json!({"prompt_tokens": 6, "completion_tokens": 4, "total_tokens": 10})
        );
    }

    #[test]
    fn the_parts_of_a_message_are_joined() {
        let body = json!({"model": "echo", "messages": [{"role": "user", "content": [
            {"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "b"}]}]});
        let text = body.to_string();
        let (left, right) = text.split_at(20);
        let segments = [left, right].map(|part| Bytes::copy_from_slice(part.as_bytes()));
        assert_eq!(Prompt::read(&segments).unwrap().text, "a\nb");
    }

    #[test]
    fn the_answer_to_a_large_prompt_is_bounded_and_its_chunks_are_made_one_by_one() {
        for (text, want) in [
            ("a ".repeat(WORDS_MAX + 1), "a ".repeat(WORDS_MAX)),
            ("é".repeat(TEXT_BYTES_MAX), "é".repeat(TEXT_BYTES_MAX / 2)),
            ("a ".repeat(WORDS_MAX), "a ".repeat(WORDS_MAX)),
        ] {
            let asked = prompt(&text, true);
            let reason = if want.len() < text.len() { "length" } else { "stop" };
            assert_eq!((asked.text.len(), asked.finish_reason()), (want.len(), reason));
            let held = chunks(asked, &EchoOptions::default());
            assert!(size_of_val(&held) < 256, "no chunk is made before it is read");
            assert_eq!(text_of_chunks(held).0, want);
        }
    }

    #[test]
    fn a_stream_fails_after_the_configured_number_of_words() {
        let cut = EchoOptions { cut_after_chunks: Some(2), ..EchoOptions::default() };
        let broken = chunks(prompt("a b c", true), &cut);
        assert_eq!(broken.map(|piece| piece.is_ok()).collect::<Vec<_>>(), [true, true, true, false]);
        let error = EchoOptions { error_after_chunks: Some(1), ..EchoOptions::default() };
        let (text, values) = text_of_chunks(chunks(prompt("a b c", true), &error));
        assert_eq!((text.as_str(), values.len()), ("a ", 3));
        assert_eq!(values[2]["error"]["type"], "server_error");
    }
}
