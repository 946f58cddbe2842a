//! Sends a request on a place of a shared connection.

use std::error::Error as _;
use std::rc::Rc;
use std::time::Duration;

use http::Request;
use hyper::client::conn::TrySendError;
use shared::routing::Origin;
use tokio::time::Instant;

use super::connection::SharedState;
use super::sharing::StreamLease;
use crate::upstream::error::{Progress, Unanswered};
use crate::upstream::request::{SegmentedBody, UpstreamRequest};
use crate::upstream::{SendError, UpstreamBody, UpstreamResponse, Upstreams, tap};

/// Sends a request and waits for the head of its answer.
pub(in crate::upstream) async fn send_http2(
    upstreams: &Upstreams,
    mut lease: StreamLease,
    (origin, request): (&Origin, &UpstreamRequest<'_>),
) -> Result<UpstreamResponse, Unanswered> {
    let signature = request.signature(origin).await;
    let watch = SilenceWatch::new(&lease.connection.state, request.provider.timeout);
    let sender = &mut lease.connection.sender;
    let sent = sender.try_send_request(tap::noted(request, request.http2(origin, signature))).await;
    let is_silent = watch.is_silent();
    drop(watch);
    let answer = sent.map_err(|error| match unanswered(&lease, error) {
        // The connection was idle, and the upstream has closed it as the request was sent.
        Unanswered { progress: Progress::Sent, error: error @ SendError::Broke(_) }
            if is_silent && lease.connection.has_answered() =>
        {
            lease.connection.retire();
            match request.kind.is_safe() {
                true => Unanswered { progress: Progress::Unprocessed, error },
                false => Unanswered { progress: Progress::Sent, error: SendError::Stale },
            }
        }
        other => other,
    })?;
    lease.connection.note_answer();
    let (head, incoming) = answer.into_parts();
    let kept = upstreams.keep(request, &head);
    let body = UpstreamBody::Http2 { incoming, lease };
    Ok(UpstreamResponse { status: head.status.as_u16(), head: kept, body })
}

fn unanswered(lease: &StreamLease, mut error: TrySendError<Request<SegmentedBody>>) -> Unanswered {
    let is_returned = error.take_message().is_some();
    if let Some(rejection) = lease.connection.rejection() {
        return Unanswered { progress: Progress::Unprocessed, error: SendError::Dial(rejection) };
    }
    let error = error.into_error();
    if is_returned || is_unprocessed(&error) {
        lease.connection.retire();
        return Unanswered { progress: Progress::Unprocessed, error: error.into() };
    }
    let error = match lease.connection.state.fault.get().or_else(|| violation(&error)) {
        Some(fault) => SendError::Invalid(fault),
        None => error.into(),
    };
    Unanswered { progress: Progress::Sent, error }
}

/// Returns the fault of the upstream for which h2 has reset the stream or ended the connection.
fn violation(error: &hyper::Error) -> Option<&'static str> {
    let error = h2_error(error).filter(|error| error.is_library())?;
    match error.reason()? {
        h2::Reason::NO_ERROR => None,
        // A header block in too many parts or of many times its limit, and floods of frames.
        h2::Reason::ENHANCE_YOUR_CALM => {
            Some("its response head or the number of its frames is over the limit")
        }
        // A header list over its limit, which is reset as any other head that is not accepted, and a field without end.
        h2::Reason::PROTOCOL_ERROR | h2::Reason::COMPRESSION_ERROR => {
            Some("its response is not valid HTTP/2, or its head is too large")
        }
        _ => Some("its response is not valid HTTP/2"),
    }
}

fn h2_error(error: &hyper::Error) -> Option<&h2::Error> {
    error.source()?.downcast_ref()
}

/// True if the upstream states that it has not processed the request: its stream is above the last one of a GOAWAY
/// without an error (RFC 9113 section 6.8), or was reset with REFUSED_STREAM (section 8.7). A server that restarts, or that
/// limits the requests of a connection, does both without being at fault.
fn is_unprocessed(error: &hyper::Error) -> bool {
    let Some(error) = h2_error(error) else { return false };
    let reason = error.reason();
    error.is_remote()
        && (error.is_go_away() && reason == Some(h2::Reason::NO_ERROR)
            || error.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM))
}

/// Silence of a connection after which a request that ends without the head of an answer retires it; half the
/// provider's timeout if that is shorter.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Waits with a request for the head of its answer. If the request ends before, by a timeout or because its client
/// leaves, and the connection has been silent since the request was sent, the connection is retired: a load balancer or
/// a firewall may have forgotten it, and no request on it would ever be answered.
struct SilenceWatch {
    state: Rc<SharedState>,
    reads: u32,
    since: Instant,
    patience: Duration,
}

impl SilenceWatch {
    fn new(state: &Rc<SharedState>, timeout: Duration) -> Self {
        let patience = SILENCE_MAX.min(timeout / 2);
        Self { reads: state.reads.get(), state: Rc::clone(state), since: Instant::now(), patience }
    }

    /// True if nothing has been read from the connection since the request was sent.
    fn is_silent(&self) -> bool {
        self.state.reads.get() == self.reads
    }
}

impl Drop for SilenceWatch {
    fn drop(&mut self) {
        if self.is_silent() && self.since.elapsed() >= self.patience {
            self.state.retired.set(true);
        }
    }
}
