//! Connects to a name or an address: to the first of a name's addresses that answers (RFC 8305, "happy eyeballs").
//!
//! Each address is checked right before the connect, after the resolution (LIM-5): the address that a name had when it was
//! configured may have changed since.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use shared::address::is_refused;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep};

use super::dial::{DialError, is_local};
use super::resolve::Resolver;
use crate::bounds::ADDRESSES;

/// Head start of an address before the next one is tried besides (RFC 8305 section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Connects to `host`.
pub(super) async fn connect_tcp(resolver: &Resolver, host: &str, port: u16) -> Result<TcpStream, DialError> {
    let addresses = addresses(resolver, host, port).await.map_err(of_lookup)?;
    let mut race = Race::new(alternating(&addresses));
    let mut timer = pin!(tokio::time::sleep(HEAD_START));
    std::future::poll_fn(|cx| race.poll(cx, timer.as_mut())).await
}

/// Connects to one address, whatever it is.
async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_nodelay(true)?;
    // While an upstream thinks, or a connection waits in the pool, a firewall on the way must not forget the connection,
    // and one that it has forgotten must be detected.
    SockRef::from(&socket).set_tcp_keepalive(&KEEPALIVE)?;
    socket.connect(address).await
}

/// The first probe of a silent connection after 30 s, then one every 10 s; the third without an answer ends it.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

/// The attempts to connect to the addresses of one name.
struct Race {
    /// The addresses that have not been tried, the next one last.
    left: Vec<SocketAddr>,
    running: Vec<Attempt>,
    last: DialError,
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

impl Race {
    fn new(mut addresses: Vec<SocketAddr>) -> Self {
        ADDRESSES.cut(&mut addresses);
        addresses.reverse();
        let last = DialError::Unresolved(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        Self { left: addresses, running: Vec::new(), last }
    }

    /// Polls the attempts, and starts the next one when its predecessor has failed or had its head start. `timer` runs from
    /// the start of the last one.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut timer: Pin<&mut Sleep>,
    ) -> Poll<Result<TcpStream, DialError>> {
        loop {
            let running = self.running.len();
            if let Some(tcp) = self.poll_running(cx) {
                return Poll::Ready(Ok(tcp));
            }
            let has_failed = self.running.len() < running || running == 0;
            if !has_failed && (self.left.is_empty() || timer.as_mut().poll(cx).is_pending()) {
                return Poll::Pending;
            }
            timer.as_mut().reset(Instant::now() + HEAD_START);
            if !self.start_next() && self.running.is_empty() {
                let none = DialError::Io(io::ErrorKind::NotConnected.into());
                return Poll::Ready(Err(std::mem::replace(&mut self.last, none)));
            }
        }
    }

    /// Polls all attempts and drops those that have failed; returns the first connection.
    fn poll_running(&mut self, cx: &mut Context<'_>) -> Option<TcpStream> {
        let Self { running, last, .. } = self;
        let mut connected = None;
        running.retain_mut(|attempt| match attempt.as_mut().poll(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(tcp)) => {
                connected = Some(tcp);
                false
            }
            // Other addresses would fail as well, except possibly those of the other address family.
            Poll::Ready(Err(error)) if is_local(&error) => {
                *last = DialError::Local(error);
                false
            }
            Poll::Ready(Err(error)) => {
                *last = DialError::Io(error);
                false
            }
        });
        connected
    }

    /// Starts the attempt at the next address that is not forbidden; returns false if there is none.
    fn start_next(&mut self) -> bool {
        while let Some(address) = self.left.pop() {
            if !is_refused(address.ip()) {
                self.running.push(Box::pin(connect_to(address)));
                return true;
            }
            self.last = DialError::Refused(address.ip());
        }
        false
    }
}

/// Returns `addresses` with the families in turn, beginning with that of the first (RFC 8305 section 4): a family without a
/// route delays the other by one address only.
fn alternating(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let begins_with_v4 = addresses.first().is_some_and(SocketAddr::is_ipv4);
    let (mut first, mut second) = (
        addresses.iter().filter(|address| address.is_ipv4() == begins_with_v4),
        addresses.iter().filter(|address| address.is_ipv4() != begins_with_v4),
    );
    let pairs = std::iter::from_fn(|| {
        let pair = [first.next(), second.next()];
        pair.iter().any(Option::is_some).then_some(pair)
    });
    pairs.flatten().flatten().copied().collect()
}

async fn addresses(resolver: &Resolver, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    // A literal address needs no resolver, and so no other thread.
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let mut found = resolver.resolve(host).await?.to_vec();
    found.iter_mut().for_each(|address| address.set_port(port));
    Ok(found)
}

/// Converts a lookup error. A resolver without descriptors reports an unresolvable name, so a socket is opened to
/// check.
fn of_lookup(error: io::Error) -> DialError {
    match TcpSocket::new_v4() {
        Err(lack) if is_local(&lack) => DialError::Local(lack),
        _ => DialError::Unresolved(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shared::alarm::Alarm;
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;

    use super::*;

    /// The addresses of the names of the tests: `2` and `1` stand for 127.0.0.2 and 127.0.0.1, `m` for a metadata service.
    fn scripted(host: &str) -> io::Result<Arc<[SocketAddr]>> {
        let address = |letter: char| match letter {
            'm' => ([169, 254, 169, 254], 0).into(),
            last => ([127, 0, 0, u8::try_from(last.to_digit(10).unwrap()).unwrap()], 0).into(),
        };
        Ok(host.split('.').next().unwrap_or_default().chars().map(address).collect())
    }

    async fn connect(host: &str, port: u16) -> Result<IpAddr, DialError> {
        let resolver = Resolver::over(scripted, &Alarm::default()).unwrap();
        let connecting = connect_tcp(&resolver, host, port);
        let connected = tokio::time::timeout(Duration::from_secs(20), connecting).await;
        connected.expect("an address answers").map(|tcp| tcp.peer_addr().unwrap().ip())
    }

    /// A listener whose queue is full: the kernel drops the packets of further connections.
    fn black_hole(address: [u8; 4], port: u16) -> Vec<Socket> {
        let address = SocketAddr::from((address, port)).into();
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&address).unwrap();
        listener.listen(0).unwrap();
        let mut sockets = vec![listener];
        for _ in 0..4 {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            client.connect(&address).ok();
            sockets.push(client);
        }
        sockets
    }

    #[tokio::test]
    async fn a_black_holed_address_does_not_hide_the_next() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = good.local_addr().unwrap().port();
        let _hole = black_hole([127, 0, 0, 2], port);
        assert_eq!(connect("21.test", port).await.unwrap(), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(connect("222221.test", port).await.unwrap(), IpAddr::from([127, 0, 0, 1]));
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = good.local_addr().unwrap().port();
        assert_eq!(connect("21.test", port).await.unwrap(), IpAddr::from([127, 0, 0, 1]));
        let error = connect("22.test", port).await.unwrap_err();
        assert!(matches!(&error, DialError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused));
    }

    #[tokio::test]
    async fn a_forbidden_address_is_never_tried() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = good.local_addr().unwrap().port();
        assert_eq!(connect("m1.test", port).await.unwrap(), IpAddr::from([127, 0, 0, 1]));
        for host in ["m.test", "2m.test", "169.254.169.254"] {
            assert!(matches!(connect(host, port).await, Err(DialError::Refused(_))), "{host}");
        }
    }

    #[tokio::test]
    async fn the_number_of_addresses_that_are_tried_is_bounded() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = good.local_addr().unwrap().port();
        let behind = |refusing: usize| format!("{}1.test", "2".repeat(refusing));
        assert!(connect(&behind(ADDRESSES.max() - 1), port).await.is_ok());
        let before = ADDRESSES.count();
        assert!(connect(&behind(ADDRESSES.max()), port).await.is_err());
        assert!(ADDRESSES.count() > before);
    }

    #[test]
    fn address_families_take_turns() {
        for (given, want) in [
            ("[::1]:1 [::2]:1 [::3]:1 1.1.1.1:1", "[::1]:1 1.1.1.1:1 [::2]:1 [::3]:1"),
            ("1.1.1.1:1 1.1.1.2:1 [::1]:1 [::2]:1", "1.1.1.1:1 [::1]:1 1.1.1.2:1 [::2]:1"),
            ("1.1.1.1:1", "1.1.1.1:1"),
            ("", ""),
        ] {
            let parse =
                |text: &str| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>();
            assert_eq!(alternating(&parse(given)), parse(want), "{given}");
        }
    }

    #[tokio::test]
    async fn small_pieces_are_sent_at_once_and_silence_is_probed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect_to(listener.local_addr().unwrap()).await.unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(SockRef::from(&stream).keepalive().unwrap());
    }
}
