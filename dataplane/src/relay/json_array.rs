//! Google's other form of a stream: one JSON array, whose elements are the data of the events. It is written piece by piece
//! from the events of any relay, and nothing is buffered: the bytes of an event pass as slices without the ones around
//! its data.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Body as _;
use shared::port::BoxError;

use super::ResponseBody;

/// Turns the body of a response to a Gemini client into an array. An error body becomes the only element.
pub(crate) fn wrap(response: &mut Response<ResponseBody>) {
    let is_stream = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let body = std::mem::replace(response.body_mut(), ResponseBody::full(Bytes::new()));
    *response.body_mut() = match body.into_whole() {
        Ok(whole) if !is_stream => ResponseBody::full([b"[".as_slice(), &whole, b"]"].concat().into()),
        Ok(whole) => ResponseBody::full(whole).array(),
        Err(body) => body.array(),
    };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
}

/// A body whose events become the elements of an array.
#[derive(Debug)]
pub(super) struct JsonArray {
    body: ResponseBody,
    elements: ElementWriter,
    /// The pieces that have been written, the last one first.
    ready: Vec<Bytes>,
    has_ended: bool,
}

/// Finds the data of events, each of which is one line, in a stream cut at any byte.
#[derive(Debug, Default)]
struct ElementWriter {
    state: LineState,
    has_elements: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineState {
    /// At the start of a line, of which this many bytes are those of `data: `.
    #[default]
    Start,
    Field(usize),
    /// Inside of data.
    Data,
    /// Inside of a line without data.
    Other,
}

const DATA: &[u8] = b"data: ";

impl JsonArray {
    pub(super) fn new(body: ResponseBody) -> Self {
        Self { body, elements: ElementWriter::default(), ready: Vec::new(), has_ended: false }
    }

    /// Returns the body that the array is made of.
    pub(super) fn inner(&self) -> &ResponseBody {
        &self.body
    }

    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        loop {
            if let Some(piece) = self.ready.pop() {
                return Poll::Ready(Some(Ok(piece)));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        self.elements.push(&piece, &mut self.ready);
                        self.ready.reverse();
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => {
                    self.has_ended = true;
                    self.ready.push(self.elements.end());
                }
            }
        }
    }
}

impl ElementWriter {
    fn push(&mut self, piece: &Bytes, out: &mut Vec<Bytes>) {
        let mut at = 0;
        while let Some(rest) = piece.get(at..).filter(|rest| !rest.is_empty()) {
            let line_end = memchr::memchr2(b'\r', b'\n', rest);
            match self.state {
                LineState::Start if line_end == Some(0) => at += 1,
                LineState::Start => self.state = LineState::Field(0),
                LineState::Field(known) => {
                    let expected = DATA.get(known..).unwrap_or_default();
                    let same = expected.iter().zip(rest).take_while(|(a, b)| a == b).count();
                    at += same;
                    let is_ended = known + same == DATA.len();
                    // The space is optional.
                    let is_bare = known + same == DATA.len() - 1 && same < rest.len();
                    self.state = if is_ended || is_bare {
                        out.push(self.separator());
                        LineState::Data
                    } else if same == rest.len() {
                        LineState::Field(known + same)
                    } else {
                        LineState::Other
                    };
                }
                LineState::Data | LineState::Other => {
                    let length = line_end.unwrap_or(rest.len());
                    if self.state == LineState::Data && length > 0 {
                        out.push(piece.slice(at..at + length));
                    }
                    at += length;
                    if line_end.is_some() {
                        self.state = LineState::Start;
                    }
                }
            }
        }
    }

    /// Returns the bytes before the next element.
    fn separator(&mut self) -> Bytes {
        let is_first = !std::mem::replace(&mut self.has_elements, true);
        Bytes::from_static(if is_first { b"[" } else { b",\r\n" })
    }

    fn end(&self) -> Bytes {
        Bytes::from_static(if self.has_elements { b"]\n" } else { b"[]\n" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_elements_at_any_split() {
        let stream = b"data: {\"a\":1}\r\n\r\n: comment\r\n\r\ndata: {}\n\ndata: {\"error\":{}}\r\n\r\n";
        let want = b"[{\"a\":1},\r\n{},\r\n{\"error\":{}}]\n";
        for at in 0..=stream.len() {
            let (mut writer, mut out) = (ElementWriter::default(), Vec::new());
            let (first, second) = stream.split_at(at);
            for piece in [first, second] {
                writer.push(&Bytes::copy_from_slice(piece), &mut out);
            }
            out.push(writer.end());
            assert_eq!(out.concat(), want, "cut at {at}");
        }
        assert_eq!(ElementWriter::default().end(), "[]\n");
    }
}
