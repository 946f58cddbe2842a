//! A TCP proxy between a gateway and PostgreSQL, whose faults a test switches while connections are open.

mod commits;
mod connection;
mod pump;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::watch;

use crate::{port, wait};

/// What the proxy does to the bytes of all its connections, from the moment it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyMode {
    /// Forwards everything.
    Pass,
    /// Forwards each byte this much later, in both directions.
    Delay(Duration),
    /// Resets all connections, and refuses new ones.
    Cut,
    /// Accepts connections and forwards nothing. What arrives is held, and forwarded in a later mode.
    HalfOpen,
    /// Forwards what clients send, and swallows what the server answers. A connection that lost bytes is reset when
    /// the mode changes.
    DropAnswers,
    /// Forwards `bytes` every interval, on each connection and in each direction.
    Trickle { bytes: usize, every: Duration },
    /// Forwards everything, but swallows the answer to the `nth` `COMMIT` (1 is the first) and resets its connection.
    /// The transaction has been committed. Without TLS only.
    LoseCommitAnswer { nth: u32 },
    /// Forwards everything, but resets the client that sends the `nth` `COMMIT`, which reaches the server only after
    /// `after`. Finds it in a simple query or a `Parse`, without TLS only.
    LateCommit { nth: u32, after: Duration },
}

/// A proxy on loopback, with a thread of its own. It ends, and closes its connections, when it is dropped.
#[derive(Debug)]
pub struct PostgresProxy {
    address: SocketAddr,
    plan: Option<watch::Sender<Plan>>,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    mode: ProxyMode,
    target: SocketAddr,
}

/// What the connections and the test share.
#[derive(Debug, Default)]
struct State {
    listening: AtomicBool,
    connections: AtomicU32,
    /// The number of `COMMIT`s since the mode was set.
    commits: AtomicU32,
    struck: AtomicBool,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl PostgresProxy {
    /// Starts a proxy in front of `target`, in the mode [`ProxyMode::Pass`].
    pub fn start(target: SocketAddr) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port::free()));
        let (plan, plans) = watch::channel(Plan { mode: ProxyMode::Pass, target });
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            // The connections end with the runtime.
            runtime.block_on(serve(address, plans, shared)).unwrap();
        });
        let proxy = Self { address, plan: Some(plan), state, thread: Some(thread) };
        proxy.wait_for_listener(true);
        proxy
    }

    /// Returns the address of the proxy, which never changes.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the mode, of the open connections too.
    pub fn set(&self, mode: ProxyMode) {
        self.state.commits.store(0, Ordering::SeqCst);
        self.state.struck.store(false, Ordering::SeqCst);
        self.change(|plan| plan.mode = mode);
        self.wait_for_listener(mode != ProxyMode::Cut);
    }

    /// Leads new connections to another server, such as a promoted standby. Open ones stay.
    pub fn lead_to(&self, target: SocketAddr) {
        self.change(|plan| plan.target = target);
    }

    /// True if a mode for the `nth` `COMMIT` has met it.
    pub fn struck(&self) -> bool {
        self.state.struck.load(Ordering::SeqCst)
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> u32 {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Returns how many bytes went to the server, and how many to clients.
    pub fn forwarded_bytes(&self) -> (u64, u64) {
        (self.state.to_server.load(Ordering::SeqCst), self.state.to_client.load(Ordering::SeqCst))
    }

    fn change(&self, change: impl FnOnce(&mut Plan)) {
        self.plan.as_ref().unwrap().send_modify(change);
    }

    fn wait_for_listener(&self, listening: bool) {
        let reached = || (self.state.listening.load(Ordering::SeqCst) == listening).then_some(());
        wait::until("the proxy takes the mode", reached);
    }
}

impl Drop for PostgresProxy {
    fn drop(&mut self) {
        self.plan = None;
        let _ = self.thread.take().unwrap().join();
    }
}

/// Listens on the address. Another test may just be looking whether the port is free.
async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let mut tries = 0;
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < 200 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            outcome => return outcome,
        }
    }
}

/// Accepts connections unless the mode is [`ProxyMode::Cut`], until the proxy is dropped.
async fn serve(address: SocketAddr, mut plans: watch::Receiver<Plan>, state: Arc<State>) -> io::Result<()> {
    loop {
        let listener = listen(address).await?;
        state.listening.store(true, Ordering::SeqCst);
        while plans.borrow_and_update().mode != ProxyMode::Cut {
            tokio::select! {
                accepted = listener.accept() => {
                    let (client, _) = accepted?;
                    client.set_nodelay(true)?;
                    tokio::spawn(connection::serve(client, plans.clone(), Arc::clone(&state)));
                }
                changed = plans.changed() => if changed.is_err() { return Ok(()) },
            }
        }
        drop(listener);
        state.listening.store(false, Ordering::SeqCst);
        while plans.borrow_and_update().mode == ProxyMode::Cut {
            if plans.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}
