//! Answers as lists of steps on the wire. Well-formed answers have constructors; a test builds malformed ones from raw
//! bytes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::support::chat;

/// One action of the upstream on a connection.
#[derive(Clone)]
pub(crate) enum Step {
    /// Writes these bytes at once.
    Send(Bytes),
    /// Waits until the test opens the gate once more.
    Wait(Gate),
    /// Does nothing until the other side closes the connection.
    Hang,
    /// Closes the connection properly, even within an answer.
    Close,
    /// Closes the connection with a reset.
    Reset,
    /// Writes these bytes repeatedly until the other side closes the connection.
    Repeat(Bytes),
}

/// A gate that the test opens for a number of passages.
#[derive(Clone)]
pub(crate) struct Gate(Arc<Semaphore>);

impl Gate {
    /// Creates a closed gate.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    /// Lets `passages` waiting steps through, now or later.
    pub(crate) fn open(&self, passages: usize) {
        self.0.add_permits(passages);
    }

    /// Waits for a passage and uses it.
    pub(crate) async fn pass(&self) {
        self.0.acquire().await.expect("a gate is never closed for good").forget();
    }
}

/// The upstream's answer to one request. The connection stays open unless a step ends it.
#[derive(Clone, Default)]
pub(crate) struct Answer {
    pub(crate) steps: Vec<Step>,
}

impl Answer {
    /// Creates an empty answer.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Creates a whole answer with a length.
    pub(crate) fn whole(status: u16, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref();
        let mut head = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        Self::new().send(bytes)
    }

    /// Creates a whole JSON answer.
    pub(crate) fn json(status: u16, body: impl AsRef<[u8]>) -> Self {
        Self::whole(status, &[("content-type", "application/json")], body)
    }

    /// Creates a completion with `text`.
    pub(crate) fn completion(text: &str) -> Self {
        Self::json(200, chat::completion(text))
    }

    /// Creates an error in the format that providers use.
    pub(crate) fn error(status: u16) -> Self {
        Self::json(status, chat::error("scripted failure", "scripted"))
    }

    /// Creates the head of a stream; chunks follow.
    pub(crate) fn stream() -> Self {
        Self::new().send(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
             cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
        )
    }

    /// Creates a whole stream, with each event in a separate chunk and write.
    pub(crate) fn events<B: AsRef<[u8]>>(events: &[B]) -> Self {
        events.iter().fold(Self::stream(), |answer, event| answer.chunk(event)).end()
    }

    /// Like [`Answer::events`], but each event waits for the gate.
    pub(crate) fn gated_events<B: AsRef<[u8]>>(events: &[B], gate: &Gate) -> Self {
        events.iter().fold(Self::stream(), |answer, event| answer.wait(gate).chunk(event)).end()
    }

    /// Creates an answer that never comes.
    pub(crate) fn hang_forever() -> Self {
        Self::new().hang()
    }

    /// Creates the answer to a request that the test did not expect. The gateway cannot mistake it for a network
    /// failure.
    pub(crate) fn unscripted() -> Self {
        Self::json(418, chat::error("this request is not in the script", "unscripted"))
    }

    /// Appends these bytes unchanged.
    pub(crate) fn send(mut self, bytes: impl Into<Bytes>) -> Self {
        self.steps.push(Step::Send(bytes.into()));
        self
    }

    /// Appends these bytes as one chunk.
    pub(crate) fn chunk(self, bytes: impl AsRef<[u8]>) -> Self {
        self.send(chunk(bytes.as_ref()))
    }

    /// Appends the last chunk.
    pub(crate) fn end(self) -> Self {
        self.send("0\r\n\r\n")
    }

    /// Appends a wait for the gate.
    pub(crate) fn wait(mut self, gate: &Gate) -> Self {
        self.steps.push(Step::Wait(gate.clone()));
        self
    }

    /// Appends each byte of `bytes` as a separate write.
    pub(crate) fn drip(self, bytes: &[u8]) -> Self {
        bytes.iter().fold(self, |answer, byte| answer.send(vec![*byte]))
    }

    /// Appends an endless pause.
    pub(crate) fn hang(mut self) -> Self {
        self.steps.push(Step::Hang);
        self
    }

    /// Appends the end of the connection.
    pub(crate) fn close(mut self) -> Self {
        self.steps.push(Step::Close);
        self
    }

    /// Appends a reset of the connection.
    pub(crate) fn reset(mut self) -> Self {
        self.steps.push(Step::Reset);
        self
    }

    /// Appends this chunk, repeated without end.
    pub(crate) fn repeat_chunk(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.steps.push(Step::Repeat(chunk(bytes.as_ref())));
        self
    }

    /// Appends this chunk `count` times.
    pub(crate) fn times_chunk(mut self, count: usize, bytes: impl AsRef<[u8]>) -> Self {
        self.steps.extend(std::iter::repeat_n(Step::Send(chunk(bytes.as_ref())), count));
        self
    }

    /// Keeps only the first `bytes_max` bytes of the answer, followed by the end of the connection.
    pub(crate) fn cut_after(self, bytes_max: usize) -> Self {
        let mut left = bytes_max;
        let mut cut = Self::new();
        for step in self.steps {
            match step {
                Step::Send(bytes) if bytes.len() > left => return cut.send(bytes.slice(..left)).close(),
                Step::Send(bytes) => {
                    left -= bytes.len();
                    cut = cut.send(bytes);
                }
                other => cut.steps.push(other),
            }
        }
        cut.close()
    }
}

fn chunk(bytes: &[u8]) -> Bytes {
    let mut framed = format!("{:x}\r\n", bytes.len()).into_bytes();
    framed.extend_from_slice(bytes);
    framed.extend_from_slice(b"\r\n");
    Bytes::from(framed)
}
