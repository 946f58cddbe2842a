//! Token counts of Gemini clients (`countTokens`): counted by the first eligible target if it speaks Gemini, otherwise
//! estimated. Nothing is reserved or recorded.

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::provider::path::UpstreamCall;
use wire::adapt::Counting;
use wire::request::{self, GeminiCall, GeminiKind, Head, HeadScan, Naming};

use super::count_tokens::{BODY_BYTES_MAX, count_response, counted_natively};
use super::inference::{Arrived, AuthorizedRequest, of_scan_error, read};
use crate::adapt;
use crate::attempt;
use crate::error::Fault;
use crate::plan::{self, Plan};
use crate::relay::ResponseBody;
use crate::server::body::Inbound;

/// Handles one request.
pub(crate) async fn serve(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
) -> Result<Response<ResponseBody>, Fault> {
    let bytes_max = authorized.worker().process.settings.body_bytes_max.min(BODY_BYTES_MAX);
    let Arrived { head, mut body, .. } = read(authorized, incoming, bytes_max).await?;
    let head = match unwrapped(&head, &body.segments)? {
        Some((inner, bytes)) => {
            body.segments = vec![bytes.into()];
            Box::new(inner)
        }
        None => head,
    };
    let (route, _) = authorized.select(&head);
    let route = route?;
    let needs = authorized.needs(&head, &body);
    let Plan { candidates, .. } = plan::order(&route, needs, &mut |_, _| {})?;
    let Some(target) = candidates.first() else { return Err(attempt::all_cooling_down(0)) };
    let model = target.model.id.as_str();
    let routed = authorized.worker().routed(&route, &head, &body);
    let preamble = adapt::preamble(routed);
    let counting =
        Counting { target: Dialect::Gemini, model, takes_whole: target.provider.quirks.counts_whole };
    let path = target.provider.path(Dialect::Gemini, UpstreamCall::Count, model);
    let path = path.filter(|_| target.speaks(Dialect::Gemini));
    let whole = request::build(&body.segments, &head, Naming::Model(model), false, preamble.as_deref());
    let counted = match path.zip(counting.request(&whole.concat())) {
        Some((path, request)) => {
            let is_count = |answer: &[u8]| counting.tokens(answer).is_some();
            counted_natively(authorized, target, path, (&[], vec![request]), &is_count).await?
        }
        None => None,
    };
    let is_estimate = counted.is_none();
    let estimate = || json!({"totalTokens": head.input.likely(model).total()}).to_string().into();
    Ok(count_response(counted.unwrap_or_else(estimate), is_estimate, target))
}

/// Returns the request that `generateContentRequest` wraps, with its facts. `None` if the contents are not wrapped.
fn unwrapped(head: &Head, body: &[Bytes]) -> Result<Option<(Head, Vec<u8>)>, Fault> {
    if !head.lacks_conversation {
        return Ok(None);
    }
    let invalid = |why: &str| Fault::new(ErrorKind::InvalidRequest, why.to_owned()).param("contents");
    let mut request: Value = serde_json::from_slice(&body.concat()).unwrap_or_default();
    let names = ["generateContentRequest", "generate_content_request"];
    let inner = names.into_iter().find_map(|name| request.get_mut(name).map(Value::take));
    let inner = inner.filter(Value::is_object);
    let inner =
        inner.ok_or_else(|| invalid("Missing required member: 'contents'."))?.to_string().into_bytes();
    let call = GeminiCall { model: head.model.clone(), stream: false, kind: GeminiKind::Generation };
    let mut scan = HeadScan::of_gemini(call);
    let scanned = scan.push(&inner).and_then(|()| scan.finish());
    Ok(Some((scanned.map_err(|error| of_scan_error(&error))?, inner)))
}
