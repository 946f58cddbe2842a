//! Measures the cost of a streamed chunk that is translated into another dialect, compared with one that is relayed
//! unchanged:
//!
//! ```text
//! cargo bench --bench adaptations -- [--rounds N] [--only NAME,..]
//! ```
//!
//! Each row is a stream of 200 pieces of content from a target of one dialect to a client of the same or of another one. It is
//! measured once with one upstream write per piece, where the kernel's share is largest, and once with 40 pieces per write,
//! where it is smallest. The gateway runs alone on core 0; CPU time is what the kernel accounts to its process. Beside it
//! stands the floor, a bare hyper pass-through of the same bytes. Ratios are computed within a round: to the floor, to the
//! native stream of the same client, and to the native chat stream.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench prints, and stops when its rig is broken"
)]

mod dialect;
#[path = "support/floor.rs"]
mod floor;
#[path = "support/wire.rs"]
#[allow(dead_code, reason = "the floor of this bench is reached in clear text")]
mod wire;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use dialect::gateway::{Floor, Gateway, KEY, pin, settled_cpu_time};
use dialect::payload::{PIECES, Pair, pairs};

/// The number of concurrent streams.
const CLIENTS: usize = 8;
/// The number of consecutive streams per client in one measurement.
const STREAMS: usize = 24;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, port, upstream] = arguments.as_slice()
        && first == "--floor"
    {
        return floor::run(port.parse().unwrap(), upstream, wire::Wire::Clear, Path::new(""));
    }
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
    let floors: Vec<Floor> = upstreams.iter().copied().map(Floor::start).collect();
    let mut table: Vec<Row> = pairs.iter().map(|_| Row::default()).collect();
    for round in 0..=rounds {
        for ((row, pair), floor) in table.iter_mut().zip(pairs).zip(&floors) {
            let own = measure((gateway.pid(), gateway.address), pair);
            let least = measure((floor.pid(), floor.address), pair);
            // The first round is a warm-up.
            if round > 0 {
                row.own.push(own);
                row.floor.push(least);
            }
        }
    }
    print(pairs, &table);
    println!("memory after it: {:.1} MiB", gateway.resident_bytes() as f64 / f64::from(1 << 20));
}

/// The CPU time per piece of content in each round, in microseconds.
#[derive(Default)]
struct Row {
    own: Vec<f64>,
    floor: Vec<f64>,
}

/// Returns the CPU time of a process per piece of content, in microseconds.
fn measure((pid, address): (u32, SocketAddr), pair: &Pair) -> f64 {
    let before = settled_cpu_time(pid);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| client(address, pair));
        }
    });
    let spent = settled_cpu_time(pid).saturating_sub(before);
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
        let body = joined(&answer);
        let text = String::from_utf8_lossy(&body);
        let pieces = text.matches(" token").count();
        // A terminal event may repeat the whole text.
        assert!(pieces >= PIECES, "{}: {pieces} pieces in {text}", pair.name);
    }
}

/// Returns the body of an answer in chunks, which need not begin and end with the events.
fn joined(answer: &[u8]) -> Vec<u8> {
    let find = |bytes: &[u8], mark: &[u8]| bytes.windows(mark.len()).position(|part| part == mark).unwrap();
    let mut rest = &answer[find(answer, b"\r\n\r\n") + 4..];
    let mut body = Vec::new();
    loop {
        let line = find(rest, b"\r\n");
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + length]);
        rest = &rest[line + 2 + length + 2..];
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

fn print(pairs: &[Pair], table: &[Row]) {
    println!(
        "{:<28} {:>10} {:>10} {:>8} {:>9} {:>14}   ratio to native chat, each round",
        "row", "us a chunk", "floor", "x floor", "x native", "x native chat"
    );
    for (pair, row) in pairs.iter().zip(table) {
        // The client's dialect comes first, and is the name of its native row.
        let client = pair.name.split("_over_").next().unwrap_or_default();
        let native = pairs.iter().position(|pair| pair.name == client).map(|at| &table[at]);
        let to_native = native.map_or(f64::NAN, |native| median(&ratios(&row.own, &native.own)));
        let to_chat = ratios(&row.own, &table[0].own);
        let shown: Vec<String> = to_chat.iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!(
            "{:<28} {:>10.2} {:>10.2} {:>8.2} {:>9.2} {:>14.2}   {}",
            pair.name,
            median(&row.own),
            median(&row.floor),
            median(&ratios(&row.own, &row.floor)),
            to_native,
            median(&to_chat),
            shown.join(" ")
        );
    }
}

fn ratios(own: &[f64], others: &[f64]) -> Vec<f64> {
    own.iter().zip(others).map(|(own, other)| own / other).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The time after a load in which the gateway must be idle to count as settled.
const SETTLING: Duration = Duration::from_millis(60);
