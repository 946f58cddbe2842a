//! Outgoing requests of the control service, with the same sockets, TLS and address checks as requests to upstreams,
//! each on its own connection.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, HOST, TRANSFER_ENCODING, USER_AGENT,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use shared::port::{BoxError, HeadOnly, HttpLimits, MetadataServer, SocketPath, Via};
use shared::provider::path::Paths;
use shared::routing::{HttpVersion, Origin};

use super::dial::{DialError, Tls, UpstreamIo, dial, dial_metadata};
use super::http1::UpstreamConnection;
use super::http2::{SharedConnection, StreamLease};
use super::request::{AGENT, SegmentedBody};
use super::{Incomplete, SendError, UpstreamBody};

/// Sends one request and reads its whole answer.
pub(crate) async fn fetch(
    tls: &Tls,
    request: Request<Bytes>,
    limits: HttpLimits,
) -> Result<Response<Bytes>, BoxError> {
    let exchange = exchange(tls, request, limits.body_bytes_max);
    tokio::time::timeout(limits.timeout, exchange).await.map_err(|_| "no complete response in time")?
}

async fn exchange(
    tls: &Tls,
    request: Request<Bytes>,
    body_bytes_max: usize,
) -> Result<Response<Bytes>, BoxError> {
    if !METHODS.contains(request.method()) {
        return Err(format!("the method {} is not supported", request.method()).into());
    }
    let is_head_only = request.extensions().get::<HeadOnly>().is_some();
    let way = request.extensions().get().map(|Via(way)| Arc::clone(way));
    let origin = Origin { way, ..origin(request.uri(), request.extensions().get())? };
    let (io, is_http2) = if request.extensions().get::<MetadataServer>().is_some() {
        asks_for_token(&request)?;
        (dial_metadata().await?, false)
    } else {
        dial(&origin, tls).await.map_err(no_connection)?
    };
    let (status, headers, mut body) =
        if is_http2 { send_http2(io, request).await? } else { send_http1(io, &request, &origin).await? };
    if is_head_only {
        return Ok(answer(status, headers, Bytes::new()));
    }
    if headers
        .get(CONTENT_ENCODING)
        .is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err("the response is compressed, which llmgw did not request".into());
    }
    let whole = body.whole(body_bytes_max).await.map_err(|why| match why {
        Incomplete::Broken => "the connection broke inside the response".to_owned(),
        Incomplete::TooLarge => format!("the response is larger than {body_bytes_max} bytes"),
    })?;
    Ok(answer(status, headers, whole))
}

fn no_connection(error: DialError) -> BoxError {
    match error {
        DialError::Refused(_) | DialError::Local(_) => error.into(),
        _ => format!("cannot connect: {}", error.cause()).into(),
    }
}

fn answer(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Rejects requests to the metadata server other than for access tokens.
fn asks_for_token(request: &Request<Bytes>) -> Result<(), &'static str> {
    let uri = request.uri();
    let there =
        uri.scheme_str() == Some("http") && uri.authority().is_some_and(|a| a == MetadataServer::ADDRESS);
    let is_token = match uri.path() {
        MetadataServer::TOKEN_PATH => uri.query().is_none(),
        path => path == MetadataServer::AZURE_TOKEN_PATH,
    };
    if there && is_token && request.method() == Method::GET {
        Ok(())
    } else {
        Err("only access tokens may be requested from the metadata server")
    }
}

/// Methods whose answers have ordinary bodies.
const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

type FetchedAnswer = (StatusCode, HeaderMap, UpstreamBody);

async fn send_http1(
    io: UpstreamIo,
    request: &Request<Bytes>,
    origin: &Origin,
) -> Result<FetchedAnswer, BoxError> {
    let mut outgoing = Request::new(SegmentedBody::new(segments(request.body())));
    *outgoing.method_mut() = request.method().clone();
    let path = request.uri().path_and_query().cloned();
    *outgoing.uri_mut() = path.map(Uri::from).unwrap_or_default();
    let headers = outgoing.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(origin.authority.as_str())?);
    headers.extend(own_headers(request.headers()));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(CONTENT_LENGTH, request.body().len().into());
    let mut connection = Box::new(UpstreamConnection::handshake(io).await?);
    let head = connection.send(outgoing).await.map_err(|unanswered| match unanswered.error {
        SendError::Dial(error) => no_connection(error),
        error => error.into(),
    })?;
    Ok((head.status, head.headers, UpstreamBody::Http1(connection)))
}

async fn send_http2(io: UpstreamIo, request: Request<Bytes>) -> Result<FetchedAnswer, BoxError> {
    let (mut shared, _) = SharedConnection::handshake(io).await?;
    let mut outgoing = Request::new(SegmentedBody::new(segments(request.body())));
    *outgoing.method_mut() = request.method().clone();
    *outgoing.uri_mut() = request.uri().clone();
    *outgoing.version_mut() = Version::HTTP_2;
    *outgoing.headers_mut() = own_headers(request.headers());
    shared.sender.ready().await?;
    let (head, incoming) = shared.sender.send_request(outgoing).await?.into_parts();
    let body = UpstreamBody::Http2 { incoming, lease: StreamLease::of_single_request(&shared) };
    Ok((head.status, head.headers, body))
}

/// Returns the caller's headers without those that frame a message, and with the headers common to all requests.
fn own_headers(given: &HeaderMap) -> HeaderMap {
    let mut headers = given.clone();
    for framing in [HOST, CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING] {
        headers.remove(framing);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    headers.entry(USER_AGENT).or_insert_with(|| AGENT.clone());
    headers
}

fn segments(body: &Bytes) -> Vec<Bytes> {
    Some(body.clone()).filter(|body| !body.is_empty()).into_iter().collect()
}

fn origin(uri: &Uri, socket: Option<&SocketPath>) -> Result<Origin, BoxError> {
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("the address is neither http nor https".into()),
    };
    let authority = uri.authority().ok_or("the address has no host")?.clone();
    if authority.as_str().contains('@') {
        return Err("the address contains a user name or password".into());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
    Ok(Origin {
        tls,
        authority,
        host,
        port,
        socket: socket.map(|SocketPath(path)| path.clone()),
        way: None,
        paths: Paths::default(),
        lists: Vec::new(),
        http: HttpVersion::Auto,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_server_accepts_token_requests_only() {
        let token = format!("http://{}{}", MetadataServer::ADDRESS, MetadataServer::TOKEN_PATH);
        for (method, address, good) in [
            ("GET", token.as_str(), true),
            ("POST", &token, false),
            ("GET", &format!("{token}?recursive=true"), false),
            ("GET", "http://169.254.169.254/latest/meta-data/", false),
            ("GET", "http://169.254.169.254/metadata/identity/oauth2/token?resource=r", true),
            ("GET", "http://169.254.169.254/metadata/instance?api-version=2021-02-01", false),
            ("GET", &token.replace("169.254.169.254", "169.254.169.253"), false),
            ("GET", &token.replace("http", "https"), false),
        ] {
            let request = Request::builder().method(method).uri(address).body(Bytes::new()).unwrap();
            assert_eq!(asks_for_token(&request).is_ok(), good, "{method} {address}");
        }
    }
}
