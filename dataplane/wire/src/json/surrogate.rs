//! Replaces halves of surrogate pairs. A client that cuts a text in the middle of an emoji escapes one half of the pair
//! (`\ud83d`), which no text can contain. The client cannot repair its history, so the half becomes U+FFFD.

#![expect(
    clippy::indexing_slicing,
    reason = "positions are within the text; a wrong one must fail in the fuzzer"
)]

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::{self, Finder};

use super::block::ends_escaping;

/// Replaces each unpaired surrogate in `json`, a document or the inside of a string, by the escape of U+FFFD, which has
/// the same length. Returns true if there was one.
pub(crate) fn mend_surrogates(json: &mut [u8]) -> bool {
    let (mut from, mut mended) = (0, false);
    while let Some(found) = ESCAPES.find(&json[from..]) {
        let at = from + found;
        if ends_escaping(&json[from..at], false) {
            // The backslash is itself escaped.
            from = at + ESCAPE.len();
            continue;
        }
        from = at + ESCAPE_BYTES.min(json.len() - at);
        match code(&json[at..]) {
            Some(0xd800..=0xdbff) if matches!(code(&json[from..]), Some(0xdc00..=0xdfff)) => {
                from += ESCAPE_BYTES;
            }
            Some(0xd800..=0xdfff) => {
                json[at..from].copy_from_slice(REPLACEMENT);
                mended = true;
            }
            Some(_) => {}
            // The parser rejects the escape.
            None => from = at + ESCAPE.len(),
        }
    }
    mended
}

/// Returns `json` without unpaired surrogates.
pub(crate) fn without_surrogates(json: &str) -> Cow<'_, str> {
    if memmem::find(json.as_bytes(), ESCAPE).is_none() {
        return Cow::Borrowed(json);
    }
    let mut bytes = json.as_bytes().to_vec();
    if !mend_surrogates(&mut bytes) {
        return Cow::Borrowed(json);
    }
    // Only ASCII has been replaced, by ASCII.
    String::from_utf8(bytes).map_or(Cow::Borrowed(json), Cow::Owned)
}

/// Returns the code unit of the escape at the beginning of `text`.
fn code(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(ESCAPE)?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
}

const ESCAPE: &[u8] = br"\u";
/// The length of `\u` with its four digits.
const ESCAPE_BYTES: usize = 6;
const REPLACEMENT: &[u8; ESCAPE_BYTES] = br"\ufffd";
static ESCAPES: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(ESCAPE));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unpaired_surrogates_are_replaced() {
        for (json, want) in [
            (r#"{"a":"cut \ud83d"}"#, r#"{"a":"cut \ufffd"}"#),
            (r#"{"a":"\uD83D x \uDE80"}"#, r#"{"a":"\ufffd x \ufffd"}"#),
            (r#"{"a":"\ud83d\ude80"}"#, r#"{"a":"\ud83d\ude80"}"#),
            (r#"{"a":"\ud83d\ud83d\ude80"}"#, r#"{"a":"\ufffd\ud83d\ude80"}"#),
            (r#"{"a":"\ude80\ud83d"}"#, r#"{"a":"\ufffd\ufffd"}"#),
            (r#"{"a":"\ud83d\u0041"}"#, r#"{"a":"\ufffd\u0041"}"#),
            (r#"{"a":"\ud83d\\ude80"}"#, r#"{"a":"\ufffd\\ude80"}"#),
            (r#"{"a":"\\ud83d \\\ud83d \\\\ud83d"}"#, r#"{"a":"\\ud83d \\\ufffd \\\\ud83d"}"#),
            (r#"{"a":"\u00fc \ud7ff \ue000"}"#, r#"{"a":"\u00fc \ud7ff \ue000"}"#),
            (r#"{"a":"\ud8"}"#, r#"{"a":"\ud8"}"#),
            (r"\ud83", r"\ud83"),
            (r"\ud83d\u", r"\ufffd\u"),
            (r"\uzzzz\ud83d", r"\uzzzz\ufffd"),
            ("", ""),
        ] {
            assert_eq!(without_surrogates(json), want, "{json}");
        }
    }
}
