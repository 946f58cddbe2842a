//! Redacts credential-shaped text from diagnostics: an upstream's error may quote the key that it was called with (ERR-1).
//!
//! Four passes mark the text to redact, each in linear time: the known credentials, in every common encoding; the
//! credentials of all other providers of the gateway, which are [guarded](guard); text that has the shape of a
//! vendor's key; and values that a name, a scheme or a URL marks as secret. Prose, model names and request IDs are kept.

mod guarded;
mod known;
mod label;
mod quoted;
mod shape;

use std::borrow::Cow;
use std::ops::Range;

pub use self::guarded::{Guarded, guard};
pub use self::quoted::without_quoted_text;

/// The replacement for redacted text.
pub const MARK: &str = "[redacted]";

/// Rounds after which a text that still changes is redacted as a whole.
const ROUNDS_MAX: usize = 8;

/// Returns `text` with every occurrence of a `known` secret and everything shaped like a credential replaced by
/// `[redacted]`. Apply it to diagnostics only, never to model output. Known secrets of fewer than six bytes are
/// ignored, because they cannot be distinguished from prose.
pub fn diagnostic<'a>(text: &'a str, known: &[&str]) -> Cow<'a, str> {
    let Some(mut clean) = replaced(text, known) else { return Cow::Borrowed(text) };
    // The mark may complete another match; a second round almost never finds anything.
    for _ in 0..ROUNDS_MAX {
        match replaced(&clean, known) {
            Some(cleaner) if cleaner != clean => clean = cleaner,
            Some(_) | None => return Cow::Owned(clean),
        }
    }
    Cow::Owned(MARK.to_owned())
}

/// Returns `text` with the secrets of all providers replaced by `[redacted]`, and nothing else changed. For records of
/// what was exchanged, which must stay faithful.
pub fn guarded(text: &str) -> Cow<'_, str> {
    let mut spans = Vec::new();
    guarded::mark(text, &mut spans);
    if spans.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(redacted(text, spans)) }
}

/// Returns `None` if there is nothing to redact.
fn replaced(text: &str, known: &[&str]) -> Option<String> {
    let mut spans = Vec::new();
    for secret in known {
        known::mark(text, secret, &mut spans);
    }
    guarded::mark(text, &mut spans);
    shape::mark(text, &mut spans);
    label::mark(text, &mut spans);
    (!spans.is_empty()).then(|| redacted(text, spans))
}

/// Replaces the marked spans.
fn redacted(text: &str, mut spans: Spans) -> String {
    spans.sort_unstable_by_key(|span| span.start);
    let mut clean = String::with_capacity(text.len());
    let mut kept_from = 0;
    let mut spans = spans.into_iter().peekable();
    while let Some(mut span) = spans.next() {
        while let Some(next) = spans.next_if(|next| next.start <= span.end) {
            span.end = span.end.max(next.end);
        }
        // Both spans may end in the same character.
        let kept_to = text.floor_char_boundary(span.start).max(kept_from);
        clean.push_str(&text[kept_from..kept_to]);
        clean.push_str(MARK);
        kept_from = text.ceil_char_boundary(span.end);
    }
    clean.push_str(&text[kept_from..]);
    clean
}

/// Returns true for letters, digits and the characters that join them in keys and names; `*` because keys are often
/// masked with it.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'*')
}

/// Returns true for the characters of both base64 alphabets.
fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_' | b'=')
}

/// Returns the end of the run of bytes that satisfy `is`, starting at `start`.
fn run_end(bytes: &[u8], start: usize, is: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.split_at(start).1;
    start + rest.iter().take_while(|&&byte| is(byte)).count()
}

/// Returns the start of the run of bytes that satisfy `is`, ending at `end`.
fn run_start(bytes: &[u8], end: usize, is: impl Fn(u8) -> bool) -> usize {
    let before = bytes.split_at(end).0;
    end - before.iter().rev().take_while(|&&byte| is(byte)).count()
}

type Spans = Vec<Range<usize>>;

#[cfg(test)]
mod tests;
