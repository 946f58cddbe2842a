//! One try at one target: from dispatch to the first content of a stream, or to the whole of a short answer.
//! Says what came of it and whether another try makes sense; decides nothing.

use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderValue;
use shared::error_kind::ErrorKind;
use shared::routing::{ProviderInstance, Target};
use shared::usage::{StepResult, TokenCounts};
use tokio::time::Sleep;
use wire::chat::{self, ChatStream, StreamOptions, WholeScan};
use wire::envelope::{self, Family, StreamError, UpstreamAnswer};
use wire::retry;

use crate::record::Record;
use crate::relay::Scan;
use crate::upstream::request::Draft;
use crate::upstream::{self, Answer, AnswerBody, Kept, SendError};
use crate::verdict::{Next, sort};
use crate::worker::Worker;

/// What an attempt needs besides its target.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) draft: Draft<'a>,
    /// The client asked for the usage chunk.
    pub(crate) include_usage: bool,
    pub(crate) request_id: &'a str,
    /// When the failover budget runs out.
    pub(crate) budget_end: tokio::time::Instant,
}

/// An answer that has begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// All of it.
    Whole { body: Bytes, usage: Option<TokenCounts>, output_bytes: u64 },
    /// Its first content, or the first part of a long whole answer, and where the rest comes from.
    Flowing { held: Vec<Bytes>, scan: Scan, body: AnswerBody },
}

/// An answer and the headers of its upstream.
#[derive(Debug)]
pub(crate) struct Success {
    pub(crate) begun: Begun,
    pub(crate) content_type: HeaderValue,
    pub(crate) processing_ms: Option<HeaderValue>,
}

/// Why an attempt did not lead to an answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) result: StepResult,
    pub(crate) kind: ErrorKind,
    pub(crate) next: Next,
    /// Whether it says something about the health of the upstream.
    pub(crate) counts: bool,
    pub(crate) status: Option<u16>,
    pub(crate) retry_after: Option<Duration>,
    /// The upstream's own error, in our envelope and sanitized.
    pub(crate) body: Option<Bytes>,
    pub(crate) message: String,
}

/// A whole answer up to this size is read before anything is sent, so that an upstream that breaks off in it
/// can still be replaced.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// Events held back before the first content.
const HELD_BYTES_MAX: usize = 64 << 10;
/// Bytes of an upstream's error body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// A whole answer that is turned into a stream must fit into this.
const SYNTHESIZED_BYTES_MAX: usize = 8 << 20;

/// Tries `target` once.
pub(crate) async fn attempt(
    task: &Task<'_>,
    target: &Target,
    record: &mut Record,
) -> Result<Success, Failure> {
    let began = Instant::now();
    let provider = &*target.provider;
    let mut patience = Patience::new(task.budget_end);
    let sent = patience.wait(provider.timeout, upstream::send(task.worker, &task.draft)).await;
    let mut answer = sent?.map_err(|error| of_send_error(&error, provider))?;
    record.head(answer.status, began);
    if answer.head.encoded {
        // What cannot be read cannot be accounted for, and inflating it here would be a way to fill the memory.
        let message =
            format!("The provider '{}' compressed its answer, which it was not asked to.", provider.id);
        return Err(Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message));
    }
    if !(200..300).contains(&answer.status) {
        return Err(of_status(task, &mut answer, provider, &mut patience).await);
    }
    let Kept { content_type, processing_ms, .. } = answer.head;
    let is_stream = content_type.as_ref().is_some_and(|value| is_event_stream(value.as_bytes()));
    let begun = match (task.draft.stream, is_stream) {
        (true, true) => first_content(task, provider, answer.body, &mut patience).await?,
        (true, false) => synthesize(task, provider, answer.body, &mut patience).await?,
        (false, _) => whole(task, provider, answer.body, &mut patience).await?,
    };
    let content_type = if task.draft.stream { EVENT_STREAM } else { content_type.unwrap_or(JSON) };
    Ok(Success { begun, content_type, processing_ms })
}

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

fn is_event_stream(content_type: &[u8]) -> bool {
    content_type.get(..17).is_some_and(|start| start.eq_ignore_ascii_case(b"text/event-stream"))
}

/// Waits with one timer for all phases of an attempt.
struct Patience {
    budget_end: tokio::time::Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    fn new(budget_end: tokio::time::Instant) -> Self {
        Self { budget_end, timer: None }
    }

    /// Runs `future` for at most `limit`, and not past the failover budget. The timer is made only when the
    /// future does not answer at once.
    async fn wait<T>(&mut self, limit: Duration, future: impl Future<Output = T>) -> Result<T, Failure> {
        let mut future = std::pin::pin!(future);
        let mut armed = false;
        std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
                return std::task::Poll::Ready(Ok(value));
            }
            let end = tokio::time::Instant::now().checked_add(limit).unwrap_or(self.budget_end);
            let end = end.min(self.budget_end);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(end)));
            if !armed {
                armed = true;
                if timer.deadline() != end {
                    timer.as_mut().reset(end);
                }
            }
            timer.as_mut().poll(cx).map(|()| Err(()))
        })
        .await
        .map_err(|()| self.over())
    }

    fn over(&self) -> Failure {
        if tokio::time::Instant::now() >= self.budget_end {
            return Failure {
                next: Next::Stop,
                counts: false,
                ..Failure::new(StepResult::BudgetExhausted, ErrorKind::BudgetExhausted, BUDGET)
            };
        }
        Failure::new(StepResult::TimedOut, ErrorKind::UpstreamTimeout, "The upstream did not answer in time.")
    }
}

const BUDGET: &str = "The failover budget ran out before any upstream answered.";

impl Failure {
    /// A failure that may be retried and counts for the circuit.
    fn new(result: StepResult, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            result,
            kind,
            next: Next::Retry,
            counts: true,
            status: None,
            retry_after: None,
            body: None,
            message: message.into(),
        }
    }
}

fn secrets(provider: &ProviderInstance) -> Vec<&str> {
    provider.credential.iter().map(|secret| secret.expose().as_str()).collect()
}

fn of_send_error(error: &SendError, provider: &ProviderInstance) -> Failure {
    let id = &provider.id;
    match error {
        SendError::Dial(upstream::dial::DialError::Refused(address)) => {
            tracing::warn!(provider.id = %id, %address, "an address that is never dialled was refused");
            let message = format!("The provider '{id}' has an address that is never dialled.");
            let failure = Failure::new(StepResult::AddressRefused, ErrorKind::UpstreamUnreachable, message);
            Failure { next: Next::FailOver, ..failure }
        }
        SendError::Dial(error) => {
            tracing::debug!(provider.id = %id, error = %error, "cannot connect");
            let message = format!("The provider '{id}' cannot be reached.");
            Failure::new(StepResult::Unreachable, ErrorKind::UpstreamUnreachable, message)
        }
        SendError::Broke(error) => {
            tracing::debug!(provider.id = %id, error = %error, "the connection broke");
            let message = format!("The connection to the provider '{id}' broke before it answered.");
            Failure::new(StepResult::Unreachable, ErrorKind::UpstreamUnreachable, message)
        }
        SendError::Invalid(why) => {
            let message = format!("The provider '{id}' sent no valid answer: {why}.");
            Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message)
        }
    }
}

/// An error status: reads what the upstream says about it and sorts it (FAIL-3).
async fn of_status(
    task: &Task<'_>,
    answer: &mut Answer,
    provider: &ProviderInstance,
    patience: &mut Patience,
) -> Failure {
    let status = answer.status;
    let mut body = Vec::new();
    while let Ok(Some(Ok(bytes))) = patience.wait(provider.stream_idle_timeout, answer.body.data()).await {
        let room = ERROR_BYTES_MAX.saturating_sub(body.len());
        body.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
        if body.len() >= ERROR_BYTES_MAX {
            break;
        }
    }
    answer.body.recycle(task.worker, provider);
    if status < 400 {
        let message = format!(
            "The provider '{}' answered with a redirect or nothing usable; redirects are never followed.",
            provider.id
        );
        let failure = Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message);
        return Failure { next: Next::FailOver, status: Some(status), ..failure };
    }
    let content_type = answer.head.content_type.as_ref().and_then(|value| value.to_str().ok());
    Failure {
        retry_after: wait_asked_for(&answer.head),
        ..of_error_answer(task, provider, status, content_type, &body)
    }
}

/// An error as it came, sorted, sanitized and in our envelope.
fn of_error_answer(
    task: &Task<'_>,
    provider: &ProviderInstance,
    status: u16,
    content_type: Option<&str>,
    body: &[u8],
) -> Failure {
    let secrets = secrets(provider);
    let upstream = UpstreamAnswer { status, content_type, body, secrets: &secrets };
    let error = upstream.diagnosis();
    let (next, counts) = sort(status, &error);
    Failure {
        next,
        counts,
        status: Some(status),
        body: Some(envelope::upstream_error(Family::OpenAi, upstream, task.request_id)),
        ..Failure::new(StepResult::Status, ErrorKind::UpstreamStatus, error.message)
    }
}

fn wait_asked_for(head: &Kept) -> Option<Duration> {
    let text = |value: &Option<HeaderValue>| value.as_ref()?.to_str().ok().map(str::to_owned);
    let now_ms = shared::clock::unix_ms();
    text(&head.retry_after_ms)
        .and_then(|value| retry::retry_after_ms(&value))
        .or_else(|| text(&head.retry_after).and_then(|value| retry::retry_after(&value, now_ms)))
}

/// Reads a stream up to its first content, holding back what comes before it.
async fn first_content(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let options = StreamOptions {
        drop_usage_only: !task.include_usage,
        secrets: secrets(provider).into_iter().map(str::to_owned).collect(),
    };
    let mut stream = Box::new(ChatStream::new(options));
    let mut held = Vec::with_capacity(2);
    loop {
        let next = patience.wait(provider.stream_idle_timeout, body.data()).await?;
        let ended = match next {
            Some(Ok(bytes)) => {
                stream.push(bytes, &mut held);
                false
            }
            Some(Err(_)) => return Err(broke_off(provider)),
            None => {
                stream.end(&mut held);
                true
            }
        };
        let state = stream.state();
        if !state.content
            && let Some(error) = &state.error
        {
            return Err(of_stream_error(task, provider, error));
        }
        let held_bytes: usize = held.iter().map(Bytes::len).sum();
        if state.content || state.done || state.finished || held_bytes > HELD_BYTES_MAX {
            return Ok(Begun::Flowing { held, scan: Scan::Stream(stream), body });
        }
        if ended {
            return Err(broke_off(provider));
        }
    }
}

fn broke_off(provider: &ProviderInstance) -> Failure {
    let message = format!("The provider '{}' broke off before its answer began.", provider.id);
    Failure::new(StepResult::StreamEnded, ErrorKind::UpstreamInvalid, message)
}

/// An error event inside a 200, before any content: as if its status had been the answer's.
fn of_stream_error(task: &Task<'_>, provider: &ProviderInstance, error: &StreamError) -> Failure {
    let status = error.status.filter(|status| (400..600).contains(status)).unwrap_or(500);
    let document = serde_json::json!({"error": {
        "message": error.message, "type": error.kind, "code": error.code, "param": error.param,
    }});
    let body = document.to_string();
    let failure = of_error_answer(task, provider, status, Some("application/json"), body.as_bytes());
    Failure { result: StepResult::StreamError, ..failure }
}

/// Reads a whole answer, or so much of a long one that it may be relayed.
async fn whole(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let mut scan = Box::new(WholeScan::new());
    let mut held = Vec::with_capacity(1);
    let mut held_bytes = 0;
    while held_bytes <= WHOLE_BYTES_MAX {
        match patience.wait(provider.stream_idle_timeout, body.data()).await? {
            Some(Ok(bytes)) => {
                scan.push(&bytes);
                held_bytes += bytes.len();
                held.push(bytes);
            }
            Some(Err(_)) => return Err(broke_off(provider)),
            None => {
                body.recycle(task.worker, provider);
                return judge_whole(task, provider, *scan, held);
            }
        }
    }
    Ok(Begun::Flowing { held, scan: Scan::Whole(scan), body })
}

fn judge_whole(
    task: &Task<'_>,
    provider: &ProviderInstance,
    scan: WholeScan,
    mut held: Vec<Bytes>,
) -> Result<Begun, Failure> {
    let answer = scan.finish();
    if let Some(error) = &answer.error {
        return Err(of_stream_error(task, provider, error));
    }
    if !answer.is_json {
        let message = format!("The provider '{}' answered with something that is not JSON.", provider.id);
        return Err(Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message));
    }
    let body = match (held.pop(), held.is_empty()) {
        (Some(only), true) => only,
        (Some(last), false) => {
            held.push(last);
            held.concat().into()
        }
        (None, _) => Bytes::new(),
    };
    Ok(Begun::Whole { body, usage: answer.usage, output_bytes: answer.output_bytes })
}

/// An upstream that cannot stream answered a stream request with a whole answer: it becomes a stream.
async fn synthesize(
    task: &Task<'_>,
    provider: &ProviderInstance,
    mut body: AnswerBody,
    patience: &mut Patience,
) -> Result<Begun, Failure> {
    let mut scan = WholeScan::new();
    let mut text = Vec::new();
    loop {
        match patience.wait(provider.stream_idle_timeout, body.data()).await? {
            Some(Ok(bytes)) if text.len() + bytes.len() <= SYNTHESIZED_BYTES_MAX => {
                scan.push(&bytes);
                text.extend_from_slice(&bytes);
            }
            Some(_) => return Err(broke_off(provider)),
            None => break,
        }
    }
    body.recycle(task.worker, provider);
    let begun = judge_whole(task, provider, scan, Vec::new())?;
    match (begun, chat::synthesize_stream(&text, task.include_usage)) {
        (Begun::Whole { usage, output_bytes, .. }, Some(stream)) => {
            Ok(Begun::Whole { body: stream.into(), usage, output_bytes })
        }
        _ => {
            let message = format!("The provider '{}' answered a stream request with no stream.", provider.id);
            Err(Failure::new(StepResult::Invalid, ErrorKind::UpstreamInvalid, message))
        }
    }
}
