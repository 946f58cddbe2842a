//! The `echo` provider: answers inside the process with the words of the prompt, deterministically, and fails on
//! demand. It produces the same bytes as a real upstream, so that the rest of the pipeline is exercised. Each chunk of a
//! stream is made when it is read, and the text of an answer is bounded, so that a large prompt holds up no other request.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use shared::id::ProviderId;
use shared::operation::Dialect;
use shared::routing::EchoOptions;
use tokio::time::Sleep;

use self::prompt::{Prompt, words};
use super::request::UpstreamRequest;
use super::{Broken, KeptHeaders, UpstreamBody, UpstreamResponse};
use crate::offload;

mod chat;
mod prompt;
mod responses;

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
    let body = match prompt.dialect {
        Dialect::Responses => responses::whole(prompt),
        _ => chat::whole(prompt),
    };
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
        words_sent: 0,
        words_max: limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX),
        end,
        next: Some(EchoChunk::Start),
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
    /// The number of words before that position.
    words_sent: usize,
    /// The number of words before the configured end.
    words_max: usize,
    end: EchoEnd,
    /// The next chunk; `None` after the last.
    next: Option<EchoChunk>,
}

#[derive(Clone, Copy, Debug)]
enum EchoChunk {
    /// The events before the first word.
    Start,
    Word,
    /// The events after the last word.
    End,
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
        let events = match chunk {
            EchoChunk::Start => self.start(),
            EchoChunk::Word => self.word(),
            EchoChunk::End => self.end(),
            EchoChunk::Error => self.error(),
            EchoChunk::Cut => return Some(Err(Broken)),
            EchoChunk::Silence => return None,
        };
        if matches!(chunk, EchoChunk::Start | EchoChunk::Word) {
            self.next = Some(self.word_or_end());
        }
        Some(Ok(Bytes::from(events)))
    }
}

impl EchoChunks {
    /// Returns the next chunk after the start or a word.
    fn word_or_end(&self) -> EchoChunk {
        match self.end {
            _ if self.words_sent < self.words_max && self.at < self.prompt.text.len() => EchoChunk::Word,
            EchoEnd::Complete => EchoChunk::End,
            EchoEnd::Error => EchoChunk::Error,
            EchoEnd::Cut => EchoChunk::Cut,
            EchoEnd::Silence => EchoChunk::Silence,
        }
    }

    fn start(&self) -> String {
        match self.prompt.dialect {
            Dialect::Responses => responses::start(&self.prompt),
            _ => chat::start(&self.prompt),
        }
    }

    /// Returns the event of the next word, and moves on behind it.
    fn word(&mut self) -> String {
        let rest = self.prompt.text.get(self.at..).unwrap_or_default();
        let word = words(rest).next().unwrap_or_default();
        let event = match self.prompt.dialect {
            Dialect::Responses => responses::word(word, self.words_sent),
            _ => chat::word(&self.prompt, word),
        };
        self.at += word.len();
        self.words_sent += 1;
        event
    }

    fn end(&self) -> String {
        match self.prompt.dialect {
            Dialect::Responses => responses::end(&self.prompt, self.words_sent),
            _ => chat::end(&self.prompt),
        }
    }

    fn error(&self) -> String {
        const MESSAGE: &str = "The echo provider is configured to fail.";
        match self.prompt.dialect {
            Dialect::Responses => responses::error(MESSAGE, self.words_sent),
            _ => chat::error(MESSAGE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::prompt::{TEXT_BYTES_MAX, WORDS_MAX};
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

    /// Returns the JSON documents of a stream's events.
    fn values_of(chunks: EchoChunks) -> Vec<Value> {
        let events: Vec<Bytes> = chunks.map_while(Result::ok).collect();
        let events = String::from_utf8(events.concat()).unwrap();
        let data = events.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter_map(|data| serde_json::from_str(data).ok()).collect()
    }

    fn text_of_chunks(chunks: EchoChunks) -> (String, Vec<Value>) {
        let values = values_of(chunks);
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
            assert_eq!((asked.text.len(), asked.is_cut), (want.len(), want.len() < text.len()));
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

    #[test]
    fn a_request_with_an_input_is_answered_in_responses() {
        let asked = |input: Value| {
            let body = json!({"model": "echo", "instructions": "be brief", "input": input, "stream": true,
                "include": ["reasoning.encrypted_content"], "store": false});
            Prompt::read(&[Bytes::from(body.to_string())]).unwrap()
        };
        let items = json!([
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "one  two"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        ]);
        for prompt in [asked(json!("one  two")), asked(items)] {
            let want = whole_of(&prompt);
            assert_eq!(want["output"][0]["content"][0]["text"], "one  two");
            assert_eq!(want["usage"]["input_tokens"], 5);
            let values = values_of(chunks(prompt, &EchoOptions::default()));
            let numbers: Vec<u64> =
                values.iter().filter_map(|value| value["sequence_number"].as_u64()).collect();
            assert_eq!(numbers, (0..11).collect::<Vec<_>>(), "four, three words, four");
            let text: String = values.iter().filter_map(|value| value["delta"].as_str()).collect();
            assert_eq!(text, "one  two");
            assert_eq!(values[10]["response"], want);
        }
        assert!(Prompt::read(&[Bytes::from(r#"{"model": "echo", "input": 1}"#)]).is_none());
    }

    fn whole_of(prompt: &Prompt) -> Value {
        let mut body = whole(prompt).body;
        let UpstreamBody::Echo(body) = &mut body else { panic!() };
        let EchoPieces::Whole(bytes) = &body.pieces else { panic!() };
        serde_json::from_slice(bytes.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn a_stream_of_responses_fails_with_an_error_event() {
        let body = json!({"model": "echo", "input": "a b", "stream": true});
        let prompt = Prompt::read(&[Bytes::from(body.to_string())]).unwrap();
        let error = EchoOptions { error_after_chunks: Some(1), ..EchoOptions::default() };
        let values = values_of(chunks(prompt, &error));
        assert_eq!(
            (values[5]["type"].as_str(), values[5]["sequence_number"].as_u64()),
            (Some("error"), Some(5))
        );
    }
}
