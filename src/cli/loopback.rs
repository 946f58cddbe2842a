//! A minimal HTTP client for requests to this machine before a gateway runs: one GET, no TLS, one deadline for the
//! whole exchange, and a limit on the size of the answer.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::port::{BoxError, BoxFuture, HttpClient, HttpLimits};

/// Requests `path` and returns all bytes up to the end of the connection. It uses HTTP/1.0, so that the server closes
/// and sends no chunks.
pub(super) fn ask(address: SocketAddr, path: &str, limits: HttpLimits) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + limits.timeout;
    let left = || match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(left),
    };
    let mut stream = TcpStream::connect_timeout(&address, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    let question = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    let mut piece = [0; 8_192];
    loop {
        stream.set_read_timeout(Some(left()?))?;
        let read = match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !answer.is_empty() => 0,
            other => other?,
        };
        answer.extend_from_slice(piece.split_at(read).0);
        if read == 0 {
            return Ok(answer);
        }
        if answer.len() > limits.body_bytes_max {
            return Err(io::Error::other("the answer is too large"));
        }
    }
}

/// Splits an answer into its status and body.
pub(super) fn take_apart(answer: &[u8]) -> Option<(u16, &[u8])> {
    let head_end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, rest) = answer.split_at_checked(head_end)?;
    let line = head.strip_prefix(b"HTTP/1.")?;
    let status = std::str::from_utf8(line.get(2..5)?).ok()?.parse().ok()?;
    Some((status, rest.get(4..)?))
}

/// Client that connects only to loopback addresses.
#[derive(Debug)]
pub(super) struct Loopback;

impl HttpClient for Loopback {
    fn send(
        &self,
        request: http::Request<Bytes>,
        limits: HttpLimits,
    ) -> BoxFuture<Result<http::Response<Bytes>, BoxError>> {
        Box::pin(async move {
            let authority = request.uri().authority().ok_or("no address")?;
            let address: SocketAddr = authority.as_str().parse()?;
            if !address.ip().is_loopback() {
                return Err("not an address of this machine".into());
            }
            let path = request.uri().path().to_owned();
            let answer = tokio::task::spawn_blocking(move || ask(address, &path, limits)).await??;
            let (status, body) = take_apart(&answer).ok_or("not HTTP")?;
            Ok(http::Response::builder().status(status).body(Bytes::copy_from_slice(body))?)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_millis(300), body_bytes_max: 10_000 };

    /// Starts a server that answers one connection with `answer` and then closes or waits.
    fn server(answer: Vec<u8>, closes: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 1_024];
            let read = stream.read(&mut question).unwrap();
            assert!(question[..read].starts_with(b"GET /v1/models HTTP/1.0\r\n"));
            let _ = stream.write_all(&answer);
            if !closes {
                // Kept open until the client has timed out and closed.
                let _ = stream.read(&mut question);
            }
        });
        address
    }

    #[test]
    fn a_loopback_response_is_parsed_within_time_and_size_limits() {
        let good = server(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_vec(), true);
        let answer = ask(good, "/v1/models", LIMITS).unwrap();
        assert_eq!(take_apart(&answer), Some((200, &b"{}"[..])));

        let begin = Instant::now();
        let silent = ask(server(Vec::new(), false), "/v1/models", LIMITS);
        assert!(matches!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock));
        assert!(begin.elapsed() < Duration::from_secs(5));

        let huge = ask(server(vec![b'x'; 20_000], true), "/v1/models", LIMITS);
        assert!(huge.unwrap_err().to_string().contains("too large"));
    }

    #[test]
    fn a_loopback_response_that_is_not_http_is_ignored() {
        for answer in
            [&b""[..], b"HTTP/1.1 200", b"SSH-2.0\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.\r\n\r\n"]
        {
            assert_eq!(take_apart(answer), None);
        }
    }
}
