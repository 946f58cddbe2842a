//! The stages of one request, in order. Each stage uses the result of the previous one; none depends on a later one.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, IF_NONE_MATCH, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::BodyExt as _;
use shared::access::Access;
use shared::answer_head::X_REQUEST_ID;
use shared::clock;
use shared::error_kind::{ErrorKind, not_served};
use shared::operation::{Dialect, Operation};
use shared::port::{BoxError, Handler, KeyHolder, RUN_PATH};
use shared::snapshot::Snapshot;
use wire::envelope::EnvelopeFamily;

use crate::admit::authenticate::{
    LastKey, authenticate, is_administrator, presents_foreign_key, still_live, too_many_wrong_keys,
};
use crate::admit::authorize;
use crate::admit::labels::{FieldLabels, LastClient};
use crate::admit::policy;
use crate::caller::{Caller, Exchange};
use crate::error::Fault;
use crate::metrics::add;
use crate::operation::error_response::error_response;
use crate::operation::inference::{self, AuthorizedRequest};
use crate::operation::refused_span::{self, Started};
use crate::operation::{
    cors, count_gemini, count_responses, count_tokens, explain, health, metrics, models, stored, videos,
    watched,
};
use crate::pipe::pipe;
use crate::relay::ResponseBody;
use crate::relay::json_array;
use crate::request_id::RequestIds;
use crate::route::google::{self, is_google};
use crate::route::{self, Meaning, Named};
use crate::running::{Cancelled, RunningEntry, RunningParams};
use crate::server::body::Inbound;
use crate::server::connections::Connections;
use crate::server::io::{ConnectionState, Phase};
use crate::server::service::{Connect, Service};
use crate::worker::Worker;

pub(crate) type ReplyFuture = Pin<Box<dyn Future<Output = Response<ResponseBody>>>>;

/// Answers one request. The future is boxed, so that a connection reserves no space for it while it relays or idles,
/// and kept small, because it is copied when it is created.
pub(crate) fn respond(caller: Rc<Caller>, request: Request<Inbound>) -> ReplyFuture {
    let (mut parts, body) = request.into_parts();
    caller.worker.process.settings.base_path.cut(&mut parts.uri);
    let request_id = request_id(&caller.worker.request_ids, &parts.headers);
    let exchange = Exchange {
        request_id,
        caller,
        selector: OnceCell::new(),
        captured: OnceCell::new(),
        is_recorded: Cell::new(false),
    };
    Box::pin(async move {
        let mut response = exchange.answer(&parts, body).await;
        exchange.complete(&mut response, &parts.method);
        exchange.note_response(&mut response);
        response
    })
}

impl Connect for Rc<Worker> {
    type Service = Rc<Caller>;

    fn connections(&self) -> &Connections {
        &self.connections
    }

    fn connect(&self, connection: &Rc<ConnectionState>, peer: SocketAddr) -> Rc<Caller> {
        let (worker, connection) = (Self::clone(self), Rc::clone(connection));
        let (last_key, last_client) = (LastKey::default(), LastClient::default());
        Rc::new(Caller { worker, connection, peer, last_key, last_client, insider: None, rehearsal: None })
    }
}

impl Service for Rc<Caller> {
    type Body = ResponseBody;
    type Future = ReplyFuture;

    fn call(&self, request: Request<Inbound>) -> ReplyFuture {
        respond(Self::clone(self), request)
    }

    fn refuse(&self, path: &str, fault: Fault) -> Response<ResponseBody> {
        let counters = &self.worker.counters;
        add(&counters.requests, 1);
        add(&counters.refused, 1);
        let request_id = self.worker.request_ids.next();
        let path = self.worker.process.settings.base_path.below(path);
        let family = family(path, &HeaderMap::new(), google::is_of_google(path));
        let mut response = error_response(fault, family, request_id.to_str().unwrap_or_default());
        response.headers_mut().insert(X_REQUEST_ID, request_id);
        response
    }
}

impl Exchange {
    async fn answer(&self, parts: &Parts, body: Inbound) -> Response<ResponseBody> {
        let path = parts.uri.path();
        add(&self.worker().counters.requests, 1);
        let started = Started::of(self.worker());
        let outcome = self.dispatch(parts, body).await;
        let is_rejected = outcome.is_err();
        let mut response = outcome.unwrap_or_else(|fault| {
            if self.explains() {
                return explain::early(route::operation(path), &fault);
            }
            add(&self.worker().counters.refused, 1);
            error_response(fault, family(path, &parts.headers, is_google(parts)), self.id())
        });
        if !self.explains() && wants_array(parts) {
            json_array::wrap(&mut response);
        }
        watched::report(self, parts, &response, is_rejected);
        refused_span::export(self, parts, &response, started);
        let origins = &self.worker().process.settings.cors_origins;
        let origins =
            if origins.is_empty() || route::is_open_to_pages(path) { origins.as_slice() } else { &[] };
        cors::decorate(origins, &parts.headers, response.headers_mut());
        response
    }

    /// Applies the headers and rules that all responses have in common.
    fn complete(&self, response: &mut Response<ResponseBody>, method: &Method) {
        response.headers_mut().insert(X_REQUEST_ID, self.request_id.clone());
        if method == Method::HEAD {
            *response.body_mut() = ResponseBody::full(bytes::Bytes::new());
        }
        if matches!(self.caller.connection.phase(), Phase::Http2 | Phase::Inside) {
            // RFC 9113 section 8.2.2: connection-specific fields do not exist in HTTP/2, nor in in-process responses.
            response.headers_mut().remove(CONNECTION);
        }
    }

    async fn dispatch(&self, parts: &Parts, body: Inbound) -> Result<Response<ResponseBody>, Fault> {
        match route::meaning(&parts.method, parts.uri.path()) {
            Meaning::Operation(operation, named) => self.operate(operation, named, parts, body).await,
            Meaning::Options(allow) => Ok(cors::options(allow)),
            Meaning::WrongMethod(operation, allow) => {
                if operation == Some(Operation::Responses) && asks_for_websocket(&parts.headers) {
                    return Err(websocket_refused());
                }
                if operation == Some(Operation::Models) && parts.method == Method::POST && is_google(parts) {
                    let message = google::absent(parts.uri.path());
                    return Err(Fault::new(ErrorKind::NotFound, message).closing());
                }
                let message =
                    format!("The method {} is not allowed on this path. Allowed: {allow}.", parts.method);
                Err(Fault { allow: Some(allow), ..Fault::new(ErrorKind::MethodNotAllowed, message) })
            }
            Meaning::OwnKey if self.has_own_key_path(parts.uri.path()) => {
                Box::pin(self.own_key(parts, body)).await
            }
            Meaning::OwnKey | Meaning::Elsewhere => Box::pin(self.elsewhere(parts, body)).await,
        }
    }

    /// Returns true if a path for the holder of a key exists. Those of Claude Code do while it can sign in.
    fn has_own_key_path(&self, path: &str) -> bool {
        self.worker().process.settings.claude_code || !route::is_of_claude_code(path)
    }

    async fn operate(
        &self,
        operation: Operation,
        named: Named<'_>,
        parts: &Parts,
        body: Inbound,
    ) -> Result<Response<ResponseBody>, Fault> {
        let process = &self.worker().process;
        match operation {
            Operation::Health => return Ok(health::health(&process.build)),
            Operation::Ready => return health::ready(self.worker()),
            Operation::Metrics if process.settings.metrics_public => {
                return Ok(Box::pin(metrics::serve(self)).await);
            }
            Operation::Responses if asks_for_websocket(&parts.headers) => return Err(websocket_refused()),
            _ => {}
        }
        let snapshot = process.snapshots.load();
        let access = match &self.caller.insider {
            Some(insider) => still_live(&insider.access, &snapshot.freshness)?,
            None => self.authenticated(&snapshot, parts)?,
        };
        // A closure would borrow `named`, which would then be part of the future.
        if let Err(fault) = authorize::operation(&access, operation.permission()) {
            return Err(policy::worded(&access, dialect_of(operation, named), fault).closing());
        }
        match operation {
            Operation::Models => models::serve(&snapshot, &access, named, parts),
            Operation::Metrics if is_administrator(&access) => Ok(Box::pin(metrics::serve(self)).await),
            Operation::Metrics => Err(Fault::new(ErrorKind::Forbidden, "Metrics need an administrator key.")),
            _ => {
                let FieldLabels { client, session, has_own } = self.caller.last_client.labels(&parts.headers);
                let running = self.worker().running.begin(RunningParams {
                    request_id: self.id(),
                    started_at_ms: clock::unix_ms(),
                    access: &access,
                    client,
                    operation,
                });
                self.capture(parts);
                let is_gemini = matches!(named, Named::Call(_));
                let dialect = dialect_of(operation, named);
                let authorized = AuthorizedRequest {
                    started: Instant::now(),
                    operation,
                    dialect,
                    exchange: self,
                    snapshot: &snapshot,
                    access: &access,
                    request: parts,
                    session,
                    has_own,
                    running: &running,
                };
                let answered = if let Named::Stored(path) = named {
                    running.unless_cancelled(Box::pin(stored::serve(&authorized, path, body)).as_mut()).await
                } else if self.explains() {
                    running.unless_cancelled(Box::pin(inference::explain(&authorized, body)).as_mut()).await
                } else if operation == Operation::CountTokens && is_gemini {
                    running.unless_cancelled(Box::pin(count_gemini::serve(&authorized, body)).as_mut()).await
                } else if matches!(named, Named::ResponsesInput) {
                    running
                        .unless_cancelled(Box::pin(count_responses::serve(&authorized, body)).as_mut())
                        .await
                } else if operation == Operation::CountTokens {
                    running.unless_cancelled(Box::pin(count_tokens::serve(&authorized, body)).as_mut()).await
                } else if operation == Operation::Videos {
                    running.unless_cancelled(Box::pin(videos::serve(&authorized, body)).as_mut()).await
                } else {
                    running.unless_cancelled(pin!(inference::serve(&authorized, body))).await
                };
                answered.unwrap_or_else(|Cancelled| Ok(self.cancelled(&running, dialect)))
            }
        }
    }

    /// Authenticates the caller. Wrong keys are counted with those of the admin API, which takes the same ones.
    fn authenticated(&self, snapshot: &Snapshot, parts: &Parts) -> Result<Arc<Access>, Fault> {
        let refuse = |fault: Fault| {
            let control = self.worker().process.fallback.get().filter(|_| presents_foreign_key(parts));
            match control.map(|control| control.wrong_key((&parts.method, self.id()), self.caller.peer)) {
                Some(Err(wait)) => too_many_wrong_keys(wait).closing(),
                Some(Ok(())) | None => fault.closing(),
            }
        };
        authenticate(snapshot, &self.caller.last_key, parts).map_err(refuse)
    }

    /// Returns the response to a request that an administrator has cancelled.
    fn cancelled(&self, running: &RunningEntry, dialect: Dialect) -> Response<ResponseBody> {
        let fault = Fault { close: running.is_reading(), ..Fault::cancelled() };
        error_response(fault, EnvelopeFamily::of(dialect), self.id())
    }

    /// Serves what belongs to the caller's own key: the control service answers, and this thread passes the authenticated
    /// caller to it.
    async fn own_key(&self, parts: &Parts, body: Inbound) -> Result<Response<ResponseBody>, Fault> {
        let process = &self.worker().process;
        let access = {
            let snapshot = process.snapshots.load();
            match &self.caller.insider {
                Some(insider) => still_live(&insider.access, &snapshot.freshness)?,
                None => self.authenticated(&snapshot, parts)?,
            }
        };
        let Some(fallback) = process.fallback.get() else {
            return Err(Fault::new(ErrorKind::NotFound, "There is no such path.").closing());
        };
        let mut request = Request::new(());
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        for name in [IF_NONE_MATCH, CONTENT_TYPE, CONTENT_ENCODING] {
            if let Some(value) = parts.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        request.headers_mut().insert(X_REQUEST_ID, self.request_id.clone());
        request.extensions_mut().insert(KeyHolder(access));
        Ok(self.controlled(fallback, request, (body, ADMIN_BODY_BYTES_MAX)).await)
    }

    /// Sends a request to the control service. The body stays on this thread; its frames are forwarded as they arrive.
    async fn controlled(
        &self,
        control: &Arc<dyn Handler>,
        request: Request<()>,
        (body, bytes_max): (Inbound, u64),
    ) -> Response<ResponseBody> {
        let (pump, body) = pipe(body);
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        let body = http_body_util::Limited::new(body, bytes_max).map_err(BoxError::from);
        let request = request.map(|()| body.boxed_unsync());
        let mut answering = Arc::clone(control).handle(request, self.caller.peer);
        let response = tokio::select! {
            response = &mut answering => response,
            () = pump => answering.await,
        };
        response.map(ResponseBody::port)
    }

    /// Forwards a request for a path outside the data plane's table to the control service.
    async fn elsewhere(&self, parts: &Parts, body: Inbound) -> Result<Response<ResponseBody>, Fault> {
        let path = parts.uri.path();
        if is_google(parts) {
            return Err(Fault::new(ErrorKind::NotFound, google::absent(path)).closing());
        }
        // Paths below /v1 belong to vendor protocols, and a client's SDK parses the error.
        let fallback = self.worker().process.fallback.get().filter(|_| !path.starts_with("/v1/"));
        let Some(fallback) = fallback else {
            return Err(Fault::new(ErrorKind::NotFound, absent(path)).closing());
        };
        // A run's body is rejected by the data plane, which must get the piece that crosses its limit.
        let bytes_max = match path.starts_with(RUN_PATH) {
            true => self.worker().process.settings.body_bytes_max.saturating_add(ADMIN_BODY_BYTES_MAX),
            false => ADMIN_BODY_BYTES_MAX,
        };
        let mut request = Request::new(());
        *request.method_mut() = parts.method.clone();
        *request.uri_mut() = parts.uri.clone();
        *request.headers_mut() = parts.headers.clone();
        request.headers_mut().insert(X_REQUEST_ID, self.request_id.clone());
        Ok(self.controlled(fallback, request, (body, bytes_max)).await)
    }
}

/// Returns the dialect of a request.
fn dialect_of(operation: Operation, named: Named<'_>) -> Dialect {
    let dialect = match named {
        Named::Call(call) => Some(call.method.dialect()),
        Named::ResponsesInput => Some(Dialect::Responses),
        Named::Nothing | Named::Model(_) | Named::Stored(_) => operation.dialect(),
    };
    dialect.unwrap_or(Dialect::Chat)
}

/// Returns the message for a path that is not served. It names the path to use instead, if there is one.
fn absent(path: &str) -> String {
    match route::instead(path) {
        Some(other) => format!("{path} is not served; use {other}."),
        None => not_served(path),
    }
}

/// The maximum body of a request to the control service, in bytes.
const ADMIN_BODY_BYTES_MAX: u64 = 1 << 20;

/// Returns the error envelope of a path (MSG-4). For paths of both vendors or of neither, the client's SDK determines it.
pub(crate) fn family(path: &str, headers: &HeaderMap, is_google: bool) -> EnvelopeFamily {
    if is_google {
        return EnvelopeFamily::Google;
    }
    let bare = path.strip_prefix("/v1").unwrap_or(path);
    let is_messages = bare == "/messages" || bare.starts_with("/messages/");
    let is_shared = matches!(route::operation(path), None | Some(Operation::Models));
    if is_messages || is_shared && headers.contains_key("anthropic-version") {
        EnvelopeFamily::Anthropic
    } else {
        EnvelopeFamily::OpenAi
    }
}

/// Returns true if the answer is a stream that a client of Google's protocol wants as one JSON array.
fn wants_array(parts: &Parts) -> bool {
    parts.method == Method::POST && google::streams(parts.uri.path()) && !google::wants_events(parts)
}

/// Returns the client's own request ID if it is valid, otherwise a new one (FAIL-7).
fn request_id(ids: &RequestIds, headers: &HeaderMap) -> HeaderValue {
    let own = headers.get(X_REQUEST_ID).filter(|value| {
        let text = value.as_bytes();
        (1..=128).contains(&text.len())
            && text.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(b))
    });
    let mut id = own.cloned().unwrap_or_else(|| ids.next());
    // The encoder of HTTP/2 keeps values for later heads to refer to; this one never occurs again, and would evict others.
    id.set_sensitive(true);
    id
}

fn asks_for_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns the 426 error for WebSocket requests (LIM-3): agents then fall back to HTTP at once.
fn websocket_refused() -> Fault {
    Fault::new(ErrorKind::UpgradeRequired, "WebSocket is not supported here. Send a POST request.").closing()
}

#[cfg(test)]
mod tests {
    use shared::usage::UsageEvent;
    use wire::native;
    use wire::request::InputSize;
    use wire::stream::StreamOptions;

    use super::*;
    use crate::relay::Relay;
    use crate::upstream::UpstreamBody;
    use crate::upstream::http1::UpstreamConnection;

    fn bytes_of<'a, F>(_: fn(&'a Exchange, &'a Parts, Inbound) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn the_future_of_an_exchange_takes_at_most_2784_bytes() {
        let bytes = bytes_of(Exchange::answer);
        assert!(bytes <= 2_784, "{bytes}");
    }

    /// That of a client is unique, too.
    #[test]
    fn the_encoder_of_http2_does_not_keep_request_ids() {
        let ids = RequestIds::new();
        for headers in
            [HeaderMap::new(), HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_static("own"))])]
        {
            assert!(request_id(&ids, &headers).is_sensitive());
        }
    }

    /// The memory that the gateway itself holds for a stream that it relays. The future of the exchange has ended by then, and the
    /// buffers are hyper's.
    #[test]
    fn a_held_stream_takes_at_most_4_kb_besides_the_buffers() {
        for dialect in [Dialect::Chat, Dialect::Messages, Dialect::Responses, Dialect::Gemini] {
            let reader = native::stream(dialect, StreamOptions::default());
            let parts = [
                ("relay and record", size_of::<Relay>()),
                ("usage event", size_of::<UsageEvent>()),
                ("reader of events", size_of_val(&*reader)),
                ("connection to the upstream", size_of::<UpstreamConnection>()),
                ("body of the answer", size_of::<UpstreamBody>()),
                ("running exchange", size_of::<RunningEntry>()),
                ("caller", size_of::<Caller>()),
                ("size of the input", size_of::<InputSize>()),
                ("state of the connection", size_of::<ConnectionState>()),
            ];
            let sum = parts.iter().map(|(_, bytes)| bytes).sum::<usize>();
            assert!(sum <= 4_096, "{dialect:?}: {sum} of {parts:?}");
        }
    }
}
