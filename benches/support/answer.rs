//! Reads answers from a socket and compares every byte with the upstream's. Nothing is collected: a stream is checked
//! event by event, and the timestamps in the events yield their delays.

use std::time::Instant;

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::payload::{STAMP_AT, STAMP_DIGITS, Stream};
use super::wire::Io;

/// The kinds of faulty answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ended early or failed.
    Broken,
    /// The status is not 200.
    Status(u16),
    /// The body differs from the one that the upstream sent.
    Differs,
}

/// Reads the bytes of a connection, across answers.
pub(crate) struct Reader {
    buffer: Vec<u8>,
    at: usize,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self { buffer: Vec::with_capacity(4 << 10), at: 0 }
    }

    fn pending(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    async fn fill(&mut self, stream: &mut dyn Io) -> Result<(), Fault> {
        if self.at == self.buffer.len() {
            self.buffer.clear();
        } else if self.at > 0 {
            self.buffer.drain(..self.at);
        }
        self.at = 0;
        self.buffer.reserve(4 << 10);
        match stream.read_buf(&mut self.buffer).await {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => Err(Fault::Broken),
        }
    }

    async fn head(&mut self, stream: &mut dyn Io) -> Result<Framing, Fault> {
        loop {
            if !self.pending().is_empty()
                && let Some((length, framing)) = framing(self.pending())?
            {
                self.at += length;
                return Ok(framing);
            }
            self.fill(stream).await?;
        }
    }

    async fn line(&mut self, stream: &mut dyn Io) -> Result<usize, Fault> {
        loop {
            if let Some(end) = self.pending().windows(2).position(|pair| pair == b"\r\n") {
                let digits = std::str::from_utf8(&self.pending()[..end]).map_err(|_| Fault::Differs)?;
                let length = usize::from_str_radix(digits.trim(), 16).map_err(|_| Fault::Differs)?;
                self.at += end + 2;
                return Ok(length);
            }
            self.fill(stream).await?;
        }
    }

    /// Passes `length` bytes to `take`, in pieces as they arrive.
    async fn body(
        &mut self,
        stream: &mut dyn Io,
        mut length: usize,
        take: &mut impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while length > 0 {
            if self.pending().is_empty() {
                self.fill(stream).await?;
            }
            let now = self.pending().len().min(length);
            take(&self.pending()[..now])?;
            self.at += now;
            length -= now;
        }
        Ok(())
    }

    /// Reads one answer and passes its body to `take`.
    pub(crate) async fn answer(
        &mut self,
        stream: &mut dyn Io,
        mut take: impl FnMut(&[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self.head(stream).await? {
            Framing::Length(length) => self.body(stream, length, &mut take).await,
            Framing::Chunked => loop {
                let length = self.line(stream).await?;
                self.body(stream, length, &mut take).await?;
                self.body(stream, 2, &mut |_| Ok(())).await?;
                if length == 0 {
                    return Ok(());
                }
            },
        }
    }
}

#[derive(Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
}

/// Returns the length of the head and the framing of the body. `None` while the head is incomplete.
fn framing(bytes: &[u8]) -> Result<Option<(usize, Framing)>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; 48];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(bytes).map_err(|_| Fault::Broken)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(head) => head,
    };
    if response.code != Some(200) {
        return Err(Fault::Status(response.code.unwrap_or_default()));
    }
    for header in response.headers {
        if header.name.eq_ignore_ascii_case("content-length") {
            let length = std::str::from_utf8(header.value).ok().and_then(|text| text.parse().ok());
            return length.map(|length| Some((head, Framing::Length(length)))).ok_or(Fault::Differs);
        }
    }
    Ok(Some((head, Framing::Chunked)))
}

/// Compares a whole body.
pub(crate) struct Same {
    expected: Bytes,
    at: usize,
}

impl Same {
    pub(crate) fn new(expected: Bytes) -> Self {
        Self { expected, at: 0 }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        let here = self.expected.get(self.at..self.at + bytes.len());
        self.at += bytes.len();
        if here == Some(bytes) { Ok(()) } else { Err(Fault::Differs) }
    }

    pub(crate) fn finish(&self) -> Result<(), Fault> {
        if self.at == self.expected.len() { Ok(()) } else { Err(Fault::Differs) }
    }
}

/// Compares a stream event by event and reads its timestamps.
pub(crate) struct Follow<'a> {
    stream: &'a Stream,
    epoch: Instant,
    event: Vec<u8>,
    index: usize,
    /// The delay of each stamped event since the upstream's write, in nanoseconds.
    pub(crate) delays: Vec<u64>,
}

impl<'a> Follow<'a> {
    pub(crate) fn new(stream: &'a Stream, epoch: Instant) -> Self {
        Self { stream, epoch, event: Vec::with_capacity(256), index: 0, delays: Vec::new() }
    }

    /// Returns the number of events read.
    pub(crate) fn events(&self) -> usize {
        self.index
    }

    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let expected = self.stream.events.get(self.index).ok_or(Fault::Differs)?;
            let now = bytes.len().min(expected.len() - self.event.len());
            let (event, rest) = bytes.split_at(now);
            self.event.extend_from_slice(event);
            bytes = rest;
            if self.event.len() == expected.len() {
                self.compare(expected)?;
                self.event.clear();
                self.index += 1;
            }
        }
        Ok(())
    }

    pub(crate) fn finish(&self) -> Result<(), Fault> {
        if self.index == self.stream.events.len() { Ok(()) } else { Err(Fault::Differs) }
    }

    fn compare(&mut self, expected: &[u8]) -> Result<(), Fault> {
        if self.stream.is_stamped(self.index) {
            let stamp = STAMP_AT..STAMP_AT + STAMP_DIGITS;
            let digits = std::str::from_utf8(&self.event[stamp.clone()]).map_err(|_| Fault::Differs)?;
            let written: u64 = digits.parse().map_err(|_| Fault::Differs)?;
            if written > 0 {
                let now = u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.delays.push(now.saturating_sub(written));
                self.event[stamp].fill(b'0');
            }
        }
        if self.event == expected { Ok(()) } else { Err(Fault::Differs) }
    }
}
