//! Other spellings of member names. Some JSON parsers, Go's among them, ignore the case of names: they read `Max_Tokens`
//! as `max_tokens`, so that a bound could pass the gateway as an unknown member and still hold upstream.

use crate::json::KEY_BYTES_MAX;

/// A member that such a parser reads as one that the gateway knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::request) struct Misspelling {
    /// The name as the client wrote it, without escapes.
    pub(in crate::request) written: String,
    /// The right name.
    pub(in crate::request) name: String,
}

impl Misspelling {
    /// Returns the misspelling if `written` differs from a name that `is_known` in case alone. Known names are of
    /// lower-case ASCII letters and other ASCII characters that have no case.
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

/// The lower-case ASCII letter that `character` folds to, or the character itself. Unicode folds two other characters to
/// ASCII letters.
fn folded(character: char) -> char {
    match character {
        LONG_S => 's',
        KELVIN_SIGN => 'k',
        other => other.to_ascii_lowercase(),
    }
}

const LONG_S: char = '\u{17f}';
const KELVIN_SIGN: char = '\u{212a}';
