//! Stored responses by their IDs: fetched, deleted, cancelled, and their input listed, at the provider that stores them.
//!
//! The gateway knows which provider instance, with which key, made a response of the caller. Only that one is asked, once,
//! even if its circuit is open. Requests count in quotas and are recorded; they cost nothing, because the exchange that made
//! a response has recorded its usage.

mod forward;
mod holder;

use http::{Method, Response};
use shared::error_kind::ErrorKind;

use self::forward::StoredCall;
use super::answer;
use super::inference::AuthorizedRequest;
use crate::error::Fault;
use crate::relay::ResponseBody;
use crate::route::stored::{StoredPart, StoredPath};
use crate::server::body::{self, Inbound};
use crate::upstream::request::RequestKind;

/// Handles one request.
pub(crate) async fn serve(
    authorized: &AuthorizedRequest<'_>,
    StoredPath { id, part }: StoredPath<'_>,
    incoming: Inbound,
) -> Result<Response<ResponseBody>, Fault> {
    if authorized.exchange.explains() {
        let message = "A stored response has one provider, so there is no plan to explain.";
        return Err(Fault::new(ErrorKind::InvalidRequest, message));
    }
    let worker = authorized.worker();
    if !worker.usage.has_room() {
        return Err(answer::no_record());
    }
    let body = body::read(
        &worker.process.body_limits,
        &authorized.request.headers,
        incoming,
        BODY_BYTES_MAX,
        &mut |_: &[u8]| Ok(()),
    )
    .await?;
    authorized.exchange.note_body(&body);
    let id = holder::id_of(id)?;
    let provider = holder::holder(authorized, &id).await?;
    let kind = match (part, &authorized.request.method) {
        (StoredPart::Cancel, _) => RequestKind::PostSafe,
        (StoredPart::Whole, &Method::DELETE) => RequestKind::Delete,
        (StoredPart::Whole | StoredPart::InputItems, _) => RequestKind::Get,
    };
    Box::pin(StoredCall { authorized, provider, id: &id, part, kind, body }.run()).await
}

/// The maximum length of a body in bytes. No operation on a stored response needs one.
const BODY_BYTES_MAX: u64 = 64 << 10;
