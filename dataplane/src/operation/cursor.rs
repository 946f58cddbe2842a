//! Chat requests whose bodies are requests of the Responses API, as Cursor sends them. An endpoint with `cursor_bodies`
//! accepts them: they become chat requests, and everything after this reads only those.

use shared::error_kind::ErrorKind;
use shared::operation::{Dialect, Operation};
use shared::snapshot::Route;
use wire::adapt::chat_of_cursor;
use wire::request::{Head, HeadScan, ScanError, ScanFault};

use super::inference::{AuthorizedRequest, of_scan_error};
use crate::adapt;
use crate::error::Fault;
use crate::memory_budget::{MemoryExhausted, MemoryReservation};
use crate::offload;
use crate::server::body::HeldBody;

/// Turns `body`, which is no chat request because of `error`, into one, if it is such a body and the endpoint accepts it.
pub(super) async fn head(
    authorized: &AuthorizedRequest<'_>,
    body: &mut HeldBody,
    error: ScanError,
) -> Result<Box<Head>, Fault> {
    let may_be = authorized.operation == Operation::ChatCompletions
        && matches!(error.fault, ScanFault::ConversationMissing(_));
    let of_responses = if may_be { scanned(Dialect::Responses, body).ok() } else { None };
    let Some(head) = of_responses else { return Err(of_scan_error(&error)) };
    let (route, _) = authorized.select(&head);
    match route? {
        Route::Endpoint(endpoint) if endpoint.cursor_bodies => {}
        Route::Endpoint(endpoint) => return Err(refused(&format!("at the endpoint '{}'", endpoint.name))),
        Route::Model(_) | Route::Alias(_) | Route::Ambiguous(_) => {
            return Err(refused("at an endpoint, and name that as 'model'"));
        }
    }
    // The chat request is held in addition to the client's bytes while it is made.
    let mut memory = MemoryReservation::new(&authorized.worker().process.memory);
    if !memory.take(body.bytes().saturating_mul(2)) {
        return Err(Fault::from(MemoryExhausted));
    }
    let (client_body, selector) = (body.segments.concat(), head.model.clone());
    let translate = move || chat_of_cursor(&client_body, &selector);
    let bytes = body.segments.iter().map(|segment| segment.len()).sum();
    let chat = Box::pin(offload::run(bytes, translate)).await.map_err(adapt::refusal)?;
    body.segments = vec![memory.around(chat.into())];
    scanned(Dialect::Chat, body).map(Box::new).map_err(|error| of_scan_error(&error))
}

fn scanned(dialect: Dialect, body: &HeldBody) -> Result<Head, ScanError> {
    let mut scan = HeadScan::new(dialect);
    body.segments.iter().try_for_each(|segment| scan.push(segment))?;
    scan.finish()
}

fn refused(place: &str) -> Fault {
    let message = format!(
        "'messages' is missing, and 'input' belongs to the Responses API: send this request to /v1/responses. If Cursor sent \
         it, set 'cursor_bodies: true' {place}."
    );
    Fault::new(ErrorKind::InvalidRequest, message).param("messages")
}
