//! Documents: how many tokens a page is, and how large.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Tokens of a page of a document, its picture included.
pub(crate) const PAGE_TOKENS: u64 = 2_000;
/// Bytes of a page of a document that hides its pages.
pub(crate) const PAGE_BYTES: u64 = 50_000;
/// Pages of a document that is not in the request.
pub(crate) const PAGES_UNKNOWN: u64 = 5;

/// The bytes of `data`; nothing if it is not base64.
pub(crate) fn decoded(data: &[u8]) -> Vec<u8> {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    ENGINE.decode(data).unwrap_or_default()
}
