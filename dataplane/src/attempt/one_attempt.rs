//! One attempt at one target: from sending the request to the first content of a stream, or to the end of a short
//! answer. It reports the outcome and whether another attempt makes sense; the caller decides.

use std::pin::pin;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use shared::answer_head::JSON;
use shared::routing::{ProviderInstance, Target};
use wire::adapt::TranslatedAnswer;
use wire::answer_shape::AnswerShape;

use super::Job;
use super::budget::AttemptLimits;
use super::failure::{self, Failure, of_send_error};
use super::first_content;
use super::opening::{Opening, compressed};
use super::timeouts::AttemptTimeouts;
use super::waiting::let_rest;
use crate::adapt::AnswerReader;
use crate::record::Record;
use crate::relay::Scan;
use crate::upstream::request::UpstreamRequest;
use crate::upstream::{self, KeptHeaders, SendError, UpstreamBody, UpstreamResponse};

/// The input of an attempt, except for its target.
#[derive(Debug)]
pub(crate) struct AttemptParams<'a> {
    pub(crate) job: &'a Job,
    pub(crate) request: UpstreamRequest<'a>,
    pub(crate) reader: AnswerReader,
    pub(crate) limits: AttemptLimits<'a>,
}

/// An answer that is ready for the client.
#[derive(Debug)]
pub(crate) enum AnswerStart {
    /// The whole answer.
    Whole(Box<TranslatedAnswer>),
    /// The first content, or the first part of a long whole answer, and the source of the rest.
    Streaming { held: Vec<Bytes>, scan: Scan, body: UpstreamBody },
}

/// An answer that is ready for the client, and the relevant headers of its upstream.
#[derive(Debug)]
pub(crate) struct Success {
    pub(crate) start: AnswerStart,
    pub(crate) content_type: HeaderValue,
    pub(crate) processing_ms: Option<HeaderValue>,
    /// The state of a Codex turn.
    pub(crate) turn_state: Option<HeaderValue>,
    /// Names of the fields that the client sent and that were left out, for a header.
    pub(crate) dropped: Option<Box<HeaderValue>>,
    /// Fields that were sent with another value than the client's, for a header.
    pub(crate) changed: Option<Box<HeaderValue>>,
}

/// Tries `target` once; the attempt began at `began`.
pub(crate) async fn attempt(
    params: &AttemptParams<'_>,
    target: &Target,
    record: &mut Record,
    began: Instant,
) -> Result<Box<Success>, Failure> {
    let provider = &*target.provider;
    let mut timeouts = AttemptTimeouts::new(&params.job.worker, params.limits, began);
    let sent = send(params, &mut timeouts).await;
    let mut answer = sent?.map_err(|error| of_send_error(&error, provider))?;
    record.head(answer.status, began, timeouts.now());
    note_head(target, &mut answer.head, record);
    if !(200..300).contains(&answer.status) {
        return Err(Box::pin(failure::of_status(params, &mut answer, provider, &mut timeouts)).await);
    }
    let (status, encoded) = (answer.status, answer.head.encoded);
    let KeptHeaders { content_type, processing_ms, rare, .. } = answer.head;
    let content_type = content_type.unwrap_or(UNKNOWN);
    let is_stream = STREAMS.iter().any(|stream| is(&content_type, stream));
    if matches!(params.reader, AnswerReader::Proxied(_)) {
        if encoded {
            return Err(compressed(provider));
        }
        let opening = Opening::unread(answer.body);
        let is_whole = is(&content_type, b"application/json");
        timeouts.head(provider, !is_whole);
        let start = match is_whole {
            true => first_content::whole(params, provider, opening, &mut timeouts).await?,
            false => {
                first_content::first_content(params, provider, opening, &mut timeouts, is_stream).await?
            }
        };
        record.served(began, timeouts.now());
        let content_type = shown(content_type);
        return Ok(Box::new(Success {
            start,
            content_type,
            processing_ms: None,
            turn_state: None,
            dropped: None,
            changed: None,
        }));
    }
    timeouts.head(provider, params.job.head.stream);
    let opening = Opening::read(answer.body, provider, &mut timeouts).await?;
    let is_stream = match opening.shape {
        AnswerShape::Events | AnswerShape::BinaryEvents => true,
        AnswerShape::Json => false,
        AnswerShape::Page => return Err(first_content::billed_once(params, opening.page(provider, status))),
        AnswerShape::Compressed => return Err(compressed(provider)),
        AnswerShape::Unknown if encoded => return Err(compressed(provider)),
        AnswerShape::Unknown => is_stream,
    };
    let start = match (params.job.head.stream, is_stream) {
        (true, true) => {
            first_content::first_content(params, provider, opening, &mut timeouts, is_stream).await?
        }
        (true, false) => {
            Box::pin(first_content::synthesize(params, provider, opening, &mut timeouts)).await?
        }
        (false, false) => first_content::whole(params, provider, opening, &mut timeouts).await?,
        (false, true) => Box::pin(first_content::collect(params, provider, opening, &mut timeouts)).await?,
    };
    let content_type = if params.job.head.stream { EVENT_STREAM } else { JSON };
    // A header may contain a secret too, so only a number passes.
    let processing_ms = processing_ms.filter(|value| value.as_bytes().iter().all(u8::is_ascii_digit));
    let turn_state = rare.and_then(|rare| rare.turn_state).filter(|value| is_safe_state(provider, value));
    let [dropped, changed] = params.reader.names().map(|names| names.cloned().map(Box::new));
    record.served(began, timeouts.now());
    Ok(Box::new(Success { start, content_type, processing_ms, turn_state, dropped, changed }))
}

/// Waits for the head of the answer: to the request that was sent while it arrived, or to one that is sent now.
async fn send(
    params: &AttemptParams<'_>,
    timeouts: &mut AttemptTimeouts<'_>,
) -> Result<Result<UpstreamResponse, SendError>, Failure> {
    let AttemptParams { job, request, .. } = params;
    let limit = request.provider.timeout;
    match job.early.take().and_then(|early| early.complete(request)) {
        Some(mut sending) => timeouts.wait(limit, sending.as_mut()).await,
        None => timeouts.wait(limit, pin!(upstream::send(&job.worker.upstreams, request))).await,
    }
}

/// Records the ID of an answer, and lets the target rest if nothing is left of one of its limits.
fn note_head(target: &Target, head: &mut KeptHeaders, record: &mut Record) {
    if let Some(id) = head.upstream_id.take().filter(|id| !holds_secret(&target.provider, id)) {
        record.note(|event| event.upstream_id = Some(id));
    }
    if let Some(wait) = head.spent_wait() {
        let_rest(target, Some(wait), None);
    }
}

/// Returns true if `text`, a header value of the upstream, contains a secret of the requests.
fn holds_secret(provider: &ProviderInstance, text: &str) -> bool {
    provider.secrets().iter().any(|secret| !secret.is_empty() && text.contains(secret))
}

/// Returns true if `state` may go to the client: it is short, visible ASCII without a secret of the requests.
fn is_safe_state(provider: &ProviderInstance, state: &HeaderValue) -> bool {
    state.len() <= TURN_STATE_BYTES_MAX && state.to_str().is_ok_and(|text| !holds_secret(provider, text))
}

const TURN_STATE_BYTES_MAX: usize = 4_096;
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// The content types of event streams: the text format, and the binary one of AWS.
const STREAMS: [&[u8]; 2] = [b"text/event-stream", b"application/vnd.amazon.eventstream"];
const UNKNOWN: HeaderValue = HeaderValue::from_static("application/octet-stream");

fn is(content_type: &HeaderValue, wanted: &[u8]) -> bool {
    content_type.as_bytes().get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted))
}

/// Returns an upstream's content type if it is plausible: only characters of a type with parameters, and too short to
/// contain a secret.
pub(crate) fn shown(content_type: HeaderValue) -> HeaderValue {
    let plausible = content_type.len() <= 64
        && content_type
            .as_bytes()
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"/;=-+. ".contains(byte));
    if plausible { content_type } else { UNKNOWN }
}
