//! Raw sockets to the gateway, for requests that no library would send and for clients that disconnect.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wait;

/// A raw socket to the gateway.
pub(crate) struct Raw(TcpStream);

/// The bytes received on a raw socket.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) text: String,
    /// True if the gateway closed the connection.
    pub(crate) closed: bool,
}

impl Reply {
    /// Returns the number of answers in the bytes.
    pub(crate) fn answers(&self) -> usize {
        self.text.matches("HTTP/1.1 ").count()
    }
}

impl Raw {
    /// Connects.
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Writes all of `bytes`. Ignores errors: if the gateway has already closed the connection, the reply shows it.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref()).await;
    }

    /// Reads until the gateway closes the connection, for at most `limit`.
    pub(crate) async fn reply_within(&mut self, limit: Duration) -> Reply {
        let mut bytes = Vec::new();
        let closed = tokio::time::timeout(limit, self.0.read_to_end(&mut bytes)).await.is_ok();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or_default();
        Reply { status, text, closed }
    }

    /// Reads until the gateway closes the connection.
    pub(crate) async fn reply(&mut self) -> Reply {
        self.reply_within(wait::PATIENCE).await
    }

    /// Reads until `mark` has arrived, and returns all bytes so far.
    pub(crate) async fn read_until(&mut self, mark: &str) -> String {
        wait::within(wait::PATIENCE, mark, async {
            let mut bytes = Vec::new();
            while !String::from_utf8_lossy(&bytes).contains(mark) {
                let mut piece = [0; 4096];
                let length = self.0.read(&mut piece).await.unwrap();
                assert_ne!(length, 0, "closed before {mark:?}: {}", String::from_utf8_lossy(&bytes));
                bytes.extend_from_slice(&piece[..length]);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
        .await
    }

    /// Closes the connection with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.0).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Returns a chat request as a well-behaved client would write it, with the lines in `head` added.
pub(crate) fn post(key: &str, head: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n{head}\r\n{body}"
    )
}
