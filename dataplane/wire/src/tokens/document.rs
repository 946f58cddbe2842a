//! Estimates the tokens and size of document pages.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The estimated tokens of a document page, its picture included.
pub(crate) const PAGE_TOKENS: u64 = 2_000;
/// The estimated bytes per page of a document whose pages cannot be counted.
pub(crate) const PAGE_BYTES: u64 = 50_000;
/// The assumed pages of a document that is not in the request.
pub(crate) const PAGES_UNKNOWN: u64 = 5;

/// Decodes the base64 in `data`. Returns no bytes if it is invalid.
pub(crate) fn decoded(data: &[u8]) -> Vec<u8> {
    const ENGINE: GeneralPurpose = GeneralPurpose::new(
        &alphabet::STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    ENGINE.decode(data).unwrap_or_default()
}
