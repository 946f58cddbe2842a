//! Builds the client's response from an exchange's outcome: the head, and either the relayed body or the error.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use shared::answer_head::{self, AnswerHead, X_ATTEMPTS, X_REQUEST_ID};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::routing::Target;
use shared::usage::Outcome;
use wire::adapt::TranslatedAnswer;
use wire::envelope::EnvelopeFamily;

use super::error_response::error_response;
use crate::admit::quota;
use crate::attempt::{self, AnswerStart, Job, Served, Unserved};
use crate::caller::Exchange;
use crate::error::Fault;
use crate::record::{Record, Reported};
use crate::relay::{FailoverResult, KeepaliveStream, Relay, RelayParts, ResponseBody};
use crate::running::Cancelled;

const X_DROPPED: HeaderName = HeaderName::from_static("x-llmgw-dropped");
const X_CODEX_TURN_STATE: HeaderName = HeaderName::from_static("x-codex-turn-state");
const X_ADAPTED: HeaderName = HeaderName::from_static("x-llmgw-adapted");
/// The cost of the answer in US dollars, if it is known before the head is sent.
const X_COST: HeaderName = HeaderName::from_static("x-llmgw-cost");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");
/// Nano-dollars per dollar.
const NANOS: u64 = 1_000_000_000;

/// Returns the response for the outcome of a request.
pub(super) fn respond(
    exchange: &Exchange,
    dialect: Dialect,
    outcome: Result<Served, Box<Unserved>>,
    record: Record,
) -> Response<ResponseBody> {
    match outcome {
        Ok(served) => answer(exchange, dialect, served, record)
            .unwrap_or_else(|fault| error_response(fault, EnvelopeFamily::of(dialect), exchange.id())),
        Err(unserved) => {
            let mut response = error_response(unserved.fault, EnvelopeFamily::of(dialect), exchange.id());
            if let Some(target) = &unserved.target {
                name_target(response.headers_mut(), target);
            }
            response.headers_mut().insert(X_ATTEMPTS, HeaderValue::from(unserved.attempts));
            response.headers_mut().extend(unserved.notices);
            response
        }
    }
}

/// Returns the response to a request that was served. Fails if the answer is complete but cannot be recorded.
fn answer(
    exchange: &Exchange,
    dialect: Dialect,
    served: Served,
    mut record: Record,
) -> Result<Response<ResponseBody>, Fault> {
    let Served { success, target, adapted_from, affinity, attempts, notices } = served;
    let mut response = Response::new(ResponseBody::full(bytes::Bytes::new()));
    let headers = response.headers_mut();
    let is_stream = success.content_type.as_bytes().starts_with(b"text/event-stream");
    *headers = head(&target, success.content_type, adapted_from, attempts);
    if is_stream {
        stream_headers(headers);
    }
    if let Some(processing_ms) = success.processing_ms {
        headers.insert(PROCESSING_MS, processing_ms);
    }
    // The state is that of an account: it means nothing to a client of another protocol.
    if let Some(state) =
        success.turn_state.filter(|_| dialect == Dialect::Responses && adapted_from.is_none())
    {
        headers.insert(X_CODEX_TURN_STATE, state);
    }
    if let Some(names) = success.dropped {
        headers.insert(X_DROPPED, *names);
    }
    if let (Some(changed), Some(from)) = (success.changed, adapted_from) {
        let text = [from.name().as_bytes(), b"; ", changed.as_bytes()].concat();
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            headers.insert(X_ADAPTED, value);
        }
    }
    headers.extend(notices);
    record.note(|event| event.status = StatusCode::OK.as_u16());
    *response.body_mut() = match success.start {
        AnswerStart::Whole(whole) => {
            let TranslatedAnswer { body, usage, extras, finish, output_bytes, dropped } = *whole;
            for kind in dropped {
                response.headers_mut().append(X_DROPPED, HeaderValue::from_static(kind));
            }
            record.note(|event| event.details.bytes_out = Some(body.len() as u64));
            record.report(Reported { tokens: usage, input: None, extras, finish, output_bytes });
            let closed = record.close(Outcome::Completed);
            if !closed.is_recorded {
                return Err(no_record());
            }
            if let Some(nano_usd) = closed.cost_nano_usd {
                response.headers_mut().insert(X_COST, dollars(nano_usd));
            }
            ResponseBody::full(body)
        }
        AnswerStart::Streaming { held, scan, body } => {
            ResponseBody::relay(Box::new(Relay::new(RelayParts {
                context: Rc::clone(&exchange.worker().relays),
                connection: Rc::clone(&exchange.caller.connection),
                provider: target.provider,
                record,
                body,
                scan,
                dialect,
                affinity,
                held,
            })))
        }
    };
    Ok(response)
}

/// Returns the error for a request whose usage cannot be recorded.
pub(super) fn no_record() -> Fault {
    let message = "The gateway cannot record usage at the moment, so it accepts no requests. Try again.";
    Fault::new(ErrorKind::Overloaded, message).retry_after(Duration::from_secs(2)).closing()
}

/// Returns the headers that name the target, the protocol that the answer was adapted from, and the number of attempts.
pub(super) fn head(
    target: &Target,
    content_type: HeaderValue,
    adapted_from: Option<Dialect>,
    attempts: u32,
) -> HeaderMap {
    let mut headers = match &target.model.answer_head {
        Some(head) => head.headers(content_type, attempts),
        None => AnswerHead::new(&target.provider.id, &target.model.id).headers(content_type, attempts),
    };
    if let Some(from) = adapted_from {
        headers.insert(X_ADAPTED, HeaderValue::from_static(from.name()));
    }
    headers
}

/// Formats nano-dollars as dollars with six decimals, or with nine if six are not exact.
fn dollars(nano_usd: u64) -> HeaderValue {
    let (whole, nanos) = (nano_usd / NANOS, nano_usd % NANOS);
    let text = match nanos % 1_000 {
        0 => format!("{whole}.{:06}", nanos / 1_000),
        _ => format!("{whole}.{nanos:09}"),
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("0.000000"))
}

/// Sets the headers that keep intermediaries from buffering or transforming a stream (LIM-4).
fn stream_headers(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

pub(super) fn name_target(headers: &mut HeaderMap, target: &Target) {
    answer_head::name_target(headers, &target.provider.id, &target.model.id);
}

/// Runs the failover. After `interval` of silence it sends the stream's head and continues the failover behind it
/// (FAIL-6).
pub(super) async fn run_with_keepalive(
    exchange: &Exchange,
    job: Job,
    mut record: Record,
    interval: Duration,
) -> Response<ResponseBody> {
    let dialect = job.head.dialect;
    let running = Rc::clone(record.running());
    let (access, endpoint) = (Arc::clone(&job.access), job.route.endpoint().cloned());
    let mut failover = Box::pin(async move {
        let outcome = attempt::run(&job, &mut record).await;
        (outcome, record)
    });
    if let Ok((outcome, record)) = tokio::time::timeout(interval, &mut failover).await {
        return respond(exchange, dialect, outcome, record);
    }
    let late = Exchange::clone(exchange);
    let finished = Box::pin(async move {
        let answered = match running.unless_cancelled(failover.as_mut()).await {
            Ok((Ok(served), record)) => answer(&late, dialect, served, record),
            Ok((Err(unserved), _)) => Err(unserved.fault),
            Err(Cancelled) => Err(Fault::cancelled()),
        };
        drop(failover);
        match answered.map(|response| response.into_body().into_relay()) {
            Ok(Ok(relay)) => FailoverResult::Relay(relay),
            Ok(Err(whole)) => FailoverResult::Whole(whole),
            Err(fault) => FailoverResult::Whole(fault.event(dialect, late.id())),
        }
    });
    let mut response =
        Response::new(ResponseBody::keepalive(KeepaliveStream::new(finished, dialect, interval)));
    let headers = response.headers_mut();
    stream_headers(headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(X_REQUEST_ID, exchange.request_id.clone());
    headers.extend(quota::notices(&access, endpoint.as_ref(), None));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_exact_in_plain_decimals() {
        for (nano, text) in [
            (0, "0.000000"),
            (7, "0.000000007"),
            (450_000, "0.000450"),
            (450_001, "0.000450001"),
            (12_000_000_000, "12.000000"),
        ] {
            assert_eq!(dollars(nano), text);
        }
    }
}
