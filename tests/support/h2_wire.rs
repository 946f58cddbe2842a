//! An HTTP/2 client that writes and reads the frames itself, over TLS or in clear text: for what no library sends.

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

use super::gateway::{ADMIN_KEY, Gateway};
use super::h2_frames::{DATA, END_HEADERS, END_STREAM, HEADERS, frame, settings};
use super::tls::Authority;
use super::wait;

/// A socket with or without TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// A connection to the gateway. It is closed when dropped.
pub(crate) struct H2Wire {
    write: WriteHalf<Box<dyn Socket>>,
    received: mpsc::UnboundedReceiver<Received>,
    reading: tokio::task::JoinHandle<()>,
}

/// A frame of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Received {
    /// True if it is the last frame of its stream.
    pub(crate) fn ends(&self) -> bool {
        matches!(self.kind, DATA | HEADERS) && self.flags & END_STREAM != 0
    }
}

/// Opens a socket to the gateway: with TLS that offers `protocol` if there is an authority.
pub(crate) async fn socket(
    gateway: &Gateway,
    tls: Option<&Authority>,
    protocol: &[u8],
) -> std::io::Result<Box<dyn Socket>> {
    let tcp = TcpStream::connect(gateway.address()).await?;
    over(tcp, tls, protocol).await
}

async fn over(tcp: TcpStream, tls: Option<&Authority>, protocol: &[u8]) -> std::io::Result<Box<dyn Socket>> {
    tcp.set_nodelay(true)?;
    let Some(authority) = tls else { return Ok(Box::new(tcp)) };
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = authority.connector(&[protocol]).connect(name, tcp);
    Ok(Box::new(wait::within(wait::PATIENCE, "the handshake", connecting).await?))
}

impl H2Wire {
    /// Connects and sends the preface with these settings.
    pub(crate) async fn open(gateway: &Gateway, tls: Option<&Authority>, values: &[(u16, u32)]) -> Self {
        Self::on(socket(gateway, tls, b"h2").await.unwrap(), values, true).await
    }

    /// Like [`H2Wire::open`]; reads nothing, and the kernel takes little.
    pub(crate) async fn unread(gateway: &Gateway, tls: Option<&Authority>, values: &[(u16, u32)]) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4 << 10).unwrap();
        let tcp = socket.connect(gateway.address()).await.unwrap();
        Self::on(over(tcp, tls, b"h2").await.unwrap(), values, false).await
    }

    async fn on(socket: Box<dyn Socket>, values: &[(u16, u32)], reads: bool) -> Self {
        let (mut read, write) = tokio::io::split(socket);
        let (frames, received) = mpsc::unbounded_channel();
        let reading = tokio::spawn(async move {
            if !reads {
                std::future::pending::<()>().await;
            }
            while let Ok(frame) = read_frame(&mut read).await {
                if frames.send(frame).is_err() {
                    return;
                }
            }
        });
        let mut wire = Self { write, received, reading };
        wire.send([&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings(values)].concat()).await;
        wire
    }

    /// Writes all of `bytes`; returns false if the gateway has closed the connection.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let written = async {
            self.write.write_all(bytes.as_ref()).await?;
            self.write.flush().await
        };
        wait::within(3 * wait::PATIENCE, "what is sent to be read", written).await.is_ok()
    }

    /// Returns the next frame; `None` once the gateway has closed the connection.
    pub(crate) async fn next(&mut self) -> Option<Received> {
        self.received.recv().await
    }

    /// Returns the next frame that is wanted. `None` once the gateway has closed the connection.
    pub(crate) async fn find(&mut self, what: &str, wanted: impl Fn(&Received) -> bool) -> Option<Received> {
        let finding = async {
            while let Some(frame) = self.next().await {
                if wanted(&frame) {
                    return Some(frame);
                }
            }
            None
        };
        wait::within(2 * wait::PATIENCE, what, finding).await
    }

    /// Reads the body of a stream to its proper end.
    pub(crate) async fn body(&mut self, stream: u32) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let frame =
                self.find("the body", |frame| frame.stream == stream).await.expect("an open connection");
            assert!(matches!(frame.kind, DATA | HEADERS), "{frame:?}");
            if frame.kind == DATA {
                body.extend_from_slice(&frame.payload);
            }
            if frame.ends() {
                return body;
            }
        }
    }

    /// Waits until the gateway has closed the connection.
    pub(crate) async fn closed(&mut self) {
        assert!(self.find("the end of the connection", |_| false).await.is_none());
    }
}

impl Drop for H2Wire {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn read_frame(read: &mut ReadHalf<Box<dyn Socket>>) -> std::io::Result<Received> {
    let mut head = [0; 9];
    read.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
    read.read_exact(&mut payload).await?;
    Ok(Received { kind, flags, stream: u32::from_be_bytes(stream), payload })
}

/// Returns the header block of a chat request with the administrator key. No entry goes into a table.
pub(crate) fn post_block() -> Vec<u8> {
    block_of(ADMIN_KEY)
}

fn block_of(key: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    // The indexed names `:path` and `:authority`, each with a literal value.
    for (name, value) in [(4, "/v1/chat/completions"), (1, "localhost")] {
        block.extend([name, u8::try_from(value.len()).unwrap()]);
        block.extend_from_slice(value.as_bytes());
    }
    for (name, value) in
        [("authorization", format!("Bearer {key}")), ("content-type", "application/json".into())]
    {
        block.extend(literal(name, &value));
    }
    block
}

/// Encodes a header field without an index.
pub(crate) fn literal(name: &str, value: &str) -> Vec<u8> {
    let string = |text: &str| {
        let length = text.len();
        // A length of 7 bits, with a continuation of 7 bits each (RFC 7541 section 5.1).
        let mut bytes = Vec::new();
        match length {
            0..127 => bytes.push(u8::try_from(length).unwrap()),
            _ => {
                bytes.push(127);
                let mut rest = length - 127;
                while rest >= 128 {
                    bytes.push(u8::try_from(rest % 128).unwrap() | 128);
                    rest /= 128;
                }
                bytes.push(u8::try_from(rest).unwrap());
            }
        }
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    [vec![0], string(name), string(value)].concat()
}

/// Returns the frames of a chat request.
pub(crate) fn post(stream: u32, body: &str) -> Vec<u8> {
    post_as(ADMIN_KEY, stream, body)
}

/// Returns the frames of a chat request with this key.
pub(crate) fn post_as(key: &str, stream: u32, body: &str) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &block_of(key));
    [head, frame(DATA, END_STREAM, stream, body.as_bytes())].concat()
}
