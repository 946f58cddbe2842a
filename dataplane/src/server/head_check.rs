//! The strict reading of a request head (LIM-5), over the raw bytes before hyper parses them.
//!
//! hyper decides the framing; this decides whether the framing was ambiguous. Whatever another HTTP parser
//! in front of or behind the gateway could read differently is refused: bare line feeds, NUL, folded lines, a
//! missing or second `Host`, more than one length, a length beside a transfer coding, any transfer coding but
//! one `chunked`. A head that breaks a rule is answered with 400 and the connection ends.

use std::collections::VecDeque;

use memchr::{memchr, memchr3};

/// Follows the bytes of one connection through its heads and bodies.
///
/// ```text
///   Head --blank line--> Body(n) --n bytes--> Head
///     '-----------------> Chunked --request finished--> Head
/// ```
///
/// Where a body of stated length ends is known here too, so pipelined heads are judged. Where a chunked one
/// ends is known only to hyper: bytes pipelined behind it stay unjudged, and their request is refused.
#[derive(Debug, Default)]
pub(crate) struct HeadCheck {
    place: Place,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    seen: Seen,
    verdicts: VecDeque<Verdict>,
}

/// What was wrong with a head, if anything.
pub(crate) type Verdict = Result<(), &'static str>;

#[derive(Clone, Copy, Debug, Default)]
enum Place {
    #[default]
    Head,
    Body(u64),
    Chunked,
    /// A head was wrong; the connection ends with it.
    Lost,
}

#[derive(Debug, Default)]
struct Seen {
    lines: u32,
    http10: bool,
    hosts: u32,
    lengths: u32,
    length: u64,
    codings: u32,
    ended: bool,
}

/// Longer lines fail in hyper anyway; it bounds what is kept of an unfinished line.
const LINE_BYTES_MAX: usize = 64 << 10;
const LINE_TOO_LONG: &str = "a line of the request head is too long";
const NO_CARRIAGE_RETURN: &str = "a line of the request head ends without a carriage return";
/// Heads judged ahead of the request that is being served.
const VERDICTS_MAX: usize = 64;

impl HeadCheck {
    /// Takes the next bytes of the connection.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.place {
                Place::Head => bytes = self.head(bytes),
                Place::Body(left) => {
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = bytes.get(count..).unwrap_or_default();
                    let left = left.saturating_sub(count as u64);
                    self.place = if left == 0 { Place::Head } else { Place::Body(left) };
                }
                Place::Chunked | Place::Lost => return,
            }
        }
    }

    /// Whether the start of a head has arrived, but not its end.
    pub(crate) fn is_inside_head(&self) -> bool {
        matches!(self.place, Place::Head) && (self.seen.lines > 0 || !self.partial.is_empty())
    }

    /// The verdict on the next head that hyper has parsed.
    pub(crate) fn take_verdict(&mut self) -> Verdict {
        self.verdicts.pop_front().unwrap_or(Err("the request was sent before the one before it had ended"))
    }

    /// The request that was being served has ended, and with it its body.
    pub(crate) fn request_finished(&mut self) {
        if matches!(self.place, Place::Chunked) {
            self.place = Place::Head;
        }
    }

    /// Reads the next line of a head; returns what follows it.
    fn head<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let first = if self.partial.is_empty() { first_line(bytes) } else { Ok(None) };
        match first {
            Ok(Some((line, rest))) => {
                let outcome = self.seen.line(line);
                self.note(outcome);
                rest
            }
            Ok(None) => self.part_of_line(bytes),
            Err(why) => {
                self.judge(Err(why));
                &[]
            }
        }
    }

    /// Keeps a part of a line until the rest has come.
    fn part_of_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let end = memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
        let (more, rest) = bytes.split_at_checked(end).unwrap_or((bytes, &[]));
        if self.partial.len() + more.len() > LINE_BYTES_MAX {
            self.judge(Err(LINE_TOO_LONG));
            return &[];
        }
        self.partial.extend_from_slice(more);
        if more.ends_with(b"\n") {
            let line = std::mem::take(&mut self.partial);
            let whole = first_line(&line).and_then(|first| first.ok_or(NO_CARRIAGE_RETURN));
            let outcome = whole.and_then(|(line, _)| self.seen.line(line));
            self.note(outcome);
        }
        rest
    }

    /// Takes notice of what a line came to.
    fn note(&mut self, outcome: Verdict) {
        if outcome.is_err() {
            self.judge(outcome);
        } else if self.seen.ended {
            self.judge(self.seen.verdict());
        }
    }

    fn judge(&mut self, verdict: Verdict) {
        let seen = std::mem::take(&mut self.seen);
        self.place = match verdict {
            Err(_) => Place::Lost,
            Ok(()) if seen.codings > 0 => Place::Chunked,
            Ok(()) if seen.length > 0 => Place::Body(seen.length),
            Ok(()) => Place::Head,
        };
        if self.verdicts.len() < VERDICTS_MAX {
            self.verdicts.push_back(verdict);
        } else {
            self.place = Place::Lost;
        }
    }
}

/// A line and what follows it.
type Split<'a> = (&'a [u8], &'a [u8]);

/// The first line of `bytes` without its end, and what follows it; `None` if its end has not come. One search finds
/// the end and all that must not come before it.
fn first_line(bytes: &[u8]) -> Result<Option<Split<'_>>, &'static str> {
    let Some(at) = memchr3(b'\n', b'\r', 0, bytes) else { return Ok(None) };
    let (line, end) = bytes.split_at_checked(at).unwrap_or((bytes, &[]));
    match end {
        [b'\r', b'\n', rest @ ..] => Ok(Some((line, rest))),
        [b'\r'] => Ok(None),
        [b'\n', ..] => Err(NO_CARRIAGE_RETURN),
        _ => Err("the request head holds a NUL or a lone carriage return"),
    }
}

impl Seen {
    /// Takes one line without its end.
    fn line(&mut self, text: &[u8]) -> Verdict {
        if text.is_empty() {
            // RFC 9112 section 2.2: an empty line before the request line is skipped, as hyper does.
            self.ended = self.lines > 0;
            return Ok(());
        }
        self.lines += 1;
        if self.lines == 1 { self.request_line(text) } else { self.field(text) }
    }

    fn request_line(&mut self, text: &[u8]) -> Verdict {
        self.http10 = text.ends_with(b" HTTP/1.0");
        if !self.http10 && !text.ends_with(b" HTTP/1.1") {
            return Err("the request line names no HTTP/1 version");
        }
        // All of it, because that is quicker than to stop at the first.
        if text.iter().fold(false, |found, &b| found | (b < b' ') | (b == 0x7f)) {
            return Err("the request line holds a control character");
        }
        Ok(())
    }

    fn field(&mut self, text: &[u8]) -> Verdict {
        let first = text.first().copied().unwrap_or_default();
        if first == b' ' || first == b'\t' {
            return Err("a header line is folded");
        }
        let Some(colon) = memchr(b':', text) else {
            return Err("a header line has no colon");
        };
        let (name, value) = text.split_at_checked(colon).unwrap_or((text, b""));
        // The first letter decides for nearly every header that no further comparison is needed.
        match first | 0x20 {
            b'h' if name.eq_ignore_ascii_case(b"host") => return self.host(value),
            b'c' if name.eq_ignore_ascii_case(b"content-length") => return self.length(value),
            b't' if name.eq_ignore_ascii_case(b"transfer-encoding") => return self.coding(value),
            _ => {}
        }
        Ok(())
    }

    fn host(&mut self, value: &[u8]) -> Verdict {
        self.hosts += 1;
        // RFC 9110 section 7.2: a host and a port, nothing else of a URL.
        let host = value.get(1..).unwrap_or_default().trim_ascii();
        let mark =
            |b| matches!(b, b'!' | b'$'..=b'.' | b':' | b';' | b'=' | b'[' | b']' | b'_' | b'~') && b != b',';
        let legal = |b: &u8| b.is_ascii_alphanumeric() || mark(*b);
        if host.iter().all(legal) { Ok(()) } else { Err("the Host header is not a host and a port") }
    }

    fn length(&mut self, value: &[u8]) -> Verdict {
        self.lengths += 1;
        let digits = value.get(1..).unwrap_or_default().trim_ascii();
        let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
        self.length = number.filter(|_| all_digits).ok_or("Content-Length is not a number")?;
        Ok(())
    }

    fn coding(&mut self, value: &[u8]) -> Verdict {
        self.codings += 1;
        let coding = value.get(1..).unwrap_or_default().trim_ascii();
        if coding.eq_ignore_ascii_case(b"chunked") {
            Ok(())
        } else {
            Err("Transfer-Encoding is something other than one 'chunked'")
        }
    }

    fn verdict(&self) -> Verdict {
        if self.hosts > 1 || (self.hosts == 0 && !self.http10) {
            return Err("the request has no Host header, or more than one");
        }
        if self.lengths > 1 || self.codings > 1 || (self.lengths > 0 && self.codings > 0) {
            return Err("the request states its length more than once");
        }
        if self.codings > 0 && self.http10 {
            return Err("an HTTP/1.0 request cannot be chunked");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[(&str, &[u8], bool)] = &[
        ("plain", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", true),
        ("chunked", b"POST / HTTP/1.1\r\nHost: a\r\ntransfer-encoding: Chunked\r\n\r\n", true),
        ("empty line first", b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", true),
        ("1.0 without host", b"GET / HTTP/1.0\r\n\r\n", true),
        ("body bytes are not head", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\n\0", true),
        ("bare line feed", b"GET / HTTP/1.1\nHost: a\r\n\r\n", false),
        ("bare line feed at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\n", false),
        ("nul", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", false),
        ("lone carriage return", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", false),
        ("folded", b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", false),
        ("no colon", b"GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n", false),
        ("no host", b"GET / HTTP/1.1\r\nX: a\r\n\r\n", false),
        ("host with a space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", false),
        ("host with a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", false),
        ("host with a user", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", false),
        ("host with a port", b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", true),
        ("two hosts", b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", false),
        (
            "two lengths",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
            false,
        ),
        ("length list", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n", false),
        ("signed length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", false),
        ("empty length", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", false),
        (
            "length and coding",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            false,
        ),
        (
            "twice chunked",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n",
            false,
        ),
        ("gzip coding", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", false),
        ("chunked in 1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", false),
        ("version 9.9", b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", false),
        ("tab in the target", b"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", false),
    ];

    #[test]
    fn judges_every_head_the_same_however_it_is_cut() {
        for (name, head, good) in TABLE {
            for cut in 0..=head.len() {
                let mut check = HeadCheck::default();
                check.push(&head[..cut]);
                check.push(&head[cut..]);
                assert_eq!(check.take_verdict().is_ok(), *good, "{name}, cut at {cut}");
            }
        }
    }

    #[test]
    fn a_line_without_an_end_in_sight_is_refused_once() {
        let mut check = HeadCheck::default();
        check.push(b"GET / HTTP/1.1\r\nHost: a\r\nX: ");
        check.push(&[b'x'; LINE_BYTES_MAX - 3]);
        assert!(check.verdicts.is_empty());
        check.push(b"x\r\n\r\n");
        assert_eq!(check.take_verdict(), Err(LINE_TOO_LONG));
        assert!(check.verdicts.is_empty());
    }

    #[test]
    fn a_host_holds_what_urls_let_it_hold() {
        for byte in 0..=u8::MAX {
            let legal = byte.is_ascii_alphanumeric() || b"-._~:[]%!$&'()*+;=".contains(&byte);
            let inside = Seen::default().host(&[b' ', b'a', byte, b'a']);
            assert_eq!(inside.is_ok(), legal, "{byte}");
        }
    }

    #[test]
    fn judges_pipelined_heads_behind_a_stated_length() {
        let mut check = HeadCheck::default();
        check.push(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n\n\nGET / HTTP/1.1\r\nHost: a\r\n\r\nGET /");
        assert_eq!(check.take_verdict(), Ok(()));
        assert_eq!(check.take_verdict(), Ok(()));
        assert!(check.is_inside_head());
        check.push(b" HTTP/1.1\n");
        assert!(check.take_verdict().is_err());
    }

    #[test]
    fn refuses_what_is_pipelined_behind_a_chunked_body() {
        let mut check = HeadCheck::default();
        check.push(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(check.take_verdict(), Ok(()));
        assert!(check.take_verdict().is_err());
        check.request_finished();
        check.push(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(check.take_verdict(), Ok(()));
    }
}
