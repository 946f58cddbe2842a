//! A collector of telemetry that accepts everything.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

/// Starts a collector on a thread of its own, and returns its port.
pub(crate) fn start() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // The gateway sends one export on each connection, one after the other.
            accept(stream.unwrap()).unwrap_or_else(|error| eprintln!("collector: {error}"));
        }
    });
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
