//! One client connection from its first byte to its last: TLS, which HTTP, and the orders of the sweeper and the
//! drain.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::body::Inbound;
use super::http1;
use super::io::{Link, Order, Phase, ServerIo, Socket};
use crate::admit::authenticate::LastKey;
use crate::exchange::{self, Caller};
use crate::upstream::{HTTP2_WINDOW_BYTES, LocalExecutor};
use crate::worker::Worker;

/// Bytes that hyper may buffer for the streams of an HTTP/2 connection.
const BUFFER_BYTES_MAX: usize = 128 << 10;
/// TLS handshake and the first bytes of a connection.
const OPENING_TIMEOUT: Duration = Duration::from_secs(20);
/// Requests at once on one HTTP/2 connection.
const HTTP2_STREAMS_MAX: u32 = 128;

/// Serves a connection until it ends.
pub(crate) async fn serve(worker: Rc<Worker>, tcp: TcpStream, peer: SocketAddr) {
    let link = worker.link();
    let opening = tokio::time::timeout(OPENING_TIMEOUT, open(&worker, tcp, &link));
    let Ok(Some((io, is_http2))) = obey(&link, opening).await.unwrap_or(Ok(None)) else { return };
    let caller = Rc::new(Caller { worker, link, peer, last_key: LastKey::default(), insider: None });
    if is_http2 { serve_http2(caller, io).await } else { serve_http1(caller, io).await }
}

/// Does the TLS handshake and finds out which HTTP is spoken. `None` if the client left.
async fn open(worker: &Worker, tcp: TcpStream, link: &Rc<Link>) -> Option<(ServerIo, bool)> {
    let socket = match &worker.plane.settings.tls {
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

async fn serve_http1(caller: Rc<Caller>, io: ServerIo) {
    // Slow heads are cut by the worker's sweeper, which costs no timer a request; that it is to finish, the
    // connection sees by itself.
    run(&caller.link, pin!(http1::serve(&caller, io)), |_| {}).await;
}

async fn serve_http2(caller: Rc<Caller>, io: ServerIo) {
    let link = Rc::clone(&caller.link);
    link.enter(Phase::Http2);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let answering = exchange::respond(Rc::clone(&caller), request.map(Inbound::Http2));
        async { Ok::<_, Infallible>(answering.await) }
    });
    let connection = http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS_MAX)
        .initial_stream_window_size(HTTP2_WINDOW_BYTES)
        .initial_connection_window_size(HTTP2_WINDOW_BYTES * 4)
        .max_send_buf_size(BUFFER_BYTES_MAX)
        .max_header_list_size(32 << 10)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20))
        .serve_connection(TokioIo::new(io), service);
    run(&link, pin!(connection), |connection| connection.graceful_shutdown()).await;
}

/// Drives a connection to its end, or to where an order ends it.
async fn run<C: Future>(link: &Link, mut connection: Pin<&mut C>, finish: fn(Pin<&mut C>)) {
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

/// Runs `future` unless the connection is told to close or finish first.
async fn obey<T>(link: &Link, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        link.register(cx.waker());
        if link.order.get() == Order::None { future.as_mut().poll(cx).map(Some) } else { Poll::Ready(None) }
    })
    .await
}
