//! A well-behaved client: HTTP/1.1 with a separate connection for each request, so that dropping an answer closes
//! exactly its connection. Streams are read event by event, with the arrival time of each.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::wait;

/// The reason why a request has no answer.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A client of one address with fixed headers.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
}

impl Whole {
    /// Returns the body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|fault| panic!("{fault} in {:?}", self.body))
    }

    /// Returns the header `name`.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the `code` of the error envelope.
    pub(crate) fn error_code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// An answer whose head has arrived. Dropping it closes the connection.
pub(crate) struct Flow {
    pub(crate) status: u16,
    pub(crate) headers: http::HeaderMap,
    body: Incoming,
    buffer: BytesMut,
    driving: Driving,
}

/// One event of a stream, with its empty line.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) bytes: Bytes,
    pub(crate) at: Instant,
}

impl Client {
    /// Creates a client with a bearer key, or without a key.
    pub(crate) fn new(address: SocketAddr, key: Option<&str>) -> Self {
        let headers = key.map(|key| ("authorization".to_owned(), format!("Bearer {key}")));
        Self { address, headers: headers.into_iter().collect() }
    }

    /// Returns the client of another address.
    pub(crate) fn at(self, address: SocketAddr) -> Self {
        Self { address, ..self }
    }

    /// Returns the client with one more header on every request.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Returns the value of a header that every request carries.
    pub(crate) fn sends(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("no {name} is sent"), |(_, value)| value)
    }

    /// Sends `GET path` and returns the whole answer.
    pub(crate) async fn get(&self, path: &str) -> Result<Whole, Failure> {
        self.send("GET", path, Bytes::new()).await
    }

    /// Sends `POST path` with a JSON body and returns the whole answer, which must arrive.
    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Whole {
        let sending = self.clone().with("content-type", "application/json");
        wait::within(2 * wait::PATIENCE, path, sending.send("POST", path, body.into())).await.unwrap()
    }

    /// Sends a chat completion and returns the whole answer.
    pub(crate) async fn chat(&self, body: impl Into<Bytes>) -> Whole {
        self.post("/v1/chat/completions", body).await
    }

    /// Sends a chat completion and returns as soon as the head of the answer has arrived.
    pub(crate) async fn chat_flow(&self, body: impl Into<Bytes>) -> Flow {
        let sending = self.clone().with("content-type", "application/json");
        let flow = sending.open("POST", "/v1/chat/completions", body.into());
        wait::within(2 * wait::PATIENCE, "the head of the answer", flow).await.unwrap()
    }

    /// Sends any request and returns the whole answer.
    pub(crate) async fn send(&self, method: &str, path: &str, body: Bytes) -> Result<Whole, Failure> {
        self.open(method, path, body).await?.whole().await
    }

    /// Sends any request and returns as soon as the head of the answer has arrived.
    pub(crate) async fn open(&self, method: &str, path: &str, body: Bytes) -> Result<Flow, Failure> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driving = Driving(tokio::spawn(async move {
            let _ = connection.await;
        }));
        let mut request = http::Request::builder().method(method).uri(path);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            request = request.header("host", self.address.to_string());
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let is_typed = self.headers.iter().any(|(name, _)| name == "content-type");
        if path.starts_with("/admin/") && !body.is_empty() && !is_typed {
            request = request.header("content-type", "application/json");
        }
        let answer = sender.send_request(request.body(Full::new(body))?).await?;
        let (head, body) = answer.into_parts();
        let status = head.status.as_u16();
        Ok(Flow { status, headers: head.headers, body, buffer: BytesMut::new(), driving })
    }
}

impl Flow {
    /// Returns the next event. `None` after the proper end of the body, an error if the body was cut off.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, Failure>> {
        wait::within(wait::PATIENCE, "the next event", async {
            loop {
                if let Some(end) = event_end(&self.buffer) {
                    return Some(Ok(Event { bytes: self.buffer.split_to(end).freeze(), at: Instant::now() }));
                }
                match self.body.frame().await? {
                    Ok(frame) => self.buffer.extend_from_slice(frame.data_ref().unwrap_or(&Bytes::new())),
                    Err(fault) => return Some(Err(fault.into())),
                }
            }
        })
        .await
    }

    /// Returns the next event, which must arrive.
    pub(crate) async fn event(&mut self) -> Event {
        self.next().await.expect("one more event").expect("an unbroken stream")
    }

    /// Returns all further events, and true if the body ended properly.
    pub(crate) async fn rest(&mut self) -> (Vec<Event>, bool) {
        let mut events = Vec::new();
        loop {
            match self.next().await {
                Some(Ok(event)) => events.push(event),
                Some(Err(_)) => return (events, false),
                None => return (events, true),
            }
        }
    }

    /// Reads and discards at least `bytes_min` bytes, or all bytes to the proper end. Returns the number of bytes read.
    pub(crate) async fn pass(&mut self, bytes_min: u64) -> u64 {
        let mut passed = self.buffer.split().len() as u64;
        while passed < bytes_min {
            let frame = wait::within(wait::PATIENCE, "more of the stream", self.body.frame()).await;
            let Some(frame) = frame else { break };
            passed += frame.expect("an unbroken stream").data_ref().map_or(0, Bytes::len) as u64;
        }
        passed
    }

    /// Reads to the proper end and returns the whole answer.
    pub(crate) async fn whole(self) -> Result<Whole, Failure> {
        let body = self.body.collect().await?.to_bytes();
        drop(self.driving);
        Ok(Whole { status: self.status, headers: self.headers, body })
    }
}

/// The task that drives one connection. Dropping it ends the task and the connection.
struct Driving(JoinHandle<()>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns the index after the first event. Upstreams in tests end lines with LF unless a test compares raw bytes.
fn event_end(buffer: &[u8]) -> Option<usize> {
    buffer.windows(2).position(|pair| pair == b"\n\n").map(|at| at + 2)
}
