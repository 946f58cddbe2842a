//! Token counts of Responses requests (`/responses/input_tokens`): counted by the first eligible target, or estimated if it
//! cannot count. Nothing is reserved or recorded.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::provider::path::UpstreamCall;
use shared::routing::Target;
use wire::request::{self, Head, Naming};

use super::count_tokens::{BODY_BYTES_MAX, count_response, counted_adapted, counted_natively};
use super::inference::{Arrived, AuthorizedRequest, read};
use crate::adapt;
use crate::attempt;
use crate::error::Fault;
use crate::plan::lanes::{LaneNeeds, lanes};
use crate::plan::{self, Needs, Plan};
use crate::relay::ResponseBody;
use crate::server::body::Inbound;
use crate::upstream::request::forwarded;

/// Handles one request.
pub(crate) async fn serve(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
) -> Result<Response<ResponseBody>, Fault> {
    let worker = authorized.worker();
    let bytes_max = worker.process.settings.body_bytes_max.min(BODY_BYTES_MAX);
    let Arrived { head, body, .. } = read(authorized, incoming, bytes_max).await?;
    let (route, _) = authorized.select(&head);
    let route = route?;
    if let Some(recall) = attempt::missing(worker, &head, authorized.access) {
        Box::pin(recall.run(&worker.process.response_affinity)).await?;
    }
    let needs = authorized.needs(&head, &body);
    let Plan { candidates, .. } = plan::order(&route, needs, &mut |_, _| {})?;
    let Some(planned) = candidates.first() else { return Err(attempt::all_cooling_down(0)) };
    let target = &with_key(planned, &head, needs);
    let model = target.model.id.as_str();
    let routed = worker.routed(&route, &head, &body);
    let preamble = adapt::preamble(routed);
    let segments = || request::build(&body.segments, &head, Naming::Model(model), false, preamble.as_deref());
    let native = target.speaks(Dialect::Responses);
    let path = target.provider.path(Dialect::Responses, UpstreamCall::Count, model).filter(|_| native);
    let counted = match path {
        Some(path) => {
            let headers = forwarded(Dialect::Responses, &authorized.request.headers);
            counted_natively(authorized, target, path, (&headers, segments()), &is_count).await?
        }
        None if native => None,
        None => counted_adapted(authorized, target, routed, &segments()).await.map(count_answer),
    };
    let is_estimate = counted.is_none();
    let answer = match counted {
        Some(answer) => answer,
        None => count_answer(estimate(&head, model)?),
    };
    Ok(count_response(answer, is_estimate, target))
}

/// Returns the target with the key for the request: the one that stores what the request refers to.
fn with_key(target: &Target, head: &Head, needs: Needs<'_>) -> Target {
    let Needs { session, response_affinity, reference, .. } = needs;
    let ranked = lanes(target, LaneNeeds::of(head, session, (response_affinity, reference)));
    let provider = ranked.first().map_or(&target.provider, |ranked| ranked.lane);
    Target { provider: Arc::clone(provider), model: Arc::clone(&target.model) }
}

/// Estimates the tokens of the request. What a provider stores cannot be estimated.
fn estimate(head: &Head, model: &str) -> Result<u64, Fault> {
    let state = &head.state;
    let stored = [
        ("previous_response_id", state.previous_response_id.is_some()),
        ("conversation", state.conversation.is_some()),
        ("prompt", state.prompt),
    ];
    match stored.into_iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => {
            let message = format!(
                "'{name}' cannot be counted: the target does not count tokens, and only the provider knows what \
                 it refers to. Send the whole conversation in 'input'."
            );
            Err(Fault::new(ErrorKind::UnsupportedField, message).param(name))
        }
        None => Ok(head.input.likely(model).total()),
    }
}

fn is_count(answer: &[u8]) -> bool {
    let answer: Option<Value> = serde_json::from_slice(answer).ok();
    answer.is_some_and(|answer| answer.get("input_tokens").is_some_and(Value::is_u64))
}

fn count_answer(tokens: u64) -> Bytes {
    json!({"object": "response.input_tokens", "input_tokens": tokens}).to_string().into()
}
