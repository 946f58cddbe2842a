//! Token estimates without a vocabulary: the same input yields the same number on every machine (MSG-5). Typically
//! within 20 % of the real count; not suitable for billing.

mod document;
mod family;
mod image;
mod image_size;
mod text;
mod wave;

pub(crate) use document::{PAGE_BYTES, PAGE_TOKENS, PAGES_UNKNOWN, decoded};
pub use family::{ModelFamily, family_of};
pub(crate) use image_size::is_picture;
pub use image_size::{ImageSize, StatedSize, size_of};
pub use text::milli_tokens;
pub(crate) use wave::{WAVE_HEAD_BYTES, wave_ms};
