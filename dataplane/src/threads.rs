//! The worker threads: how they start, what reaches them, how they stop.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use shared::alarm::Alarm;
use shared::build::BuildIdentity;
use shared::port::{Handler, HttpClient};
use shared::snapshot::SnapshotReader;
use shared::usage::UsageLog;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpListener;
use tokio::runtime::LocalOptions;
use tokio::sync::{mpsc, watch};

use crate::exchange;
use crate::inside::{self, Inside};
use crate::plane::{Plane, Settings, Shared};
use crate::relay::Tails;
use crate::server::accept::{self, Door, Message};
use crate::server::io::Order;
use crate::server::service::Server;
use crate::upstream::dial::Tls;
use crate::upstream::resolve::Resolver;
use crate::worker::Worker;

/// What the data plane is made of. There are as many workers as usage logs.
pub struct Params {
    /// See [`Settings`].
    pub settings: Settings,
    /// See [`BuildIdentity`].
    pub build: BuildIdentity,
    /// Where snapshots come from.
    pub snapshots: SnapshotReader,
    /// One for each worker.
    pub usage_logs: Vec<Box<dyn UsageLog>>,
    /// Trust roots for upstreams; ALPN is set here.
    pub upstream_tls: rustls::ClientConfig,
    /// Raised when a worker ends early.
    pub alarm: Alarm,
}

impl std::fmt::Debug for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Params").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The running workers.
#[derive(Debug)]
pub struct Dataplane {
    pub(crate) plane: Arc<Plane>,
    doors: Vec<Door>,
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<bool>,
}

/// Messages waiting for a worker.
const INBOX_MAX: usize = 1_024;
/// How often the drain looks whether it is done.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// How long cut connections get to end after the drain.
const CUT_GRACE: Duration = Duration::from_millis(500);

/// Starts the workers, and returns when all of them run. They serve nobody until [`Dataplane::serve`].
pub fn new(params: Params) -> io::Result<Dataplane> {
    let tls = Tls::new(&params.upstream_tls, Resolver::start(&params.alarm)?);
    let workers = params.usage_logs.len();
    let shared =
        Shared { build: params.build, snapshots: params.snapshots, tls, alarm: params.alarm.clone() };
    let plane = Arc::new(Plane::new(params.settings, shared, workers)?);
    let mut dataplane =
        Dataplane { plane, doors: Vec::new(), threads: Vec::new(), stop: watch::Sender::new(false) };
    let (begun, begins) = channel();
    for (index, usage) in params.usage_logs.into_iter().enumerate() {
        let (sender, inbox) = mpsc::channel(INBOX_MAX);
        dataplane.doors.push(Door { inbox: sender, live: Arc::default() });
        let (plane, counters) = (Arc::clone(&dataplane.plane), dataplane.plane.counters.get(index).cloned());
        let begun = begun.clone();
        let thread = params.alarm.spawn(&format!("data-{index}"), move || {
            // Made on its own thread: a worker never leaves it.
            let worker = Rc::new(Worker::new(plane, counters.unwrap_or_default(), usage));
            run(&worker, inbox, begun)
        })?;
        dataplane.threads.push(thread);
    }
    drop(begun);
    for _ in 0..workers {
        begins.recv().map_err(|_| io::Error::other("a thread of the data plane cannot run"))?;
    }
    Ok(dataplane)
}

/// One worker's life: until its inbox closes.
fn run(worker: &Rc<Worker>, mut inbox: mpsc::Receiver<Message>, begun: Sender<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(Duration::MAX)
        .build_local(LocalOptions::default())?;
    runtime.block_on(async {
        // From now on one thread for blocking work is there. Without any, tokio panics where the system refuses a new one.
        tokio::task::spawn_blocking(|| ()).await.map_err(io::Error::other)?;
        begun.send(()).map_err(io::Error::other)?;
        drop(begun);
        let alarm = &worker.plane.alarm;
        spawn_vital(alarm, "the sweeper of a worker", Rc::clone(worker).sweep());
        let tails = Tails::keep(worker.tails.inbox(), worker.plane.settings.usage_grace);
        spawn_vital(alarm, "the reader of late usage", tails);
        let server = Server { worker: Rc::clone(worker), connect: exchange::connect };
        while let Some(message) = inbox.recv().await {
            match message {
                Message::Socket(tcp, peer, seat) => accept::receive(server.clone(), tcp, peer, seat),
                Message::Listen { listener, doors, stop } => match TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let accepting = accept::accept(listener, server.clone(), doors, stop);
                        spawn_vital(alarm, "the acceptor of connections", accepting);
                    }
                    Err(error) => return Err(error),
                },
                Message::Order(order) => worker.command_all(order),
                Message::Visit(visit) => {
                    tokio::task::spawn_local(inside::visit(Rc::clone(worker), *visit));
                }
                Message::Errand(errand) => {
                    tokio::task::spawn_local(inside::errand(Rc::clone(worker), *errand));
                }
            }
        }
        Ok(())
    })
}

/// Spawns a task that a worker cannot do without: the runtime catches a panic in it, so a guard reports that.
fn spawn_vital(alarm: &Alarm, part: &'static str, task: impl Future<Output = ()> + 'static) {
    let guard = alarm.guard(part);
    tokio::task::spawn_local(async move {
        let _guard = guard;
        task.await;
    });
}

/// Threads for token counts, the voice and what else takes long, per worker.
const BLOCKING_THREADS_MAX: usize = 16;

/// Binds `address` with room for a burst of clients: the kernel drops what does not fit into the queue.
pub fn listen(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connections that may wait to be accepted; the kernel cuts it to its own limit.
const BACKLOG: i32 = 4_096;

impl Dataplane {
    /// Serves `listener`; paths outside the data plane's table go to `fallback`.
    pub fn serve(&self, listener: StdListener, fallback: Arc<dyn Handler>) -> io::Result<SocketAddr> {
        listener.set_nonblocking(true)?;
        accept::bound_stalls(&listener, self.plane.settings.client_timeouts.stall);
        let address = listener.local_addr()?;
        self.plane.fallback.set(fallback).ok();
        let stop = self.stop.subscribe();
        let message = Message::Listen { listener, doors: self.doors.clone(), stop };
        let first = self.doors.first().ok_or_else(|| io::Error::other("there is no worker"))?;
        first.inbox.try_send(message).map_err(|_| io::Error::other("the first worker takes no messages"))?;
        Ok(address)
    }

    /// Answers requests from inside the process as they would be answered over the network, or as the
    /// [`Insider`](shared::port::Insider) in their extensions says.
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::new(Inside::new(&self.doors))
    }

    /// Makes requests to the outside.
    pub fn http_client(&self) -> Arc<dyn HttpClient> {
        Arc::new(Inside::new(&self.doors))
    }

    /// Takes no new connections and lets requests in flight end, for as long as the settings say; then cuts
    /// what is left, visibly, and ends the threads (OPS-3).
    pub async fn stop(mut self) {
        self.plane.draining.store(true, Ordering::Relaxed);
        self.stop.send_replace(true);
        self.order(Order::Finish).await;
        if !self.wait_for_none(self.plane.settings.drain).await {
            let left = self.plane.connections.load(Ordering::Relaxed);
            tracing::warn!(connections = left, "the drain time is over; what is left is cut");
            self.order(Order::Close).await;
            self.wait_for_none(CUT_GRACE).await;
        }
        self.doors.clear();
        let threads = std::mem::take(&mut self.threads);
        tokio::task::spawn_blocking(move || threads.into_iter().for_each(|thread| drop(thread.join())))
            .await
            .ok();
    }

    async fn order(&self, order: Order) {
        for door in &self.doors {
            door.inbox.send(Message::Order(order)).await.ok();
        }
    }

    async fn wait_for_none(&self, limit: Duration) -> bool {
        let end = tokio::time::Instant::now() + limit;
        while self.plane.connections.load(Ordering::Relaxed) > 0 {
            if tokio::time::Instant::now() >= end {
                return false;
            }
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        true
    }
}
