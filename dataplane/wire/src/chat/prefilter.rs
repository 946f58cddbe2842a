//! Decides by a few substring searches whether a chunk must be parsed.
//!
//! A chunk that contains only output is never parsed. Names of members are searched for with their quotes, which are
//! always escaped inside a string, so text about usage or errors causes at most a needless parse.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::findings::TEXT_KEYS;
use crate::json::text_length;

static USAGE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"usage\""));
static ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"error\""));
/// The common end of `"error"` and `"service_tier"`.
static NAME_END: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"r\""));
static FINISH: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"finish_reason\""));
static TEXTS: LazyLock<[Finder<'static>; 5]> =
    LazyLock::new(|| TEXT_KEYS.map(|key| Finder::new(&format!("\"{key}\"")).into_owned()));

/// Returns true if `payload` may contain usage, an error or a finish reason.
pub(super) fn needs_a_look(payload: &[u8]) -> bool {
    has_value(&USAGE, payload) || has_value(&FINISH, payload) || has_value(&ERROR, payload)
}

/// Returns true if `payload` may contain an error.
pub(super) fn may_be_error(payload: &[u8]) -> bool {
    has_value(&ERROR, payload)
}

/// Returns true if `body` contains the name of an error, or that of a service tier in its first `tier_until` bytes.
/// Both names are found in one pass.
pub(super) fn names_error_or_tier(body: &[u8], tier_until: usize) -> bool {
    places(&NAME_END, body).any(|at| {
        let name = body.get(..at.saturating_add(NAME_END.needle().len())).unwrap_or_default();
        name.ends_with(b"\"error\"") || at < tier_until && name.ends_with(b"\"service_tier\"")
    })
}

/// Returns the range of the raw text in `payload` under the given one of [`TEXT_KEYS`]. `None` if there is no text.
pub(super) fn text_span(payload: &[u8], key: usize) -> Option<Range<usize>> {
    let finder = TEXTS.get(key)?;
    let after = finder.find(payload)?.saturating_add(finder.needle().len());
    let value = after_colon(payload.get(after..)?)?.strip_prefix(b"\"")?;
    let length = text_length(value)?;
    let start = payload.len().checked_sub(value.len())?;
    (length > 0).then_some(start..start.wrapping_add(length))
}

/// Returns true if `payload` contains the name with a value other than null.
fn has_value(name: &Finder<'static>, payload: &[u8]) -> bool {
    places(name, payload).any(|at| {
        let rest = payload.get(at.saturating_add(name.needle().len())..).unwrap_or_default();
        !after_colon(rest).is_some_and(|value| value.starts_with(b"null"))
    })
}

/// Returns the positions of `name` in `text`, in order. `Finder::find_iter` would first copy the finder, which is
/// larger than most chunks.
pub(super) fn places<'a>(name: &'a Finder<'static>, text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0_usize;
    std::iter::from_fn(move || {
        let at = from.saturating_add(name.find(text.get(from..)?)?);
        from = at.saturating_add(name.needle().len());
        Some(at)
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
