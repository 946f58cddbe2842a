//! Resolves names to addresses. The system's resolver blocks until the name server answers, and cannot be cancelled.
//! Each lookup therefore runs on its own thread, at most one per host at a time, and requests wait with a timeout. A
//! hanging name server delays only its own names.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use crate::bounds::{LOOK_UP_MESSAGES, LOOK_UPS};
use shared::alarm::Alarm;
use tokio::sync::{mpsc, oneshot};

/// Handle to the thread that manages the lookups; the thread ends when the last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Resolver(mpsc::Sender<ResolverMessage>);

/// The addresses of a host; their ports are meaningless.
type FoundAddresses = Result<Arc<[SocketAddr]>, Arc<io::Error>>;
/// Looks up a host; blocks.
type LookUp = fn(&str) -> io::Result<Arc<[SocketAddr]>>;

enum ResolverMessage {
    /// A request needs the addresses of a host.
    LookUp(Box<str>, oneshot::Sender<FoundAddresses>),
    /// A lookup has ended.
    Found(Box<str>, FoundAddresses),
}

impl fmt::Debug for ResolverMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::LookUp(host, _) | Self::Found(host, _)) = self;
        f.debug_tuple("ResolverMessage").field(host).finish()
    }
}

/// Maximum time that a request waits for a lookup.
const LOOK_UP_TIMEOUT: Duration = Duration::from_secs(5);

impl Resolver {
    /// Starts the thread.
    pub(crate) fn start(alarm: &Alarm) -> io::Result<Self> {
        Self::over(|host| Ok((host, 0).to_socket_addrs()?.collect()), alarm)
    }

    /// Starts the thread over another resolver than the system's.
    pub(super) fn over(look_up: LookUp, alarm: &Alarm) -> io::Result<Self> {
        let (sender, inbox) = mpsc::channel(LOOK_UP_MESSAGES.max());
        let desk = Lookups { running: HashMap::new(), results: sender.downgrade(), look_up };
        alarm.spawn("names", move || {
            desk.run(inbox);
            Ok(())
        })?;
        Ok(Self(sender))
    }

    /// Returns the addresses of `host`, in the system's order.
    pub(crate) async fn resolve(&self, host: &str) -> io::Result<Arc<[SocketAddr]>> {
        let (sender, found) = oneshot::channel();
        self.0.try_send(ResolverMessage::LookUp(host.into(), sender)).map_err(|_| {
            LOOK_UP_MESSAGES.reach();
            too_many()
        })?;
        match tokio::time::timeout(LOOK_UP_TIMEOUT, found).await {
            Ok(Ok(Ok(addresses))) => Ok(addresses),
            Ok(Ok(Err(error))) => Err(io::Error::new(error.kind(), error.to_string())),
            Ok(Err(_)) => Err(too_many()),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the look-up of the name had no answer within {} s", LOOK_UP_TIMEOUT.as_secs()),
            )),
        }
    }
}

fn too_many() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "too many names are being looked up")
}

/// The lookups in progress.
struct Lookups {
    /// The waiting requests by host.
    running: HashMap<Box<str>, Vec<oneshot::Sender<FoundAddresses>>>,
    /// Channel for the results of lookups. It does not keep the thread alive.
    results: mpsc::WeakSender<ResolverMessage>,
    look_up: LookUp,
}

impl Lookups {
    fn run(mut self, mut inbox: mpsc::Receiver<ResolverMessage>) {
        while let Some(message) = inbox.blocking_recv() {
            match message {
                ResolverMessage::LookUp(host, asker) => self.ask(host, asker),
                ResolverMessage::Found(host, found) => self.answer(&host, &found),
            }
        }
    }

    fn ask(&mut self, host: Box<str>, asker: oneshot::Sender<FoundAddresses>) {
        if let Some(askers) = self.running.get_mut(&host) {
            if askers.len() == askers.capacity() {
                askers.retain(|asker| !asker.is_closed());
            }
            return askers.push(asker);
        }
        if LOOK_UPS.is_full(self.running.len()) {
            // Dropping the sender fails the request.
            return;
        }
        let (look_up, results, name) = (self.look_up, self.results.clone(), host.clone());
        #[expect(clippy::disallowed_methods, reason = "the thread ends with its look-up")]
        let thread = std::thread::Builder::new().name("name".into()).spawn(move || {
            let found = look_up(&name).map_err(Arc::new);
            if let Some(results) = results.upgrade() {
                results.blocking_send(ResolverMessage::Found(name, found)).ok();
            }
        });
        match thread {
            Ok(_) => drop(self.running.insert(host, vec![asker])),
            // Without a new thread, the lookup blocks the others, which is better than failing.
            Err(_) => drop(asker.send((self.look_up)(&host).map_err(Arc::new))),
        }
    }

    fn answer(&mut self, host: &str, found: &FoundAddresses) {
        for asker in self.running.remove(host).unwrap_or_default() {
            asker.send(found.clone()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::JoinSet;

    use super::*;

    static LOOK_UPS_OF_ONE: AtomicUsize = AtomicUsize::new(0);

    /// Never returns for names that begin with `hangs`.
    fn scripted(host: &str) -> io::Result<Arc<[SocketAddr]>> {
        if host == "hangs-for-many" {
            LOOK_UPS_OF_ONE.fetch_add(1, Ordering::Relaxed);
        }
        while host.starts_with("hangs") {
            std::thread::park();
        }
        match host {
            "unknown" => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
            _ => Ok([([127, 0, 0, 1], 0).into()].into()),
        }
    }

    #[tokio::test]
    async fn a_hung_name_lookup_delays_no_other_name() {
        let resolver = Resolver::over(scripted, &Alarm::default()).unwrap();
        let mut hanging = JoinSet::new();
        for _ in 0..1_000 {
            let resolver = resolver.clone();
            hanging.spawn(async move { resolver.resolve("hangs-for-many").await });
        }
        tokio::task::yield_now().await;
        assert_eq!(resolver.resolve("known").await.unwrap().len(), 1);
        assert!(LOOK_UPS_OF_ONE.load(Ordering::Relaxed) <= 1, "all of them wait for one look-up");
        drop(hanging);
    }

    #[tokio::test]
    async fn name_lookups_are_bounded() {
        let resolver = Resolver::over(scripted, &Alarm::default()).unwrap();
        let mut hanging = JoinSet::new();
        let mut hang = |index: usize| {
            let (resolver, host) = (resolver.clone(), format!("hangs-{index}"));
            hanging.spawn(async move { resolver.resolve(&host).await });
        };
        (1..LOOK_UPS.max()).for_each(&mut hang);
        tokio::task::yield_now().await;
        assert_eq!(resolver.resolve("known").await.unwrap().len(), 1, "there is room for one more");
        assert_eq!(resolver.resolve("unknown").await.unwrap_err().to_string(), "no such name");
        hang(0);
        tokio::task::yield_now().await;
        let before = LOOK_UPS.count();
        assert_eq!(resolver.resolve("known").await.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert!(LOOK_UPS.count() > before);
        drop(hanging);
    }
}
