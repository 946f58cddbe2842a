//! Tests of the connection with an upstream on a real socket, and unit tests of its socket and waker.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Request};
use shared::provider::path::Paths;
use shared::routing::{HttpVersion, Origin};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::connection::UpstreamConnection;
use super::socket::{TalliedSocket, Tally};
use crate::turn::TURN_BYTES;
use crate::upstream::SendError;
use crate::upstream::dial::UpstreamIo;
use crate::upstream::error::Progress;
use crate::upstream::pool::{AGE_SECONDS_MAX, Pool};
use crate::upstream::request::SegmentedBody;

/// A connection, and the upstream's end of it.
async fn connected() -> (UpstreamConnection, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (upstream, _) = listener.accept().await.unwrap();
    (UpstreamConnection::handshake(UpstreamIo::Plain(tcp, None)).await.unwrap(), upstream)
}

fn get() -> Request<SegmentedBody> {
    Request::get("/").header("host", "a").body(SegmentedBody::new(Vec::new())).unwrap()
}

async fn read_request(upstream: &mut TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        assert!(upstream.read_buf(&mut request).await.unwrap() > 0, "the request is cut");
    }
}

/// The origin of the upstream.
fn origin() -> Origin {
    Origin {
        tls: false,
        authority: "upstream.example".parse().unwrap(),
        host: "upstream.example".to_owned(),
        port: 80,
        socket: None,
        way: None,
        paths: Paths::default(),
        lists: Vec::new(),
        http: HttpVersion::Http1,
    }
}

/// Sends a request, which `upstream` answers with `bytes`; returns what `send` returned.
async fn answered(
    connection: &mut UpstreamConnection,
    upstream: &mut TcpStream,
    bytes: &str,
) -> Result<u16, SendError> {
    let answering = async {
        read_request(upstream).await;
        upstream.write_all(bytes.as_bytes()).await.unwrap();
    };
    let (sent, ()) = tokio::join!(connection.send(get()), answering);
    sent.map(|head| head.status.as_u16()).map_err(|unanswered| unanswered.error)
}

async fn piece(connection: &mut UpstreamConnection) -> Option<Result<Bytes, hyper::Error>> {
    std::future::poll_fn(|cx| connection.poll_data(cx)).await
}

async fn body(connection: &mut UpstreamConnection) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(piece) = piece(connection).await {
        body.extend_from_slice(&piece.unwrap());
    }
    body
}

/// LIM-5: rejects answers with ambiguous framing.
#[tokio::test]
async fn a_response_with_ambiguous_framing_is_rejected() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101)),
        &format!("HTTP/1.1 200 OK\r\na: {}\r\n\r\n", "b".repeat(33 << 10)),
    ] {
        let (mut connection, mut upstream) = connected().await;
        let sent = answered(&mut connection, &mut upstream, head).await;
        assert!(matches!(sent, Err(SendError::Invalid(_))), "{head:?}: {sent:?}");
    }
}

#[tokio::test]
async fn the_header_fields_determine_the_body_end_and_connection_reuse() {
    for (head, bytes, reusable) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello", true),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n",
            "5;e=1\r\nhello\r\n0\r\nx-t: a\r\n\r\n",
            true,
        ),
        ("HTTP/1.1 200 OK\r\n\r\n", "hello", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n\r\n", "hello", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", "hello", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", "hello", true),
        ("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello, and more", false),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", true),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "", true),
    ] {
        let (mut connection, mut upstream) = connected().await;
        answered(&mut connection, &mut upstream, &format!("{head}{bytes}")).await.unwrap();
        if head == "HTTP/1.1 200 OK\r\n\r\n" {
            drop(upstream);
        }
        let body = body(&mut connection).await;
        assert_eq!(body, if bytes.is_empty() { "" } else { "hello" }.as_bytes(), "{head:?}");
        assert_eq!(connection.is_finished() && connection.is_reusable(), reusable, "{head:?} {bytes:?}");
    }
}

/// Answers a request with a body.
async fn answers(connection: &mut UpstreamConnection, upstream: &mut TcpStream) {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    assert_eq!(answered(connection, upstream, answer).await.unwrap(), 200);
    assert_eq!(body(connection).await, b"ok");
}

/// Returns a connection that has rested twice in the pool, the second time a second before it was old, and its upstream.
async fn nearly_old(pool: &Pool, origin: &Origin) -> (Box<UpstreamConnection>, TcpStream) {
    let (connection, mut upstream) = connected().await;
    let mut connection = Box::new(connection);
    for now in [5, 4 + AGE_SECONDS_MAX] {
        answers(&mut connection, &mut upstream).await;
        pool.put(origin, connection, now);
        pool.sweep(now);
        connection = pool.take(origin).expect("it is young");
    }
    (connection, upstream)
}

/// The name of the upstream may have another address by then.
#[tokio::test]
async fn an_old_connection_takes_no_further_requests() {
    let (pool, origin) = (Pool::default(), origin());
    let (mut connection, mut upstream) = nearly_old(&pool, &origin).await;
    answers(&mut connection, &mut upstream).await;
    pool.put(&origin, connection, 5 + AGE_SECONDS_MAX);
    assert!(pool.take(&origin).is_none());
    assert_eq!(upstream.read(&mut [0]).await.unwrap(), 0, "the socket is closed");
}

/// It was young when it began to rest, and has rested for a second.
#[tokio::test]
async fn a_connection_that_grows_old_while_it_rests_is_closed() {
    let (pool, origin) = (Pool::default(), origin());
    let (connection, _upstream) = nearly_old(&pool, &origin).await;
    pool.put(&origin, connection, 4 + AGE_SECONDS_MAX);
    pool.sweep(5 + AGE_SECONDS_MAX);
    assert!(pool.take(&origin).is_none());
}

/// STR-1: joins chunks that arrive together.
#[tokio::test]
async fn chunks_that_arrive_together_are_joined() {
    let (mut connection, mut upstream) = connected().await;
    let chunks = "3\r\nabc\r\n".repeat(100);
    let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}");
    answered(&mut connection, &mut upstream, &answer).await.unwrap();
    assert_eq!(piece(&mut connection).await.unwrap().unwrap(), "abc".repeat(100));
    upstream.write_all(b"2\r\nde\r\nX").await.unwrap();
    assert_eq!(
        piece(&mut connection).await.unwrap().unwrap(),
        "de",
        "what was sound before a fault is handed on"
    );
    assert!(piece(&mut connection).await.unwrap().is_err());
    assert!(piece(&mut connection).await.is_none());
    assert!(!connection.is_finished());
}

#[tokio::test]
async fn a_request_on_a_closed_connection_is_reported_unsent() {
    let (mut connection, mut upstream) = connected().await;
    answered(&mut connection, &mut upstream, "HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert!(piece(&mut connection).await.is_none());
    assert!(connection.is_finished());
    drop(upstream);
    while connection.is_reusable() {
        tokio::task::yield_now().await;
    }
    assert_eq!(connection.send(get()).await.unwrap_err().progress, Progress::Unprocessed);
}

#[tokio::test]
async fn a_written_request_without_a_response_counts_as_sent() {
    for (bytes, want) in [("", Progress::Sent), ("HTTP/1.1 200 OK\r\ncont", Progress::Answering)] {
        let (mut connection, mut upstream) = connected().await;
        let answering = async move {
            read_request(&mut upstream).await;
            upstream.write_all(bytes.as_bytes()).await.unwrap();
        };
        let (sent, ()) = tokio::join!(connection.send(get()), answering);
        let unanswered = sent.unwrap_err();
        assert_eq!(unanswered.progress, want, "{bytes:?}");
        assert!(matches!(unanswered.error, SendError::Broke(_)), "{unanswered:?}");
    }
}

#[tokio::test]
async fn an_early_refusal_is_read_while_the_request_is_unread() {
    let (mut connection, mut upstream) = connected().await;
    let body = SegmentedBody::new(vec![Bytes::from(vec![b'x'; 4 << 20]); 8]);
    let request = Request::builder().method(Method::POST).header("host", "a").body(body).unwrap();
    let refusing = async move {
        upstream.read_exact(&mut [0; 1_000]).await.unwrap();
        upstream.write_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await.unwrap();
        // Closed with bytes unread, which resets the connection.
    };
    let (sent, ()) = tokio::join!(connection.send(request), refusing);
    assert_eq!(sent.unwrap().status, 413);
    assert_eq!(piece(&mut connection).await.unwrap().unwrap(), "no");
    assert!(!connection.is_reusable());
}

/// Accepts every write.
#[derive(Default)]
struct Sink(Vec<u8>);

impl AsyncWrite for Sink {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn a_long_request_is_written_in_turns() {
    let tally = Rc::<Tally>::default();
    let mut socket = TalliedSocket::new(Sink::default(), Rc::clone(&tally));
    let (short, long) = (vec![b'x'; 1_000], vec![b'y'; TURN_BYTES]);
    let mut cx = Context::from_waker(Waker::noop());
    let mut written = 0;
    for turn in 1..=3 {
        assert!(!tally.turn_is_over());
        let slices = [io::IoSlice::new(&short), io::IoSlice::new(&long)];
        while let Poll::Ready(count) = Pin::new(&mut socket).poll_write_vectored(&mut cx, &slices) {
            written += count.unwrap();
        }
        assert_eq!(written, turn * TURN_BYTES);
        assert!(tally.turn_is_over());
        tally.begin_turn();
    }
}
