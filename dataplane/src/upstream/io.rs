//! The socket to an upstream: plain, TLS, or that of an extension.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use shared::proxy::Proxy;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::dial::rejected_certificate;

/// A socket to an upstream.
#[derive(Debug)]
pub(crate) enum UpstreamIo {
    /// The proxy is set if it is at the other end, and passes requests on by their absolute URIs.
    Plain(TcpStream, Option<Arc<Proxy>>),
    Unix(UnixStream),
    // Boxed: TLS state takes over a kilobyte, which plain connections do not need.
    Tls(Box<UpstreamTlsStream>),
}

/// TLS over TCP, as the connector returns it.
type UpstreamTlsStream = TlsStream<TokioIo<TokioIo<TcpStream>>>;

/// Returns the outcome of a write; if it failed, and the upstream has sent an alert before it closed the connection, that
/// alert. With TLS 1.3 an upstream rejects a client certificate while the request is being written.
fn with_alert<T>(
    io: &mut UpstreamTlsStream,
    cx: &mut Context<'_>,
    outcome: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    let Poll::Ready(Err(error)) = outcome else { return outcome };
    // The connection is lost, so whatever else may be read does not matter.
    let mut byte = [0];
    match Pin::new(io).poll_read(cx, &mut ReadBuf::new(&mut byte)) {
        Poll::Ready(Err(alert)) if rejected_certificate(&alert).is_some() => Poll::Ready(Err(alert)),
        // The runtime has not noticed yet that the socket can be read, as any socket can that the other side has closed.
        // The task is woken when it does, and the write fails again.
        Poll::Pending if is_closed(&error) => Poll::Pending,
        Poll::Ready(_) | Poll::Pending => Poll::Ready(Err(error)),
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl UpstreamIo {
    /// Returns the proxy at the other end that passes requests on.
    pub(super) fn forwarder(&self) -> Option<&Arc<Proxy>> {
        match self {
            Self::Plain(_, proxy) => proxy.as_ref(),
            Self::Unix(_) | Self::Tls(_) => None,
        }
    }
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(io, _) => Pin::new(io).poll_read(cx, buf),
            Self::Unix(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(&mut **io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(io, _) => Pin::new(io).poll_write(cx, buf),
            Self::Unix(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => {
                let written = Pin::new(&mut **io).poll_write(cx, buf);
                with_alert(io, cx, written)
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(io, _) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Unix(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Tls(io) => {
                let written = Pin::new(&mut **io).poll_write_vectored(cx, bufs);
                with_alert(io, cx, written)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io, _) => io.is_write_vectored(),
            Self::Unix(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(io, _) => Pin::new(io).poll_flush(cx),
            Self::Unix(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => {
                let flushed = Pin::new(&mut **io).poll_flush(cx);
                with_alert(io, cx, flushed)
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(io, _) => Pin::new(io).poll_shutdown(cx),
            Self::Unix(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(&mut **io).poll_shutdown(cx),
        }
    }
}
