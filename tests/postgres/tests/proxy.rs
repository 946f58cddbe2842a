//! Each mode of the proxy as a plain TCP client and an echoing server see it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use postgres_server::{PostgresProxy, ProxyMode};

/// How long a client waits for bytes that must not come, and for those that must.
const SILENCE: Duration = Duration::from_millis(150);
const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_delay_lengthens_each_way_and_not_the_transfer() {
    let proxy = PostgresProxy::start(echo());
    let mut client = connect(&proxy);
    assert_eq!(exchange(&mut client, b"ab").unwrap(), b"ab");
    let way = Duration::from_millis(60);
    proxy.set(ProxyMode::Delay(way));
    let began = Instant::now();
    exchange(&mut client, b"ab").unwrap();
    assert!(began.elapsed() >= 2 * way);
    // A hundred pieces of the proxy: one after the other they take 6 s.
    let sent = vec![7; 1_600_000];
    let began = Instant::now();
    let mut sender = client.try_clone().unwrap();
    let sending = thread::spawn(move || sender.write_all(&sent));
    client.read_exact(&mut vec![0; 1_600_000]).unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    sending.join().unwrap().unwrap();
    assert_eq!(proxy.forwarded_bytes(), (1_600_004, 1_600_004));
}

#[test]
fn a_cut_resets_connections_and_refuses_new_ones_until_it_ends() {
    let proxy = PostgresProxy::start(echo());
    let mut client = connect(&proxy);
    exchange(&mut client, b"a").unwrap();
    assert_eq!(proxy.connections(), 1);
    proxy.set(ProxyMode::Cut);
    assert_eq!(read(&mut client).unwrap_err(), ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(proxy.address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    proxy.set(ProxyMode::Pass);
    assert_eq!(exchange(&mut connect(&proxy), b"b").unwrap(), b"b");
}

#[test]
fn half_open_connections_are_silent_and_continue_later() {
    let proxy = PostgresProxy::start(echo());
    let mut old = connect(&proxy);
    exchange(&mut old, b"a").unwrap();
    proxy.set(ProxyMode::HalfOpen);
    let mut new = connect(&proxy);
    for client in [&mut old, &mut new] {
        client.write_all(b"held").unwrap();
        assert_eq!(read_within(SILENCE, client).unwrap_err(), ErrorKind::WouldBlock);
    }
    assert_eq!(proxy.forwarded_bytes(), (1, 1));
    proxy.set(ProxyMode::Pass);
    for client in [&mut old, &mut new] {
        assert_eq!(read(client).unwrap(), b"held");
    }
}

#[test]
fn dropped_answers_were_executed_and_their_connections_are_reset_afterwards() {
    let proxy = PostgresProxy::start(echo());
    let (mut asked, mut idle) = (connect(&proxy), connect(&proxy));
    exchange(&mut asked, b"a").unwrap();
    exchange(&mut idle, b"a").unwrap();
    proxy.set(ProxyMode::DropAnswers);
    asked.write_all(b"lost").unwrap();
    assert_eq!(read_within(SILENCE, &mut asked).unwrap_err(), ErrorKind::WouldBlock);
    assert_eq!(proxy.forwarded_bytes(), (6, 2));
    proxy.set(ProxyMode::Pass);
    assert_eq!(read(&mut asked).unwrap_err(), ErrorKind::ConnectionReset);
    assert_eq!(exchange(&mut idle, b"b").unwrap(), b"b");
}

#[test]
fn a_trickle_forwards_some_bytes_an_interval() {
    let proxy = PostgresProxy::start(echo());
    let mut client = connect(&proxy);
    let every = Duration::from_millis(30);
    proxy.set(ProxyMode::Trickle { bytes: 2, every });
    let began = Instant::now();
    client.write_all(b"12345678").unwrap();
    let mut answer = [0; 8];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"12345678");
    assert!(began.elapsed() >= 3 * every, "{:?}", began.elapsed());
}

#[test]
fn a_server_that_is_gone_resets_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = PostgresProxy::start(listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(read(&mut connect(&proxy)).unwrap_err(), ErrorKind::ConnectionReset);
    proxy.lead_to(echo());
    assert_eq!(exchange(&mut connect(&proxy), b"a").unwrap(), b"a");
}

/// Starts a server that sends back what it receives.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || std::io::copy(&mut &client, &mut &client));
        }
    });
    address
}

fn connect(proxy: &PostgresProxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

fn exchange(client: &mut TcpStream, bytes: &[u8]) -> Result<Vec<u8>, ErrorKind> {
    client.write_all(bytes).unwrap();
    read(client)
}

fn read(client: &mut TcpStream) -> Result<Vec<u8>, ErrorKind> {
    read_within(LIMIT, client)
}

/// Returns what arrives, or `WouldBlock` after the time.
fn read_within(time: Duration, client: &mut TcpStream) -> Result<Vec<u8>, ErrorKind> {
    client.set_read_timeout(Some(time)).unwrap();
    let mut bytes = vec![0; 64];
    let read = client.read(&mut bytes).map_err(|error| error.kind())?;
    bytes.truncate(read);
    Ok(bytes)
}
