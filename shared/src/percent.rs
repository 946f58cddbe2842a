//! Percent-encoding (RFC 3986 section 2.1).

pub use percent_encoding::utf8_percent_encode as encode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// All bytes but letters, digits and `-._~`.
pub const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
