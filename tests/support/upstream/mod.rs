//! A scripted upstream: a separate HTTP/1.1 server over a bare socket, so that it can misbehave in every byte. Each
//! request takes the next answer of the script. All requests are recorded, with the time at which the other side closed
//! their connection.

mod answer;
mod connection;
mod record;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking::Parked;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub(crate) use answer::{Answer, Gate, Step};
pub(crate) use record::{Received, Record};

use super::wait;

/// A scripted upstream. It stops listening when dropped.
pub(crate) struct Upstream {
    address: SocketAddr,
    scheme: &'static str,
    shared: Arc<Shared>,
    listening: tokio::task::JoinHandle<()>,
}

/// The state that all connections of one upstream share.
pub(crate) struct Shared {
    pub(crate) record: Record,
    pub(crate) sent_bytes: AtomicU64,
    connections: AtomicUsize,
    script: Parked<Script>,
}

/// A function that builds the answer to a request.
type Answering = Arc<dyn Fn(&Received) -> Answer + Send + Sync>;

#[derive(Default)]
struct Script {
    next: VecDeque<Answer>,
    otherwise: Option<Answer>,
    answering: Option<Answering>,
}

impl Shared {
    /// Returns the answer to the request that has just arrived.
    pub(crate) fn answer(&self, request: &Received) -> Answer {
        let answering = match self.script.with(Script::next) {
            Ok(answer) => return answer,
            Err(answering) => answering,
        };
        answering.map_or_else(Answer::unscripted, |answering| answering(request))
    }
}

impl Script {
    /// Returns the next answer of the script, or else the function that builds one.
    fn next(&mut self) -> Result<Answer, Option<Answering>> {
        let next = self.next.pop_front().or_else(|| self.otherwise.clone());
        next.ok_or_else(|| self.answering.clone())
    }
}

impl Upstream {
    /// Listens on a free port of the loopback address.
    pub(crate) async fn start() -> Self {
        Self::listen(None).await
    }

    /// Like [`Upstream::start`], behind TLS.
    pub(crate) async fn start_tls(acceptor: TlsAcceptor) -> Self {
        Self::listen(Some(acceptor)).await
    }

    async fn listen(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let shared = Arc::new(Shared {
            record: Record::default(),
            sent_bytes: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
            script: Parked::default(),
        });
        let listening = tokio::spawn(accept(listener, tls, Arc::clone(&shared)));
        Self { address, scheme, shared, listening }
    }

    /// Adds `answer` to the end of the script.
    pub(crate) fn then(&self, answer: Answer) -> &Self {
        self.shared.script.with(|script| script.next.push_back(answer));
        self
    }

    /// Sets the answer to every request that the script does not cover.
    pub(crate) fn always(&self, answer: Answer) -> &Self {
        self.shared.script.with(|script| script.otherwise = Some(answer));
        self
    }

    /// Sets the function that answers every request that neither the script nor [`always`](Self::always) covers.
    pub(crate) fn answering(&self, answering: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> &Self {
        self.shared.script.with(|script| script.answering = Some(Arc::new(answering)));
        self
    }

    /// Returns the address on which it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the value for a provider's `base_url`.
    pub(crate) fn base_url(&self) -> String {
        let host = if self.scheme == "https" { "localhost" } else { "127.0.0.1" };
        format!("{}://{host}:{}/v1", self.scheme, self.address.port())
    }

    /// Returns all requests so far, in order of arrival.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.shared.record.requests()
    }

    /// Waits until request number `index` has arrived completely.
    pub(crate) async fn request(&self, index: usize) -> Received {
        let what = format!("request {index} at the upstream");
        wait::within(wait::PATIENCE, &what, self.shared.record.request(index)).await
    }

    /// Waits until the other side has closed the connection of request number `index`, and returns the time.
    pub(crate) async fn closed(&self, index: usize) -> Instant {
        let connection = self.request(index).await.connection;
        let what = format!("the connection of request {index} closed by the gateway");
        wait::within(wait::PATIENCE, &what, self.shared.record.closed(connection)).await
    }

    /// Returns the number of connections that the other side has closed so far.
    pub(crate) fn closed_count(&self) -> usize {
        self.shared.record.closed_count()
    }

    /// Returns the number of connections accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that the kernel has accepted from this upstream so far, over all connections.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Returns a base URL that refuses connections.
pub(crate) async fn refusing_url() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/v1", listener.local_addr().unwrap())
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _ = stream.set_nodelay(true);
        let id = shared.connections.fetch_add(1, Ordering::Relaxed);
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        tokio::spawn(async move {
            let (stream, handle) = connection::handle(stream);
            match tls {
                None => connection::serve(stream, handle, id, shared).await,
                Some(acceptor) => {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        connection::serve(stream, handle, id, shared).await;
                    }
                }
            }
        });
    }
}

mod parking {
    //! A value behind a lock that is never held across an await.

    use std::sync::{Mutex, PoisonError};

    #[derive(Default)]
    pub(crate) struct Parked<T>(Mutex<T>);

    impl<T> Parked<T> {
        pub(crate) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
            act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }
}
