//! The floor: a bare hyper server in front of hyper-util's pooled client, and nothing else. The cost above it is the
//! cost of the gateway's own features.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response, StatusCode, Uri, uri::Authority};
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpListener;

/// Serves on `port` forever and forwards everything to `upstream`.
pub(crate) fn run(port: u16, upstream: &str) {
    let upstream: Authority = upstream.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(port, upstream));
}

async fn serve(port: u16, upstream: Authority) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .build(connector);
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (client, upstream) = (client.clone(), upstream.clone());
        let service = service_fn(move |request| {
            let passing = pass(client.clone(), upstream.clone(), request);
            async move { Ok::<_, Infallible>(passing.await) }
        });
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new();
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn pass(
    client: Client<HttpConnector, Incoming>,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Response<Either<Incoming, Empty<Bytes>>> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTP);
    parts.authority = Some(upstream);
    *request.uri_mut() = Uri::from_parts(parts).unwrap();
    match client.request(request).await {
        Ok(response) => response.map(Either::Left),
        Err(_) => {
            let mut response = Response::new(Either::Right(Empty::new()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}
