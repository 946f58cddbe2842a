//! Marks values that a preceding label marks as secret: `api_key=..`, `Authorization: Bearer ..`, or an opaque string
//! within a few words after `key`, `token` or `secret`.

use super::{Spans, is_word, run_end};

/// Names whose values are always credentials.
const STRONG: [&str; 12] = [
    "api_key",
    "api-key",
    "apikey",
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "secret_key",
    "access_key",
    "password",
    "passwd",
    "authorization",
];
/// Suffixes of names whose values may be credentials; a credential may also follow them in prose.
const WEAK: [&str; 8] = ["key", "keys", "token", "secret", "credential", "credentials", "auth", "signature"];
const SCHEMES: [&str; 4] = ["bearer", "basic", "token", "apikey"];

/// The maximum length of a name or scheme.
const NAME_BYTES_MAX: usize = 64;
/// The maximum number of words, and of bytes, between a label in prose and the credential.
const WORDS_AFTER: usize = 4;
const BYTES_AFTER: usize = 80;

pub(super) fn mark(text: &str, spans: &mut Spans) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if !is_word(byte) {
            at += 1;
            continue;
        }
        let end = run_end(bytes, at, is_word);
        // The digits of `%3F` before a name do not belong to it.
        let after_percent = at.checked_sub(1).and_then(|before| bytes.get(before)) == Some(&b'%');
        let at_name = if after_percent { (at + 2).min(end) } else { at };
        let marked = label_at(bytes, at_name, end).and_then(|label| match label {
            Label::Scheme => scheme_value(bytes, end),
            Label::Strong => value(bytes, end, true).or_else(|| quoted_nearby(bytes, end)),
            Label::Weak => value(bytes, end, false).or_else(|| quoted_nearby(bytes, end)),
        });
        // Marked text is not scanned again, so each byte is read at most once per label near it.
        at = marked.as_ref().map_or(end, |span| span.end.max(end));
        spans.extend(marked);
    }
}

enum Label {
    Scheme,
    Strong,
    Weak,
}

fn label_at(text: &[u8], start: usize, end: usize) -> Option<Label> {
    let word = text.get(start..end).filter(|word| word.len() <= NAME_BYTES_MAX)?;
    let word = std::str::from_utf8(word).ok()?.to_ascii_lowercase();
    if matches!(word.as_str(), "bearer" | "basic") {
        return Some(Label::Scheme);
    }
    if STRONG.iter().any(|name| word.ends_with(name)) {
        return Some(Label::Strong);
    }
    let is_weak = WEAK.iter().any(|name| {
        word.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with(['_', '-']))
    });
    is_weak.then_some(Label::Weak)
}

/// Returns the span of the value after `Bearer` or `Basic`.
fn scheme_value(text: &[u8], end: usize) -> Option<std::ops::Range<usize>> {
    let start = skip(text, end, 4, |byte| matches!(byte, b' ' | b'\t' | b'+' | b'"' | b'\'' | b':' | b'='));
    let start = skip_encoded(text, start);
    let value_end = run_end(text, start, is_value);
    let value = text.get(start..value_end)?;
    (start > end && value.len() >= 6 && !is_prose(value)).then_some(start..value_end)
}

/// Returns the span of the value after a name and `=` or `:`, with or without quotes.
fn value(text: &[u8], end: usize, strong: bool) -> Option<std::ops::Range<usize>> {
    let quote = |byte: u8| matches!(byte, b'"' | b'\'' | b'\\' | b'`');
    let blank = |byte: u8| matches!(byte, b' ' | b'\t');
    let at = skip(text, skip(text, end, 2, quote), 4, blank);
    let separator = text.get(at..)?;
    let (at, is_equal) = match separator {
        [b'=', ..] => (at + 1, true),
        [b':', ..] => (at + 1, false),
        [b'%', b'3', b'D' | b'd', ..] => (at + 3, true),
        _ => return None,
    };
    let mut start = skip(text, skip(text, at, 4, blank), 2, quote);
    let word_end = run_end(text, start, is_word);
    let word = text.get(start..word_end)?.to_ascii_lowercase();
    if SCHEMES.iter().any(|scheme| scheme.as_bytes() == word) && text.get(word_end) == Some(&b' ') {
        start = word_end + 1;
    }
    let value_end = run_end(text, start, is_value);
    let value = text.get(start..value_end)?;
    let always = strong && is_equal;
    (value.len() >= 4 && (always || !is_prose(value))).then_some(start..value_end)
}

/// Returns the span of an opaque string shortly after a word like `key`: `Incorrect API key provided: ...`.
fn quoted_nearby(text: &[u8], end: usize) -> Option<std::ops::Range<usize>> {
    let limit = (end + BYTES_AFTER).min(text.len());
    let mut at = end;
    for _ in 0..WORDS_AFTER {
        let gap = text.get(at..limit)?.iter().position(|&byte| is_word(byte))?;
        let start = at + gap;
        at = run_end(text, start, is_word);
        if is_opaque(text.get(start..at)?) {
            return Some(start..at);
        }
    }
    None
}

/// Returns true if `word` has a part of letters and digits that is longer than in any model name, date or word.
fn is_opaque(word: &[u8]) -> bool {
    word.split(|byte| matches!(byte, b'-' | b'_')).any(|part| {
        let digits = part.iter().filter(|byte| byte.is_ascii_digit()).count();
        let masked = part.iter().filter(|byte| **byte == b'*').count();
        let mixed = part.iter().any(u8::is_ascii_lowercase)
            && part.iter().skip(1).filter(|byte| byte.is_ascii_uppercase()).count() > 2;
        (part.len() >= 12 && digits > 0 && digits < part.len())
            || (part.len() >= 20 && mixed)
            || part.len() >= 32
            || (masked > 2 && part.len() > masked)
    })
}

/// Returns true for text that is not a credential: few characters that are all letters, or a short number.
fn is_prose(value: &[u8]) -> bool {
    let value = value.trim_ascii_end();
    let end = value.iter().rev().take_while(|byte| matches!(byte, b'.' | b':' | b'=')).count();
    let value = value.split_at(value.len() - end).0;
    let letters = value.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-' | b'\''));
    let upper = value.iter().skip(1).filter(|byte| byte.is_ascii_uppercase()).count();
    let lower = value.iter().any(u8::is_ascii_lowercase);
    (letters && value.len() < 20 && (upper == 0 || !lower))
        || (value.len() <= 8 && value.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.'))
}

fn is_value(byte: u8) -> bool {
    is_word(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=' | b'%' | b':' | b'@' | b'!' | b'$')
}

fn skip(text: &[u8], at: usize, most: usize, is: impl Fn(u8) -> bool) -> usize {
    run_end(text, at, is).min(at + most)
}

fn skip_encoded(text: &[u8], at: usize) -> usize {
    let is_blank = text.get(at..at + 3) == Some(b"%20".as_slice());
    if is_blank { at + 3 } else { at }
}
