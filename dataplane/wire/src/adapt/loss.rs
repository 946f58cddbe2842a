//! What becomes of each field of a client's dialect in a target's: the one statement of it (MSG-2).

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
