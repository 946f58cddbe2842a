//! The entrance of the control plane, on the data plane's workers: authenticates a request, reads its body, and sends it to the
//! control thread if fewer than the limit of its kind run there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::SET_COOKIE;
use http::request::Parts as Head;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use shared::bound::Bound;
use shared::error_kind::ErrorKind;
use shared::port::{Body, BoxFuture, Handler, KeyHolder, MetricsReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::admin::authorize::{Caller, authorize};
use crate::admin::device::ClientAddress;
use crate::admin::gate::{Gate, is_session_cookie};
use crate::admin::refusals::{Refusals, RefusedRequest};
use crate::admin::shares::{CallerShare, CallerShares, ShareBound};
use crate::admin::{self, ApiError, FoundRoute, RequestId, SlotKind};
use crate::common::bounds::{
    ADMIN_BODIES, ADMIN_REQUESTS, ADMIN_RUNS, CLIENT_TELEMETRY, KEY_HOLDERS, PUBLIC_REQUESTS, SCRAPES,
};
use crate::db::readers::WeakReaders;

/// The handle through which requests reach the control thread.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    admitted: mpsc::Sender<AdmittedRequest>,
    gate: Arc<Gate>,
    readers: WeakReaders,
    refusals: Refusals,
    slots: Slots,
}

/// Limits on concurrent requests, by stage and by kind of caller. Unauthenticated requests have their own limit, and
/// a body is read before its request takes a slot, so neither can use up the slots of administrators. Each authenticated caller
/// has a share of its own.
#[derive(Clone, Debug)]
struct Slots {
    callers: CallerShares,
    /// Requests for public paths: the files of the console.
    public: Arc<Semaphore>,
    /// Requests of key holders about their own keys; these queue for a slot.
    key_holders: Arc<Semaphore>,
    /// Telemetry of clients, with its bodies.
    telemetry: Arc<Semaphore>,
    /// Readers of the metrics.
    scrapes: Arc<Semaphore>,
    /// Runs whose answer has not begun.
    runs: CallerShares,
    /// Bodies that are being received.
    bodies: CallerShares,
}

/// A request for the control thread.
#[derive(Debug)]
pub(crate) struct AdmittedRequest {
    pub(crate) request: admin::Request,
    pub(crate) reply: oneshot::Sender<Response<Body>>,
    /// Held until the response is ready.
    pub(crate) permit: Permit,
}

/// A slot of a request.
#[derive(Debug)]
pub(crate) enum Permit {
    Slot { _slot: OwnedSemaphorePermit },
    Share { _share: CallerShare },
}

impl From<OwnedSemaphorePermit> for Permit {
    fn from(slot: OwnedSemaphorePermit) -> Self {
        Self::Slot { _slot: slot }
    }
}

impl From<CallerShare> for Permit {
    fn from(share: CallerShare) -> Self {
        Self::Share { _share: share }
    }
}

impl Handler for Entrance {
    fn handle(&self, request: Request<Body>, peer: SocketAddr) -> BoxFuture<Response<Body>> {
        let entrance = self.clone();
        Box::pin(async move {
            let (id, method) = (RequestId::of(request.headers()), request.method().clone());
            let (mut head, body) = request.into_parts();
            entrance.gate.take_identity(&mut head, peer.ip());
            head.extensions.insert(ClientAddress(peer.ip()));
            let renewed = entrance.gate.renewed_cookie(&head);
            let answer = entrance.enter(head, body, peer).await.unwrap_or_else(|error| error.response(&id));
            admin::finish(&method, with_cookie(answer, renewed))
        })
    }

    fn wrong_key(&self, (method, id): (&Method, &str), peer: SocketAddr) -> Result<(), Duration> {
        let noted = self.gate.note_wrong_key(peer.ip());
        let reason = if noted.is_ok() { ErrorKind::InvalidKey } else { ErrorKind::TooManySignIns };
        self.refusals.report(RefusedRequest {
            address: peer.ip(),
            reason: reason.row().code,
            route: format!("{method} of the data plane"),
            request_id: Some(id.to_owned()),
        });
        noted
    }
}

impl Entrance {
    /// Builds the entrance, and the queue of what it admits.
    pub(crate) fn new(
        gate: Arc<Gate>,
        readers: WeakReaders,
        refusals: Refusals,
    ) -> (Self, mpsc::Receiver<AdmittedRequest>) {
        let (admitted, queue) = mpsc::channel(
            [&ADMIN_REQUESTS, &PUBLIC_REQUESTS, &KEY_HOLDERS, &CLIENT_TELEMETRY, &SCRAPES, &ADMIN_RUNS]
                .map(Bound::max)
                .iter()
                .sum(),
        );
        (Self { admitted, gate, readers, refusals, slots: Slots::new() }, queue)
    }

    /// Rejects an unauthenticated request before reading any of its body. A sign-in is the exception; its body is
    /// small.
    async fn enter(&self, parts: Head, body: Body, peer: SocketAddr) -> Result<Response<Body>, ApiError> {
        if parts.extensions.get::<KeyHolder>().is_some() && admin::is_telemetry(&parts) {
            // Taken before the body is read: the slots bound what is held of all bodies.
            let slot = self.free((&self.slots.telemetry, &CLIENT_TELEMETRY))?;
            let body = read(body, TELEMETRY_TIME_MAX).await?;
            return self.send(admin::Request { body, ..admin::Request::public(parts) }, slot).await;
        }
        if parts.extensions.get::<KeyHolder>().is_some() {
            let request = admin::Request::public(parts);
            let slot = Arc::clone(&self.slots.key_holders).acquire_owned();
            let slot = tokio::time::timeout(SLOT_TIME_MAX, slot).await.ok().and_then(Result::ok);
            let slot = slot.ok_or_else(|| {
                KEY_HOLDERS.reach();
                refusal(NO_SLOT).retry_after(1)
            })?;
            return self.send(request, slot).await;
        }
        if parts.extensions.get::<MetricsReader>().is_some() {
            return self.send_if_free(admin::Request::public(parts), (&self.slots.scrapes, &SCRAPES)).await;
        }
        if !admin::asks_who(parts.uri.path()) {
            let is_form = admin::is_device_form(&parts);
            let body = match is_form {
                true => read(Body::new(Limited::new(body, SIGN_IN_BYTES_MAX)), SIGN_IN_TIME_MAX).await?,
                false => Bytes::new(),
            };
            let free = (&self.slots.public, &PUBLIC_REQUESTS);
            return self.send_if_free(admin::Request { body, ..admin::Request::public(parts) }, free).await;
        }
        if admin::reads_session(&parts) && self.gate.is_signed_out(&parts) {
            return admin::signed_out(&self.gate, &parts);
        }
        let found = admin::find(&parts);
        let route = found.as_ref().ok();
        if route.is_some_and(|route| route.slot() == SlotKind::Run) {
            let admitted = self.authorize(&parts, route, peer).await;
            let caller = admitted.inspect_err(|error| self.report(error, &parts, peer))?;
            let share = self.slots.runs.take(&caller.actor.who)?;
            let (caller, unread) = (Some(caller), Mutex::new(Some(body)));
            return self
                .send(admin::Request { caller, found, unread, ..admin::Request::public(parts) }, share)
                .await;
        }
        let admitted = self.admit(&parts, route, body, peer).await;
        let (caller, body) = admitted.inspect_err(|error| self.report(error, &parts, peer))?;
        let share = self.slots.callers.take(&caller.actor.who)?;
        let caller = Some(caller);
        self.send(admin::Request { caller, found, body, ..admin::Request::public(parts) }, share).await
    }

    async fn admit(
        &self,
        parts: &Head,
        route: Option<&FoundRoute>,
        body: Body,
        peer: SocketAddr,
    ) -> Result<(Caller, Bytes), ApiError> {
        if admin::is_sign_in(parts) {
            admin::expect_json(&parts.headers, &body)?;
            let body = read(Body::new(Limited::new(body, SIGN_IN_BYTES_MAX)), SIGN_IN_TIME_MAX).await?;
            let actor = self.gate.admit_to_sign_in(parts, &body, peer.ip())?;
            return Ok((authorize(&self.readers, actor, route).await?, body));
        }
        let caller = self.authorize(parts, route, peer).await?;
        admin::expect_json(&parts.headers, &body)?;
        let body = self.read_body(&caller, body).await?;
        Ok((caller, body))
    }

    /// Authenticates the caller of a request, and decides about it by its head.
    async fn authorize(
        &self,
        parts: &Head,
        route: Option<&FoundRoute>,
        peer: SocketAddr,
    ) -> Result<Caller, ApiError> {
        let actor = self.gate.admit(parts, peer.ip())?;
        authorize(&self.readers, actor, route).await
    }

    async fn read_body(&self, caller: &Caller, body: Body) -> Result<Bytes, ApiError> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let _share = self.slots.bodies.take(&caller.actor.who)?;
        read(body, BODY_TIME_MAX).await
    }

    async fn send_if_free(
        &self,
        request: admin::Request,
        (slots, bound): (&Arc<Semaphore>, &Bound),
    ) -> Result<Response<Body>, ApiError> {
        let permit = self.free((slots, bound))?;
        self.send(request, permit).await
    }

    /// Takes a slot. Fails if none is free.
    fn free(&self, (slots, bound): (&Arc<Semaphore>, &Bound)) -> Result<OwnedSemaphorePermit, ApiError> {
        Arc::clone(slots).try_acquire_owned().map_err(|_| {
            bound.reach();
            refusal(FULL).retry_after(1)
        })
    }

    async fn send(
        &self,
        request: admin::Request,
        permit: impl Into<Permit>,
    ) -> Result<Response<Body>, ApiError> {
        let (permit, (reply, answer)) = (permit.into(), oneshot::channel());
        self.admitted.try_send(AdmittedRequest { request, reply, permit }).map_err(|_| refusal(STOPPING))?;
        answer.await.map_err(|_| refusal(STOPPING))
    }

    /// Reports a request that failed authentication, authorization or rate limiting to the audit.
    fn report(&self, error: &ApiError, head: &Head, peer: SocketAddr) {
        if let Some(reason) = error.refusal() {
            let route = admin::route_name(&head.method, head.uri.path());
            let request_id = RequestId::of(&head.headers).text();
            self.refusals.report(RefusedRequest { address: peer.ip(), reason, route, request_id });
        }
    }
}

impl Slots {
    fn new() -> Self {
        let slots = |most| Arc::new(Semaphore::new(most));
        Self {
            callers: CallerShares::new(CALLERS),
            public: slots(PUBLIC_REQUESTS.max()),
            key_holders: slots(KEY_HOLDERS.max()),
            telemetry: slots(CLIENT_TELEMETRY.max()),
            scrapes: slots(SCRAPES.max()),
            runs: CallerShares::new(RUNS),
            bodies: CallerShares::new(BODIES),
        }
    }
}

/// Adds the renewed cookie of a session, unless the answer has another one.
fn with_cookie(mut answer: Response<Body>, renewed: Option<HeaderValue>) -> Response<Body> {
    let has_another = || answer.headers().get_all(SET_COOKIE).iter().any(is_session_cookie);
    if let Some(renewed) = renewed.filter(|_| !has_another()) {
        answer.headers_mut().append(SET_COOKIE, renewed);
    }
    answer
}

/// Reads the whole body, whose size is bounded, within `time_max`.
async fn read(body: Body, time_max: Duration) -> Result<Bytes, ApiError> {
    match tokio::time::timeout(time_max, body.collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(ApiError::new(ErrorKind::BodyTooLarge, "The body is larger than the admin API's limit."))
        }
        Ok(Err(_)) => Err(ApiError::new(ErrorKind::BadHttp, "The body ended early.")),
        Err(_) => Err(ApiError::new(ErrorKind::RequestTimeout, "The body did not arrive in time.")),
    }
}

/// Builds the error of a constant.
pub(crate) fn refusal((kind, message): (ErrorKind, &'static str)) -> ApiError {
    ApiError::new(kind, message)
}

/// Concurrent requests of authenticated callers inside the control plane.
const CALLERS: ShareBound = ShareBound {
    what: "requests to the admin API",
    bound: &ADMIN_REQUESTS,
    humans: 48,
    human: 16,
    administrator: 64,
    retry_after: 1,
};
const SLOT_TIME_MAX: Duration = Duration::from_secs(5);
const RUNS: ShareBound = ShareBound {
    what: "runs without an answer",
    bound: &ADMIN_RUNS,
    humans: 12,
    human: 4,
    administrator: 12,
    retry_after: 1,
};
const BODIES: ShareBound = ShareBound {
    what: "requests with unfinished bodies",
    bound: &ADMIN_BODIES,
    humans: 48,
    human: 16,
    administrator: 64,
    retry_after: 1,
};
const SIGN_IN_BYTES_MAX: usize = 4 << 10;
const SIGN_IN_TIME_MAX: Duration = Duration::from_secs(10);
/// Less than for other bodies, because a slow one keeps its slot.
const TELEMETRY_TIME_MAX: Duration = Duration::from_secs(10);
const BODY_TIME_MAX: Duration = Duration::from_secs(30);
const FULL: (ErrorKind, &str) = (ErrorKind::Overloaded, "Too many requests to the admin API are running.");
const NO_SLOT: (ErrorKind, &str) =
    (ErrorKind::Overloaded, "Too many clients are querying their keys. Try again.");
const STOPPING: (ErrorKind, &str) = (ErrorKind::Draining, "The gateway is stopping.");

#[cfg(test)]
mod tests {
    use shared::base_path::BasePath;
    use shared::secret::Secret;

    use super::*;
    use crate::admin::gate::Sessions;
    use crate::admin::gate::identity::IdentityBoundary;
    use crate::admin::shares::tests::fill;
    use crate::common::bounds::tests::passes;
    use crate::common::vault::VaultKeys;
    use crate::routing::publish::EndedSessions;

    #[test]
    fn the_places_of_all_callers_are_counted_when_they_are_taken() {
        passes(&ADMIN_REQUESTS, || fill(CALLERS));
        passes(&ADMIN_RUNS, || fill(RUNS));
        passes(&ADMIN_BODIES, || fill(BODIES));
    }

    #[test]
    fn an_admin_request_over_the_limit_is_rejected_at_once() {
        let (_, reader) = shared::snapshot::channel();
        let (refusals, _counter) = admin::refusals::channel();
        let keys = VaultKeys { key_hash_key: Secret::new([0; 32]), data_key: Secret::new([0; 32]) };
        let boundary = IdentityBoundary::new(None, keys.derived("single sign-on secrets"));
        let sessions = Sessions::new(&keys, EndedSessions::default());
        let gate = Arc::new(Gate::new(reader, sessions, boundary, &BasePath::default(), false));
        let (mut entrance, mut admitted) = Entrance::new(gate, WeakReaders::default(), refusals);
        entrance.slots.public = Arc::new(Semaphore::new(1));
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let request = || Request::get("/console").body(shared::port::full("")).unwrap();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut waiting = entrance.handle(request(), peer);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let before = PUBLIC_REQUESTS.count();
        let refused = runtime.block_on(entrance.handle(request(), peer));
        assert_eq!(refused.status(), 503);
        assert!(PUBLIC_REQUESTS.count() > before);
        let first = admitted.try_recv().unwrap();
        let _ = first.reply.send(Response::new(shared::port::full("answer")));
        assert_eq!(runtime.block_on(waiting).status(), 200);
        drop(first.permit);
        assert!(entrance.handle(request(), peer).as_mut().poll(&mut context).is_pending());
        assert!(admitted.try_recv().is_ok(), "a slot is free again");
    }
}
