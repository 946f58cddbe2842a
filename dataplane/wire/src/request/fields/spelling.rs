//! Detects other spellings of member names. Some JSON parsers, including Go's, ignore the case of names: they read
//! `Max_Tokens` as `max_tokens`, so that a bound could pass the gateway as an unknown member and still apply upstream.

use crate::json::KEY_BYTES_MAX;

/// A member that such a parser reads as one that the gateway knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::request) struct Misspelling {
    /// The name as the client wrote it, with escapes decoded.
    pub(in crate::request) written: String,
    /// The correct name.
    pub(in crate::request) name: String,
}

impl Misspelling {
    /// Returns the misspelling if `written` differs only in case from a name for which `is_known` returns true. Known
    /// names consist of lower-case ASCII letters and other ASCII characters without case.
    #[inline]
    pub(super) fn of(written: &[u8], is_known: impl FnOnce(&[u8]) -> bool) -> Option<Self> {
        let has_case = |byte: &u8| byte.is_ascii_uppercase() || !byte.is_ascii();
        if !written.iter().any(has_case) {
            return None;
        }
        let written = std::str::from_utf8(written).ok().filter(|written| written.len() <= KEY_BYTES_MAX)?;
        let name = written.chars().map(folded).collect::<String>();
        is_known(name.as_bytes()).then(|| Self { written: written.to_owned(), name })
    }
}

/// Returns the lower-case ASCII letter that `character` folds to, or the character itself. Two non-ASCII characters
/// fold to ASCII letters in Unicode.
fn folded(character: char) -> char {
    match character {
        LONG_S => 's',
        KELVIN_SIGN => 'k',
        other => other.to_ascii_lowercase(),
    }
}

const LONG_S: char = '\u{17f}';
const KELVIN_SIGN: char = '\u{212a}';
