//! Collectors of telemetry, healthy and not.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// The time that [`Collector::Slow`] takes for an export, half of the default of `OTEL_EXPORTER_OTLP_TIMEOUT`.
const SLOW: Duration = Duration::from_secs(5);

/// How a collector answers an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collector {
    /// It accepts the export at once.
    Accepts,
    /// Its port refuses connections.
    Refuses,
    /// It accepts the export after [`SLOW`].
    Slow,
    /// It accepts the connection, and reads and answers nothing.
    Hangs,
}

impl Collector {
    /// Starts the collector, and returns its port.
    pub(crate) fn start(self) -> u16 {
        match self {
            Self::Accepts => listen(accept),
            Self::Refuses => refusing_port(),
            Self::Slow => listen(|stream| {
                // The export stays in the socket until the collector reads it.
                std::thread::park_timeout(SLOW);
                accept(stream)
            }),
            Self::Hangs => listen(|_stream| {
                loop {
                    std::thread::park();
                }
            }),
        }
    }
}

/// Serves each connection, on which the gateway sends one export, on a thread of its own. Returns the port.
fn listen(serve: fn(TcpStream) -> std::io::Result<()>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            std::thread::spawn(move || {
                serve(stream).unwrap_or_else(|error| eprintln!("collector: {error}"));
            });
        }
    });
    port
}

/// Returns a port on which nothing listens. It stays taken, so that no proxy that starts later receives it.
fn refusing_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    std::mem::forget(socket);
    port
}

/// Reads one export and accepts it.
fn accept(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_ascii().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim_ascii().parse().unwrap();
        }
    }
    std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink())?;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
    reader.get_mut().write_all(head.as_bytes())
}
