//! Tells from a few substring searches whether a chunk must be looked at more closely.
//!
//! A chunk that holds nothing but output is never parsed. A member's name is searched for with its quotes, which
//! never stand unescaped inside a string, so that text about usage or errors costs nothing but a closer look.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::answer::TEXT_KEYS;

static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"error\""));
static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"finish_reason\""));
static TEXTS: LazyLock<[Finder<'static>; 5]> =
    LazyLock::new(|| TEXT_KEYS.map(|key| Finder::new(&format!("\"{key}\"")).into_owned()));

/// Whether `payload` may hold usage, an error or a finish reason.
pub(super) fn needs_a_look(payload: &[u8]) -> bool {
    has_value(&USAGE, payload) || has_value(&FINISH, payload) || has_value(&ERROR, payload)
}

/// Whether `payload` may hold an error.
pub(super) fn may_be_error(payload: &[u8]) -> bool {
    has_value(&ERROR, payload)
}

/// How many raw bytes of text stand under the given one of [`TEXT_KEYS`]. `None` if there is no text there.
pub(super) fn text_bytes(payload: &[u8], key: usize) -> Option<usize> {
    let finder = TEXTS.get(key)?;
    let after = finder.find(payload)?.saturating_add(finder.needle().len());
    let value = after_colon(payload.get(after..)?)?.strip_prefix(b"\"")?;
    let mut from = 0;
    loop {
        let quote = from + memchr::memchr(b'"', value.get(from..)?)?;
        let text = value.get(..quote)?;
        let escapes = text.iter().rev().take_while(|&&byte| byte == b'\\').count();
        if escapes % 2 == 0 {
            return Some(quote).filter(|&length| length > 0);
        }
        from = quote.checked_add(1)?;
    }
}

/// Whether the name stands in `payload` with anything but null after it.
fn has_value(name: &Finder<'static>, payload: &[u8]) -> bool {
    name.find_iter(payload).any(|at| {
        let rest = payload.get(at.saturating_add(name.needle().len())..).unwrap_or_default();
        !after_colon(rest).is_some_and(|value| value.starts_with(b"null"))
    })
}

fn after_colon(rest: &[u8]) -> Option<&[u8]> {
    if let Some(value) = rest.strip_prefix(b":")
        && value.first().is_some_and(|byte| !byte.is_ascii_whitespace())
    {
        return Some(value);
    }
    rest.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start)
}
