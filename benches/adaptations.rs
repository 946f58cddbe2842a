//! Measures the cost of a streamed chunk that is translated into another dialect, compared with one that is relayed
//! unchanged:
//!
//! ```text
//! cargo bench --bench adaptations -- [--rounds N] [--only NAME,..]
//! ```
//!
//! Each row is a stream of 200 pieces of content from a target of one dialect to a client of another. It is measured
//! once with one upstream write per piece, where the kernel's share is largest, and once with 40 pieces per write,
//! where it is smallest. The gateway runs alone on core 0; CPU time is what the kernel accounts to its process. Ratios
//! are relative to the native chat stream of the same round.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench prints, and stops when its rig is broken"
)]

mod dialect;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use dialect::gateway::{Gateway, KEY, pin};
use dialect::payload::{PIECES, Pair, pairs};

/// The number of concurrent streams.
const CLIENTS: usize = 8;
/// The number of consecutive streams per client in one measurement.
const STREAMS: usize = 24;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let rounds = value("--rounds").map_or(5, |rounds| rounds.parse().unwrap());
    let only: Option<Vec<&str>> = value("--only").map(|names| names.split(',').collect());
    let mut pairs = pairs();
    pairs.retain(|pair| pair.name == "chat" || only.as_ref().is_none_or(|only| only.contains(&pair.name)));
    pin(1);
    for per_write in [1, 40] {
        println!("{per_write} to a write");
        compare(&pairs, per_write, rounds);
    }
}

/// Measures all rows in interleaved rounds and prints them.
fn compare(pairs: &[Pair], per_write: usize, rounds: usize) {
    let upstreams: Vec<SocketAddr> = pairs.iter().map(|pair| upstream(pair, per_write)).collect();
    let gateway = Gateway::start(pairs, &upstreams);
    let mut table: Vec<Vec<f64>> = vec![Vec::new(); pairs.len()];
    for round in 0..=rounds {
        for (row, pair) in table.iter_mut().zip(pairs) {
            let micros = measure(&gateway, pair);
            // The first round is a warm-up.
            if round > 0 {
                row.push(micros);
            }
        }
    }
    print(pairs, &table);
    println!("memory after it: {:.1} MiB", gateway.resident_bytes() as f64 / f64::from(1 << 20));
}

/// Returns the gateway's CPU time per piece of content, in microseconds.
fn measure(gateway: &Gateway, pair: &Pair) -> f64 {
    let before = gateway.settled_cpu_time();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(gateway.address, pair));
        }
    });
    let spent = gateway.settled_cpu_time().saturating_sub(before);
    spent.as_secs_f64() * 1e6 / (CLIENTS * STREAMS * PIECES) as f64
}

/// Sends requests on one connection and checks that every answer contains all its content.
fn client(address: SocketAddr, pair: &Pair) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!(
        "POST {} HTTP/1.1\r\nhost: bench.test\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{}",
        pair.path,
        pair.request.len(),
        pair.request
    );
    let mut buffer = vec![0; 64 << 10];
    for _ in 0..STREAMS {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n0\r\n\r\n") {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "{}: {}", pair.name, String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&buffer[..read]);
        }
        let text = String::from_utf8_lossy(&answer);
        let pieces = text.matches(" token").count();
        // A terminal event may repeat the whole text.
        assert!(pieces >= PIECES, "{}: {pieces} pieces in {text}", pair.name);
    }
}

/// Starts a server that answers every request with the stream of `pair`, `per_write` events per write.
fn upstream(pair: &Pair, per_write: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let events: Vec<Vec<u8>> = pair.events.chunks(per_write).map(<[Vec<u8>]>::concat).collect();
    let content_type = pair.content_type;
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, events) = (connection.unwrap(), events.clone());
            std::thread::spawn(move || {
                connection.set_nodelay(true).unwrap();
                while take_request(&mut connection) {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n"
                    );
                    connection.write_all(head.as_bytes()).unwrap();
                    for event in &events {
                        let framed = [format!("{:x}\r\n", event.len()).as_bytes(), event, b"\r\n"].concat();
                        connection.write_all(&framed).unwrap();
                    }
                    connection.write_all(b"0\r\n\r\n").unwrap();
                }
            });
        }
    });
    address
}

/// Reads one request. Returns false if the other side has closed the connection.
fn take_request(connection: &mut TcpStream) -> bool {
    let (mut seen, mut buffer) = (Vec::new(), [0; 8 << 10]);
    loop {
        if let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&seen[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).expect("a length");
            let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
            if seen.len() >= end + 4 + length {
                return true;
            }
        }
        match connection.read(&mut buffer) {
            Ok(read) if read > 0 => seen.extend_from_slice(&buffer[..read]),
            _ => return false,
        }
    }
}

fn print(pairs: &[Pair], table: &[Vec<f64>]) {
    println!("{:<28} {:>12} {:>10}   ratio to native chat, each round", "row", "us a chunk", "ratio");
    for (pair, row) in pairs.iter().zip(table) {
        let ratios: Vec<f64> = row.iter().zip(&table[0]).map(|(own, native)| own / native).collect();
        let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!("{:<28} {:>12.2} {:>10.2}   {}", pair.name, median(row), median(&ratios), shown.join(" "));
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The time after a load in which the gateway must be idle to count as settled.
const SETTLING: Duration = Duration::from_millis(60);
