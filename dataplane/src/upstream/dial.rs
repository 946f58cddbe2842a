//! Connecting to upstreams: TCP and TLS, directly or through a proxy, or the Unix socket of an extension.

use std::future::{Ready, ready};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError, ClientConfig};
use shared::address::{is_disguised_address, is_metadata_name, is_refused};
use shared::port::MetadataServer;
use shared::proxy::{Proxies, Proxy, WayProxy};
use shared::routing::{HttpVersion, Origin};
use tokio::net::{TcpStream, UnixStream};
use tower_service::Service;

use super::connect::connect_tcp;
pub(crate) use super::io::UpstreamIo;
use super::resolve::Resolver;
use super::tunnel::{ProxyFault, open_tunnel};
use crate::tls::{ClientConfigs, H2, OwnSettings};

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
    /// The proxy made no connection.
    Proxy(ProxyFault),
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
            Self::Proxy(fault) => Self::Proxy(*fault),
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
            Self::Proxy(fault) => fault.cause(),
            Self::TimedOut => "there was no connection within 10 s",
        }
    }
}

impl std::error::Error for DialError {}

impl std::fmt::Display for DialError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(address) => write!(f, "{address} is a link-local or metadata address"),
            Self::Unresolved(error) | Self::Io(error) | Self::Local(error) => write!(f, "{error}"),
            Self::Proxy(fault) => write!(f, "{fault}"),
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
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
                "it requires a client certificate"
            }
            error if rejects_certificate(error) => "it rejected the client certificate",
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

/// True if the upstream ended the connection because of the client certificate, or of its absence.
fn rejects_certificate(error: &rustls::Error) -> bool {
    use AlertDescription as Alert;
    matches!(
        error,
        rustls::Error::AlertReceived(
            Alert::CertificateRequired
                | Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                // It could not verify the signature of the certificate, or that of the handshake by its key.
                | Alert::DecryptError
        )
    )
}

/// Returns the error of the dial if `error`, which ended a connection, is the upstream's judgement of the client certificate. With
/// TLS 1.3 it arrives after the handshake.
pub(super) fn rejected_certificate(error: &io::Error) -> Option<DialError> {
    let error = tls_error(error).filter(|error| rejects_certificate(error))?;
    Some(DialError::Io(io::Error::other(error.clone())))
}

/// Returns the error of TLS in `error`, which the layers of the connector have wrapped.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    let mut inner = error.get_ref()?;
    while let Some(wrapped) = inner.downcast_ref::<io::Error>() {
        inner = wrapped.get_ref()?;
    }
    inner.downcast_ref()
}

/// TLS of connections to upstreams, and the proxies of the variables.
#[derive(Debug)]
pub(crate) struct Tls {
    resolver: Resolver,
    proxies: Proxies,
    /// The configuration that the settings of provider instances change.
    base: ClientConfig,
    /// The configurations of instances without settings of their own.
    configs: ClientConfigs,
}

impl Tls {
    pub(crate) fn new(base: ClientConfig, resolver: Resolver, proxies: Proxies) -> Self {
        Self { resolver, proxies, configs: ClientConfigs::new(&base), base }
    }

    /// Returns the configuration for connections to `origin`.
    fn config<'a>(&'a self, origin: &'a Origin) -> Result<&'a Arc<ClientConfig>, DialError> {
        let own = origin.way.as_ref().and_then(|way| way.tls.as_ref());
        let configs = match own {
            None => &self.configs,
            Some(own) => match own.settings.downcast_ref::<OwnSettings>() {
                Some(own) => own.configs(&self.base),
                None => return Err(DialError::Io(io::Error::other("the TLS settings are of another form"))),
            },
        };
        Ok(match origin.http {
            HttpVersion::Auto => &configs.auto,
            HttpVersion::Http1 => &configs.http1,
            HttpVersion::Http2 => &configs.http2,
        })
    }

    async fn connect(&self, origin: &Origin) -> Result<(UpstreamIo, bool), DialError> {
        let is_http2 = origin.http == HttpVersion::Http2;
        let (host, port) = origin.connects_to();
        let tcp = match self.proxy_of(origin) {
            None => connect_tcp(&self.resolver, host, port).await?,
            Some(proxy) => {
                let tcp = self.connect_by(proxy, origin).await?;
                if !needs_tunnel(origin) {
                    return Ok((UpstreamIo::Plain(tcp, Some(Arc::clone(proxy))), false));
                }
                tcp
            }
        };
        if origin.tls {
            self.handshake(tcp, origin).await
        } else {
            Ok((UpstreamIo::Plain(tcp, None), is_http2))
        }
    }

    /// Returns the proxy on the way to `origin`.
    fn proxy_of<'a>(&'a self, origin: &'a Origin) -> Option<&'a Arc<Proxy>> {
        match origin.way.as_ref().map_or(&WayProxy::OfVariables, |way| &way.proxy) {
            WayProxy::OfVariables => {
                let (host, port) = origin.connects_to();
                self.proxies.of(origin.tls, host, port)
            }
            WayProxy::Direct => None,
            WayProxy::Own(proxy) => Some(proxy),
        }
    }

    /// Connects to the proxy, and opens a tunnel to `origin` if requests to it cannot be passed on. The proxy resolves names,
    /// so only literal addresses and the names of metadata services are judged here.
    async fn connect_by(&self, proxy: &Proxy, origin: &Origin) -> Result<TcpStream, DialError> {
        let (host, port) = origin.connects_to();
        match host.parse::<IpAddr>() {
            Ok(address) if is_refused(address) => return Err(DialError::Refused(address)),
            Err(_) if is_metadata_name(host) || is_disguised_address(host) => {
                return Err(DialError::Proxy(ProxyFault::ForbiddenName));
            }
            Ok(_) | Err(_) => {}
        }
        let connected = connect_tcp(&self.resolver, &proxy.host, proxy.port).await;
        let mut tcp = connected.map_err(ProxyFault::unreached)?;
        if needs_tunnel(origin) {
            open_tunnel(&mut tcp, proxy, (host, port)).await.map_err(DialError::Proxy)?;
        }
        Ok(tcp)
    }

    async fn handshake(&self, tcp: TcpStream, origin: &Origin) -> Result<(UpstreamIo, bool), DialError> {
        let config = self.config(origin)?;
        let uri = Uri::builder()
            .scheme("https")
            .authority(origin.authority.clone())
            .path_and_query("/")
            .build()
            .map_err(|error| DialError::Io(io::Error::other(error)))?;
        let mut connector = HttpsConnector::from((Connected(Some(tcp)), Arc::clone(config)));
        let stream = connector.call(uri).await.map_err(|error| DialError::Io(io::Error::other(error)))?;
        let MaybeHttpsStream::Https(stream) = stream else {
            return Err(DialError::Io(io::Error::other("the connector returned a connection without TLS")));
        };
        let stream = stream.into_inner();
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(H2);
        Ok((UpstreamIo::Tls(Box::new(stream)), is_http2))
    }
}

/// True if a proxy cannot pass requests to `origin` on, because it would not see them or would choose another address.
fn needs_tunnel(origin: &Origin) -> bool {
    origin.tls
        || origin.http == HttpVersion::Http2
        || origin.connects_to() != (origin.host.as_str(), origin.port)
}

/// The connector below TLS: returns the socket that leads to the upstream, which is connected already.
struct Connected(Option<TcpStream>);

impl Service<Uri> for Connected {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let tcp = self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into());
        ready(tcp.map(TokioIo::new))
    }
}

/// Time limit for resolution, connect and TLS together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to `origin`; the flag is true if the connection uses HTTP/2.
pub(crate) async fn dial(origin: &Origin, tls: &Tls) -> Result<(UpstreamIo, bool), DialError> {
    if let Some(path) = &origin.socket {
        let unix = tokio::time::timeout(DIAL_TIMEOUT, connect_unix(path)).await;
        let unix = unix.unwrap_or(Err(DialError::TimedOut))?;
        return Ok((UpstreamIo::Unix(unix), origin.http == HttpVersion::Http2));
    }
    tokio::time::timeout(DIAL_TIMEOUT, tls.connect(origin)).await.unwrap_or_else(|_| {
        let is_by_proxy = tls.proxy_of(origin).is_some();
        Err(if is_by_proxy { DialError::Proxy(ProxyFault::TimedOut) } else { DialError::TimedOut })
    })
}

/// Connects to the metadata server of the machine: the only exception to
/// [`is_refused`](shared::address::is_refused). Its address is fixed.
pub(crate) async fn dial_metadata() -> Result<UpstreamIo, DialError> {
    let server: Ipv4Addr =
        MetadataServer::ADDRESS.parse().map_err(|error| DialError::Io(io::Error::other(error)))?;
    let connect = TcpStream::connect((server, 80));
    match tokio::time::timeout(METADATA_TIMEOUT, connect).await {
        Ok(Ok(tcp)) => Ok(UpstreamIo::Plain(tcp, None)),
        Ok(Err(error)) => Err(DialError::Io(error)),
        Err(_) => Err(DialError::TimedOut),
    }
}

/// Time limit for the connect; the server is on the same machine or absent.
const METADATA_TIMEOUT: Duration = Duration::from_secs(3);

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
