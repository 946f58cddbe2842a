//! Takes credential-shaped text out of diagnostics: what an upstream says about a failure may quote the key
//! that it was called with (ERR-1).
//!
//! Four passes mark what must go, each in linear time: the credentials that are known, in any usual encoding; those of
//! every other provider of the gateway, which are [guarded](guard); text that has the shape of a vendor's key; and
//! values that a name, a scheme or a URL says are secret. Prose, names of models and identifiers of requests stay.

mod guarded;
mod known;
mod label;
mod shape;

use std::borrow::Cow;
use std::ops::Range;

pub use self::guarded::{Guarded, guard};

/// What stands where something was taken out.
pub const MARK: &str = "[redacted]";

/// Rounds after which a text that still changes is given up as a whole.
const ROUNDS_MAX: usize = 8;

/// `text` with every occurrence of a `known` secret and everything shaped like a credential replaced by
/// `[redacted]`. Never applied to model output, only to diagnostics. Known secrets of fewer than
/// six bytes are too short to be told from prose.
pub fn diagnostic<'a>(text: &'a str, known: &[&str]) -> Cow<'a, str> {
    let Some(mut clean) = replaced(text, known) else { return Cow::Borrowed(text) };
    // A mark may stand where it completes something else; one more round finds nothing almost always.
    for _ in 0..ROUNDS_MAX {
        match replaced(&clean, known) {
            Some(cleaner) if cleaner != clean => clean = cleaner,
            Some(_) | None => return Cow::Owned(clean),
        }
    }
    Cow::Owned(MARK.to_owned())
}

/// `None` if there is nothing to take out.
fn replaced(text: &str, known: &[&str]) -> Option<String> {
    let mut spans = Vec::new();
    for secret in known {
        known::mark(text, secret, &mut spans);
    }
    guarded::mark(text, &mut spans);
    shape::mark(text, &mut spans);
    label::mark(text, &mut spans);
    if spans.is_empty() {
        return None;
    }
    spans.sort_unstable_by_key(|span| span.start);
    let mut clean = String::with_capacity(text.len());
    let mut kept_from = 0;
    let mut spans = spans.into_iter().peekable();
    while let Some(mut span) = spans.next() {
        while let Some(next) = spans.next_if(|next| next.start <= span.end) {
            span.end = span.end.max(next.end);
        }
        clean.push_str(text.get(kept_from..text.floor_char_boundary(span.start)).unwrap_or_default());
        clean.push_str(MARK);
        kept_from = text.ceil_char_boundary(span.end);
    }
    clean.push_str(text.get(kept_from..).unwrap_or_default());
    Some(clean)
}

/// Letters, digits and what joins them in keys and names; `*` because keys are often shown masked.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'*')
}

/// The characters of both alphabets of base64.
fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

/// Where the run of bytes that satisfy `is` ends, from `start`.
fn run_end(bytes: &[u8], start: usize, is: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(start..).unwrap_or_default();
    start.saturating_add(rest.iter().take_while(|&&byte| is(byte)).count())
}

/// Where the run of bytes that satisfy `is` begins, up to `end`.
fn run_start(bytes: &[u8], end: usize, is: impl Fn(u8) -> bool) -> usize {
    let before = bytes.get(..end).unwrap_or_default();
    end.saturating_sub(before.iter().rev().take_while(|&&byte| is(byte)).count())
}

type Spans = Vec<Range<usize>>;

#[cfg(test)]
mod tests;
