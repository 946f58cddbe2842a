//! The text of one JSON string: from its raw bytes, and back.

/// What the raw bytes between two quotes stand for. `None` if an escape is wrong, a surrogate stands alone, a
/// control character is bare, or the bytes are not UTF-8.
pub fn unescape(raw: &[u8]) -> Option<String> {
    if stands_for_itself(raw) {
        return std::str::from_utf8(raw).ok().map(str::to_owned);
    }
    let mut quoted = Vec::with_capacity(raw.len().saturating_add(2));
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    serde_json::from_slice(&quoted).ok()
}

/// The same of bytes that are not needed any more.
pub fn unescape_owned(raw: Vec<u8>) -> Option<String> {
    if stands_for_itself(&raw) { String::from_utf8(raw).ok() } else { unescape(&raw) }
}

fn stands_for_itself(raw: &[u8]) -> bool {
    raw.iter().all(|&byte| byte >= 0x20 && byte != b'\\')
}

/// `text` as a JSON string, quotes included.
pub fn quote(text: &str) -> String {
    // Writing a string to memory cannot fail.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescapes_what_json_allows_and_refuses_the_rest() {
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
    fn quotes_so_that_it_reads_back() {
        for text in ["", "a/b", "\"\\\n\u{1}\u{1f680}"] {
            let quoted = quote(text);
            assert_eq!(unescape(&quoted.as_bytes()[1..quoted.len() - 1]).as_deref(), Some(text));
        }
    }
}
