//! An incremental scanner over the pieces of one JSON object.
//!
//! It tells a [`Sink`] where each token stands and keeps nothing but its place: one bit a level of nesting, so
//! that pieces may be cut anywhere and any size of document passes in constant memory. Strings are skipped by
//! searching for the next quote and counting the backslashes before it. The structure, numbers and literals are
//! checked everywhere; what stands inside a string is not.

use std::fmt;

use memchr::memchr;

use super::limit::DEPTH_MAX;

/// Where a token stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of the container that holds the token: 0 for the root object itself, 1 for its members.
    pub depth: u32,
    /// Bytes before it, over all pieces.
    pub offset: usize,
}

/// What is done with the tokens. Every method does nothing unless it is given.
pub trait Sink {
    /// An object or array begins at `at`.
    fn open(&mut self, at: Place, object: bool) {
        let _ = (at, object);
    }
    /// It has ended before `at`.
    fn close(&mut self, at: Place) {
        let _ = at;
    }
    /// A string begins with the quote at `at`; it is a member's name if `key`.
    fn text_start(&mut self, at: Place, key: bool) {
        let _ = (at, key);
    }
    /// It has ended before `at`.
    fn text_end(&mut self, at: Place, key: bool) {
        let _ = (at, key);
    }
    /// A number, `true`, `false` or `null` begins at `at`.
    fn scalar_start(&mut self, at: Place) {
        let _ = at;
    }
    /// It has ended before `at`.
    fn scalar_end(&mut self, at: Place) {
        let _ = at;
    }
    /// Some raw bytes of the string (without its quotes) or scalar that is open.
    fn piece(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }
    /// A comma between two members or elements.
    fn comma(&mut self, at: Place) {
        let _ = at;
    }
}

/// What is wrong with a document, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes before the fault.
    pub offset: usize,
    /// What it is.
    pub what: What,
}

/// The ways in which a document can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The root is JSON but not an object.
    NotObject,
    /// More than [`DEPTH_MAX`] levels.
    TooDeep,
    /// This byte cannot stand here.
    Unexpected(u8),
    /// The document ended before the root object did.
    Truncated,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.offset;
        match self.what {
            What::NotObject => write!(f, "expected a JSON object at byte {offset}"),
            What::TooDeep => write!(f, "more than {DEPTH_MAX} levels of nesting at byte {offset}"),
            What::Unexpected(byte) => {
                write!(f, "unexpected '{}' at byte {offset}", std::ascii::escape_default(byte))
            }
            What::Truncated => write!(f, "the document ends too early, at byte {offset}"),
        }
    }
}

impl std::error::Error for Fault {}

/// The scanner. After a fault it is not to be pushed to again.
#[derive(Debug, Default)]
pub struct Scanner {
    state: State,
    depth: u32,
    /// Bit `n` is set if the container at depth `n + 1` is an object.
    objects: u128,
    /// Bytes of all earlier pieces.
    before: usize,
    /// The part of the open string that was seen ends in an odd run of backslashes.
    escaping: bool,
}

/// ```text
/// Start -{-> FirstKey -"-> Text(key) -"-> Colon -:-> Value -> Text, Scalar, FirstKey or FirstValue -> After
///   After -,-> Key or Value     After -}]-> After, or End when the root object closes
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    FirstKey,
    Key,
    Colon,
    FirstValue,
    Value,
    Text {
        key: bool,
    },
    Scalar(Scalar),
    After,
    End,
}

impl Scanner {
    /// A scanner before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece.
    pub fn push<S: Sink>(&mut self, piece: &[u8], sink: &mut S) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(&byte) = piece.get(at) {
            at = match self.state {
                State::Text { key } => self.text(piece, at, key, sink),
                State::Scalar(scalar) => self.scalar(piece, at, scalar, sink)?,
                State::Start
                | State::FirstKey
                | State::Key
                | State::Colon
                | State::FirstValue
                | State::Value
                | State::After
                | State::End => {
                    if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                        self.structure(byte, at, sink)?;
                    }
                    at.saturating_add(usize::from(!matches!(self.state, State::Scalar(_))))
                }
            };
        }
        self.before = self.before.saturating_add(piece.len());
        Ok(())
    }

    /// Whether the root object has closed.
    pub fn is_complete(&self) -> bool {
        self.state == State::End
    }

    /// The document has ended.
    pub fn finish(&self) -> Result<(), Fault> {
        if self.is_complete() { Ok(()) } else { Err(Fault { offset: self.before, what: What::Truncated }) }
    }

    fn place(&self, at: usize) -> Place {
        Place { depth: self.depth, offset: self.before.saturating_add(at) }
    }

    fn in_object(&self) -> bool {
        self.objects & bit(self.depth) != 0
    }

    #[inline]
    fn structure<S: Sink>(&mut self, byte: u8, at: usize, sink: &mut S) -> Result<(), Fault> {
        let here = self.place(at);
        let unexpected = Err(Fault { offset: here.offset, what: What::Unexpected(byte) });
        let value_fits = matches!(self.state, State::Value | State::FirstValue);
        self.state = match byte {
            b'"' if matches!(self.state, State::Key | State::FirstKey) => self.quote(here, true, sink),
            b'"' if value_fits => self.quote(here, false, sink),
            b':' if self.state == State::Colon => State::Value,
            b',' if self.state == State::After => {
                sink.comma(here);
                if self.in_object() { State::Key } else { State::Value }
            }
            b'{' if value_fits || self.state == State::Start => self.open(here, true, sink)?,
            b'[' if value_fits => self.open(here, false, sink)?,
            b'}' if self.in_object() && matches!(self.state, State::FirstKey | State::After) => {
                self.close(here, sink)
            }
            b']' if !self.in_object()
                && self.depth > 0
                && matches!(self.state, State::FirstValue | State::After) =>
            {
                self.close(here, sink)
            }
            _ if value_fits => match Scalar::start(byte) {
                Some(scalar) => {
                    sink.scalar_start(here);
                    State::Scalar(scalar)
                }
                None => return unexpected,
            },
            b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n' if self.state == State::Start => {
                return Err(Fault { offset: here.offset, what: What::NotObject });
            }
            _ => return unexpected,
        };
        Ok(())
    }

    fn quote<S: Sink>(&mut self, here: Place, key: bool, sink: &mut S) -> State {
        self.escaping = false;
        sink.text_start(here, key);
        State::Text { key }
    }

    fn open<S: Sink>(&mut self, here: Place, object: bool, sink: &mut S) -> Result<State, Fault> {
        if self.depth >= DEPTH_MAX {
            return Err(Fault { offset: here.offset, what: What::TooDeep });
        }
        sink.open(here, object);
        self.depth += 1;
        if object {
            self.objects |= bit(self.depth);
            Ok(State::FirstKey)
        } else {
            self.objects &= !bit(self.depth);
            Ok(State::FirstValue)
        }
    }

    fn close<S: Sink>(&mut self, here: Place, sink: &mut S) -> State {
        self.depth = self.depth.saturating_sub(1);
        sink.close(Place { depth: self.depth, offset: here.offset.saturating_add(1) });
        if self.depth == 0 { State::End } else { State::After }
    }

    /// Reads on inside a string, from `at`, and says where to go on.
    #[inline]
    fn text<S: Sink>(&mut self, piece: &[u8], at: usize, key: bool, sink: &mut S) -> usize {
        let rest = piece.get(at..).unwrap_or_default();
        let mut from = 0;
        while let Some(found) = memchr(b'"', rest.get(from..).unwrap_or_default()) {
            let quote = from.saturating_add(found);
            let text = rest.get(..quote).unwrap_or_default();
            from = quote.saturating_add(1);
            if !ends_escaping(text, self.escaping) {
                sink.piece(text);
                let next = at.saturating_add(from);
                self.state = if key { State::Colon } else { State::After };
                sink.text_end(self.place(next), key);
                return next;
            }
        }
        self.escaping = ends_escaping(rest, self.escaping);
        sink.piece(rest);
        piece.len()
    }

    fn scalar<S: Sink>(
        &mut self,
        piece: &[u8],
        at: usize,
        mut scalar: Scalar,
        sink: &mut S,
    ) -> Result<usize, Fault> {
        let rest = piece.get(at..).unwrap_or_default();
        for (index, &byte) in rest.iter().enumerate() {
            let here = self.place(at.saturating_add(index));
            if matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t') && scalar.is_whole() {
                sink.piece(rest.get(..index).unwrap_or_default());
                sink.scalar_end(here);
                self.state = State::After;
                return Ok(at.saturating_add(index));
            }
            let Some(next) = scalar.step(byte) else {
                return Err(Fault { offset: here.offset, what: What::Unexpected(byte) });
            };
            scalar = next;
        }
        sink.piece(rest);
        self.state = State::Scalar(scalar);
        Ok(piece.len())
    }
}

fn bit(depth: u32) -> u128 {
    1_u128.checked_shl(depth.wrapping_sub(1)).unwrap_or_default()
}

/// Whether the byte after `text` is escaped: an odd number of backslashes stands before it. `carried` says the
/// same of what came before `text`.
fn ends_escaping(text: &[u8], carried: bool) -> bool {
    let run = text.iter().rev().take_while(|&&byte| byte == b'\\').count();
    (run % 2 == 1) != (carried && run == text.len())
}

/// How far a number or literal has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scalar {
    /// Of a literal, what is still to come.
    Literal(&'static [u8]),
    /// The first byte of a number is to come again.
    Begin,
    Minus,
    Zero,
    Digits,
    Dot,
    Fraction,
    E,
    Sign,
    Exponent,
}

impl Scalar {
    /// The state before `byte`, which begins a scalar.
    fn start(byte: u8) -> Option<Self> {
        match byte {
            b't' => Some(Self::Literal(b"true")),
            b'f' => Some(Self::Literal(b"false")),
            b'n' => Some(Self::Literal(b"null")),
            b'-' | b'0'..=b'9' => Some(Self::Begin),
            _ => None,
        }
    }

    fn step(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Literal(rest), _) => match rest.split_first() {
                Some((&first, rest)) if first == byte => Some(Self::Literal(rest)),
                Some(_) | None => None,
            },
            (Self::Begin, b'-') => Some(Self::Minus),
            (Self::Begin | Self::Minus, b'0') => Some(Self::Zero),
            (Self::Begin | Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Some(Self::Digits),
            (Self::Zero | Self::Digits, b'.') => Some(Self::Dot),
            (Self::Dot | Self::Fraction, b'0'..=b'9') => Some(Self::Fraction),
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Some(Self::E),
            (Self::E, b'+' | b'-') => Some(Self::Sign),
            (Self::E | Self::Sign | Self::Exponent, b'0'..=b'9') => Some(Self::Exponent),
            _ => None,
        }
    }

    fn is_whole(self) -> bool {
        match self {
            Self::Literal(rest) => rest.is_empty(),
            Self::Zero | Self::Digits | Self::Fraction | Self::Exponent => true,
            Self::Begin | Self::Minus | Self::Dot | Self::E | Self::Sign => false,
        }
    }
}
