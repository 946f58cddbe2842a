//! Converts between the raw bytes of one JSON string and its text.

use std::borrow::Cow;

use super::without_surrogates;

/// Decodes the raw bytes between two quotes. `None` if an escape is invalid, a surrogate is unpaired, a control
/// character is unescaped, or the bytes are not UTF-8. See `unescape_mended` for texts whose loss would be worse.
pub fn unescape(raw: &[u8]) -> Option<String> {
    if stands_for_itself(raw) {
        return std::str::from_utf8(raw).ok().map(str::to_owned);
    }
    let mut quoted = Vec::with_capacity(raw.len() + 2);
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// Like `unescape`, but unpaired surrogates become U+FFFD.
pub(crate) fn unescape_mended(raw: &str) -> Option<String> {
    unescape(without_surrogates(raw).as_bytes())
}

/// Decodes a member name or the start of a value, as far as it is valid. Borrows in the common case without escapes.
pub(crate) fn unescaped(raw: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', raw).is_none() {
        return raw.into();
    }
    unescape(raw).map_or_else(|| raw.into(), |text| text.into_bytes().into())
}

/// Like `unescape`, but takes the bytes by value to avoid a copy.
pub fn unescape_owned(raw: Vec<u8>) -> Option<String> {
    if stands_for_itself(&raw) { String::from_utf8(raw).ok() } else { unescape(&raw) }
}

fn stands_for_itself(raw: &[u8]) -> bool {
    raw.iter().all(|&byte| byte >= 0x20 && byte != b'\\')
}

/// Returns `raw` if it can be written between quotes unchanged: all its escapes are valid, and none encodes a
/// surrogate.
pub(crate) fn escaped(raw: &[u8]) -> Option<&str> {
    let mut bytes = raw.iter();
    while let Some(byte) = bytes.next() {
        let fits = match byte {
            0..=0x1f | b'"' => false,
            b'\\' => match bytes.next() {
                Some(b'u') => is_character(&mut bytes),
                escaped => escaped.is_some_and(|byte| br#""\/bfnrt"#.contains(byte)),
            },
            _ => true,
        };
        if !fits {
            return None;
        }
    }
    std::str::from_utf8(raw).ok()
}

/// True if the next four digits are the code of a character. Consumes them.
fn is_character(bytes: &mut std::slice::Iter<'_, u8>) -> bool {
    let digits = bytes.as_slice().first_chunk::<4>().and_then(|digits| std::str::from_utf8(digits).ok());
    bytes.by_ref().take(4).for_each(drop);
    let is_hex = |digits: &&str| digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = digits.filter(is_hex).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    number.is_some_and(|number| char::from_u32(number).is_some())
}

/// Returns `text` as a JSON string, quotes included.
pub fn quote(text: &str) -> String {
    // A loop over all bytes without an early exit compiles to vector instructions.
    let has_odd =
        text.bytes().fold(false, |odd, byte| odd | (byte < b' ') | (byte == b'"') | (byte == b'\\'));
    if !has_odd {
        return ["\"", text, "\""].concat();
    }
    // Writing a string to memory cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_json_escapes_are_decoded_and_others_rejected() {
        let rows: [(&str, &[u8], Option<&str>); 8] = [
            ("plain", b"gpt-4", Some("gpt-4")),
            ("escaped letter", br"m\u006fdel", Some("model")),
            ("pair", br"\ud83d\ude80", Some("\u{1f680}")),
            ("quote", br#"a\"b\\"#, Some("a\"b\\")),
            ("lone surrogate", br"\ud83d", None),
            ("unknown escape", br"\x41", None),
            ("bare control", b"a\nb", None),
            ("not UTF-8", b"\xff", None),
        ];
        for (name, raw, want) in rows {
            assert_eq!(unescape(raw).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn only_valid_string_contents_are_escaped_text() {
        let rows: [(&[u8], bool); 14] = [
            (b"", true),
            ("a \u{fc}\u{1f680}".as_bytes(), true),
            (br#"\" \\ \/ \b\f\n\r\t"#, true),
            (br"\u003c\uFFFFf", true),
            (b"\"", false),
            (b"a\n", false),
            (br"\x", false),
            (b"\\", false),
            (br"\u12", false),
            (br"\u12g4", false),
            (br"\u+123", false),
            (br"\ud83d\ude80", false),
            (br"\uDE80", false),
            (b"\xff", false),
        ];
        for (raw, want) in rows {
            assert_eq!(escaped(raw).is_some(), want, "{}", String::from_utf8_lossy(raw));
        }
    }

    #[test]
    fn quoted_text_round_trips() {
        for text in ["", "a/b", "\"\\\n\u{1}\u{1f680}"] {
            let quoted = quote(text);
            assert_eq!(unescape(&quoted.as_bytes()[1..quoted.len() - 1]).as_deref(), Some(text));
        }
    }
}
