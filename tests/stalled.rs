//! Clients that make no progress (LIM-5): those that read nothing, those that send no request, and those that send a
//! body in tiny pieces. They are disconnected in bounded time; clients that are merely slow are not. The times are
//! short here; with `LLMGW_TEST_FULL=1` they are the defaults, with 500 clients of each kind.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::support::figure::{figure, is_full};
use crate::support::gateway::{ADMIN_KEY, Setup};
use crate::support::raw::Raw;
use crate::support::{Answer, Gate, Gateway, Upstream, Yaml, chat, wait};

/// The stall and idle timeout where a test does not use the defaults.
const SHORT: Duration = Duration::from_secs(5);

/// Returns the number of clients of each kind, and the time limit for their disconnection.
fn scale() -> (usize, Duration) {
    if is_full() { (500, Duration::from_secs(120)) } else { (20, Duration::from_secs(60)) }
}

/// Starts a gateway in front of `upstream` that disconnects clients after a short time, or after the default one in a full
/// run.
async fn gateway(upstream: &Upstream) -> Gateway {
    let setup = Setup::new(&Yaml::one(upstream.base_url()));
    let seconds = SHORT.as_secs().to_string();
    let setup = match is_full() {
        true => setup,
        false => {
            setup.env("LLMGW_CLIENT_IDLE_SECONDS", seconds.clone()).env("LLMGW_CLIENT_STALL_SECONDS", seconds)
        }
    };
    setup.start().await
}

/// Returns the number of open client connections, without that of the query itself.
async fn connections(gateway: &Gateway) -> usize {
    let metrics = gateway.client().get("/metrics").await.unwrap();
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("llmgw_connections ")).expect("a gauge");
    line.parse::<usize>().unwrap() - 1
}

/// Waits until at most `left` connections are open, and serves well-behaved clients in the meantime.
async fn gone(gateway: &Gateway, left: usize, limit: Duration) -> (Duration, Vec<Duration>) {
    let began = Instant::now();
    let mut waits = Vec::new();
    wait::eventually_within(limit, "clients without progress gone", async || {
        let sent_at = Instant::now();
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
        waits.push(sent_at.elapsed());
        tokio::time::sleep(Duration::from_millis(100)).await;
        (connections(gateway).await <= left).then_some(())
    })
    .await;
    (began.elapsed(), waits)
}

/// Connects a client without a key that requests much and reads nothing.
async fn unread(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // Otherwise each connection fills megabytes of kernel memory, on both sides.
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let requests = "GET /console/ HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(1_000);
    stream.write_all(requests.as_bytes()).await.unwrap();
    stream
}

/// LIM-5: clients without a key that pipeline and do not read, beside one that pauses and then continues to read.
#[tokio::test]
async fn clients_that_read_nothing_are_disconnected_without_affecting_others() {
    let upstream = Upstream::start().await;
    let (count, limit) = scale();
    let pause = if is_full() { Duration::from_secs(60) } else { SHORT / 5 };
    let event = chat::content(&"x".repeat(32 << 10));
    upstream
        .then(Answer::stream().times_chunk(1_000, &event).chunk(chat::finish()).chunk(chat::done()).end());
    upstream.always(Answer::completion("ok"));
    let gateway = gateway(&upstream).await;
    let mut paused = gateway.client().chat_flow(chat::stream_request("m")).await;
    let read = paused.pass(1 << 20).await;
    let reading = tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        read + paused.pass(u64::MAX).await
    });
    for _ in 0..50 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    let memory = gateway.memory();
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(unread(gateway.address()).await);
    }
    assert!(connections(&gateway).await >= count);
    let (after, mut waits) = gone(&gateway, 4, limit).await;
    let ends = [chat::finish(), chat::done()].map(|part| part.len()).iter().sum::<usize>();
    assert_eq!(
        reading.await.unwrap(),
        (1_000 * event.len() + ends) as u64,
        "the paused reader has all of it"
    );
    let (peak, kept) = (memory.peak() >> 10, memory.kept() >> 10);
    assert!(kept <= 32 << 10, "{kept} KiB are kept when {count} clients have gone");
    waits.sort_unstable();
    figure(
        "LIM-5",
        format!(
            "{count} clients that read nothing: gone after {:.1} s; memory +{peak} KiB while they were there, \
             +{kept} KiB afterwards; {} honest requests beside them, the slowest {:.1} ms; a reader that paused for \
             {} s lost nothing",
            after.as_secs_f64(),
            waits.len(),
            waits.last().unwrap().as_secs_f64() * 1e3,
            pause.as_secs()
        ),
    );
}

/// Opens an HTTP/2 connection whose client answers pings, with these windows for each stream and for the connection.
async fn connect(
    gateway: &Gateway,
    stream_window: u32,
) -> (SendRequest<Full<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(stream_window).initial_connection_window_size(16 << 20);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    (sender, tokio::spawn(connection))
}

fn streamed() -> http::Request<Full<Bytes>> {
    http::Request::post("http://gateway.test/v1/chat/completions")
        .header("authorization", format!("Bearer {ADMIN_KEY}"))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(chat::stream_request_with_usage("m"))))
        .unwrap()
}

/// Sends the HTTP/2 preface and settings, and nothing after that.
async fn silent(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    stream
}

/// LIM-5: a connection that only answers pings is idle; one with a stream that waits for its upstream is not.
#[tokio::test]
async fn idle_http2_connections_get_a_goaway() {
    let upstream = Upstream::start().await;
    let (count, limit) = scale();
    let gate = Gate::new();
    let events = chat::events(&["a", "b"]);
    upstream.always(Answer::completion("ok"));
    let gateway = gateway(&upstream).await;
    for _ in 0..50 {
        assert_eq!(gateway.client().chat(chat::request("m")).await.status, 200);
    }
    let waiting = Answer::stream().chunk(&events[0]).chunk(&events[1]).wait(&gate);
    upstream.then(events[2..].iter().fold(waiting, |answer, event| answer.chunk(event)).end());
    let (mut sender, _driving) = connect(&gateway, 1 << 20).await;
    let answer = sender.send_request(streamed()).await.unwrap();
    let memory = gateway.memory();
    let (mut idle, mut quiet) = (Vec::new(), Vec::new());
    for _ in 0..count / 2 {
        idle.push(connect(&gateway, 1 << 20).await);
        quiet.push(silent(gateway.address()).await);
    }
    assert!(connections(&gateway).await > 2 * (count / 2));
    let (after, waits) = gone(&gateway, 1, limit).await;
    let (peak, kept) = (memory.peak() >> 10, memory.kept() >> 10);
    for (sender, connection) in idle {
        assert!(connection.await.unwrap().is_ok(), "it ends in good order");
        assert!(sender.is_closed());
    }
    gate.open(1);
    let body = wait::within(wait::PATIENCE, "the stream", answer.into_body().collect()).await.unwrap();
    assert_eq!(body.to_bytes(), events.concat(), "a stream that waits for its upstream keeps its connection");
    assert!(kept <= 32 << 10, "{kept} KiB are kept when {count} connections have gone");
    figure(
        "LIM-5",
        format!(
            "{count} idle connections of HTTP/2, half of them answer pings: gone after {:.1} s; memory +{peak} KiB while \
             they were there, +{kept} KiB afterwards; {} honest requests beside them",
            after.as_secs_f64(),
            waits.len()
        ),
    );
}

/// LIM-5: a stream whose client grants no window is reset by itself; another one of the same connection is read slowly
/// and continues.
#[tokio::test]
async fn an_http2_stream_without_window_is_reset() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::stream().repeat_chunk(chat::content(&"x".repeat(4_000))));
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_CLIENT_STALL_SECONDS", "3");
    let gateway = setup.start().await;
    let (mut sender, _driving) = connect(&gateway, 64 << 10).await;
    let unread = sender.send_request(streamed()).await.unwrap();
    let mut slow = sender.send_request(streamed()).await.unwrap().into_body();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        let piece = wait::within(wait::PATIENCE, "a piece for the slow reader", slow.frame()).await;
        piece.expect("a stream without end").expect("it is not reset");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let closed = upstream.closed(0).await;
    assert!(closed.saturating_duration_since(began) >= Duration::from_secs(2), "not before its time");
    let end = unread.into_body().collect().await;
    assert!(end.is_err(), "it was reset");
    let record = gateway.records(1).await.remove(0);
    assert_eq!(record["outcome"], "cancelled");
}

/// LIM-5: a body that arrives a byte at a time with long gaps, beside one that is merely slow.
#[tokio::test]
async fn a_request_body_in_single_bytes_is_timed_out() {
    let upstream = Upstream::start().await;
    upstream.always(Answer::completion("ok"));
    let setup = Setup::new(&Yaml::one(upstream.base_url())).env("LLMGW_CLIENT_BODY_SECONDS", "3");
    let gateway = setup.start().await;
    let body = chat::request("m").replace("Say hello.", &"x".repeat(16_000));
    let head = crate::support::raw::post(ADMIN_KEY, "connection: close\r\n", &body);
    let head = head.strip_suffix(body.as_str()).unwrap();
    let send = async |piece: usize| {
        let mut connection = Raw::open(gateway.address()).await;
        connection.send(head).await;
        let began = Instant::now();
        for piece in body.as_bytes().chunks(piece) {
            connection.send(piece).await;
            let reply = connection.reply_within(Duration::from_millis(100)).await;
            if reply.closed {
                return (reply, began.elapsed());
            }
        }
        (connection.reply().await, began.elapsed())
    };
    let ((crumbs, after), (slow, _)) = tokio::join!(send(1), send(200));
    assert_eq!(crumbs.status, 408, "{crumbs:?}");
    assert!(crumbs.text.contains("240 bytes a second"), "{crumbs:?}");
    assert!(after >= Duration::from_secs(2) && after < Duration::from_secs(30), "{after:?}");
    assert_eq!(slow.status, 200, "{slow:?}");
}
