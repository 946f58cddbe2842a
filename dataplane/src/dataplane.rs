//! The worker threads: how they start, receive messages and stop.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use shared::activity::{Activity, Draining};
use shared::alarm::Alarm;
use shared::clock::unix_ms;
use shared::port::{Exchanges, Handler, HttpClient, KeptTables};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::runtime::LocalOptions;
use tokio::sync::{Notify, mpsc, watch};

use crate::bounds::WORKER_MESSAGES;
use crate::in_process::InProcess;
use crate::inbox::{Message, WorkerHandle};
use crate::plan::response_affinity::ResponseAffinity;
use crate::process::{Params, Process};
use crate::relay::LateUsageQueue;
use crate::server::accept;
use crate::server::io::Order;
use crate::settings::Settings;
use crate::worker::Worker;

/// Handle to the running workers.
#[derive(Debug)]
pub struct Dataplane {
    pub(crate) process: Arc<Process>,
    workers: Vec<WorkerHandle>,
    threads: Vec<JoinHandle<()>>,
    end: watch::Sender<Option<Duration>>,
}

/// The last part of the delay of the drain: time for the handshakes of connections that clients have begun.
const HANDSHAKES_TIME: Duration = Duration::from_millis(250);
/// The part of the delay after that: time for the first requests of the connections accepted last.
const FIRST_REQUESTS_TIME: Duration = Duration::from_millis(500);
/// Interval at which the drain checks for open connections.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// Time for cut connections to end after the drain.
const CUT_GRACE: Duration = Duration::from_millis(500);

/// Starts the workers and returns once all of them run. They accept no connections until [`Dataplane::serve`].
pub fn new(params: Params) -> io::Result<Dataplane> {
    let (process, usage_logs) = Process::new(params)?;
    let (process, workers) = (Arc::new(process), usage_logs.len());
    let mut dataplane =
        Dataplane { process, workers: Vec::new(), threads: Vec::new(), end: watch::Sender::new(None) };
    let (ready, readiness) = channel();
    for (index, usage) in usage_logs.into_iter().enumerate() {
        let (sender, inbox) = mpsc::channel(WORKER_MESSAGES.max());
        let process = Arc::clone(&dataplane.process);
        let load = process.loads.get(index).cloned().unwrap_or_default();
        dataplane.workers.push(WorkerHandle { inbox: sender, load });
        let ready = ready.clone();
        let thread = dataplane.process.alarm.spawn(&format!("data-{index}"), move || {
            // Created on its own thread, because a worker is not `Send`.
            let worker = Rc::new(Worker::new(process, index, usage));
            run(&worker, inbox, ready)
        })?;
        dataplane.threads.push(thread);
    }
    drop(ready);
    for _ in 0..workers {
        readiness.recv().map_err(|_| io::Error::other("a thread of the data plane cannot start"))?;
    }
    Ok(dataplane)
}

/// Runs one worker until its inbox closes.
fn run(worker: &Rc<Worker>, mut inbox: mpsc::Receiver<Message>, ready: Sender<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(Duration::MAX)
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        // Starts one blocking thread now: without any, tokio panics if the system refuses to create one later.
        tokio::task::spawn_blocking(|| ()).await.map_err(io::Error::other)?;
        ready.send(()).map_err(io::Error::other)?;
        drop(ready);
        let alarm = &worker.process.alarm;
        spawn_vital(alarm, "the sweeper of a worker", Rc::clone(worker).sweep());
        let late_usage =
            LateUsageQueue::read_all(worker.relays.late_usage.take_receiver(), worker.relays.usage_grace);
        spawn_vital(alarm, "the reader of late usage", late_usage);
        while let Some(message) = inbox.recv().await {
            match message {
                Message::Socket(accepted) => accept::receive(Rc::clone(worker), accepted),
                Message::Listen { listener, workers, end } => match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let accepting = accept::accept(listener, Rc::clone(worker), workers, end);
                        spawn_vital(alarm, "the acceptor of connections", accepting);
                    }
                    Err(error) => return Err(error),
                },
                Message::Order(order) => worker.connections.command_all(order),
                Message::Run(task) => {
                    tokio::task::spawn_local(task(Rc::clone(worker)));
                }
            }
        }
        Ok(())
    })
}

/// Spawns a task that the worker depends on. The runtime catches its panics, so a guard raises the alarm when it ends.
fn spawn_vital(alarm: &Alarm, part: &'static str, task: impl Future<Output = ()> + 'static) {
    let guard = alarm.guard(part);
    tokio::task::spawn_local(async move {
        let _guard = guard;
        task.await;
    });
}

/// Maximum threads per worker for blocking work such as token counts and the voice.
const BLOCKING_THREADS_MAX: usize = 16;

/// Binds `address` with a long accept queue for bursts of clients: the kernel drops connections that exceed it.
pub fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Length of the accept queue; the kernel caps it at its own limit.
const BACKLOG: i32 = 4_096;

impl Dataplane {
    /// Serves `listener` and returns its local address; paths outside the data plane's table go to `fallback`.
    pub fn serve(&self, listener: StdListener, fallback: Arc<dyn Handler>) -> io::Result<SocketAddr> {
        listener.set_nonblocking(true)?;
        accept::bound_stalls(&listener, self.process.settings.client_timeouts.stall);
        let address = listener.local_addr()?;
        self.process.fallback.set(fallback).ok();
        let end = self.end.subscribe();
        let message = Message::Listen { listener, workers: self.workers.clone(), end };
        let first = self.workers.first().ok_or_else(|| io::Error::other("there is no worker"))?;
        first
            .inbox
            .try_send(message)
            .map_err(|_| io::Error::other("the queue of the first worker is closed"))?;
        Ok(address)
    }

    /// Returns a handler for requests from inside the process. It answers them as if they came over the network, unless
    /// their extensions contain an [`Insider`](shared::port::Insider), which overrides authentication and target.
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::new(InProcess::new(&self.workers))
    }

    /// Returns the activity of this data plane, for the control service.
    pub fn activity(&self) -> Arc<Activity> {
        Arc::clone(&self.process.activity)
    }

    /// Returns the tables that a restart should keep.
    pub fn kept_tables(&self) -> Arc<dyn KeptTables> {
        Arc::<ResponseAffinity>::clone(&self.process.response_affinity)
    }

    /// Returns a client for outgoing HTTP requests.
    pub fn http_client(&self) -> Arc<dyn HttpClient> {
        Arc::new(InProcess::new(&self.workers))
    }

    /// Returns the list of running exchanges, through which they can be cancelled.
    pub fn exchanges(&self) -> Arc<dyn Exchanges> {
        Arc::new(InProcess::new(&self.workers))
    }

    /// Serves on for the delay of the settings, so that those who send requests here notice the end; `hurry` ends the
    /// delay. Then lets requests in flight finish within the configured drain time, and cuts the remaining connections,
    /// visibly to their clients (OPS-3). Outgoing requests still work.
    pub async fn drain(&self, hurry: &Notify) {
        let Settings { drain_delay, drain, .. } = &*self.process.settings;
        let since_ms = unix_ms();
        let longest = drain_delay.saturating_add(*drain).as_millis();
        let until_ms = since_ms.saturating_add(u64::try_from(longest).unwrap_or(u64::MAX));
        self.process.draining.store(true, Ordering::Relaxed);
        self.process.activity.draining.set(Draining { since_ms, until_ms }).ok();
        self.order(Order::LastAnswer).await;
        tokio::select! {
            () = self.serve_on(*drain_delay) => {}
            () = hurry.notified() => {}
        }
        self.close_listener(Duration::ZERO).await;
        tracing::info!("no new connections; running streams may finish");
        // Those who wait would hold the end up, and nothing may ever be left for them.
        self.process.line_end.come();
        self.order(Order::Finish).await;
        if !self.wait_for_none(*drain).await {
            let left = self.process.connections.load(Ordering::Relaxed);
            tracing::warn!(
                connections = left,
                "the drain timeout has passed; closing the remaining connections"
            );
            self.order(Order::Close).await;
            self.wait_for_none(CUT_GRACE).await;
        }
    }

    /// Accepts connections for nearly all of `delay`, and then serves those that were accepted last.
    async fn serve_on(&self, delay: Duration) {
        if delay.is_zero() {
            return;
        }
        tokio::time::sleep(delay.saturating_sub(HANDSHAKES_TIME + FIRST_REQUESTS_TIME)).await;
        self.close_listener(HANDSHAKES_TIME).await;
        tokio::time::sleep(FIRST_REQUESTS_TIME).await;
    }

    /// Closes the listener, with `grace` for the connections that clients have begun, and returns once it is closed.
    async fn close_listener(&self, grace: Duration) {
        self.end.send_if_modified(|end| end.replace(grace).is_none());
        self.end.closed().await;
    }

    /// Ends the threads after the [drain](Self::drain) and joins them.
    pub async fn stop(mut self) {
        self.workers.clear();
        let threads = std::mem::take(&mut self.threads);
        tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())))
            .await
            .ok();
    }

    async fn order(&self, order: Order) {
        for worker in &self.workers {
            worker.inbox.send(Message::Order(order)).await.ok();
        }
    }

    async fn wait_for_none(&self, limit: Duration) -> bool {
        let end = tokio::time::Instant::now() + limit;
        while self.process.connections.load(Ordering::Relaxed) > 0 {
            if tokio::time::Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http::header::{AUTHORIZATION, CONNECTION, HOST};
    use http_body_util::{BodyExt as _, Full};
    use hyper::client::conn::{http1, http2};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use shared::routing::EchoOptions;
    use tokio::net::TcpStream;
    use tokio::sync::oneshot;

    use super::*;
    use crate::fixture::{ADMIN, Fixture, asks, echo};

    fn serving() -> (Fixture, SocketAddr) {
        let fixture = Fixture::start(vec![echo("e", EchoOptions::default())]);
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = fixture.dataplane.serve(listener, fixture.dataplane.handler()).unwrap();
        (fixture, address)
    }

    /// Ends a second in which the worker was busy and another one was not; returns the number of connections that are to
    /// move.
    async fn relieve(fixture: &Fixture) -> u64 {
        let (reply, moved) = oneshot::channel();
        let message = Message::run(|worker| async move {
            worker.connections.sweep();
            reply.send(worker.connections.relieve(100, 0)).unwrap();
        });
        fixture.dataplane.workers[0].inbox.send(message).await.unwrap();
        moved.await.unwrap()
    }

    fn post(uri: &str, stream: bool) -> Request<Full<Bytes>> {
        let request = Request::post(uri).header(AUTHORIZATION, format!("Bearer {ADMIN}"));
        request.body(Full::from(asks("line", stream))).unwrap()
    }

    async fn connect_http1(address: SocketAddr) -> http1::SendRequest<Full<Bytes>> {
        let tcp = TcpStream::connect(address).await.unwrap();
        let (client, connection) = http1::handshake(TokioIo::new(tcp)).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Sends a request; returns true if its answer is the last one of the connection.
    async fn is_last(client: &mut http1::SendRequest<Full<Bytes>>) -> bool {
        client.ready().await.unwrap();
        let mut request = post("/v1/chat/completions", false);
        request.headers_mut().insert(HOST, http::HeaderValue::from_static("gateway.test"));
        let answer = client.send_request(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let is_last = answer.headers().get(CONNECTION).is_some_and(|value| value == "close");
        answer.into_body().collect().await.unwrap();
        is_last
    }

    #[tokio::test]
    async fn a_connection_that_is_to_move_ends_with_its_next_answer() {
        let (fixture, address) = serving();
        let mut clients = [connect_http1(address).await, connect_http1(address).await];
        let mut resting = connect_http1(address).await;
        assert!(!is_last(&mut resting).await);
        let mut moved = 0;
        // The worker's own sweep may end the second too.
        while moved == 0 {
            for client in &mut clients {
                assert!(!is_last(client).await);
            }
            moved = relieve(&fixture).await;
        }
        let ended = [is_last(&mut clients[0]).await, is_last(&mut clients[1]).await];
        assert_eq!((moved, ended[0] != ended[1]), (1, true), "{ended:?}");
        let [first, second] = clients;
        let (mut left, mut kept) = if ended[0] { (first, second) } else { (second, first) };
        assert!(left.ready().await.is_err(), "the connection is closed");
        let mut new = connect_http1(address).await;
        for client in [&mut kept, &mut resting, &mut new] {
            assert!(!is_last(client).await);
        }
    }

    const OVER_HTTP2: &str = "http://gateway.test/v1/chat/completions";

    /// Connects, and begins a stream of which only the first bytes arrive until it is read.
    async fn connect_http2(
        address: SocketAddr,
    ) -> (http2::SendRequest<Full<Bytes>>, http::Response<hyper::body::Incoming>) {
        let tcp = TcpStream::connect(address).await.unwrap();
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(16);
        let (mut client, connection) = builder.handshake(TokioIo::new(tcp)).await.unwrap();
        tokio::spawn(connection);
        let running = client.send_request(post(OVER_HTTP2, true)).await.unwrap();
        (client, running)
    }

    /// Sends a request; returns false if the connection takes no more.
    async fn answers(client: &mut http2::SendRequest<Full<Bytes>>) -> bool {
        if client.ready().await.is_err() {
            return false;
        }
        match client.send_request(post(OVER_HTTP2, false)).await {
            Ok(answer) => {
                assert_eq!(answer.status(), 200);
                answer.into_body().collect().await.unwrap();
                true
            }
            Err(error) => {
                assert!(error.is_canceled(), "it was not sent: {error}");
                false
            }
        }
    }

    #[tokio::test]
    async fn an_http2_connection_that_is_to_move_ends_after_its_streams() {
        let (fixture, address) = serving();
        let (mut first, running) = connect_http2(address).await;
        let (mut second, running_too) = connect_http2(address).await;
        let mut moved = 0;
        while moved == 0 {
            assert!(answers(&mut first).await && answers(&mut second).await);
            moved = relieve(&fixture).await;
        }
        assert_eq!(moved, 1);
        // The GOAWAY arrives at an unknown time.
        let mut kept = loop {
            if !answers(&mut first).await {
                break second;
            }
            if !answers(&mut second).await {
                break first;
            }
        };
        for stream in [running, running_too] {
            let body = stream.into_body().collect().await.unwrap().to_bytes();
            assert!(body.ends_with(b"data: [DONE]\n\n"), "{body:?}");
        }
        assert!(answers(&mut kept).await && answers(&mut connect_http2(address).await.0).await);
    }
}
