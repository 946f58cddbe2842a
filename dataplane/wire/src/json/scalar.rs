//! Scans numbers and literals: common complete forms at once, all others byte by byte.

/// The state of a partly read number or literal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scalar {
    /// The bytes of a literal that are still expected.
    Literal(&'static [u8]),
    /// The start of a number; the first byte has not been consumed yet.
    #[default]
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
    /// Returns the initial state for a scalar that starts with `byte`. `None` if no scalar can start with it.
    pub(super) fn start(byte: u8) -> Option<Self> {
        match byte {
            b't' => Some(Self::Literal(b"true")),
            b'f' => Some(Self::Literal(b"false")),
            b'n' => Some(Self::Literal(b"null")),
            b'-' | b'0'..=b'9' => Some(Self::Begin),
            _ => None,
        }
    }

    pub(super) fn step(self, byte: u8) -> Option<Self> {
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

    pub(super) fn is_whole(self) -> bool {
        match self {
            Self::Literal(rest) => rest.is_empty(),
            Self::Zero | Self::Digits | Self::Fraction | Self::Exponent => true,
            Self::Begin | Self::Minus | Self::Dot | Self::E | Self::Sign => false,
        }
    }
}

/// True if `byte` may follow a scalar directly.
#[inline]
pub(super) fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b']' | b'}' | b' ' | b'\n' | b'\r' | b'\t')
}

/// Returns the length of the scalar at the start of `rest`. `None` if it has an unusual form or its end is not in
/// `rest`.
#[inline(always)]
pub(super) fn whole_length(rest: &[u8], first: u8) -> Option<usize> {
    let length = match first {
        b'n' if rest.starts_with(b"null") => 4,
        b't' if rest.starts_with(b"true") => 4,
        b'f' if rest.starts_with(b"false") => 5,
        b'0' => decimals(rest, 1)?,
        b'1'..=b'9' => decimals(rest, digits(rest, 1))?,
        b'-' => match *rest.get(1)? {
            b'0' => decimals(rest, 2)?,
            b'1'..=b'9' => decimals(rest, digits(rest, 2))?,
            _ => return None,
        },
        _ => return None,
    };
    rest.get(length).is_some_and(|&byte| ends_scalar(byte)).then_some(length)
}

/// Returns the index after the run of digits at `at`.
#[inline]
fn digits(rest: &[u8], mut at: usize) -> usize {
    while rest.get(at).is_some_and(u8::is_ascii_digit) {
        at = at.wrapping_add(1);
    }
    at
}

/// Returns the index after the optional fraction at `at`. `None` if the fraction has no digits.
#[inline]
fn decimals(rest: &[u8], at: usize) -> Option<usize> {
    if rest.get(at) != Some(&b'.') {
        return Some(at);
    }
    let from = at.wrapping_add(1);
    let end = digits(rest, from);
    (end > from).then_some(end)
}

/// Parses a scalar that consists of digits only. `None` if it has a sign, a fraction or an exponent, or overflows.
#[inline]
pub(crate) fn whole_number(raw: &[u8]) -> Option<u64> {
    if !raw.first().is_some_and(u8::is_ascii_digit) || !raw.iter().all(u8::is_ascii_digit) {
        return None;
    }
    raw.iter().try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit & 0xf)))
}

/// Parses a non-negative number with an integral value in any notation. Values that are too large saturate.
pub(crate) fn whole_decimal(raw: &[u8]) -> Option<u64> {
    let (is_negative, raw) = raw.strip_prefix(b"-").map_or((false, raw), |rest| (true, rest));
    let (mantissa, exponent) = match memchr::memchr2(b'e', b'E', raw) {
        Some(at) => (raw.get(..at)?, exponent(raw.get(at.checked_add(1)?..)?)?),
        None => (raw, 0),
    };
    let (whole, fraction) = match memchr::memchr(b'.', mantissa) {
        Some(at) => (mantissa.get(..at)?, mantissa.get(at.checked_add(1)?..)?),
        None => (mantissa, &[][..]),
    };
    let mut digits = [whole, fraction].concat();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().rev().take_while(|digit| **digit == b'0').count();
    digits.truncate(digits.len() - zeros);
    if digits.is_empty() {
        return Some(0);
    }
    let scale = i64::try_from(zeros).ok()?.saturating_sub(i64::try_from(fraction.len()).ok()?);
    let power = u32::try_from(exponent.saturating_add(scale).min(i64::from(u32::MAX))).ok()?;
    let number =
        digits.iter().try_fold(0_u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit & 0xf)));
    let value = number.and_then(|number| number.checked_mul(10_u64.checked_pow(power)?)).unwrap_or(u64::MAX);
    (!is_negative).then_some(value)
}

/// Parses an exponent. Saturates on overflow.
fn exponent(raw: &[u8]) -> Option<i64> {
    let (sign, digits) = match raw {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] | digits => (1, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value =
        digits.iter().fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit & 0xf)));
    Some(value.saturating_mul(sign))
}
