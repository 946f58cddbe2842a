//! The spans of requests that were refused before they reached routing. Without tracing, nothing is measured.

use std::time::Instant;

use http::request::Parts;
use http::{Method, Response};
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::operation::Operation;
use shared::request_traces::TracedRefusal;

use super::error_response::ReportedError;
use super::watched::is_own;
use crate::caller::Exchange;
use crate::relay::ResponseBody;
use crate::route;
use crate::worker::Worker;

/// The arrival of a request, if requests are traced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started(Option<(Instant, u64)>);

impl Started {
    pub(crate) fn of(worker: &Worker) -> Self {
        Self(worker.spans.is_some().then(|| (Instant::now(), clock::unix_ms())))
    }
}

/// Exports the span of a client's request that was refused and has no record. The gateway's own pages and checks have none.
pub(crate) fn export(exchange: &Exchange, parts: &Parts, answer: &Response<ResponseBody>, started: Started) {
    let (Some((began, started_at_ms)), Some(spans)) = (started.0, &exchange.worker().spans) else { return };
    let error = answer.extensions().get::<ReportedError>().map(|error| error.kind);
    // The control service answers unknown paths.
    let error = error.or_else(|| (answer.status() == 404).then_some(ErrorKind::NotFound));
    let (Some(error), path) = (error, parts.uri.path()) else { return };
    if exchange.is_recorded.get() || exchange.caller.insider.is_some() || is_own(path) {
        return;
    }
    spans.refused(&parts.headers, |span| TracedRefusal {
        span,
        started_at_ms,
        duration_us: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        method: method(&parts.method),
        route: route::operation(path).map(Operation::path),
        status: answer.status().as_u16(),
        error,
        request_id: exchange.id().into(),
    });
}

/// Returns the name of a method as OpenTelemetry's conventions know it.
fn method(method: &Method) -> &'static str {
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}

const KNOWN: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"];
