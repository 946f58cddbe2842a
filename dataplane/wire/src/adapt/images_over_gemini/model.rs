//! The capabilities of Google's image models.

use shared::model_rules::ImageFamily;

/// An aspect ratio: its name, width and height.
pub(super) type Ratio = (&'static str, u64, u64);

/// The capabilities of a model, and how it is called.
#[derive(Debug)]
pub(super) struct ImageModel {
    /// The model is called through `:predict`; other models through generateContent.
    pub(super) predicts: bool,
    /// Maximum number of images per request.
    pub(super) images_max: u64,
    pub(super) ratios: &'static [Ratio],
    /// The largest size class that the model makes.
    pub(super) largest: ImageClass,
}

/// The size class of an image. Squares of the classes have sides of 1024, 2048 and 4096 pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ImageClass {
    K1,
    K2,
    K4,
}

impl ImageModel {
    /// Returns the capabilities of a family. An unknown one is treated as a recent Gemini model.
    pub(super) fn of(family: Option<ImageFamily>) -> &'static Self {
        match family {
            Some(ImageFamily::Gemini) | None => &GEMINI,
            Some(ImageFamily::Gemini2) => &GEMINI_2,
            Some(ImageFamily::Imagen) => &IMAGEN,
            Some(ImageFamily::Imagen3) => &IMAGEN_3,
        }
    }
}

impl ImageClass {
    /// Returns the class's name at the target.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::K1 => "1K",
            Self::K2 => "2K",
            Self::K4 => "4K",
        }
    }
}

static GEMINI: ImageModel =
    ImageModel { predicts: false, images_max: 1, ratios: GEMINI_RATIOS, largest: ImageClass::K4 };
static GEMINI_2: ImageModel =
    ImageModel { predicts: false, images_max: 1, ratios: GEMINI_RATIOS, largest: ImageClass::K1 };
static IMAGEN: ImageModel =
    ImageModel { predicts: true, images_max: 4, ratios: IMAGEN_RATIOS, largest: ImageClass::K2 };
static IMAGEN_3: ImageModel =
    ImageModel { predicts: true, images_max: 4, ratios: IMAGEN_RATIOS, largest: ImageClass::K1 };

const GEMINI_RATIOS: &[Ratio] = &[
    ("1:1", 1, 1),
    ("2:3", 2, 3),
    ("3:2", 3, 2),
    ("3:4", 3, 4),
    ("4:3", 4, 3),
    ("4:5", 4, 5),
    ("5:4", 5, 4),
    ("9:16", 9, 16),
    ("16:9", 16, 9),
    ("21:9", 21, 9),
];
const IMAGEN_RATIOS: &[Ratio] =
    &[("1:1", 1, 1), ("3:4", 3, 4), ("4:3", 4, 3), ("9:16", 9, 16), ("16:9", 16, 9)];
