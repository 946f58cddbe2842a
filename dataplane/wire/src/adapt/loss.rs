//! What becomes of each field of a client's dialect in a target's: the one statement of it (MSG-2).

use super::read::{self, Object};

/// The fate of one field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Where it stands: members joined by dots, `*` for any element, `[kind]` for an element or object of that
    /// `type`, `=value` where only that value is meant: `messages.*.content.*[image].source[file]`, `speed=fast`.
    pub field: &'static str,
    /// What becomes of it.
    pub fate: Fate,
    /// Where it goes, or why it cannot; for the documentation.
    pub note: &'static str,
}

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The same field with the same value.
    Exact,
    /// Said in other words.
    Mapped,
    /// Said in other words where the target can, dropped where it cannot; the answer means the same.
    Hint,
    /// Its loss would change what the answer means: the request is refused with the field's path.
    Rejected,
}

impl Fate {
    /// The word in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Mapped => "mapped",
            Self::Hint => "hint",
            Self::Rejected => "rejected",
        }
    }
}

/// Names at the top of a request that no row of its table speaks of, as far as they look like names.
pub(super) fn unknown(request: &Object<'_, '_>, rows: &[Loss]) -> Vec<String> {
    let first = |row: &Loss| row.field.split(['.', '=', '[']).next().unwrap_or_default();
    let plain = |name: &str| {
        (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let names = read::members(request).map(|(name, _)| name);
    let unknown = names
        .filter(|name| plain(name) && !OURS.contains(name) && !rows.iter().any(|row| first(row) == *name));
    unknown.take(NAMES_MAX).map(str::to_owned).collect()
}

/// The gateway's own members, which go to no target.
const OURS: [&str; 2] = ["affinity_key", "fallback_timeout_ms"];
/// Names that are told to the client.
const NAMES_MAX: usize = 16;
/// Bytes of one.
const NAME_BYTES_MAX: usize = 64;
