//! Sends a request over a connection of the pool or a new one, and waits for the head of its answer.

use shared::routing::{InstanceReach, Origin};

use super::dial::dial;
use super::error::{Progress, Unanswered};
use super::http1::UpstreamConnection;
use super::http2::{Place, may_be_shared, send_http2};
use super::request::{RequestKind, UpstreamRequest};
use super::{SendError, UpstreamBody, UpstreamResponse, Upstreams, echo, tap, voice};

/// Sends `request` and waits for the head of its answer.
pub(crate) async fn send(
    upstreams: &Upstreams,
    request: &UpstreamRequest<'_>,
) -> Result<UpstreamResponse, SendError> {
    match &request.provider.reach {
        InstanceReach::Network(origin) => {
            send_network(upstreams, origin, request).await.map(|answer| tap::around(request, answer))
        }
        InstanceReach::Echo(options) => {
            Ok(Box::pin(echo::answer(&request.provider.id, options, request)).await)
        }
        InstanceReach::Speech => {
            Ok(Box::pin(voice::answer(&upstreams.voices, &request.provider, request)).await)
        }
    }
}

async fn send_network(
    upstreams: &Upstreams,
    origin: &Origin,
    request: &UpstreamRequest<'_>,
) -> Result<UpstreamResponse, SendError> {
    while request.kind != RequestKind::PostOnce
        && let Some(connection) = upstreams.pool.take(origin)
    {
        match send_http1(upstreams, connection, (origin, request)).await {
            Ok(answer) => return Ok(answer),
            Err(Unanswered { progress: Progress::Unprocessed, .. }) => {}
            Err(Unanswered { progress: Progress::Sent, error: SendError::Broke(_) }) => {
                if !request.kind.is_safe() {
                    return Err(SendError::Stale);
                }
                break;
            }
            Err(Unanswered { error, .. }) => return Err(error),
        }
    }
    // Boxed, so that a request on an idle connection does not reserve space for the state of a dial.
    Box::pin(send_on_new_connection(upstreams, origin, request)).await
}

/// Sends over a shared connection or over a new one. What a closing or overloaded connection has not processed is sent on
/// another one, without being a failure of the provider.
async fn send_on_new_connection(
    upstreams: &Upstreams,
    origin: &Origin,
    request: &UpstreamRequest<'_>,
) -> Result<UpstreamResponse, SendError> {
    if !may_be_shared(origin) {
        let (io, _) = dial(origin, &upstreams.tls).await.map_err(SendError::Dial)?;
        let connection = Box::new(UpstreamConnection::handshake(io).await?);
        return Ok(send_http1(upstreams, connection, (origin, request)).await?);
    }
    let shared = upstreams.pool.shared(origin);
    for _ in 0..SENDS_MAX {
        match shared.place(origin, &upstreams.tls).await? {
            Place::Http1(connection) => {
                return Ok(send_http1(upstreams, connection, (origin, request)).await?);
            }
            Place::Stream(lease) => match send_http2(upstreams, lease, (origin, request)).await {
                Ok(answer) => return Ok(answer),
                // A rejected client certificate would be rejected again.
                Err(Unanswered { progress: Progress::Unprocessed, error })
                    if !matches!(error, SendError::Dial(_)) => {}
                Err(Unanswered { error, .. }) => return Err(error),
            },
        }
    }
    Err(SendError::Broke(format!("it processed the request on none of {SENDS_MAX} connections").into()))
}

/// Maximum connections on which a request is sent that is not processed.
const SENDS_MAX: usize = 3;

async fn send_http1(
    upstreams: &Upstreams,
    mut connection: Box<UpstreamConnection>,
    (origin, request): (&Origin, &UpstreamRequest<'_>),
) -> Result<UpstreamResponse, Unanswered> {
    let signature = request.signature(origin).await;
    let head = connection.send(tap::noted(request, request.http1(origin, signature))).await?;
    let kept = upstreams.keep(request, &head);
    Ok(UpstreamResponse { status: head.status.as_u16(), head: kept, body: UpstreamBody::Http1(connection) })
}
