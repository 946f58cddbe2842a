//! A request body as it arrives: its scan, and the decision to send a large one at the same time.

use std::rc::Rc;
use std::task::{Context, Poll};

use shared::clock;
use shared::operation::Operation;
use wire::request::{Head, HeadScan, InputSize, ScanError};

use super::inference::{self, AuthorizedRequest};
use crate::adapt::{self, Draft, RoutedRequest};
use crate::admit::quota;
use crate::attempt::{self, EarlyRequest, EarlySend};
use crate::error::Fault;
use crate::plan;
use crate::server::body::{BodyReader, HeldBody};
use crate::upstream::request;

/// Bytes that must still be awaited for a request to be sent while it arrives: several round trips of a connection that has
/// just begun to send.
const BYTES_LEFT_MIN: u64 = 64 << 10;
/// Time for which the body must have been waited for, in microseconds. One from the same network arrives in less, and is sent
/// in fewer and larger writes at once.
const WAITED_US_MIN: u64 = 5_000;

/// The body of a request, as far as it has arrived.
pub(super) struct Arrival<'a> {
    authorized: &'a AuthorizedRequest<'a>,
    scan: HeadScan,
    early: Early,
}

/// The request that is sent while its body arrives.
enum Early {
    Undecided,
    No,
    /// The request, and the number of segments that it has got.
    Begun(Box<EarlySend>, usize),
}

impl<'a> Arrival<'a> {
    pub(super) fn new(authorized: &'a AuthorizedRequest<'a>, scan: HeadScan) -> Self {
        Self { authorized, scan, early: Early::Undecided }
    }

    /// Ends the body. Returns its facts, and the request that has been begun.
    pub(super) fn finish(self) -> (Result<Head, ScanError>, Option<Box<EarlySend>>) {
        let early = match self.early {
            Early::Begun(early, _) => Some(early),
            Early::Undecided | Early::No => None,
        };
        (self.scan.finish(), early)
    }

    /// Returns true if the request may be sent while it arrives, as far as this depends on the client.
    fn may_be_early(&self) -> bool {
        let (exchange, operation) = (self.authorized.exchange, self.authorized.operation);
        matches!(operation, Operation::ChatCompletions | Operation::Messages | Operation::Responses)
            && exchange.caller.insider.is_none()
            && exchange.tap().is_none()
            && !exchange.caller.connection.was_misjudged.get()
    }

    /// Begins to send the request of `bytes` bytes with the facts `head` to its first target, unless it is known already
    /// that it will not be tried, or that the request for it cannot be built yet.
    fn begin(&self, mut head: Head, body: &HeldBody, bytes: u64) -> Option<EarlySend> {
        let authorized = self.authorized;
        let worker = authorized.worker();
        inference::override_by_headers(&mut head, authorized);
        // Until the rest is read, all of it is taken for text.
        head.input = Rc::new(InputSize { text_bytes: bytes, ..InputSize::default() });
        let (route, _) = authorized.select(&head);
        let route = route.ok()?;
        if route.balanced().is_some() {
            return None;
        }
        let needs = authorized.needs(&head, body);
        let candidates = plan::order(&route, needs, &mut |_, _| ()).ok()?.candidates;
        let target = *candidates.first()?;
        let (access, endpoint) = (authorized.access, route.endpoint());
        let may_be_tried = attempt::rest_of(target).is_none()
            && target.open_ms(clock::monotonic_ms()).is_none()
            && quota::exceeded_of_caller(access, endpoint, needs.demand, &candidates).is_none()
            && quota::exceeded_of_target(access, endpoint, needs.demand, target).is_none();
        let routed = RoutedRequest { seal: None, ..worker.routed(&route, &head, body) };
        let has_trace = worker.spans.is_some() && target.provider.trace_context;
        if !may_be_tried || has_trace || !adapt::can_begin_early(routed, target) {
            return None;
        }
        let Ok(Draft::Ready(request)) = adapt::draft(routed, target) else { return None };
        let early = EarlyRequest {
            target,
            request,
            bytes_left: bytes.saturating_sub(request::length_of(&body.segments)),
            forwarded: request::forwarded(authorized.dialect, &authorized.request.headers),
            request_id: authorized.exchange.request_id.clone(),
            client: &authorized.exchange.caller.connection,
        };
        Some(EarlySend::begin(&worker.upstreams, early))
    }
}

impl BodyReader for Arrival<'_> {
    fn read(&mut self, piece: &[u8]) -> Result<(), Fault> {
        self.scan.push(piece).map_err(|error| inference::of_scan_error(&error).closing())
    }

    fn keep(&mut self, body: &HeldBody, bytes_left: u64) {
        match &mut self.early {
            Early::No => {}
            Early::Undecided if bytes_left < BYTES_LEFT_MIN => self.early = Early::No,
            Early::Undecided if body.waited_us < WAITED_US_MIN => {}
            Early::Undecided => {
                let Some(head) = self.scan.preview() else { return };
                let bytes = body.bytes().saturating_add(bytes_left);
                let early = if self.may_be_early() { self.begin(head, body, bytes) } else { None };
                self.early =
                    early.map_or(Early::No, |early| Early::Begun(Box::new(early), body.segments.len()));
            }
            Early::Begun(early, count) if bytes_left > 0 => {
                early.extend(body.segments.get(*count..).unwrap_or_default());
                *count = body.segments.len();
            }
            Early::Begun(..) => {}
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        if let Early::Begun(early, _) = &mut self.early
            && let Poll::Ready(()) = early.poll(cx)
        {
            // The ordinary path finds out what is wrong, and accounts for it.
            self.early = Early::No;
        }
    }
}
