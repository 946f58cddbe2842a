//! The value of one top-level member, as far as the gateway wants to know it.

use std::ops::Range;

use crate::json::whole_number;

/// The last value of a top-level member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) enum Value {
    #[default]
    Absent,
    Text(Span),
    Null,
    Bool(bool),
    /// A whole number, not negative.
    Whole(u64),
    /// Any other number.
    Number,
    Object,
    Array {
        empty: bool,
    },
}

/// Where the raw bytes of a string that matters are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct Span {
    from: u32,
    to: u32,
}

impl Span {
    pub(super) fn new(range: &Range<usize>) -> Self {
        // What is kept is bounded far below what 32 bits can say.
        let place = |at: usize| at.try_into().unwrap_or(0);
        Self { from: place(range.start), to: place(range.end) }
    }

    pub(in crate::request) fn of(self, texts: &[u8]) -> &[u8] {
        let place = |at: u32| usize::try_from(at).unwrap_or(0);
        texts.get(place(self.from)..place(self.to)).unwrap_or_default()
    }
}

/// What a member may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum Kinds {
    Array,
    Text,
    TextOrArray,
    Any,
}

impl Value {
    pub(super) fn of_scalar(raw: &[u8]) -> Self {
        match raw {
            b"null" => Self::Null,
            b"true" => Self::Bool(true),
            b"false" => Self::Bool(false),
            number => whole_number(number).map_or(Self::Number, Self::Whole),
        }
    }

    /// It is there, and not null.
    pub(in crate::request) fn is_given(self) -> bool {
        !matches!(self, Self::Absent | Self::Null)
    }

    /// It is an array with elements.
    pub(in crate::request) fn has_elements(self) -> bool {
        self == Self::Array { empty: false }
    }

    pub(in crate::request) fn whole_number(self) -> Option<u64> {
        if let Self::Whole(number) = self { Some(number) } else { None }
    }

    pub(in crate::request) fn boolean(self) -> Option<bool> {
        if let Self::Bool(is) = self { Some(is) } else { None }
    }
}

impl Kinds {
    pub(in crate::request) fn fit(self, value: Value) -> bool {
        match value {
            Value::Array { .. } => self != Self::Text,
            Value::Text(_) => self != Self::Array,
            Value::Absent
            | Value::Null
            | Value::Bool(_)
            | Value::Whole(_)
            | Value::Number
            | Value::Object => self == Self::Any,
        }
    }

    /// For the client.
    pub(in crate::request) fn name(self) -> &'static str {
        match self {
            Self::Array => "an array",
            Self::Text => "a string",
            Self::TextOrArray => "a string or an array",
            Self::Any => "given",
        }
    }
}
