//! The head of an answer: where it ends, what it says about the body, and what of it is kept.

use std::mem::MaybeUninit;

use httparse::{ParserConfig, Response, Status};

use crate::http1::Body;

/// What decides how the rest of the connection is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Bytes that the head takes.
    pub(super) bytes: usize,
    pub(super) body: Body,
    /// The connection may serve another request.
    pub(super) keep_alive: bool,
}

/// Bytes of a head, interim ones included.
pub(super) const HEAD_BYTES_MAX: usize = 32 << 10;
/// Header fields of an answer.
const HEADERS_MAX: usize = 100;

impl Head {
    /// Reads the head at the start of `bytes`; `None` if its end has not come. `each` sees every field.
    /// Interim answers (1xx) are heads like any other; the caller skips them.
    pub(super) fn read(
        bytes: &[u8],
        each: &mut dyn FnMut(&str, &[u8]),
    ) -> Result<Option<Self>, &'static str> {
        let mut fields = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut response = Response::new(&mut []);
        let parsed =
            ParserConfig::default().parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
        let bytes = match parsed {
            Ok(Status::Complete(bytes)) => bytes,
            Ok(Status::Partial) if bytes.len() > HEAD_BYTES_MAX => {
                return Err("the head of its answer is too large");
            }
            Ok(Status::Partial) => return Ok(None),
            Err(_) => return Err("its answer is not HTTP"),
        };
        let http10 = response.version == Some(0);
        let mut lengths = Lengths::default();
        let mut connection = None;
        for field in response.headers.iter() {
            match field.name.len() {
                10 if field.name.eq_ignore_ascii_case("connection") => connection = Some(field.value),
                14 if field.name.eq_ignore_ascii_case("content-length") => lengths.length(field.value)?,
                17 if field.name.eq_ignore_ascii_case("transfer-encoding") => lengths.coding(field.value)?,
                _ => {}
            }
            each(field.name, field.value);
        }
        let status = response.code.unwrap_or_default();
        let body = lengths.body(status, http10)?;
        let says = |word: &str| connection.is_some_and(|value| has_token(value, word));
        let keep_alive = body != Body::UntilClose && if http10 { says("keep-alive") } else { !says("close") };
        Ok(Some(Self { status, bytes, body, keep_alive }))
    }
}

/// What the fields say about the length, refused where they say it twice: an answer whose end is in doubt may
/// carry the start of somebody else's (LIM-5).
#[derive(Default)]
struct Lengths {
    length: Option<u64>,
    chunked: bool,
}

impl Lengths {
    fn length(&mut self, value: &[u8]) -> Result<(), &'static str> {
        let number = std::str::from_utf8(value).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let length = number.and_then(|text| text.parse().ok()).ok_or("its Content-Length is no number")?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err("it states the length of its answer more than once"),
        }
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), &'static str> {
        if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
            return Err("its Transfer-Encoding is something other than one 'chunked'");
        }
        self.chunked = true;
        Ok(())
    }

    fn body(&self, status: u16, http10: bool) -> Result<Body, &'static str> {
        match (self.length, self.chunked) {
            (Some(_), true) => Err("it states the length of its answer more than once"),
            (_, true) if http10 => Err("it sent a chunked answer as HTTP/1.0"),
            _ if status < 200 || status == 204 || status == 304 => Ok(Body::Ended),
            (None, true) => Ok(Body::chunked()),
            (Some(length), false) => Ok(Body::of_length(length)),
            (None, false) => Ok(Body::UntilClose),
        }
    }
}

fn has_token(value: &[u8], word: &str) -> bool {
    value.split(|b| *b == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Head>, &'static str> {
        Head::read(text.as_bytes(), &mut |_, _| {})
    }

    #[test]
    fn framing_follows_the_fields() {
        let table = [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Body::Length(5), true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", Body::chunked(), true),
            ("HTTP/1.1 200 OK\r\n\r\n", Body::UntilClose, false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x, Close\r\n\r\n", Body::Length(5), false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Body::Length(5), false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n", Body::Length(5), true),
            ("HTTP/1.1 204 No Content\r\n\r\n", Body::Ended, true),
            ("HTTP/1.1 100 Continue\r\n\r\n", Body::Ended, true),
        ];
        for (text, body, keep_alive) in table {
            let head = read(text).unwrap().unwrap();
            assert_eq!((head.body, head.keep_alive, head.bytes), (body, keep_alive, text.len()), "{text:?}");
            for cut in 0..text.len() {
                assert_eq!(read(&text[..cut]), Ok(None), "{text:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn an_end_in_doubt_is_refused() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
