//! Requests of the control service to the outside: catalogs, local servers, webhooks. They take the same
//! sockets, TLS and address rules as the relay's, but a connection of their own each, because they are rare.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use shared::port::{BoxError, HttpLimits};
use shared::routing::{HttpVersion, Origin};

use super::dial::dial;
use super::http1::Connection;
use super::{AnswerBody, SendError};
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
    let mut connection = Box::new(Connection::new(io));
    let mut headers = HeaderMap::new();
    let mut keep = |name: &str, value: &[u8]| {
        let parsed = (HeaderName::try_from(name), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = parsed {
            headers.append(name, value);
        }
    };
    let (head, body) = outgoing(&request, &origin);
    let sent = connection.send(head, &body, &mut keep).await.map_err(SendError::from);
    let status = sent.map_err(|error| format!("{error:?}"))?.status;
    let mut body = AnswerBody::Http1(connection);
    let mut whole = BytesMut::new();
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|_| "the answer broke off")?;
        if whole.len() + piece.len() > body_bytes_max {
            return Err("the answer is too large".into());
        }
        whole.extend_from_slice(&piece);
    }
    let mut response = Response::new(whole.freeze());
    *response.status_mut() = StatusCode::from_u16(status)?;
    *response.headers_mut() = headers;
    Ok(response)
}

/// The request as HTTP/1.1 writes it. Whoever asks sets what they need; framing fields are set here.
fn outgoing(request: &Request<Bytes>, origin: &Origin) -> (Bytes, Vec<Bytes>) {
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let mut head =
        format!("{} {path} HTTP/1.1\r\nhost: {}\r\n", request.method(), origin.authority).into_bytes();
    let own = request.headers().iter().filter(|(name, _)| !FRAMING.contains(name));
    for (name, value) in own {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    let framing = format!("connection: close\r\ncontent-length: {}\r\n\r\n", request.body().len());
    head.extend_from_slice(framing.as_bytes());
    let body = Some(request.body().clone()).filter(|body| !body.is_empty());
    (head.into(), body.into_iter().collect())
}

const FRAMING: [HeaderName; 4] = [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING];

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
