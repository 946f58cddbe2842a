//! The parts of a top-level member's value that the gateway needs.

use std::ops::Range;

use crate::json::{whole_decimal, whole_number};

/// The last value of a top-level member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) enum MemberValue {
    #[default]
    Absent,
    Text(TextSpan),
    Null,
    Bool(bool),
    /// A non-negative integer, written with digits only.
    Whole(u64),
    /// A non-negative integral number with a fraction or an exponent, or one too large for 64 bits, which saturates.
    WholeOddly(u64),
    MinusOne,
    /// Any other number.
    Number,
    Object,
    Array {
        empty: bool,
    },
}

/// The range of a kept string's raw bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct TextSpan {
    from: u32,
    to: u32,
}

impl TextSpan {
    pub(super) fn new(range: &Range<usize>) -> Self {
        // The kept bytes are bounded far below 4 GiB.
        let place = |at: usize| at.try_into().unwrap_or(u32::MAX);
        Self { from: place(range.start), to: place(range.end) }
    }

    pub(in crate::request) fn of(self, texts: &[u8]) -> &[u8] {
        let place = |at: u32| usize::try_from(at).unwrap_or(usize::MAX);
        // The model's name takes the bytes along if all other kept texts are empty.
        texts.get(place(self.from)..place(self.to)).unwrap_or_default()
    }
}

/// The types that a member may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum Kinds {
    Array,
    Text,
    TextOrArray,
    Any,
}

impl MemberValue {
    pub(super) fn of_scalar(raw: &[u8]) -> Self {
        match raw {
            b"null" => Self::Null,
            b"true" => Self::Bool(true),
            b"false" => Self::Bool(false),
            b"-1" => Self::MinusOne,
            number => match whole_number(number) {
                Some(whole) => Self::Whole(whole),
                None => whole_decimal(number).map_or(Self::Number, Self::WholeOddly),
            },
        }
    }

    /// True if the member is present and not null.
    pub(in crate::request) fn is_given(self) -> bool {
        !matches!(self, Self::Absent | Self::Null)
    }

    /// True if the member is an array with elements.
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
    pub(in crate::request) fn fit(self, value: MemberValue) -> bool {
        match value {
            MemberValue::Array { .. } => self != Self::Text,
            MemberValue::Text(_) => self != Self::Array,
            MemberValue::Absent
            | MemberValue::Null
            | MemberValue::Bool(_)
            | MemberValue::Whole(_)
            | MemberValue::WholeOddly(_)
            | MemberValue::MinusOne
            | MemberValue::Number
            | MemberValue::Object => self == Self::Any,
        }
    }

    /// Returns the name of the types for error messages to the client.
    pub(in crate::request) fn name(self) -> &'static str {
        match self {
            Self::Array => "an array",
            Self::Text => "a string",
            Self::TextOrArray => "a string or an array",
            Self::Any => "given",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_in_any_notation() {
        for (raw, want) in [
            ("7", MemberValue::Whole(7)),
            ("18446744073709551615", MemberValue::Whole(u64::MAX)),
            ("18446744073709551616", MemberValue::WholeOddly(u64::MAX)),
            ("1e2", MemberValue::WholeOddly(100)),
            ("1E+2", MemberValue::WholeOddly(100)),
            ("100.0", MemberValue::WholeOddly(100)),
            ("1.50e1", MemberValue::WholeOddly(15)),
            ("1500e-2", MemberValue::WholeOddly(15)),
            ("0e99999999999999999999", MemberValue::WholeOddly(0)),
            ("1e99999999999999999999", MemberValue::WholeOddly(u64::MAX)),
            ("0.000001e6", MemberValue::WholeOddly(1)),
            ("-0", MemberValue::WholeOddly(0)),
            ("-0.0", MemberValue::WholeOddly(0)),
            ("-1", MemberValue::MinusOne),
            ("-2", MemberValue::Number),
            ("-1.0", MemberValue::Number),
            ("1.5", MemberValue::Number),
            ("15e-1", MemberValue::Number),
            ("1e-99999999999999999999", MemberValue::Number),
        ] {
            assert_eq!(MemberValue::of_scalar(raw.as_bytes()), want, "{raw}");
        }
    }
}
