//! Sends a request over a connection of the pool or a new one, and waits for the head of its answer.

use shared::routing::{InstanceReach, Origin};

use super::dial::dial;
use super::http1::{Progress, Unanswered, UpstreamConnection};
use super::http2::{NotSent, SharedConnection, send_http2};
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
            // No byte of the request has been sent, so another connection may be used.
            Err(Unanswered { progress: Progress::Unsent, .. }) => {}
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

/// Sends over a shared HTTP/2 connection or over a new connection.
async fn send_on_new_connection(
    upstreams: &Upstreams,
    origin: &Origin,
    request: &UpstreamRequest<'_>,
) -> Result<UpstreamResponse, SendError> {
    if let Some(shared) = upstreams.pool.share(origin) {
        match send_http2(upstreams, shared.clone(), (origin, request)).await {
            // The upstream is closing the connection, and the request was not sent.
            Err(NotSent::Request) => shared.retire(),
            Err(NotSent::Error(error)) => return Err(error),
            Ok(answer) => return Ok(answer),
        }
    }
    let (io, is_http2) = dial(origin, &upstreams.tls).await.map_err(SendError::Dial)?;
    if is_http2 {
        let shared = SharedConnection::handshake(io).await?;
        upstreams.pool.put_shared(origin, shared.clone());
        return send_http2(upstreams, shared, (origin, request)).await.map_err(SendError::from);
    }
    let connection = Box::new(UpstreamConnection::handshake(io).await?);
    Ok(send_http1(upstreams, connection, (origin, request)).await?)
}

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
