//! The listener: accepts connections until the stop signal and passes each to a [worker with room](super::balance).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(target_os = "linux")]
use socket2::{SockFilter, SockRef};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::balance::{self, WorkerLoad};
use super::connections::{self, Connections};
use super::service::Connect;
use crate::bounds::{CONNECTIONS, WORKER_MESSAGES};

/// A worker's message queue and its load.
pub(crate) struct WorkerHandle<M> {
    pub(crate) inbox: mpsc::Sender<M>,
    pub(crate) load: Arc<WorkerLoad>,
}

impl<M> std::fmt::Debug for WorkerHandle<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WorkerHandle").field("load", &self.load).finish_non_exhaustive()
    }
}

impl<M> Clone for WorkerHandle<M> {
    fn clone(&self) -> Self {
        Self { inbox: self.inbox.clone(), load: Arc::clone(&self.load) }
    }
}

/// A connection that one worker has accepted for another.
#[derive(Debug)]
pub(crate) struct Accepted {
    tcp: std::net::TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
}

/// Pause after accept fails for lack of descriptors or memory, to avoid a busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Sets the time after which the kernel ends a connection of `listener` whose client accepts none of its pending bytes
/// (`TCP_USER_TIMEOUT`). Only the kernel sees how much of the written data a client has taken: to the gateway, a slow
/// reader and a stalled one look the same for minutes.
pub(crate) fn bound_stalls(listener: &std::net::TcpListener, stall: Duration) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(listener).set_tcp_user_timeout(Some(stall)) {
        tracing::warn!(%error, "cannot set TCP_USER_TIMEOUT: connections of clients that read nothing stay \
                                open");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (listener, stall);
}

/// Accepts connections until `end` contains a time. Then the listener takes no new ones, and closes once those that clients
/// have begun were accepted: within that time, or at once if it is zero. Runs on the first worker.
pub(crate) async fn accept<M: From<Accepted>>(
    listener: TcpListener,
    own: impl Connect,
    workers: Vec<WorkerHandle<M>>,
    mut end: watch::Receiver<Option<Duration>>,
) {
    let accepting = async {
        loop {
            accept_one(&listener, &own, &workers).await;
        }
    };
    let grace = tokio::select! {
        // Cancel-safe: dropping the future leaves the connection in the queue.
        () = accepting => return,
        ended = end.wait_for(Option::is_some) => ended.ok().and_then(|grace| *grace).unwrap_or_default(),
    };
    if !grace.is_zero() {
        ignore_new_clients(&listener);
    }
    let rest = async {
        loop {
            accept_one(&listener, &own, &workers).await;
        }
    };
    // Even without time, what waits in the queue is accepted, because the future is polled first.
    tokio::time::timeout(grace, rest).await.ok();
}

async fn accept_one<M: From<Accepted>>(
    listener: &TcpListener,
    own: &impl Connect,
    workers: &[WorkerHandle<M>],
) {
    match listener.accept().await {
        Ok((tcp, peer)) => dispatch(own, workers, tcp, peer),
        Err(error) if is_connection_fault(&error) => {}
        Err(error) => {
            tracing::warn!(error = %error, "cannot accept a connection: accepting pauses briefly");
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
    }
}

/// Lets the kernel drop the first packet of every new connection, but not those of connections that are being opened:
/// closing a listener resets what is in its queue, after the client may have sent its request. A client whose packet is
/// dropped repeats it a second later and is refused then, which every proxy counts as not sent.
fn ignore_new_clients(listener: &TcpListener) {
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(listener)
        .attach_filter(&NO_NEW_CLIENTS.map(|(code, jt, jf, k)| SockFilter::new(code, jt, jf, k)))
    {
        tracing::debug!(%error, "cannot filter new connections: those that come while the listener closes \
                                 are reset");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
}

/// Program of the kernel's packet filter, which sees the packet from its TCP header on: drops it if of SYN and ACK only
/// SYN is set.
#[cfg(target_os = "linux")]
const NO_NEW_CLIENTS: [(u16, u8, u8, u32); 5] = [
    (0x30, 0, 0, 13),          // load the byte of the flags
    (0x54, 0, 0, 0x12),        // keep SYN and ACK
    (0x15, 0, 1, 0x02),        // unless it is SYN alone, skip the next one
    (0x06, 0, 0, 0),           // drop
    (0x06, 0, 0, 0xffff_ffff), // pass the whole packet
];

/// Returns true for errors of the accepted connection rather than of the listener.
fn is_connection_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

fn dispatch<M: From<Accepted>>(
    own: &impl Connect,
    workers: &[WorkerHandle<M>],
    tcp: TcpStream,
    peer: SocketAddr,
) {
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Some(index) = balance::choose(workers.iter().map(|worker| &worker.load)) else { return };
    let Some(worker) = workers.get(index) else { return };
    let Some(permit) = ConnectionPermit::take(own.connections(), &worker.load) else {
        CONNECTIONS.reach();
        // A TLS client could not read an answer in clear text.
        if own.connections().settings.tls.is_none() {
            tokio::task::spawn_local(refuse(tcp));
        }
        return;
    };
    if index == 0 {
        spawn(own.clone(), tcp, peer, permit);
    } else if let Ok(tcp) = tcp.into_std() {
        // If the worker's queue is full, the connection is closed.
        if worker.inbox.try_send(M::from(Accepted { tcp, peer, permit })).is_err() {
            WORKER_MESSAGES.reach();
        }
    }
}

/// Serves a connection that another worker accepted.
pub(crate) fn receive(server: impl Connect, accepted: Accepted) {
    let Accepted { tcp, peer, permit } = accepted;
    if let Ok(tcp) = TcpStream::from_std(tcp) {
        spawn(server, tcp, peer, permit);
    }
}

fn spawn(server: impl Connect, tcp: TcpStream, peer: SocketAddr, permit: ConnectionPermit) {
    tokio::task::spawn_local(async move {
        connections::serve(server, tcp, peer).await;
        drop(permit);
    });
}

/// One of the process's allowed connections (LIM-5). It counts for its worker from the moment of the accept, so that a
/// burst is spread before any worker has seen it.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    total: Arc<AtomicUsize>,
    load: Arc<WorkerLoad>,
}

impl ConnectionPermit {
    /// Reserves a connection for the worker of `load`; returns `None` if the process is at its limit.
    fn take(connections: &Connections, load: &Arc<WorkerLoad>) -> Option<Self> {
        load.live.fetch_add(1, Ordering::Relaxed);
        let permit = Self { total: Arc::clone(&connections.total), load: Arc::clone(load) };
        let before = permit.total.fetch_add(1, Ordering::Relaxed);
        (before < connections.settings.connections_max).then_some(permit)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.total.fetch_sub(1, Ordering::Relaxed);
        self.load.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a connection over the limit without reading from it.
async fn refuse(mut tcp: TcpStream) {
    let body = r#"{"error":{"message":"The gateway has reached its connection limit. Try again.","type":"server_error","code":"overloaded","param":null}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tokio::time::timeout(Duration::from_secs(1), tcp.write_all(answer.as_bytes())).await.ok();
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::fixture::{Fixture, usage_log};
    use crate::inbox::Message;
    use crate::worker::Worker;

    #[tokio::test]
    async fn a_burst_of_connections_is_spread_over_the_workers() {
        let fixture = Fixture::start(Vec::new());
        let process = Arc::clone(&fixture.dataplane.process);
        let worker = Rc::new(Worker::new(process, 0, usage_log()));
        let (inbox, mut other) = mpsc::channel::<Message>(5);
        let workers = [mpsc::channel(16).0, inbox].map(|inbox| WorkerHandle { inbox, load: Arc::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::task::LocalSet::new()
            .run_until(async {
                let mut clients = Vec::new();
                for _ in 0..10 {
                    clients.push(TcpStream::connect(address).await.unwrap());
                    let (tcp, peer) = listener.accept().await.unwrap();
                    dispatch(&worker, &workers, tcp, peer);
                }
                assert_eq!(workers.each_ref().map(|worker| worker.load.live.load(Ordering::Relaxed)), [5, 5]);
                let before = WORKER_MESSAGES.count();
                for _ in 0..2 {
                    clients.push(TcpStream::connect(address).await.unwrap());
                    let (tcp, peer) = listener.accept().await.unwrap();
                    dispatch(&worker, &workers, tcp, peer);
                }
                assert!(WORKER_MESSAGES.count() > before, "its queue is full");
                while let Ok(message) = other.try_recv() {
                    drop(message);
                }
                assert_eq!(
                    workers[1].load.live.load(Ordering::Relaxed),
                    0,
                    "a closed connection releases its place"
                );
            })
            .await;
    }
}
