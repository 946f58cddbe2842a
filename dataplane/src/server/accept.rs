//! The listener: accepts connections, hands each to the worker with the fewest, and stops.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::inside::{Errand, Visit};
use crate::plane::Plane;
use crate::server::connection;
use crate::server::io::Order;
use crate::worker::Worker;

/// The way to one worker, and how many connections it has.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    pub(crate) inbox: mpsc::Sender<Message>,
    pub(crate) live: Arc<AtomicUsize>,
}

/// What reaches a worker from other threads.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection that another worker accepted.
    Socket(std::net::TcpStream, SocketAddr),
    /// Accept connections from now on.
    Listen { listener: std::net::TcpListener, doors: Vec<Door>, stop: watch::Receiver<bool> },
    /// Tell all connections.
    Order(Order),
    /// Answer a request from inside the process.
    Visit(Box<Visit>),
    /// Make a request for the control service.
    Errand(Box<Errand>),
}

/// Pause after accept failed for want of descriptors or memory, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts until `stop` turns true. Runs on the first worker.
pub(crate) async fn accept(
    listener: TcpListener,
    own: Rc<Worker>,
    doors: Vec<Door>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            // Cancel-safe: an accept that is dropped leaves the connection in the queue.
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((tcp, peer)) => dispatch(&own, &doors, tcp, peer),
            Err(error) if is_connection_fault(&error) => {}
            Err(error) => {
                tracing::warn!(error = %error, "cannot accept connections for the moment");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Faults of the connection that was accepted, not of the listener.
fn is_connection_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

fn dispatch(own: &Rc<Worker>, doors: &[Door], tcp: TcpStream, peer: SocketAddr) {
    if tcp.set_nodelay(true).is_err() {
        return;
    }
    let Some(lease) = Lease::take(&own.plane) else {
        tokio::task::spawn_local(refuse(tcp));
        return;
    };
    let fewest = doors.iter().enumerate().min_by_key(|(_, door)| door.live.load(Ordering::Relaxed));
    let Some((index, door)) = fewest else { return };
    if index == 0 {
        spawn(own, tcp, peer, Arc::clone(&door.live), lease);
        return;
    }
    // The lease is given back here and taken again there: between the two the cap may be passed by the few
    // connections that are waiting.
    drop(lease);
    if let Ok(tcp) = tcp.into_std() {
        // A worker that cannot take another 1,024 is past helping; the client sees its connection closed.
        door.inbox.try_send(Message::Socket(tcp, peer)).ok();
    }
}

/// Takes over a connection that another worker accepted.
pub(crate) fn receive(
    worker: &Rc<Worker>,
    tcp: std::net::TcpStream,
    peer: SocketAddr,
    live: &Arc<AtomicUsize>,
) {
    match (TcpStream::from_std(tcp), Lease::take(&worker.plane)) {
        (Ok(tcp), Some(lease)) => spawn(worker, tcp, peer, Arc::clone(live), lease),
        (Ok(tcp), None) => {
            tokio::task::spawn_local(refuse(tcp));
        }
        (Err(_), _) => {}
    }
}

fn spawn(worker: &Rc<Worker>, tcp: TcpStream, peer: SocketAddr, live: Arc<AtomicUsize>, lease: Lease) {
    live.fetch_add(1, Ordering::Relaxed);
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        connection::serve(worker, tcp, peer).await;
        live.fetch_sub(1, Ordering::Relaxed);
        drop(lease);
    });
}

/// One of the connections that the process may have (LIM-5).
struct Lease(Arc<Plane>);

impl Lease {
    fn take(plane: &Arc<Plane>) -> Option<Self> {
        let lease = Self(Arc::clone(plane));
        let before = plane.connections.fetch_add(1, Ordering::Relaxed);
        (before < plane.settings.connections_max).then_some(lease)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers a connection over the cap without reading from it.
async fn refuse(mut tcp: TcpStream) {
    let body = r#"{"error":{"message":"The gateway has as many connections as it may. Try again.","type":"server_error","code":"overloaded","param":null}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tokio::time::timeout(Duration::from_secs(1), tcp.write_all(answer.as_bytes())).await.ok();
}
