//! Connecting to upstreams: TCP and TLS, or the Unix socket of an extension.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustls::{CertificateError, ClientConfig};
use shared::port::{BoxError, MetadataServer};
use shared::routing::{HttpVersion, Origin};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::connect::connect_tcp;
use super::resolve::Resolver;

/// Reason why a connection failed.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The address is forbidden.
    Refused(IpAddr),
    /// The host name has no address.
    Unresolved(io::Error),
    /// The connect or the TLS handshake failed.
    Io(io::Error),
    /// The gateway itself has no descriptor, port or memory for a connection.
    Local(io::Error),
    /// The connection was not established in time.
    TimedOut,
}

impl DialError {
    /// Returns the error for another request that waited for the same connection.
    pub(super) fn again(&self) -> Self {
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => match tls_error(error) {
                Some(tls) => io::Error::other(tls.clone()),
                None => io::Error::new(error.kind(), error.to_string()),
            },
        };
        match self {
            Self::Refused(address) => Self::Refused(*address),
            Self::Unresolved(error) => Self::Unresolved(copy(error)),
            Self::Io(error) => Self::Io(copy(error)),
            Self::Local(error) => Self::Local(copy(error)),
            Self::TimedOut => Self::TimedOut,
        }
    }

    /// Returns the cause in words that contain no address: clients may read them.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Refused(_) => "its address is a link-local or metadata address",
            Self::Unresolved(_) => "its host name was not found",
            Self::Io(error) => tls_error(error).map_or_else(|| cause_of_io(error), cause_of_tls),
            Self::Local(_) => "the gateway lacks a resource",
            Self::TimedOut => "there was no connection within 10 s",
        }
    }

    /// Extracts the dial error from an error of the TLS connector.
    fn from_boxed(error: BoxError) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => *own,
            Err(other) => Self::Io(io::Error::other(other)),
        }
    }
}

impl std::error::Error for DialError {}

impl std::fmt::Display for DialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(address) => write!(f, "{address} is a link-local or metadata address"),
            Self::Unresolved(error) | Self::Io(error) | Self::Local(error) => write!(f, "{error}"),
            Self::TimedOut => f.write_str("no connection within 10 s"),
        }
    }
}

fn cause_of_io(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "the connection was refused",
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            "there is no route to its address"
        }
        io::ErrorKind::TimedOut => "its address did not respond",
        io::ErrorKind::NotFound => "its socket does not exist",
        io::ErrorKind::PermissionDenied => "the system does not permit the connection",
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => "it closed the new connection",
        _ => "the connection failed",
    }
}

fn cause_of_tls(error: &rustls::Error) -> &'static str {
    let rustls::Error::InvalidCertificate(fault) = error else {
        return match error {
            rustls::Error::InvalidMessage(_) => "it did not answer with TLS",
            _ => "the TLS handshake failed",
        };
    };
    match fault {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "its certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        CertificateError::UnknownIssuer => "its certificate is from an unknown authority",
        _ => "its certificate is invalid",
    }
}

/// Returns the error of TLS in `error`, which the layers of the connector have wrapped.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    let mut inner = error.get_ref()?;
    while let Some(wrapped) = inner.downcast_ref::<io::Error>() {
        inner = wrapped.get_ref()?;
    }
    inner.downcast_ref()
}

/// A socket to an upstream.
#[derive(Debug)]
pub(crate) enum UpstreamIo {
    Plain(TcpStream),
    Unix(UnixStream),
    // Boxed: TLS state takes over a kilobyte, which plain connections do not need.
    Tls(Box<TlsStream<TokioIo<TokioIo<TcpStream>>>>),
}

/// TLS connectors for upstreams, one for each set of ALPN protocols.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    resolver: Resolver,
    auto: HttpsConnector<Tcp>,
    http1: HttpsConnector<Tcp>,
    http2: HttpsConnector<Tcp>,
}

impl Tls {
    pub(crate) fn new(config: &ClientConfig, resolver: Resolver) -> Self {
        let tcp = || Tcp(resolver.clone());
        let builder = || HttpsConnectorBuilder::new().with_tls_config(config.clone()).https_only();
        Self {
            auto: builder().enable_all_versions().wrap_connector(tcp()),
            http1: builder().enable_http1().wrap_connector(tcp()),
            http2: builder().enable_http2().wrap_connector(tcp()),
            resolver,
        }
    }

    async fn connect(&self, origin: &Origin) -> Result<(UpstreamIo, bool), DialError> {
        let mut connector = match origin.http {
            HttpVersion::Auto => self.auto.clone(),
            HttpVersion::Http1 => self.http1.clone(),
            HttpVersion::Http2 => self.http2.clone(),
        };
        let uri = Uri::builder()
            .scheme("https")
            .authority(origin.authority.clone())
            .path_and_query("/")
            .build()
            .map_err(|error| DialError::Io(io::Error::other(error)))?;
        let stream = connector.call(uri).await.map_err(DialError::from_boxed)?;
        let MaybeHttpsStream::Https(stream) = stream else {
            return Err(DialError::Io(io::Error::other("the connector returned a connection without TLS")));
        };
        let stream = stream.into_inner();
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok((UpstreamIo::Tls(Box::new(stream)), http2))
    }
}

/// Time limit for resolution, connect and TLS together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to `origin`; the flag is true if the connection uses HTTP/2.
pub(crate) async fn dial(origin: &Origin, tls: &Tls) -> Result<(UpstreamIo, bool), DialError> {
    let connect = async {
        if let Some(path) = &origin.socket {
            let unix = connect_unix(path).await?;
            return Ok((UpstreamIo::Unix(unix), origin.http == HttpVersion::Http2));
        }
        if origin.tls {
            return tls.connect(origin).await;
        }
        let tcp = connect_tcp(&tls.resolver, &origin.host, origin.port).await?;
        Ok((UpstreamIo::Plain(tcp), origin.http == HttpVersion::Http2))
    };
    tokio::time::timeout(DIAL_TIMEOUT, connect).await.unwrap_or(Err(DialError::TimedOut))
}

/// Connects to the metadata server of the machine: the only exception to
/// [`is_refused`](shared::address::is_refused). Its address is fixed.
pub(crate) async fn dial_metadata() -> Result<UpstreamIo, DialError> {
    let server: Ipv4Addr =
        MetadataServer::ADDRESS.parse().map_err(|error| DialError::Io(io::Error::other(error)))?;
    let connect = TcpStream::connect((server, 80));
    match tokio::time::timeout(METADATA_TIMEOUT, connect).await {
        Ok(Ok(tcp)) => Ok(UpstreamIo::Plain(tcp)),
        Ok(Err(error)) => Err(DialError::Io(error)),
        Err(_) => Err(DialError::TimedOut),
    }
}

/// Time limit for the connect; the server is on the same machine or absent.
const METADATA_TIMEOUT: Duration = Duration::from_secs(3);

/// The connector below TLS: its sockets pass the same address checks.
#[derive(Clone, Debug)]
struct Tcp(Resolver);

impl Service<Uri> for Tcp {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let resolver = self.0.clone();
        Box::pin(async move {
            let host = uri.host().unwrap_or_default();
            let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
            connect_tcp(&resolver, host, uri.port_u16().unwrap_or(443)).await.map(TokioIo::new)
        })
    }
}

async fn connect_unix(path: &str) -> Result<UnixStream, DialError> {
    UnixStream::connect(path)
        .await
        .map_err(|error| if is_local(&error) { DialError::Local(error) } else { DialError::Io(error) })
}

/// Returns true for errors caused by a resource shortage of this process or machine, not by the remote side.
pub(crate) fn is_local(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::MFILE
                | Errno::NFILE
                | Errno::NOMEM
                | Errno::NOBUFS
                | Errno::ADDRNOTAVAIL
                | Errno::ADDRINUSE
        )
    )
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Unix(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(&mut **io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Self::Unix(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => Pin::new(&mut **io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Unix(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Tls(io) => Pin::new(&mut **io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Unix(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Unix(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(&mut **io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Unix(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(&mut **io).poll_shutdown(cx),
        }
    }
}
