//! Image sizes. OpenAI's models take pixels; Google's take an aspect ratio and a size class.

use super::model::{ImageClass, ImageModel, Ratio};
use crate::adapt::Rejection;

/// An aspect ratio that the model supports, and a size class if the default (1K) is too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageShape {
    pub(super) ratio: &'static str,
    pub(super) class: Option<&'static str>,
}

impl ImageShape {
    /// Parses `size`. Returns `None` for "auto", which leaves the size to the model. Rejects a ratio or class that the
    /// model does not make.
    pub(super) fn read(text: &str, model: &ImageModel) -> Result<Option<Self>, Rejection> {
        if text == "auto" {
            return Ok(None);
        }
        let refuse = |why: &str| Rejection::new("size", why);
        let Some((width, height)) = sides(text) else {
            return Err(refuse("must be \"auto\", or width and height as in \"1024x1024\"."));
        };
        let off = |ratio: &&Ratio| off_by(width, height, ratio);
        let Some(ratio) = model.ratios.iter().min_by_key(off).filter(|ratio| off(ratio) <= OFF_MAX) else {
            let shapes: Vec<&str> = model.ratios.iter().map(|ratio| ratio.0).collect();
            return Err(refuse(&format!("is not one of this model's aspect ratios: {}.", shapes.join(", "))));
        };
        let pixels = width.saturating_mul(height);
        let class = CLASSES.iter().find(|(most, _)| pixels <= *most).map(|(_, class)| *class);
        let Some(class) = class.filter(|class| *class <= model.largest) else {
            let largest = model.largest.name();
            return Err(refuse(&format!(
                "is larger than this model supports: its largest class is {largest}."
            )));
        };
        Ok(Some(Self { ratio: ratio.0, class: (class > ImageClass::K1).then_some(class.name()) }))
    }
}

/// Parses `WIDTHxHEIGHT`, each side 1 to 99999.
fn sides(text: &str) -> Option<(u64, u64)> {
    let side = |text: &str| {
        let is_number = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|side| is_number && *side > 0)
    };
    let (width, height) = text.split_once('x')?;
    Some((side(width)?, side(height)?))
}

/// Returns by how many thousandths the aspect ratio of these sides differs from `ratio`.
fn off_by(width: u64, height: u64, ratio: &Ratio) -> u64 {
    let (is, wanted) = (width.saturating_mul(ratio.2), height.saturating_mul(ratio.1));
    is.abs_diff(wanted).saturating_mul(1000).checked_div(wanted).unwrap_or(u64::MAX)
}

/// Maximum deviation from an aspect ratio, in thousandths. The models' own 16:9 images vary: some have 1792 by 1024
/// pixels, others 1408 by 768.
const OFF_MAX: u64 = 50;

/// Maximum number of pixels of each class, halfway (by ratio) to the next class.
const CLASSES: [(u64, ImageClass); 3] =
    [(2 << 20, ImageClass::K1), (8 << 20, ImageClass::K2), (32 << 20, ImageClass::K4)];

#[cfg(test)]
mod tests {
    use shared::model_rules::ImageFamily;

    use super::*;

    fn read(text: &str, family: ImageFamily) -> Result<Option<(&'static str, Option<&'static str>)>, String> {
        let size = ImageShape::read(text, ImageModel::of(Some(family)));
        size.map(|size| size.map(|size| (size.ratio, size.class))).map_err(|rejection| rejection.message)
    }

    #[test]
    fn a_size_maps_to_an_aspect_ratio_and_class_of_the_model() {
        // Columns: size, recent Gemini models, Imagen 4. An empty ratio means that the size is rejected.
        let rows = [
            ("256x256", ("1:1", None), ("1:1", None)),
            ("1024x1024", ("1:1", None), ("1:1", None)),
            ("1536x1024", ("3:2", None), ("", None)),
            ("1024x1536", ("2:3", None), ("", None)),
            ("1792x1024", ("16:9", None), ("16:9", None)),
            ("1024x1792", ("9:16", None), ("9:16", None)),
            ("1408x768", ("16:9", None), ("16:9", None)),
            ("864x1184", ("3:4", None), ("3:4", None)),
            ("896x1152", ("4:5", None), ("3:4", None)),
            ("1536x672", ("21:9", None), ("", None)),
            ("2048x2048", ("1:1", Some("2K")), ("1:1", Some("2K"))),
            ("4096x4096", ("1:1", Some("4K")), ("", None)),
            ("3840x2160", ("16:9", Some("2K")), ("16:9", Some("2K"))),
            ("8192x8192", ("", None), ("", None)),
            ("99999x99999", ("", None), ("", None)),
            ("4096x1024", ("", None), ("", None)),
        ];
        for (text, gemini, imagen) in rows {
            for (family, want) in [(ImageFamily::Gemini, gemini), (ImageFamily::Imagen, imagen)] {
                let got = read(text, family).ok().flatten().unwrap_or_default();
                assert_eq!(got, want, "{text} of {family:?}");
            }
        }
        for family in [ImageFamily::Gemini2, ImageFamily::Imagen3] {
            assert_eq!(read("1024x1024", family), Ok(Some(("1:1", None))));
            assert!(read("2048x2048", family).unwrap_err().contains("class is 1K"), "{family:?}");
        }
        assert_eq!(read("auto", ImageFamily::Imagen), Ok(None));
    }

    #[test]
    fn an_invalid_size_error_lists_valid_sizes() {
        let message = read("1536x1024", ImageFamily::Imagen).unwrap_err();
        assert_eq!(message, "'size' is not one of this model's aspect ratios: 1:1, 3:4, 4:3, 9:16, 16:9.");
        for text in [
            "",
            "x",
            "1024",
            "1024x",
            "0x5",
            "5x0",
            "1024X1024",
            "-1x1",
            "+1x1",
            "100000x1",
            "1x1x1",
            "1.5x2",
        ] {
            assert!(read(text, ImageFamily::Gemini).unwrap_err().contains("\"1024x1024\""), "{text}");
        }
    }
}
