//! Marks the known credentials, verbatim and encoded.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

use memchr::memmem;

use super::{Spans, is_base64, is_word, run_end, run_start};

/// The minimum length of a secret to search for: words like `test` and `EMPTY` are used as keys of local servers.
pub(super) const SECRET_BYTES_MIN: usize = 6;
/// The length of a prefix that reveals a secret: text that starts with such a prefix is redacted, whatever follows.
const PREFIX_BYTES_MIN: usize = 8;

pub(super) fn mark(text: &str, secret: &str, spans: &mut Spans) {
    let secret = secret.trim();
    if secret.len() < SECRET_BYTES_MIN || super::MARK.contains(secret) {
        return;
    }
    let bytes = text.as_bytes();
    find(bytes, secret.as_bytes(), spans);
    mark_prefixes(bytes, secret, spans);
    hex_forms(secret).iter().for_each(|hex| find(bytes, hex, spans));
    base64_cores(secret).iter().for_each(|core| mark_encoded(bytes, core, spans));
    if memchr::memchr(b'%', bytes).is_some() {
        mark_percent(bytes, secret, spans);
    }
}

fn find(text: &[u8], needle: &[u8], spans: &mut Spans) {
    spans.extend(memmem::find_iter(text, needle).map(|at| at..at + needle.len()));
}

/// Marks the prefix of a secret and the rest of it, which may be masked.
fn mark_prefixes(text: &[u8], secret: &str, spans: &mut Spans) {
    let Some(prefix) = secret.get(..PREFIX_BYTES_MIN) else { return };
    let mut end = 0;
    for at in memmem::find_iter(text, prefix) {
        if at < end {
            continue;
        }
        // A mask consists of asterisks, dots or bullets; dots and bullets may be non-ASCII.
        end = run_end(text, at + prefix.len(), |byte| is_word(byte) || byte == b'.' || byte >= 0x80);
        spans.push(at..end);
    }
}

fn hex(secret: &str, digits: &[u8; 16]) -> Vec<u8> {
    let digit = |nibble: u8| digits[usize::from(nibble)];
    secret.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Returns the secret in lower-case and in upper-case hexadecimal digits.
pub(super) fn hex_forms(secret: &str) -> [Vec<u8>; 2] {
    [hex(secret, b"0123456789abcdef"), hex(secret, b"0123456789ABCDEF")]
}

/// Returns the characters that every base64 encoding of data with the secret in it has in common: one for each of the
/// three positions of the secret in a group, in both alphabets.
pub(super) fn base64_cores(secret: &str) -> Vec<Vec<u8>> {
    let mut cores = Vec::new();
    for before in 0..3 {
        let core = base64_core(secret, before);
        let in_url = |byte: &u8| match byte {
            b'+' => b'-',
            b'/' => b'_',
            other => *other,
        };
        let url_core: Vec<u8> = core.iter().map(in_url).collect();
        if url_core != core {
            cores.push(url_core);
        }
        cores.push(core);
    }
    cores
}

/// Marks the whole base64 run that contains `core`.
fn mark_encoded(text: &[u8], core: &[u8], spans: &mut Spans) {
    if core.len() < PREFIX_BYTES_MIN {
        return;
    }
    let mut end = 0;
    for at in memmem::find_iter(text, core) {
        if at >= end {
            end = run_end(text, at, is_base64);
            spans.push(run_start(text, at, is_base64)..end);
        }
    }
}

/// Returns the base64 characters that depend on the secret only, if `before` bytes precede it.
fn base64_core(secret: &str, before: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut core = Vec::new();
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in std::iter::repeat_n(0, before).chain(secret.bytes()) {
        bits = (bits << 8 | u32::from(byte)) & 0xffff;
        count += 8;
        while count >= 6 {
            count -= 6;
            let [index, ..] = (bits >> count & 63).to_le_bytes();
            core.push(ALPHABET[usize::from(index)]);
        }
    }
    core.split_off([0, 2, 3][before].min(core.len()))
}

/// Marks the secret with any of its characters written as `%XX`.
fn mark_percent(text: &[u8], secret: &str, spans: &mut Spans) {
    let (decoded, origins) = percent_decoded(text);
    for found in memmem::find_iter(&decoded, secret) {
        let start = origins[found];
        let end = origins.get(found + secret.len()).copied().unwrap_or(text.len());
        spans.push(start..end);
    }
}

/// Returns `text` with each `%XX` decoded, and for each decoded byte its position in `text`.
pub(super) fn percent_decoded(text: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut decoded, mut origins) = (Vec::with_capacity(text.len()), Vec::with_capacity(text.len()));
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let pair = text.get(at + 1..at + 3);
        let value = pair.filter(|_| byte == b'%').and_then(|pair| {
            let digit = |index: usize| char::from(*pair.get(index)?).to_digit(16);
            u8::try_from(digit(0)? * 16 + digit(1)?).ok()
        });
        decoded.push(value.unwrap_or(byte));
        origins.push(at);
        at += if value.is_some() { 3 } else { 1 };
    }
    (decoded, origins)
}
