//! Tables that define the fate of each field of a client's dialect in a target's (MSG-2).

use super::Rejection;

/// The fate of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The field's path: members joined by dots, `*` for any element, `[kind]` for an element or object of that `type`,
    /// `=value` for only that value: `messages.*.content.*[image].source[file]`, `speed=fast`.
    pub field: &'static str,
    /// The fate of the field.
    pub fate: Fate,
    /// The field's destination, or the reason why it has no destination; for the documentation.
    pub note: &'static str,
}

/// The fate of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Kept: the same field with the same value.
    Exact,
    /// Translated into an equivalent.
    Mapped,
    /// Translated where the target has an equivalent and dropped elsewhere; the meaning of the answer does not change.
    Hint,
    /// Dropping it would change the meaning of the answer: the request is rejected with the field's path.
    Rejected,
}

impl Fate {
    /// The name of the fate in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Mapped => "mapped",
            Self::Hint => "hint",
            Self::Rejected => "rejected",
        }
    }
}

/// Returns the row of a field that is kept.
pub(super) const fn exact(field: &'static str, note: &'static str) -> Loss {
    Loss { field, fate: Fate::Exact, note }
}

/// Returns the row of a field that becomes `note`.
pub(super) const fn mapped(field: &'static str, note: &'static str) -> Loss {
    Loss { field, fate: Fate::Mapped, note }
}

/// Returns the row of a field that may be dropped.
pub(super) const fn hint(field: &'static str, note: &'static str) -> Loss {
    Loss { field, fate: Fate::Hint, note }
}

/// Returns the row of a field that is rejected; `note` completes the sentence that begins with its path.
pub(super) const fn rejected(field: &'static str, note: &'static str) -> Loss {
    Loss { field, fate: Fate::Rejected, note }
}

/// Returns the row of `field` in a table of losses.
pub(super) fn row(rows: &'static [Loss], field: &str) -> Option<&'static Loss> {
    let found = rows.iter().find(|row| row.field == field);
    debug_assert!(found.is_some(), "{field} has a row in the table of losses");
    found
}

/// Returns the rejection of the value at `param`, with the reason from the row of `field`.
pub(super) fn refuse(rows: &'static [Loss], field: &str, param: impl Into<String>) -> Rejection {
    Rejection::new(param, row(rows, field).map_or("is not supported by this target.", |row| row.note))
}

/// Returns those of a request's top-level names that no row of its table covers, if they look like names.
pub(super) fn unknown<'a>(names: impl Iterator<Item = &'a str>, rows: &[Loss]) -> Vec<String> {
    let first = |row: &Loss| row.field.split(['.', '=', '[']).next().unwrap_or_default();
    let plain = |name: &str| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let unknown = names
        .filter(|name| plain(name) && !OURS.contains(name) && !rows.iter().any(|row| first(row) == *name));
    unknown.take(NAMES_MAX).map(str::to_owned).collect()
}

/// Members of the gateway's API, which are sent to no target.
const OURS: [&str; 2] = ["affinity_key", "fallback_timeout_ms"];
/// The maximum number of names reported to the client.
const NAMES_MAX: usize = 16;
/// The maximum length in bytes of a reported name.
const NAME_BYTES_MAX: usize = 64;
