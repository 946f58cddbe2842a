//! Videos (VID-1): the answer to a start contains the sealed id of an operation; a request with that id, to the same
//! path and selector, returns its progress.
//!
//! The gateway keeps no state: the id itself contains the target that runs the operation and its owner. A start goes
//! through the same pipeline as every request to a model, and is recorded and counted; polling costs nothing.

mod address;
mod find;
mod poll;

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use shared::answer_head::JSON;
use shared::clock;
use shared::error_kind::ErrorKind;
use shared::operation::Dialect;
use shared::operation_id::{Owner, Started};
use shared::usage::Outcome;
use wire::media::videos::About;

pub(super) use self::find::holder;
use super::answer;
use super::inference::{Arrived, AuthorizedRequest, read};
use crate::attempt::{self, AnswerStart, Served};
use crate::error::Fault;
use crate::record::{Record, Reported};
use crate::relay::ResponseBody;
use crate::server::body::{HeldBody, Inbound};
use wire::request::Head;

/// Handles one request.
pub(crate) async fn serve(
    authorized: &AuthorizedRequest<'_>,
    incoming: Inbound,
) -> Result<Response<ResponseBody>, Fault> {
    let Arrived { head, body, .. } =
        read(authorized, incoming, authorized.worker().process.settings.body_bytes_max).await?;
    if head.is_poll {
        return Box::pin(poll::serve(authorized, &head, body)).await;
    }
    start(authorized, head, body).await
}

async fn start(
    authorized: &AuthorizedRequest<'_>,
    head: Box<Head>,
    body: HeldBody,
) -> Result<Response<ResponseBody>, Fault> {
    if !authorized.worker().usage.has_room() {
        return Err(answer::no_record());
    }
    let (job, mut record) = authorized.prepare(head, body)?;
    match attempt::run(&job, &mut record).await {
        Ok(served) => started(authorized, served, record),
        unserved => Ok(answer::respond(authorized.exchange, Dialect::Videos, unserved, record)),
    }
}

/// Returns the answer to a start that a target has accepted.
fn started(
    authorized: &AuthorizedRequest<'_>,
    served: Served,
    mut record: Record,
) -> Result<Response<ResponseBody>, Fault> {
    let Served { success, target, adapted_from, attempts, notices, .. } = served;
    let name = match &success.start {
        AnswerStart::Whole(whole) => {
            record.report(Reported { extras: whole.extras.clone(), ..Reported::default() });
            std::str::from_utf8(&whole.body).ok()
        }
        AnswerStart::Streaming { .. } => None,
    };
    let started = name.map(|name| Started {
        provider: target.provider.id.clone(),
        model: target.model.id.clone(),
        name: name.into(),
        owner: Owner::of(authorized.access),
        at_s: clock::unix_ms() / 1_000,
        credential: target.provider.lane.as_ref().map(|_| target.provider.credential_mark()),
    });
    let sealed = started
        .as_ref()
        .and_then(|started| Some((started, authorized.snapshot.operation_ids.seal(started)?)));
    let Some((started, operation)) = sealed else {
        let fault = Fault::new(ErrorKind::Internal, UNSEALED);
        record.fail(&fault);
        return Err(fault);
    };
    let status = StatusCode::ACCEPTED;
    let body = about(&operation, started).started();
    record.note(|event| {
        event.status = status.as_u16();
        event.details.bytes_out = Some(body.len() as u64);
    });
    if !record.close(Outcome::Completed).is_recorded {
        return Err(answer::no_record());
    }
    let mut response = json(body);
    *response.status_mut() = status;
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(POLL_AFTER.as_secs()));
    response.headers_mut().extend(answer::head(&target, JSON, adapted_from, attempts));
    response.headers_mut().extend(notices);
    Ok(response)
}

fn about<'a>(operation: &'a str, started: &'a Started) -> About<'a> {
    About {
        operation,
        created_at: started.at_s,
        provider: started.provider.as_str(),
        model: started.model.as_str(),
    }
}

fn json(body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Recommended polling interval for clients: videos take a minute or more.
const POLL_AFTER: Duration = Duration::from_secs(10);
const UNSEALED: &str = "The provider has started the video, but the gateway cannot create an ID for its \
                        operation. The video cannot be fetched and may still be billed.";
