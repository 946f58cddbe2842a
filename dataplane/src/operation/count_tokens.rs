//! Token counts of Messages requests (MSG-3, MSG-5): counted by the first eligible target, or estimated if it cannot
//! count. Nothing is reserved or recorded.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Response};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::provider::path::UpstreamCall;
use shared::routing::Target;
use wire::envelope::UpstreamAnswer;
use wire::json::JsonFault;
use wire::messages;
use wire::request::{self, Naming};

use super::answer::name_target;
use super::inference::{Arrived, AuthorizedRequest, read};
use crate::adapt::{self, RoutedRequest};
use crate::admit::policy;
use crate::attempt::{self, secrets};
use crate::error::Fault;
use crate::memory_budget::MemoryReservation;
use crate::offload;
use crate::plan::lanes::any_lane;
use crate::plan::{self, Plan};
use crate::relay::ResponseBody;
use crate::server::body::{HeldBody, Inbound};
use crate::upstream::request::{JSON, RequestKind, UpstreamRequest, forwarded};
use crate::upstream::{self, UpstreamResponse};

const ANTHROPIC_BETA: HeaderName = HeaderName::from_static("anthropic-beta");
const X_TOKEN_COUNT: HeaderName = HeaderName::from_static("x-llmgw-token-count");
/// Maximum bytes of a body to count, unless the configured body limit is smaller.
pub(super) const BODY_BYTES_MAX: u64 = 32 << 20;
/// Maximum bytes of an upstream's answer, which is one number.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Handles one request.
pub(crate) async fn serve(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
) -> Result<Response<ResponseBody>, Fault> {
    let bytes_max = authorized.worker().process.settings.body_bytes_max.min(BODY_BYTES_MAX);
    let Arrived { head, body, .. } = read(authorized, incoming, bytes_max).await?;
    let (route, _) = authorized.select(&head);
    let route = route?;
    let needs = authorized.needs(&head, &body);
    let Plan { candidates, .. } = plan::order(&route, needs, &mut |_, _| {})
        .map_err(|fault| policy::worded(authorized.access, authorized.dialect, fault))?;
    let Some(target) = candidates.first() else { return Err(attempt::all_cooling_down(0)) };
    let model = target.model.id.as_str();
    let routed = authorized.worker().routed(&route, &head, &body);
    let preamble = adapt::preamble(routed);
    let build = |naming| request::build(&body.segments, &head, naming, false, preamble.as_deref());
    let native = target.speaks(Dialect::Messages);
    let counted = match target.provider.path(Dialect::Messages, UpstreamCall::Count, model).filter(|_| native)
    {
        Some(path) => {
            let naming = match target.provider.quirks.messages_version {
                Some(version) => Naming::ModelAndVersion(model, version),
                None => Naming::Model(model),
            };
            let (segments, _) = adapt::signed(build(naming), &head, target);
            let headers = forwarded(Dialect::Messages, &authorized.request.headers);
            let headers = match target.provider.quirks.count_betas {
                Some(known) => with_known_betas(headers, known),
                None => headers,
            };
            counted_natively(authorized, target, path, (&headers, segments), &messages::is_count).await?
        }
        None if native => None,
        None => {
            let tokens = counted_adapted(authorized, target, routed, &build(Naming::Model(model))).await;
            tokens.map(messages::count_answer)
        }
    };
    let mut response = match counted {
        Some(answer) => Response::new(ResponseBody::full(answer)),
        None => {
            let segments = build(Naming::Model(model));
            estimate(body, segments, model).await?
        }
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    name_target(response.headers_mut(), target);
    Ok(response)
}

/// Counts with a `target` that speaks the client's protocol, by a request of these headers and pieces, and returns its
/// answer. Returns `None` if the answer is unusable, and an error if the upstream rejected the request itself.
pub(super) async fn counted_natively(
    authorized: &AuthorizedRequest<'_>,
    target: &Target,
    path: PathAndQuery,
    request: (&[(HeaderName, HeaderValue)], Vec<Bytes>),
    is_count: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<Bytes>, Fault> {
    let Some((UpstreamResponse { status, head, .. }, body)) = ask(authorized, target, path, request).await
    else {
        return Ok(None);
    };
    match status {
        200 => Ok(is_count(&body).then_some(body)),
        400 | 413 | 422 => {
            let secrets = secrets(&target.provider);
            let content_type = head.content_type.as_ref().and_then(|value| value.to_str().ok());
            let upstream = UpstreamAnswer { status, content_type, body: &body, secrets: &secrets };
            let error = Some(Box::new(upstream.diagnosis()));
            let fault = Fault::new(ErrorKind::UpstreamStatus, "The upstream rejected the request.");
            Err(Fault { status: Some(status), error, ..fault })
        }
        _ => Ok(None),
    }
}

/// Counts with a `target` of another dialect and returns the count. `segments` are the pieces of the request. Any refusal returns `None`, and the client gets an estimate: it may be due to the adaptation, or to a
/// model that cannot count.
pub(super) async fn counted_adapted(
    authorized: &AuthorizedRequest<'_>,
    target: &Target,
    routed: RoutedRequest<'_>,
    segments: &[Bytes],
) -> Option<u64> {
    // Reserves memory for the adapted request and the counting request, in addition to the client's body.
    let mut memory = MemoryReservation::new(&authorized.worker().process.memory);
    if !memory.take(routed.body.bytes().saturating_mul(2)) {
        return None;
    }
    let counting = Box::pin(adapt::counting(routed, target, segments, memory));
    let (counting, path, body, _memory) = counting.await?;
    let (answer, body) = ask(authorized, target, path, (&[], vec![body])).await?;
    counting.tokens(&body).filter(|_| answer.status == 200)
}

/// Sends a counting request, given as headers and body segments, and reads the answer. Returns `None` on failure or
/// timeout.
async fn ask(
    authorized: &AuthorizedRequest<'_>,
    target: &Target,
    path: PathAndQuery,
    (forwarded, segments): (&[(HeaderName, HeaderValue)], Vec<Bytes>),
) -> Option<(UpstreamResponse, Bytes)> {
    let upstreams = &authorized.worker().upstreams;
    let request = UpstreamRequest {
        provider: any_lane(target),
        kind: RequestKind::PostSafe,
        path,
        forwarded,
        request_id: &authorized.exchange.request_id,
        of_model: target.model.headers.to_vec(),
        trace: None,
        tap: authorized.exchange.tap(),
        content_type: &JSON,
        accept: &JSON,
        segments,
        arriving: None,
    };
    let exchange = async {
        let mut answer = upstream::send(upstreams, &request).await.ok()?;
        if answer.head.encoded {
            return None;
        }
        let body = answer.body.whole(ANSWER_BYTES_MAX).await.ok()?;
        answer.body.recycle(upstreams, &request.provider);
        Some((answer, body))
    };
    tokio::time::timeout(target.provider.timeout, Box::pin(exchange)).await.ok().flatten()
}

/// Returns `headers` with only the `known` values of `anthropic-beta`.
fn with_known_betas(
    headers: Vec<(HeaderName, HeaderValue)>,
    known: &[&str],
) -> Vec<(HeaderName, HeaderValue)> {
    let betas = |value: &HeaderValue| {
        let named = value.to_str().unwrap_or_default().split(',').map(str::trim);
        let kept: Vec<&str> = named.filter(|beta| known.contains(beta)).collect();
        HeaderValue::from_str(&kept.join(",")).ok().filter(|value| !value.is_empty())
    };
    let headers = headers.into_iter().filter_map(|(name, value)| {
        let value = if name == ANTHROPIC_BETA { betas(&value)? } else { value };
        Some((name, value))
    });
    headers.collect()
}

/// Estimates the tokens of the request made of `segments`. `held` owns the bytes they reference and keeps them counted
/// as held in memory until the estimate is done.
async fn estimate(
    held: HeldBody,
    segments: Vec<Bytes>,
    model: &str,
) -> Result<Response<ResponseBody>, Fault> {
    let bytes: usize = segments.iter().map(Bytes::len).sum();
    let model = model.to_owned();
    let count = move || {
        let tokens = messages::count(&segments.concat(), &model);
        drop(held);
        tokens
    };
    let tokens = offload::run(bytes, count).await.map_err(of_fault)?;
    let mut response = Response::new(ResponseBody::full(messages::count_answer(tokens)));
    response.headers_mut().insert(X_TOKEN_COUNT, HeaderValue::from_static("estimate"));
    Ok(response)
}

/// Returns the answer to a count at `target`: what the target has counted, or an estimate.
pub(super) fn count_response(answer: Bytes, is_estimate: bool, target: &Target) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(answer));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON.clone());
    if is_estimate {
        headers.insert(X_TOKEN_COUNT, HeaderValue::from_static("estimate"));
    }
    name_target(headers, target);
    response
}

fn of_fault(fault: JsonFault) -> Fault {
    Fault::new(ErrorKind::InvalidRequest, format!("The body is not valid JSON: {fault}."))
}
