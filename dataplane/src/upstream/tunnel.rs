//! Connections through HTTP proxies: the CONNECT request that opens a tunnel (RFC 9110 section 9.3.6), and the faults of
//! proxies.
//!
//! Of the answer of a proxy no byte beyond its head is read: what follows belongs to the upstream.

use std::fmt;
use std::io;

use http::HeaderValue;
use shared::proxy::{Proxy, authority};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::dial::DialError;

/// Reason why a proxy made no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyFault {
    /// The address of the proxy is forbidden.
    Forbidden,
    /// The name of the upstream is forbidden, and the proxy would resolve it.
    ForbiddenName,
    /// The host name of the proxy has no address.
    Unresolved,
    /// The proxy cannot be reached.
    Unreachable(io::ErrorKind),
    /// There was no connection by the proxy in time.
    TimedOut,
    /// The proxy closed the connection without an answer.
    Closed,
    /// The answer of the proxy is not one of HTTP.
    Invalid,
    /// The proxy answered with this status.
    Status(u16),
}

impl ProxyFault {
    /// Returns the fault for a proxy that cannot be reached; a lack of resources is not the proxy's.
    pub(super) fn unreached(error: DialError) -> DialError {
        DialError::Proxy(match error {
            DialError::Refused(_) => Self::Forbidden,
            DialError::Unresolved(_) => Self::Unresolved,
            DialError::Io(error) => Self::Unreachable(error.kind()),
            DialError::TimedOut => Self::TimedOut,
            DialError::Proxy(fault) => fault,
            DialError::Local(_) => return error,
        })
    }

    /// True if another attempt by the same way fails too.
    pub(crate) fn is_lasting(self) -> bool {
        matches!(self, Self::Forbidden | Self::ForbiddenName | Self::Status(400..500))
    }

    /// Returns the cause in words that contain no address: clients may read them.
    pub(crate) fn cause(self) -> &'static str {
        match self {
            Self::Forbidden => "the address of its proxy is a link-local or metadata address",
            Self::ForbiddenName => "its host name is that of a metadata service or a disguised address",
            Self::Unresolved => "the host name of its proxy was not found",
            Self::Unreachable(io::ErrorKind::ConnectionRefused) => "the connection to its proxy was refused",
            Self::Unreachable(_) => "its proxy cannot be reached",
            Self::TimedOut => "there was no connection by its proxy within 10 s",
            Self::Closed => "its proxy closed the connection",
            Self::Invalid => "its proxy did not answer with HTTP",
            Self::Status(407) => "its proxy rejected the credentials or requires some (407)",
            Self::Status(401) => "its proxy rejected the credentials (401)",
            Self::Status(403) => "its proxy does not permit the connection (403)",
            Self::Status(502..=504) => "its proxy cannot reach it",
            Self::Status(_) => "its proxy refused the connection",
        }
    }
}

impl fmt::Display for ProxyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cause())?;
        match self {
            Self::Status(status) if ![401, 403, 407].contains(status) => write!(f, " (status {status})"),
            Self::Unreachable(kind) => write!(f, " ({kind})"),
            _ => Ok(()),
        }
    }
}

/// Asks the proxy at the other end of `tcp` for a tunnel to `host`.
pub(super) async fn open_tunnel(
    tcp: &mut TcpStream,
    proxy: &Proxy,
    (host, port): (&str, u16),
) -> Result<(), ProxyFault> {
    let broken = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            ProxyFault::Unreachable(error.kind())
        }
        _ => ProxyFault::Closed,
    };
    tcp.write_all(&connect_request(proxy, &authority(host, port))).await.map_err(broken)?;
    let mut head = Vec::new();
    let mut piece = [0; 1_024];
    loop {
        let peeked = tcp.peek(&mut piece).await.map_err(broken)?;
        let before = head.len();
        let Some(new) = piece.get(..peeked).filter(|new| !new.is_empty()) else {
            return Err(ProxyFault::Closed);
        };
        head.extend_from_slice(new);
        let end = end_of(&head);
        if let Some(end) = end {
            head.truncate(end);
        }
        let taken = head.len() - before;
        tcp.read_exact(piece.get_mut(..taken).unwrap_or_default()).await.map_err(broken)?;
        if end.is_some() {
            return match status_of(&head).ok_or(ProxyFault::Invalid)? {
                200..300 => Ok(()),
                status => Err(ProxyFault::Status(status)),
            };
        }
        if head.len() > HEAD_BYTES_MAX || !may_be_answer(&head) {
            return Err(ProxyFault::Invalid);
        }
    }
}

fn connect_request(proxy: &Proxy, authority: &str) -> Vec<u8> {
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    if let Some(value) = proxy.authorization.as_ref().map(HeaderValue::as_bytes) {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

/// Returns the length of the head, if `bytes` contain its end.
fn end_of(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// True if `bytes` are the beginning of an answer.
fn may_be_answer(bytes: &[u8]) -> bool {
    bytes.iter().zip(VERSION).all(|(byte, want)| byte == want)
}

fn status_of(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(VERSION)?;
    let rest = rest.strip_prefix(b"0 ").or_else(|| rest.strip_prefix(b"1 "))?;
    let (status, rest) = rest.split_first_chunk::<3>()?;
    let status =
        std::str::from_utf8(status).ok()?.parse().ok().filter(|status| (200..600).contains(status))?;
    rest.first().is_some_and(|byte| matches!(byte, b' ' | b'\r')).then_some(status)
}

const VERSION: &[u8] = b"HTTP/1.";
/// Maximum bytes of the head of a proxy's answer.
const HEAD_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Asks a proxy that answers with `pieces`, then with bytes of the upstream. Returns the result, and what was sent.
    async fn ask(proxy: &str, pieces: &[&[u8]]) -> (Result<(), ProxyFault>, String, Vec<u8>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let answering = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let mut request = Vec::new();
            while end_of(&request).is_none() {
                socket.read_buf(&mut request).await.unwrap();
            }
            for piece in pieces {
                // The other side may have seen enough.
                socket.write_all(&piece).await.ok();
                tokio::task::yield_now().await;
            }
            String::from_utf8(request).unwrap()
        });
        let mut tcp = TcpStream::connect(address).await.unwrap();
        let result = open_tunnel(&mut tcp, &Proxy::parse(proxy).unwrap(), ("2001:db8::1", 443)).await;
        let request = answering.await.unwrap();
        let mut rest = Vec::new();
        tcp.read_to_end(&mut rest).await.ok();
        (result, request, rest)
    }

    #[tokio::test]
    async fn a_tunnel_begins_right_after_the_head() {
        let want = "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n";
        let (result, request, rest) = ask("h:1", &[b"HTTP/1.1 200 OK\r\nVia: x\r\n\r", b"\nupstream"]).await;
        assert_eq!((result, request, rest), (Ok(()), format!("{want}\r\n"), b"upstream".to_vec()));
        let (result, request, rest) = ask("http://u:p@h:1", &[b"HTTP/1.0 200 \r\n\r\nmore"]).await;
        let credentials = "Proxy-Authorization: Basic dTpw\r\n\r\n";
        assert_eq!((result, request, rest), (Ok(()), format!("{want}{credentials}"), b"more".to_vec()));
        let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(HEAD_BYTES_MAX / 2));
        assert_eq!(ask("h:1", &[long.as_bytes()]).await.0, Ok(()));
    }

    #[tokio::test]
    async fn an_answer_of_another_kind_is_a_fault() {
        let endless = vec![b'x'; 4 * HEAD_BYTES_MAX];
        let endless = [b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &endless].concat();
        for (pieces, want) in [
            (
                &[b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n".as_slice()][..],
                ProxyFault::Status(407),
            ),
            (&[b"HTTP/1.1 503\r\n\r\n"], ProxyFault::Status(503)),
            (&[b"SSH-2.0-OpenSSH_9.2\r\n"], ProxyFault::Invalid),
            (&[b"HTTP/1.1 2000 OK\r\n\r\n"], ProxyFault::Invalid),
            (&[b"HTTP/1.1 100 Continue\r\n\r\n"], ProxyFault::Invalid),
            (&[b"HTTP/2 200 OK\r\n\r\n"], ProxyFault::Invalid),
            (&[&endless], ProxyFault::Invalid),
            (&[b"HTTP/1.1 200 OK\r\n"], ProxyFault::Closed),
            (&[], ProxyFault::Closed),
        ] {
            assert_eq!(ask("h:1", pieces).await.0, Err(want), "{want:?}");
        }
    }
}
