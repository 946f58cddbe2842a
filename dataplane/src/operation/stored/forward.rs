//! One operation on a stored response: the request to its provider, and the answer as it comes.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use shared::answer_head::{X_ATTEMPTS, X_PROVIDER};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::provider::path::UpstreamCall;
use shared::quota::Exceeded;
use shared::routing::{ProviderInstance, Renew};
use shared::usage::Outcome;
use wire::envelope::UpstreamAnswer;
use wire::media::Opaque;

use super::super::answer;
use super::super::inference::AuthorizedRequest;
use super::holder::unsupported;
use crate::admit::labels;
use crate::admit::quota;
use crate::admit::share_wait::reserve_when_granted;
use crate::attempt::{ERROR_BYTES_MAX, of_send_error, secrets, shown, wait_hint};
use crate::error::Fault;
use crate::record::{Opening, Record};
use crate::relay::{Relay, RelayParts, ResponseBody, Scan};
use crate::route::stored::StoredPart;
use crate::server::body::HeldBody;
use crate::upstream::request::{ANYTHING, JSON, RequestKind, UpstreamRequest, forwarded};
use crate::upstream::{self, UpstreamBody, UpstreamResponse};

/// An operation on a stored response.
pub(super) struct StoredCall<'a> {
    pub(super) authorized: &'a AuthorizedRequest<'a>,
    /// The instance that stores the response, with the key that made it.
    pub(super) provider: Arc<ProviderInstance>,
    pub(super) id: &'a str,
    pub(super) part: StoredPart,
    pub(super) kind: RequestKind,
    pub(super) body: HeldBody,
}

impl StoredCall<'_> {
    pub(super) async fn run(self) -> Result<Response<ResponseBody>, Fault> {
        let path = self.path().ok_or_else(|| unsupported(&self.provider.id))?;
        let mut record = self.record()?;
        match self.answer(path, &mut record).await {
            Ok(answer) => self.relayed(answer, record).await,
            Err(fault) => {
                record.fail(&fault);
                Err(fault)
            }
        }
    }

    /// Returns the path at the provider, with the client's query.
    fn path(&self) -> Option<PathAndQuery> {
        let call = match self.part {
            StoredPart::Whole => UpstreamCall::Stored,
            StoredPart::Cancel => UpstreamCall::Cancel,
            StoredPart::InputItems => UpstreamCall::InputItems,
        };
        let path = self.provider.path(Dialect::Responses, call, self.id)?;
        with_query(&path, self.authorized.request.uri.query())
    }

    fn record(&self) -> Result<Record, Fault> {
        let AuthorizedRequest { exchange, snapshot, access, request, .. } = *self.authorized;
        let worker = self.authorized.worker();
        let opening = Opening {
            started: self.authorized.started,
            started_at_ms: self.authorized.running.started_at_ms(),
            operation: self.authorized.operation,
            access,
            stream: asks_for_stream(request.uri.query()),
            dialect: Dialect::Responses,
            input: &Rc::default(),
            tags: labels::tags(&request.headers, self.authorized.has_own, access.tags.as_deref())?,
            end_user: None,
            session: labels::session(self.authorized.session, None, &snapshot.key_hasher),
            body_bytes: self.body.bytes(),
            body_wait_us: self.body.waited_us,
            media: None,
            running: self.authorized.running,
            span: worker.spans.as_ref().and_then(|spans| spans.begin(&request.headers)),
        };
        exchange.is_recorded.set(true);
        Ok(Record::open(&worker.usage, opening))
    }

    /// Reserves the request in the quotas, sends it, and returns an answer with success.
    async fn answer(&self, path: PathAndQuery, record: &mut Record) -> Result<UpstreamResponse, Fault> {
        if let Err(exceeded) = quota::reserve_at_provider(self.authorized.access, &self.provider.id, record) {
            self.reserve_later(exceeded, record).await?;
        }
        let began = record.begin_on_stored(&self.provider.id).ok_or_else(quota::no_slot)?;
        let mut answer = self.send(path).await?;
        record.head(answer.status, began, Instant::now());
        record.note(|event| event.upstream_id = answer.head.upstream_id.take());
        if self.kind == RequestKind::Delete && matches!(answer.status, 200..=299 | 404) {
            let tables = &self.authorized.worker().process.response_affinity;
            let forgotten = tables.forget(self.id, self.authorized.access, &self.provider);
            record.note(|event| event.details.stored_state = Some(forgotten));
        }
        if !(200..300).contains(&answer.status) {
            return Err(self.refused(answer).await);
        }
        if answer.head.encoded {
            return Err(self.invalid("it is compressed, which llmgw did not request"));
        }
        record.served(began, Instant::now());
        Ok(answer)
    }

    async fn reserve_later(&self, exceeded: Box<Exceeded>, record: &mut Record) -> Result<(), Fault> {
        let Some(shares) = &self.authorized.worker().process.shares else {
            return Err(quota::refused(&exceeded, record));
        };
        let again = |record: &mut Record| {
            quota::reserve_at_provider(self.authorized.access, &self.provider.id, record)
        };
        Box::pin(reserve_when_granted(Arc::clone(shares), exceeded, record, again)).await
    }

    async fn send(&self, path: PathAndQuery) -> Result<UpstreamResponse, Fault> {
        let AuthorizedRequest { exchange, request, .. } = *self.authorized;
        let request = UpstreamRequest {
            provider: Arc::clone(&self.provider),
            kind: self.kind,
            path,
            forwarded: &forwarded(Dialect::Responses, &request.headers),
            request_id: &exchange.request_id,
            of_model: Vec::new(),
            trace: None,
            tap: exchange.tap(),
            content_type: &JSON,
            accept: &ANYTHING,
            segments: self.body.segments.clone(),
            arriving: None,
        };
        let sending = upstream::send(&self.authorized.worker().upstreams, &request);
        let sent = tokio::time::timeout(self.provider.timeout, Box::pin(sending)).await;
        sent.map_err(|_| self.late())?.map_err(|error| {
            let failure = of_send_error(&error, &self.provider);
            Fault { retry_after: failure.retry_after, ..Fault::new(failure.kind, failure.message) }
        })
    }

    /// Returns the response for an answer with success: whole if it is short, otherwise as it comes.
    async fn relayed(
        &self,
        mut answer: UpstreamResponse,
        mut record: Record,
    ) -> Result<Response<ResponseBody>, Fault> {
        let worker = self.authorized.worker();
        let mut response = Response::new(ResponseBody::full(Bytes::new()));
        *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or_default();
        let status = response.status().as_u16();
        record.note(|event| event.status = status);
        let content_type = answer.head.content_type.take().map(shown);
        let is_stream = content_type.as_ref().is_some_and(|value| value.as_bytes().starts_with(EVENTS));
        self.headers(response.headers_mut(), content_type, is_stream);
        let start = if is_stream { Ok((Vec::new(), false)) } else { self.beginning(&mut answer.body).await };
        let (held, is_all) = start.inspect_err(|fault| record.fail(fault))?;
        if !is_all {
            *response.body_mut() = ResponseBody::relay(Box::new(Relay::new(RelayParts {
                context: Rc::clone(&worker.relays),
                connection: Rc::clone(&self.authorized.exchange.caller.connection),
                provider: Arc::clone(&self.provider),
                record,
                body: answer.body,
                scan: Scan::Stream(Box::<Opaque>::default()),
                dialect: Dialect::Responses,
                affinity: None,
                held,
            })));
            return Ok(response);
        }
        answer.body.recycle(&worker.upstreams, &self.provider);
        let body = Bytes::from(held.concat());
        record.note(|event| event.details.bytes_out = Some(body.len() as u64));
        if !record.close(Outcome::Completed).is_recorded {
            return Err(answer::no_record());
        }
        *response.body_mut() = ResponseBody::full(body);
        Ok(response)
    }

    fn headers(&self, headers: &mut HeaderMap, content_type: Option<HeaderValue>, is_stream: bool) {
        headers.extend(content_type.map(|value| (CONTENT_TYPE, value)));
        if is_stream {
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
        }
        if let Ok(value) = HeaderValue::from_str(self.provider.id.as_str()) {
            headers.insert(X_PROVIDER, value);
        }
        headers.insert(X_ATTEMPTS, HeaderValue::from(1));
        headers.extend(quota::describe(self.authorized.access, None, None));
    }

    /// Reads the beginning of a body, and returns true if it is all of it.
    async fn beginning(&self, body: &mut UpstreamBody) -> Result<(Vec<Bytes>, bool), Fault> {
        let (mut held, mut bytes) = (Vec::new(), 0);
        while bytes <= WHOLE_BYTES_MAX {
            match self.next(body).await? {
                Some(piece) => {
                    bytes += piece.len();
                    held.push(piece);
                }
                None => return Ok((held, true)),
            }
        }
        Ok((held, false))
    }

    async fn next(&self, body: &mut UpstreamBody) -> Result<Option<Bytes>, Fault> {
        let piece = tokio::time::timeout(self.provider.stream_idle_timeout, body.data()).await;
        piece.map_err(|_| self.late())?.transpose().map_err(|_| self.invalid("its connection broke"))
    }

    /// Returns the client's error for an answer without success.
    async fn refused(&self, mut answer: UpstreamResponse) -> Fault {
        if answer.status < 400 {
            return self.invalid("its status is unexpected; redirects are not followed");
        }
        let mut body = Vec::new();
        while body.len() < ERROR_BYTES_MAX
            && let Ok(Some(piece)) = self.next(&mut answer.body).await
        {
            body.extend_from_slice(piece.split_at(piece.len().min(ERROR_BYTES_MAX - body.len())).0);
        }
        answer.body.recycle(&self.authorized.worker().upstreams, &self.provider);
        if answer.status == 401 && self.provider.renew.as_ref().is_some_and(Renew::call) {
            let message = format!(
                "The access token of the provider '{}' is being renewed. Try again.",
                self.provider.id
            );
            return Fault::new(ErrorKind::NoEligibleTarget, message).retry_after(RENEWAL_WAIT);
        }
        let secrets = secrets(&self.provider);
        let content_type = answer.head.content_type.as_ref().and_then(|value| value.to_str().ok());
        let upstream = UpstreamAnswer { status: answer.status, content_type, body: &body, secrets: &secrets };
        Fault {
            status: Some(answer.status),
            error: Some(Box::new(upstream.diagnosis())),
            retry_after: wait_hint(&answer.head).map(|wait| wait.min(WAIT_MAX)),
            ..Fault::new(ErrorKind::UpstreamStatus, "The upstream rejected the request.")
        }
    }

    fn invalid(&self, why: &str) -> Fault {
        let message = format!("The provider '{}' sent an invalid response: {why}.", self.provider.id);
        Fault::new(ErrorKind::UpstreamInvalid, message)
    }

    fn late(&self) -> Fault {
        let message = format!("The provider '{}' did not answer in time.", self.provider.id);
        Fault::new(ErrorKind::UpstreamTimeout, message)
    }
}

/// Returns `path` with the client's query, unchanged except for parameters that the provider's own path has.
fn with_query(path: &PathAndQuery, query: Option<&str>) -> Option<PathAndQuery> {
    let Some(query) = query.filter(|query| !query.is_empty()) else { return Some(path.clone()) };
    let name = |member: &str| member.split_once('=').map_or(member, |(name, _)| name).to_owned();
    let own: Vec<String> = path.query().into_iter().flat_map(|own| own.split('&')).map(name).collect();
    let more: Vec<&str> = query.split('&').filter(|member| !own.contains(&name(member))).collect();
    let mark = if own.is_empty() { '?' } else { '&' };
    format!("{path}{mark}{}", more.join("&")).parse().ok()
}

/// Returns true if the query asks for a stream.
fn asks_for_stream(query: Option<&str>) -> bool {
    query.is_some_and(|query| query.split('&').any(|member| member == "stream=true"))
}

const EVENTS: &[u8] = b"text/event-stream";
/// The size up to which an answer is read before anything is sent, so that an upstream that breaks off is an error.
const WHOLE_BYTES_MAX: usize = 64 << 10;
/// The time after which a client may try again while an access token is renewed.
const RENEWAL_WAIT: Duration = Duration::from_secs(1);
/// Maximum `Retry-After` passed on to a client.
const WAIT_MAX: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_a_client_follows_that_of_the_provider() {
        for (path, query, want) in [
            ("/v1/responses/r", None, "/v1/responses/r"),
            ("/v1/responses/r", Some(""), "/v1/responses/r"),
            (
                "/v1/responses/r",
                Some("include[]=a&include[]=b&starting_after=3"),
                "/v1/responses/r?include[]=a&include[]=b&starting_after=3",
            ),
            ("/r?api-version=1", Some("stream=true"), "/r?api-version=1&stream=true"),
            ("/r?api-version=1", Some("api-version=2&limit=5"), "/r?api-version=1&limit=5"),
        ] {
            let joined = with_query(&path.parse().unwrap(), query).unwrap();
            assert_eq!(joined.as_str(), want, "{path} {query:?}");
        }
        assert!(asks_for_stream(Some("include[]=a&stream=true")) && !asks_for_stream(Some("stream=false")));
        assert!(!asks_for_stream(None));
    }
}
