//! Marks text that has the shape of a credential: keys with a vendor's prefix, JSON web tokens, private keys, and
//! passwords in URLs.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

use memchr::memmem;

use super::{Spans, is_word, run_end};

/// Prefixes of keys, and the minimum number of characters that must follow each.
const PREFIXES: [(&str, usize); 30] = [
    ("sk-", 8),
    ("sk_", 32),
    ("sk_live_", 8),
    ("sk_test_", 8),
    ("rk_live_", 8),
    ("pk-lf-", 8),
    ("AIza", 16),
    ("gsk_", 8),
    ("xai-", 8),
    ("hf_", 8),
    ("r8_", 8),
    ("llmgw_", 8),
    ("ABSK", 16),
    ("AKIA", 12),
    ("ASIA", 12),
    ("ghp_", 8),
    ("gho_", 8),
    ("ghu_", 8),
    ("ghs_", 8),
    ("ghr_", 8),
    ("github_pat_", 8),
    ("glpat-", 8),
    ("pplx-", 16),
    ("nvapi-", 16),
    ("csk-", 16),
    ("fw_", 16),
    ("tgp_v1_", 8),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("ya29.", 8),
];

/// The maximum length of a user name and password in a URL.
const USERINFO_BYTES_MAX: usize = 512;

pub(super) fn mark(text: &str, spans: &mut Spans) {
    let bytes = text.as_bytes();
    for (prefix, more) in PREFIXES {
        mark_prefix(bytes, prefix.as_bytes(), more, spans);
    }
    mark_web_tokens(bytes, spans);
    mark_userinfo(bytes, spans);
    mark_private_keys(bytes, spans);
}

fn mark_prefix(text: &[u8], prefix: &[u8], more: usize, spans: &mut Spans) {
    let mut end = 0;
    for at in memmem::find_iter(text, prefix) {
        if at < end || !begins_word(text, at) {
            continue;
        }
        let body = at + prefix.len();
        end = run_end(text, body, is_key);
        let body = &text[body..end];
        let body = &body[..body.len() - dots(body)];
        if body.len() >= more && !is_prose(body) {
            spans.push(at..at + prefix.len() + body.len());
        }
    }
}

/// Returns true for the characters of keys. Keys may also be masked with dots or bullets; non-ASCII ones have several bytes.
fn is_key(byte: u8) -> bool {
    is_word(byte) || byte == b'.' || byte >= 0x80
}

fn dots(body: &[u8]) -> usize {
    body.iter().rev().take_while(|&&byte| byte == b'.').count()
}

/// Returns true for lower-case words joined by hyphens, such as a package name.
fn is_prose(body: &[u8]) -> bool {
    body.len() < 24 && body.iter().all(|byte| byte.is_ascii_lowercase() || *byte == b'-')
}

fn begins_word(text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    let encoded = at.checked_sub(3).and_then(|before| text.get(before)) == Some(&b'%');
    encoded || !before.is_some_and(u8::is_ascii_alphanumeric)
}

/// Marks `eyJ`, the beginning of a base64-encoded JSON object, and what follows it up to the end of the token.
fn mark_web_tokens(text: &[u8], spans: &mut Spans) {
    let mut end = 0;
    for at in memmem::find_iter(text, b"eyJ") {
        if at < end || !begins_word(text, at) {
            continue;
        }
        end = run_end(text, at, |byte| is_word(byte) || byte == b'.' || byte == b'=');
        let token = &text[at..end];
        let token = &token[..token.len() - dots(token)];
        if token.len() >= 16 {
            spans.push(at..at + token.len());
        }
    }
}

fn mark_userinfo(text: &[u8], spans: &mut Spans) {
    for at in memmem::find_iter(text, b"://") {
        let start = at + 3;
        let rest = &text[start..];
        let rest = rest.get(..USERINFO_BYTES_MAX).unwrap_or(rest);
        let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/?#\"'<>\\[".contains(byte);
        let authority = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
        if let Some(userinfo) = memchr::memrchr(b'@', authority).filter(|&length| length > 0) {
            spans.push(start..start + userinfo);
        }
    }
}

fn mark_private_keys(text: &[u8], spans: &mut Spans) {
    let mut end = 0;
    for at in memmem::find_iter(text, b"-----BEGIN ") {
        if at < end {
            continue;
        }
        let rest = &text[at..];
        let label = rest.get(..64).unwrap_or(rest);
        if memmem::find(label, b"PRIVATE KEY").is_none() {
            continue;
        }
        let length = memmem::find(rest, b"-----END ").unwrap_or(rest.len());
        end = at + length;
        spans.push(at..end);
    }
}
