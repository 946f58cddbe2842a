//! Computes the tokens of an image from its size.

use super::ImageSize;
use super::family::ImageRule;

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
