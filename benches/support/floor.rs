//! The floor: a bare hyper server in front of hyper-util's pooled client, and nothing else. The cost above it is the
//! cost of the gateway's own features. TLS is rustls.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode, Uri, uri::Authority};
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::wire::{Certificate, Wire};

/// Serves on `port` forever and forwards everything to `upstream`.
pub(crate) fn run(port: u16, upstream: &str, wire: Wire, certificate: &Path) {
    let upstream: Authority = upstream.parse().unwrap();
    let certificate = Certificate::made_in(certificate);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve(port, upstream, wire, &certificate));
}

async fn serve(port: u16, upstream: Authority, wire: Wire, certificate: &Certificate) {
    let tls = match wire {
        Wire::Clear | Wire::TlsClients => None,
        Wire::TlsUpstream => Some(certificate.client(&["http/1.1"])),
        Wire::Http2Upstream => Some(certificate.client(&["h2"])),
    };
    let accepts = (wire == Wire::TlsClients).then(|| TlsAcceptor::from(certificate.server(&["http/1.1"])));
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .build(Connector { tls });
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let (client, upstream, accepts) = (client.clone(), upstream.clone(), accepts.clone());
        let service = service_fn(move |request| {
            let passing = pass(client.clone(), upstream.clone(), request);
            async move { Ok::<_, Infallible>(passing.await) }
        });
        tokio::spawn(async move {
            let server = hyper::server::conn::http1::Builder::new();
            match accepts {
                None => drop(server.serve_connection(TokioIo::new(stream), service).await),
                Some(accepts) => {
                    if let Ok(stream) = accepts.accept(stream).await {
                        let _ = server.serve_connection(TokioIo::new(stream), service).await;
                    }
                }
            }
        });
    }
}

/// Connects to the upstream, by TLS if it has a configuration.
#[derive(Clone)]
struct Connector {
    tls: Option<Arc<ClientConfig>>,
}

/// A connection to the upstream.
enum Upstream {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    async fn connect(self, to: Uri) -> io::Result<TokioIo<Upstream>> {
        let port = to.port_u16().unwrap_or_default();
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let connected = match self.tls {
            None => Upstream::Clear(stream),
            Some(config) => {
                let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
                Upstream::Tls(Box::new(TlsConnector::from(config).connect(name, stream).await?))
            }
        };
        Ok(TokioIo::new(connected))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Upstream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Upstream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().connect(to))
    }
}

impl Connection for Upstream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
        let is_http2 = matches!(self, Self::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"));
        if is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for Upstream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Clear(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Clear(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Clear(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Clear(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

async fn pass(
    client: Client<Connector, Incoming>,
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
