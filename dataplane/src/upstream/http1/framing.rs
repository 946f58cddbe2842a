//! Checks the framing of an answer after hyper: another parser may read an answer that states its length in more than
//! one way differently (LIM-5). hyper accepts repeated equal lengths, and codings before `chunked`.

use http::HeaderMap;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};

/// Rejects an answer whose header fields make its length ambiguous.
pub(super) fn check(headers: &HeaderMap) -> Result<(), &'static str> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let (length, coding) = (lengths.next(), codings.next());
    if lengths.next().is_some() || (length.is_some() && coding.is_some()) {
        return Err("it sent more than one length (Content-Length, Transfer-Encoding)");
    }
    if length.is_some_and(|length| !length.as_bytes().iter().all(u8::is_ascii_digit)) {
        return Err("its Content-Length is not a number");
    }
    let is_chunked = coding.is_none_or(|coding| coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        return Err("its Transfer-Encoding is not a single 'chunked'");
    }
    Ok(())
}
