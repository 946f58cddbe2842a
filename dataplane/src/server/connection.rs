//! One client connection from its first byte to its last: the TLS handshake, the detection of the HTTP version, and the
//! orders of the sweeper and of the drain.

use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::io::{Link, Order, ServerIo, Socket};
use super::service::Connect;
use super::{http1, http2};
use crate::settings::Settings;

/// Time limit for the TLS handshake and the first bytes of a connection.
const OPENING_TIMEOUT: Duration = Duration::from_secs(20);

/// Serves a connection until it ends.
pub(super) async fn serve(server: impl Connect, tcp: TcpStream, peer: SocketAddr) {
    let connections = server.connections();
    let link = connections.link();
    let opening = tokio::time::timeout(OPENING_TIMEOUT, open(&connections.settings, tcp, &link));
    let Ok(Some((io, is_http2))) = obey(&link, opening).await.unwrap_or(Ok(None)) else { return };
    let service = server.connect(&link, peer);
    if is_http2 {
        let stall = connections.settings.client_timeouts.stall;
        http2::serve(service, link, stall, io).await;
    } else {
        // `finish` does nothing here: the gate and the service check the order themselves.
        run(&link, pin!(http1::serve(service, Rc::clone(&link), io)), |_| {}).await;
    }
}

/// Performs the TLS handshake and detects HTTP/2. Returns `None` if the client disconnected.
async fn open(settings: &Settings, tcp: TcpStream, link: &Rc<Link>) -> Option<(ServerIo, bool)> {
    let socket = match &settings.tls {
        Some(config) => {
            let acceptor = TlsAcceptor::from(std::sync::Arc::clone(config));
            Socket::Tls(Box::new(acceptor.accept(tcp).await.ok()?))
        }
        None => Socket::Plain(tcp),
    };
    let mut io = ServerIo::new(socket, Rc::clone(link));
    let is_http2 = io.begins_http2().await.ok()?;
    Some((io, is_http2))
}

/// Runs a connection until it ends or is ordered to close. `finish` is called once if it is ordered to finish.
pub(super) async fn run<C: Future>(link: &Link, mut connection: Pin<&mut C>, finish: fn(Pin<&mut C>)) {
    let mut finishing = false;
    std::future::poll_fn(|cx| {
        link.register(cx.waker());
        match link.order.get() {
            Order::None => {}
            Order::Close => return Poll::Ready(()),
            Order::Finish if finishing => {}
            Order::Finish => {
                finishing = true;
                finish(connection.as_mut());
            }
        }
        connection.as_mut().poll(cx).map(drop)
    })
    .await;
}

/// Runs `future`; returns `None` if the connection is ordered to close or finish first.
async fn obey<T>(link: &Link, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        link.register(cx.waker());
        if link.order.get() == Order::None { future.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) }
    })
    .await
}
