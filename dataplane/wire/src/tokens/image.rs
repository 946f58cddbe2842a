//! Reads image sizes from the first bytes and computes their tokens, without decoding the images.

use super::family::ImageRule;

/// An image size in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    /// The width.
    pub width: u64,
    /// The height.
    pub height: u64,
}

/// Returns the size in the header of a PNG, GIF, JPEG or WebP image.
pub fn size_of(bytes: &[u8]) -> Option<ImageSize> {
    let size = match bytes {
        [0x89, b'P', b'N', b'G', ..] => ImageSize { width: big(bytes, 16, 4)?, height: big(bytes, 20, 4)? },
        [b'G', b'I', b'F', b'8', ..] => {
            ImageSize { width: little(bytes, 6, 2)?, height: little(bytes, 8, 2)? }
        }
        [0xff, 0xd8, ..] => jpeg(bytes)?,
        [b'R', b'I', b'F', b'F', ..] if bytes.get(8..12) == Some(b"WEBP") => webp(bytes)?,
        _ => return None,
    };
    Some(size).filter(|size| size.width > 0 && size.height > 0)
}

/// Skips to the segment that starts a frame.
fn jpeg(bytes: &[u8]) -> Option<ImageSize> {
    let mut at = 2_usize;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        let marker = *bytes.get(at.checked_add(1)?)?;
        match marker {
            0xff => at = at.checked_add(1)?,
            0xc4 | 0xc8 | 0xcc => at = after_segment(bytes, at)?,
            0xc0..=0xcf => {
                return Some(ImageSize {
                    height: big(bytes, at.checked_add(5)?, 2)?,
                    width: big(bytes, at.checked_add(7)?, 2)?,
                });
            }
            0x01 | 0xd0..=0xd8 => at = at.checked_add(2)?,
            _ => at = after_segment(bytes, at)?,
        }
    }
}

fn after_segment(bytes: &[u8], at: usize) -> Option<usize> {
    let length = usize::try_from(big(bytes, at.checked_add(2)?, 2)?).ok()?;
    at.checked_add(2)?.checked_add(length.max(2))
}

fn webp(bytes: &[u8]) -> Option<ImageSize> {
    match bytes.get(12..16)? {
        b"VP8X" => Some(ImageSize { width: little(bytes, 24, 3)? + 1, height: little(bytes, 27, 3)? + 1 }),
        b"VP8L" => {
            let bits = little(bytes, 21, 4)?;
            Some(ImageSize { width: (bits & 0x3fff) + 1, height: ((bits >> 14) & 0x3fff) + 1 })
        }
        b"VP8 " => {
            Some(ImageSize { width: little(bytes, 26, 2)? & 0x3fff, height: little(bytes, 28, 2)? & 0x3fff })
        }
        _ => None,
    }
}

fn big(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let number = bytes.get(at..at.checked_add(length)?)?;
    Some(number.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

fn little(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let number = bytes.get(at..at.checked_add(length)?)?;
    Some(number.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

impl ImageSize {
    /// Scales the size down so that no edge is longer than `edge_max`.
    fn within(self, edge_max: u64) -> Self {
        let longer = self.width.max(self.height);
        if longer <= edge_max { self } else { self.scaled(edge_max, longer) }
    }

    fn scaled(self, by: u64, of: u64) -> Self {
        let scale = |edge: u64| edge.saturating_mul(by).checked_div(of).unwrap_or(edge).max(1);
        Self { width: scale(self.width), height: scale(self.height) }
    }

    /// Scales the size down to about `part` of `whole` of its area.
    fn with_area(self, part: u64, whole: u64) -> Self {
        let scale = |edge: u64| {
            let square = u128::from(edge).pow(2).saturating_mul(u128::from(part));
            let square = square.checked_div(u128::from(whole)).unwrap_or_default();
            u64::try_from(square.isqrt()).unwrap_or(edge).max(1)
        };
        Self { width: scale(self.width), height: scale(self.height) }
    }

    fn squares(self, edge: u64) -> u64 {
        self.width.div_ceil(edge).saturating_mul(self.height.div_ceil(edge))
    }
}

impl ImageRule {
    /// Returns the tokens of an image of this size.
    pub(super) fn tokens(self, size: ImageSize) -> u64 {
        match self {
            Self::Patches28 { edge_max, tokens_max } => {
                let size = size.within(edge_max);
                let tokens = size.squares(28);
                if tokens <= tokens_max {
                    tokens
                } else {
                    size.with_area(tokens_max, tokens).squares(28).min(tokens_max)
                }
            }
            Self::Patches32 { milli, patches_max } => {
                size.squares(32).min(patches_max).saturating_mul(milli).div_ceil(1_000)
            }
            Self::Tiles { base, tile } => {
                let size = size.within(2_048);
                let shorter = size.width.min(size.height);
                let size = if shorter > 768 { size.scaled(768, shorter) } else { size };
                base.saturating_add(tile.saturating_mul(size.squares(512)))
            }
            Self::Gemini if size.width <= 384 && size.height <= 384 => 258,
            Self::Gemini => size.squares(768).saturating_mul(258),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::family_of;

    #[test]
    fn image_sizes_are_read_from_the_first_bytes() {
        let png = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &[0, 0, 7, 128, 0, 0, 4, 56]].concat();
        let gif = b"GIF89a\x0a\0\x14\0";
        let jpeg = [
            &[0xff, 0xd8, 0xff, 0xe0, 0, 4, 1, 1, 0xff, 0xc4, 0, 3, 9][..],
            &[0xff, 0xff, 0xc2, 0, 17, 8, 0, 100, 0, 200, 3],
        ]
        .concat();
        let vp8x = [&b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0"[..], &[99, 0, 0, 49, 0, 0]].concat();
        let vp8 = [&b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a"[..], &[64, 1, 240, 0]].concat();
        let vp8l = [&b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f"[..], &[0x63, 0xc0, 0x0c, 0]].concat();
        let rows = [
            (&png[..], (1_920, 1_080)),
            (&gif[..], (10, 20)),
            (&jpeg[..], (200, 100)),
            (&vp8x[..], (100, 50)),
            (&vp8[..], (320, 240)),
            (&vp8l[..], (100, 52)),
        ];
        for (bytes, (width, height)) in rows {
            assert_eq!(size_of(bytes), Some(ImageSize { width, height }), "{bytes:?}");
            for end in 0..bytes.len() {
                assert!(size_of(&bytes[..end]).is_none_or(|size| size.width == width), "cut at {end}");
            }
        }
        assert_eq!(size_of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\0\0\0\0\0"), None, "no image has no edge");
        assert_eq!(size_of(b"BM"), None);
    }

    #[test]
    fn large_images_are_scaled_down_before_counting() {
        let tokens = |model, width, height| family_of(model).image_tokens(Some(ImageSize { width, height }));
        let rows = [
            ("claude-sonnet-4-5", 1_000, 1_000, 36 * 36),
            ("claude-sonnet-4-5", 100_000, 100_000, 1_568),
            ("claude-sonnet-5", 1_920, 1_080, 2_691),
            ("gpt-4o", 512, 512, 85 + 170),
            ("gpt-4o", 1_024, 1_024, 85 + 4 * 170),
            ("gpt-4o", 8_192, 1, 85 + 4 * 170),
            ("gpt-5.5", 1_920, 1_080, 2_448),
            ("gpt-5-mini", 100_000, 100_000, 2_489),
            ("gemini-2.5-pro", 384, 384, 258),
            ("gemini-2.5-pro", 769, 100, 516),
        ];
        for (model, width, height, want) in rows {
            assert_eq!(tokens(model, width, height), want, "{model} {width}x{height}");
        }
        assert_eq!(family_of("gpt-4o").image_tokens(None), tokens("gpt-4o", 1_024, 1_024));
        assert!(tokens("claude-opus-5", u64::MAX, u64::MAX) <= 8_464);
    }
}
