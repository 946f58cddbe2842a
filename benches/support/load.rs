//! The load generator: clients that send prepared bytes, check every byte of the answers, and record times.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant as Tick, sleep_until};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::answer::{Fault, Follow, Reader, Same};
use super::payload::Stream;
use super::wire::Io;

/// The data that all clients of one measurement share.
pub(crate) struct Load {
    pub(crate) address: SocketAddr,
    /// The configuration of clients that use TLS.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The request, head included.
    pub(crate) request: Bytes,
    pub(crate) expected: Expected,
    pub(crate) epoch: Instant,
    pub(crate) tally: RefCell<Tally>,
}

/// The expected answer.
#[derive(Clone)]
pub(crate) enum Expected {
    Whole(Bytes),
    Flow(Rc<Stream>),
}

/// The results of the clients.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answers: u64,
    pub(crate) events: u64,
    /// Latencies of whole answers or delays of events, in nanoseconds.
    pub(crate) nanos: Vec<u64>,
    pub(crate) faults: Vec<Fault>,
}

impl Load {
    /// Runs `connections` clients for `time`; each sends its next request when it has the answer.
    pub(crate) async fn closed(self: &Rc<Self>, connections: usize, time: Duration) {
        let until = Instant::now() + time;
        self.clients(connections, move |load, _| async move {
            let mut client = Client::connect(&load).await?;
            while Instant::now() < until {
                client.exchange(&load, Instant::now()).await?;
            }
            Ok(())
        })
        .await;
    }

    /// Sends `per_second` requests per second for `time`, from clients that take turns. The latency of a request that
    /// could not be sent on time is measured from its scheduled time.
    pub(crate) async fn open(self: &Rc<Self>, per_second: u32, time: Duration) {
        const CLIENTS: u32 = 32;
        let begin = Tick::now() + Duration::from_millis(20);
        let step = Duration::from_secs(1) / per_second;
        let turns = u32::try_from(time.as_nanos() / (step * CLIENTS).as_nanos()).unwrap();
        self.clients(CLIENTS as usize, move |load, index| async move {
            let mut client = Client::connect(&load).await?;
            let first = begin + step * u32::try_from(index).unwrap();
            let mut free = Tick::now();
            for turn in 0..turns {
                let due = first + step * CLIENTS * turn;
                sleep_until(due).await;
                let from = if free > due { due } else { Tick::now() };
                client.exchange(&load, from.into_std()).await?;
                free = Tick::now();
            }
            Ok(())
        })
        .await;
    }

    /// Runs `connections` clients, each of which reads `streams` streams one after the other. Their starts are spread
    /// over `spread`.
    pub(crate) async fn streams(self: &Rc<Self>, connections: usize, streams: usize, spread: Duration) {
        let begin = Tick::now();
        self.clients(connections, move |load, index| async move {
            let share = u32::try_from(connections).unwrap();
            sleep_until(begin + spread * u32::try_from(index).unwrap() / share).await;
            let mut client = Client::connect(&load).await?;
            for _ in 0..streams {
                client.exchange(&load, Instant::now()).await?;
            }
            Ok(())
        })
        .await;
    }

    /// Sends `requests` requests from `clients` clients, each on a new connection.
    pub(crate) async fn fresh(self: &Rc<Self>, clients: usize, requests: usize) {
        self.clients(clients, move |load, _| async move {
            for _ in 0..requests / clients {
                let mut client = Client::connect(&load).await?;
                client.exchange(&load, Instant::now()).await?;
            }
            Ok(())
        })
        .await;
    }

    async fn clients<F>(self: &Rc<Self>, count: usize, run: impl Fn(Rc<Self>, usize) -> F)
    where
        F: Future<Output = Result<(), Fault>> + 'static,
    {
        let mut clients = JoinSet::new();
        for index in 0..count {
            clients.spawn_local(run(Rc::clone(self), index));
        }
        while let Some(outcome) = clients.join_next().await {
            if let Err(fault) = outcome.unwrap() {
                self.tally.borrow_mut().faults.push(fault);
            }
        }
    }
}

/// One connection.
struct Client {
    stream: Box<dyn Io>,
    reader: Reader,
}

impl Client {
    async fn connect(load: &Load) -> Result<Self, Fault> {
        let stream = TcpStream::connect(load.address).await.map_err(|_| Fault::Broken)?;
        stream.set_nodelay(true).map_err(|_| Fault::Broken)?;
        // A reset leaves no port in TIME_WAIT; otherwise the ports would run out.
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        let stream: Box<dyn Io> = match &load.tls {
            None => Box::new(stream),
            Some(config) => {
                let name = ServerName::try_from("localhost").map_err(|_| Fault::Broken)?;
                let connecting = TlsConnector::from(Arc::clone(config)).connect(name, stream);
                Box::new(connecting.await.map_err(|_| Fault::Broken)?)
            }
        };
        Ok(Self { stream, reader: Reader::new() })
    }

    /// Sends one request, then checks its answer and records it. The latency is measured from `from`.
    async fn exchange(&mut self, load: &Load, from: Instant) -> Result<(), Fault> {
        self.stream.write_all(&load.request).await.map_err(|_| Fault::Broken)?;
        self.stream.flush().await.map_err(|_| Fault::Broken)?;
        match &load.expected {
            Expected::Whole(body) => {
                let mut same = Same::new(body.clone());
                self.reader.answer(&mut *self.stream, |bytes| same.take(bytes)).await?;
                same.finish()?;
                let nanos = u64::try_from(from.elapsed().as_nanos()).unwrap_or(u64::MAX);
                load.tally.borrow_mut().nanos.push(nanos);
            }
            Expected::Flow(stream) => {
                let mut follow = Follow::new(stream, load.epoch);
                self.reader.answer(&mut *self.stream, |bytes| follow.take(bytes)).await?;
                follow.finish()?;
                let mut tally = load.tally.borrow_mut();
                tally.events += follow.events() as u64;
                tally.nanos.append(&mut follow.delays);
            }
        }
        load.tally.borrow_mut().answers += 1;
        Ok(())
    }
}
