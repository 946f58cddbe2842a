//! Requests of the control service to the outside: catalogs, local servers, webhooks. They take the same
//! sockets, TLS and address rules as the relay's, but a connection of their own each, because they are rare.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use shared::port::{BoxError, HttpLimits};
use shared::routing::{HttpVersion, Origin};

use super::AnswerBody;
use super::connection::Connection;
use super::dial::dial;
use super::outgoing::Outgoing;
use crate::worker::Worker;

/// Makes one request and reads its whole answer.
pub(crate) async fn fetch(
    worker: &Rc<Worker>,
    request: Box<Request<Bytes>>,
    limits: HttpLimits,
) -> Result<Response<Bytes>, BoxError> {
    tokio::time::timeout(limits.timeout, exchange(worker, *request, limits.body_bytes_max))
        .await
        .map_err(|_| "no answer in time")?
}

async fn exchange(
    worker: &Rc<Worker>,
    request: Request<Bytes>,
    body_bytes_max: usize,
) -> Result<Response<Bytes>, BoxError> {
    let origin = origin(request.uri())?;
    let (io, _) = dial(&origin, &worker.plane.tls).await?;
    let mut connection = Connection::handshake(io).await?;
    let (head, incoming) = connection.send(outgoing(request, &origin)?).await?.into_parts();
    let mut body = AnswerBody::Http1 { connection: Box::new(connection), incoming };
    let mut whole = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|_| "the answer broke off")?;
        if whole.len() + piece.len() > body_bytes_max {
            return Err("the answer is too large".into());
        }
        whole.extend_from_slice(&piece);
    }
    Ok(Response::from_parts(head, whole.freeze()))
}

/// The same request with a path for a target and a `Host`.
fn outgoing(request: Request<Bytes>, origin: &Origin) -> Result<Request<Outgoing>, BoxError> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    parts.uri = Uri::from(path);
    parts.headers.insert(HOST, HeaderValue::from_str(origin.authority.as_str())?);
    Ok(Request::from_parts(parts, Outgoing::new(if body.is_empty() { Vec::new() } else { vec![body] })))
}

fn origin(uri: &Uri) -> Result<Origin, BoxError> {
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("the address is neither http nor https".into()),
    };
    let authority = uri.authority().ok_or("the address names no host")?.clone();
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let path = PathAndQuery::from_static("/");
    let http = HttpVersion::Http1;
    Ok(Origin { tls, authority, host, port, chat_path: path.clone(), models_path: path, http })
}
