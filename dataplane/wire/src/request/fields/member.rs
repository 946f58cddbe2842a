//! What the gateway takes from one top-level member: its value, the bound on the answer that it sets, its misspelled name,
//! and the edits to make in its place.

use std::ops::Range;

use super::field::RequestMember;
use crate::json::{KEY_BYTES_MAX, whole_decimal, whole_number};

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
    ArrayOrObject,
    Object,
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
            MemberValue::Array { .. } => !matches!(self, Self::Text | Self::Object),
            MemberValue::Text(_) => !matches!(self, Self::Array | Self::ArrayOrObject | Self::Object),
            MemberValue::Object => matches!(self, Self::ArrayOrObject | Self::Object | Self::Any),
            MemberValue::Absent
            | MemberValue::Null
            | MemberValue::Bool(_)
            | MemberValue::Whole(_)
            | MemberValue::WholeOddly(_)
            | MemberValue::MinusOne
            | MemberValue::Number => self == Self::Any,
        }
    }

    /// Returns the name of the types for error messages to the client.
    pub(in crate::request) fn name(self) -> &'static str {
        match self {
            Self::Array | Self::ArrayOrObject => "an array",
            Self::Object => "an object",
            Self::Text => "a string",
            Self::TextOrArray => "a string or an array",
            Self::Any => "given",
        }
    }
}

/// The largest bounds on the answer that any upstream could derive from the members read so far: upstreams differ in
/// which of two names, or of two equal ones, takes precedence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::request) struct OutputBounds {
    /// The maximum tokens of one answer.
    pub(in crate::request) output: Option<u64>,
    /// True if a member requests an answer without a bound.
    pub(in crate::request) output_is_open: bool,
    /// The number of answers, pictures or videos.
    pub(in crate::request) count: Option<u64>,
    /// The first member whose value is not a valid bound.
    pub(in crate::request) unfit: Option<&'static str>,
}

impl OutputBounds {
    /// Reads one more member if it is a bound.
    #[inline]
    pub(super) fn take(&mut self, field: RequestMember, value: MemberValue) {
        let named = |names: &[(RequestMember, &'static str)]| {
            names.iter().find(|(bound, _)| *bound == field).map(|(_, name)| *name)
        };
        if let Some(name) = named(&OUTPUT) {
            self.take_output(name, value);
        } else if let Some(name) = named(&COUNTS) {
            self.take_count(name, value);
        }
    }

    /// Ollama and llama.cpp treat 0 and -1 as no bound.
    fn take_output(&mut self, name: &'static str, value: MemberValue) {
        match value {
            MemberValue::Absent | MemberValue::Null => {}
            MemberValue::MinusOne | MemberValue::Whole(0) | MemberValue::WholeOddly(0) => {
                self.output_is_open = true
            }
            MemberValue::Whole(bound) | MemberValue::WholeOddly(bound) => {
                self.output = self.output.max(Some(bound))
            }
            MemberValue::Text(_)
            | MemberValue::Bool(_)
            | MemberValue::Number
            | MemberValue::Object
            | MemberValue::Array { .. } => {
                self.unfit = self.unfit.or(Some(name));
            }
        }
    }

    fn take_count(&mut self, name: &'static str, value: MemberValue) {
        match value {
            MemberValue::Absent | MemberValue::Null => {}
            MemberValue::Whole(count) | MemberValue::WholeOddly(count) => {
                self.count = self.count.max(Some(count))
            }
            MemberValue::Text(_)
            | MemberValue::Bool(_)
            | MemberValue::MinusOne
            | MemberValue::Number
            | MemberValue::Object
            | MemberValue::Array { .. } => self.unfit = self.unfit.or(Some(name)),
        }
    }
}

const OUTPUT: [(RequestMember, &str); 4] = [
    (RequestMember::MaxTokens, "max_tokens"),
    (RequestMember::MaxCompletionTokens, "max_completion_tokens"),
    (RequestMember::MaxOutputTokens, "max_output_tokens"),
    (RequestMember::ConfiguredOutput, "generationConfig.maxOutputTokens"),
];
const COUNTS: [(RequestMember, &str); 5] = [
    (RequestMember::Count, "n"),
    (RequestMember::BestOf, "best_of"),
    (RequestMember::NumCompletions, "num_completions"),
    (RequestMember::NumGenerations, "num_generations"),
    (RequestMember::CandidateCount, "generationConfig.candidateCount"),
];

/// A member that some JSON parsers read as one that the gateway knows. Those that ignore the case of names, among them
/// Go's, read `Max_Tokens` as `max_tokens`, so that a bound could pass the gateway as an unknown member and still apply
/// upstream.
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

/// The maximum number of edits in one body. More than three occur only with repeated members.
pub(in crate::request) const EDITS_MAX: usize = 256;

/// One edit; its span is in bytes from the start of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::request) struct BodyEdit {
    pub(in crate::request) span: Range<usize>,
    pub(in crate::request) change: BodyChange,
}

/// The replacement text of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum BodyChange {
    /// The target's model as a JSON string, or the replacement for the whole member.
    Model {
        /// The distance in bytes from the member's name to its value.
        key_bytes: usize,
    },
    /// The target's model as plain text.
    PlainModel,
    /// Nothing: the member is the gateway's own. The span includes the comma that belongs to it.
    Removed,
    /// This text, if the stream is to report usage.
    Usage(&'static str),
    /// The gateway's own system text, if there is any.
    System(System),
}

/// The position of the gateway's own system text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::request) enum System {
    /// As the first message.
    Message { only: bool },
    /// As the first block of system text.
    Block { only: bool },
    /// In one string, before the request's own text.
    Text { only: bool },
    /// In place of null.
    Null,
    /// In place of null, as Gemini's whole system text.
    NullObject,
    /// As the first element of Gemini's list of parts.
    Part { only: bool },
    /// Before a part that is not in a list.
    BeforePart,
    /// After a part that is not in a list.
    AfterPart,
    /// As the member `parts` of an object without one.
    Parts { only: bool },
    /// As Gemini's whole system text, before the first member of the request.
    First,
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
