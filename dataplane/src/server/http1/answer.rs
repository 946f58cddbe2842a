//! An answer as HTTP/1.1 writes it. Its framing is ours to say, whatever its fields say.

use std::io;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{HeaderValue, Method, StatusCode, response};

use crate::http1::Out;

/// How the end of a body is told (RFC 9112 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none.
    Bodiless,
    /// So many bytes are still to come.
    Length(u64),
    Chunked,
    UntilClose,
}

/// What becomes of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It goes on, as it does by itself.
    Next,
    /// It goes on, which a client of HTTP/1.0 must be told.
    NextAsAsked,
    Close,
}

impl Framing {
    /// That of an answer whose body has `bytes`, if that is known.
    pub(super) fn of(method: &Method, status: StatusCode, bytes: Option<u64>, http11: bool) -> Self {
        if method == Method::HEAD
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        {
            return Self::Bodiless;
        }
        match bytes {
            Some(bytes) => Self::Length(bytes),
            None if http11 => Self::Chunked,
            None => Self::UntilClose,
        }
    }

    /// Writes the head of an answer.
    pub(super) fn head(self, out: &mut Out, head: &response::Parts, date: &HeaderValue, then: Then) {
        let reason = head.status.canonical_reason().unwrap_or("Unnamed");
        for part in ["HTTP/1.1 ", head.status.as_str(), " ", reason, "\r\n"] {
            out.put(part.as_bytes());
        }
        for (name, value) in &head.headers {
            let ours = name == CONTENT_LENGTH || name == TRANSFER_ENCODING || name == CONNECTION;
            if !ours || (self == Self::Bodiless && name == CONTENT_LENGTH) {
                out.field(name.as_str(), value.as_bytes());
            }
        }
        match self {
            Self::Length(bytes) => {
                out.put(b"content-length: ");
                out.number(bytes, 10);
                out.put(b"\r\n");
            }
            Self::Chunked => out.put(b"transfer-encoding: chunked\r\n"),
            Self::Bodiless | Self::UntilClose => {}
        }
        match then {
            Then::Next => {}
            Then::NextAsAsked => out.put(b"connection: keep-alive\r\n"),
            Then::Close => out.put(b"connection: close\r\n"),
        }
        out.field(DATE.as_str(), date.as_bytes());
        out.put(b"\r\n");
    }

    /// Writes a piece of the body.
    pub(super) fn piece(&mut self, out: &mut Out, piece: &Bytes) -> io::Result<()> {
        match self {
            Self::Bodiless => {}
            Self::Length(left) => {
                *left = left.checked_sub(piece.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
                out.data(piece);
            }
            Self::Chunked if piece.is_empty() => {}
            Self::Chunked => {
                out.number(piece.len() as u64, 16);
                out.put(b"\r\n");
                out.data(piece);
                out.put(b"\r\n");
            }
            Self::UntilClose => out.data(piece),
        }
        Ok(())
    }

    /// Writes the end of the body.
    pub(super) fn end(self, out: &mut Out) -> io::Result<()> {
        match self {
            Self::Length(1..) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Self::Chunked => out.put(b"0\r\n\r\n"),
            Self::Bodiless | Self::Length(0) | Self::UntilClose => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_neither_longer_nor_shorter_than_it_was_said_to_be() {
        let mut framing = Framing::Length(3);
        let mut out = Out::default();
        framing.piece(&mut out, &Bytes::from_static(b"ab")).unwrap();
        assert!(framing.end(&mut out).is_err());
        assert!(framing.piece(&mut out, &Bytes::from_static(b"cd")).is_err());
    }

    #[test]
    fn the_framing_fits_the_client_and_the_status() {
        use StatusCode as Code;
        for (method, status, bytes, http11, want) in [
            (Method::GET, Code::OK, Some(3), true, Framing::Length(3)),
            (Method::GET, Code::OK, None, true, Framing::Chunked),
            (Method::GET, Code::OK, None, false, Framing::UntilClose),
            (Method::HEAD, Code::OK, Some(3), true, Framing::Bodiless),
            (Method::GET, Code::NO_CONTENT, Some(0), true, Framing::Bodiless),
        ] {
            assert_eq!(Framing::of(&method, status, bytes, http11), want, "{method} {status} {bytes:?}");
        }
    }

    #[test]
    fn an_answer_states_its_length_and_its_connection_once() {
        let (mut head, ()) = http::Response::new(()).into_parts();
        head.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
        head.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        let mut out = Out::default();
        let date = HeaderValue::from_static("now");
        Framing::Length(3).head(&mut out, &head, &date, Then::Close);
        let want = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\ndate: now\r\n\r\n";
        assert_eq!(out.tail(), want.as_bytes());
    }
}
