//! Chat completions: read and scan the body, find the targets, let them answer, relay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use shared::access::Access;
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::operation::Operation;
use shared::policy::FAILOVER_BUDGET_DEFAULT;
use shared::snapshot::{Route, Snapshot};
use shared::usage::{Outcome, Provenance};
use wire::chat::{ChatHead, HeadScan, ScanError};
use wire::envelope::{self, Family};

use crate::admit::quota;
use crate::attempt::Begun;
use crate::error::Fault;
use crate::exchange::{Exchange, X_REQUEST_ID};
use crate::failover::{self, Job, Served, Unserved};
use crate::operation::explain::{self, Question};
use crate::plan;
use crate::record::{Opening, Record};
use crate::relay::{BYTES_PER_TOKEN, Early, Finished, Parts, Relay, Reply};
use crate::server::body::{self, Held, Inbound};
use crate::upstream::request;
use crate::worker::Worker;

const X_AFFINITY_KEY: HeaderName = HeaderName::from_static("x-llmgw-affinity-key");
const X_FALLBACK_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-llmgw-fallback-timeout-ms");
const X_PROVIDER: HeaderName = HeaderName::from_static("x-llmgw-provider");
const X_MODEL: HeaderName = HeaderName::from_static("x-llmgw-model");
const X_ATTEMPTS: HeaderName = HeaderName::from_static("x-llmgw-attempts");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
const PROCESSING_MS: HeaderName = HeaderName::from_static("openai-processing-ms");

/// A chat request that has been authorized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) exchange: &'a Exchange,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) access: &'a Arc<Access>,
    pub(crate) headers: &'a HeaderMap,
}

/// Answers one chat request.
pub(crate) async fn serve(asked: Asked<'_>, incoming: Inbound) -> Result<Response<Reply>, Fault> {
    let (started, started_at_ms) = (Instant::now(), clock::unix_ms());
    let worker = asked.exchange.worker();
    if !worker.can_log_usage() {
        let message = "The gateway cannot record usage at the moment, so it takes no requests. Try again.";
        return Err(Fault::new(ErrorKind::Overloaded, message).retry_after(Duration::from_secs(2)).closing());
    }
    let (head, body) = read(worker, asked.headers, incoming).await?;
    let (job, mut record) = asked.prepare(head, body, (started, started_at_ms))?;
    let keepalive = worker.plane.settings.stream_keepalive.filter(|_| job.head.stream);
    let mut response = match keepalive {
        Some(interval) => Box::pin(run_with_keepalive(asked.exchange, job, record, interval)).await,
        None => {
            let outcome = failover::run(&job, &mut record).await;
            respond(asked.exchange, outcome, record)
        }
    };
    quota::describe(asked.access, response.headers_mut());
    Ok(response)
}

/// Says where a chat request would go.
pub(crate) async fn explain(asked: Asked<'_>, incoming: Inbound) -> Result<Response<Reply>, Fault> {
    let worker = asked.exchange.worker();
    let (head, _) = read(worker, asked.headers, incoming).await?;
    let (selected, forced) = asked.select(&head);
    let question = Question {
        operation: Operation::ChatCompletions,
        selector: &head.model,
        stream: head.stream,
        needs: failover::needs(&head, asked.access),
        budget: budget(&head),
        forced,
        now_ms: worker.plane.monotonic_ms(),
    };
    Ok(explain::plan(&question, selected))
}

fn budget(head: &ChatHead) -> Duration {
    head.fallback_timeout_ms.map_or(FAILOVER_BUDGET_DEFAULT, Duration::from_millis)
}

impl Asked<'_> {
    /// What the selector means, and whether the one target must be used: what comes from inside the process may
    /// name one.
    fn select(&self, head: &ChatHead) -> (Result<Route, Fault>, bool) {
        match self.exchange.caller.insider.as_ref().and_then(|insider| insider.only.clone()) {
            Some(target) => (Ok(Route::Model(target)), true),
            None => (plan::select(self.snapshot, &head.model, self.access), false),
        }
    }

    /// Opens the record, and finds out what there is to do.
    fn prepare(
        &self,
        head: ChatHead,
        body: Held,
        (started, started_at_ms): (Instant, u64),
    ) -> Result<(Job, Record), Fault> {
        let worker = self.exchange.worker();
        let opening = Opening {
            started,
            started_at_ms,
            request_id: self.exchange.id(),
            operation: Operation::ChatCompletions,
            access: self.access,
            selector: &head.model,
            stream: head.stream,
            input_estimate: head.input_text_bytes.div_ceil(BYTES_PER_TOKEN),
        };
        let mut record = Record::open(worker, &opening);
        let (selected, forced) = self.select(&head);
        let route = selected.inspect_err(|fault| record.fail(fault.kind, fault.status()))?;
        let job = Job {
            worker: std::rc::Rc::clone(worker),
            access: Arc::clone(self.access),
            route,
            forced,
            budget: budget(&head),
            head,
            body,
            forwarded: request::forwarded(self.headers),
            request_id: self.exchange.request_id.clone(),
        };
        Ok((job, record))
    }
}

/// Reads the body, and what of it decides where the request goes.
async fn read(worker: &Worker, headers: &HeaderMap, incoming: Inbound) -> Result<(ChatHead, Held), Fault> {
    let mut scan = HeadScan::new();
    let limit = worker.plane.settings.body_bytes_max;
    let body = body::read(&worker.plane, headers, incoming, limit, &mut |piece| {
        scan.push(piece).map_err(|error| of_scan_error(&error).closing())
    })
    .await?;
    let mut head = scan.finish().map_err(|error| of_scan_error(&error))?;
    override_by_headers(&mut head.affinity_key, &mut head.fallback_timeout_ms, headers);
    Ok((head, body))
}

/// A request's own header wins over the same field in its body (FAIL-2).
fn override_by_headers(affinity_key: &mut Option<String>, timeout_ms: &mut Option<u64>, headers: &HeaderMap) {
    // Few requests have either: to walk over the fields once is cheaper than to look each of them up.
    if !headers.keys().any(|name| name.as_str().starts_with("x-llmgw-")) {
        return;
    }
    if let Some(key) = headers.get(X_AFFINITY_KEY).and_then(|value| value.to_str().ok()) {
        *affinity_key = Some(key.to_owned());
    }
    if let Some(value) = headers.get(X_FALLBACK_TIMEOUT_MS) {
        *timeout_ms = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    }
}

fn of_scan_error(error: &ScanError) -> Fault {
    Fault { param: error.param, ..Fault::new(ErrorKind::InvalidRequest, error.to_string()) }
}

fn respond(exchange: &Exchange, outcome: Result<Served, Unserved>, record: Record) -> Response<Reply> {
    match outcome {
        Ok(served) => answer(exchange, served, record),
        Err(unserved) => {
            let mut response = unserved.fault.into_response(Family::OpenAi, exchange.id());
            let target = unserved.target.as_ref();
            name_target(
                response.headers_mut(),
                target.map(|t| (t.provider.id.as_str(), t.model.id.as_str())),
            );
            response.headers_mut().insert(X_ATTEMPTS, count(unserved.attempts));
            response
        }
    }
}

fn answer(exchange: &Exchange, served: Served, mut record: Record) -> Response<Reply> {
    let Served { success, target, attempts } = served;
    let mut response = Response::new(Reply::full(bytes::Bytes::new()));
    let headers = response.headers_mut();
    headers.reserve(8);
    if success.content_type.as_bytes().starts_with(b"text/event-stream") {
        stream_headers(headers);
    }
    headers.insert(CONTENT_TYPE, success.content_type);
    if let Some(processing_ms) = success.processing_ms {
        headers.insert(PROCESSING_MS, processing_ms);
    }
    name_target(headers, Some((target.provider.id.as_str(), target.model.id.as_str())));
    headers.insert(X_ATTEMPTS, count(attempts));
    record.note(|event| event.status = StatusCode::OK.as_u16());
    *response.body_mut() = match success.begun {
        Begun::Whole { body, usage, output_bytes } => {
            match usage {
                Some(tokens) => record.note(|event| {
                    (event.tokens, event.provenance) = (tokens, Provenance::Reported);
                }),
                None => {
                    record.note(|event| event.tokens.output = output_bytes.div_ceil(BYTES_PER_TOKEN));
                }
            }
            record.close(Outcome::Completed);
            Reply::full(body)
        }
        Begun::Flowing { held, scan, body } => Reply::relay(Box::new(Relay::new(Parts {
            worker: std::rc::Rc::clone(exchange.worker()),
            link: std::rc::Rc::clone(&exchange.caller.link),
            provider: target.provider,
            request_id: exchange.id().into(),
            record,
            body,
            scan,
            held,
        }))),
    };
    response
}

/// A number as a header's value; the usual one is at hand.
fn count(attempts: u32) -> HeaderValue {
    if attempts == 1 { HeaderValue::from_static("1") } else { HeaderValue::from(attempts) }
}

/// LIM-4: nothing between here and the client may buffer or transform a stream.
fn stream_headers(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
}

fn name_target(headers: &mut HeaderMap, target: Option<(&str, &str)>) {
    let Some((provider, model)) = target else { return };
    for (name, text) in [(X_PROVIDER, provider), (X_MODEL, model)] {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
}

/// Commits a stream's head after `interval` of silence and goes on failing over behind it (FAIL-6).
async fn run_with_keepalive(
    exchange: &Exchange,
    job: Job,
    mut record: Record,
    interval: Duration,
) -> Response<Reply> {
    let mut failover = Box::pin(async move {
        let outcome = failover::run(&job, &mut record).await;
        (outcome, record)
    });
    if let Ok((outcome, record)) = tokio::time::timeout(interval, &mut failover).await {
        return respond(exchange, outcome, record);
    }
    let late = Exchange::clone(exchange);
    let finished = Box::pin(async move {
        match failover.await {
            (Ok(served), record) => match answer(&late, served, record).into_body().into_relay() {
                Ok(relay) => Finished::Relay(relay),
                Err(whole) => Finished::Whole(whole),
            },
            (Err(unserved), _) => {
                let fault = unserved.fault;
                let message = fault.message.to_string();
                Finished::Whole(envelope::chat_stream_error(fault.kind.row(), &message, late.id()))
            }
        }
    });
    let mut response = Response::new(Reply::early(Early::new(finished, interval)));
    let headers = response.headers_mut();
    stream_headers(headers);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(X_REQUEST_ID, exchange.request_id.clone());
    response
}
