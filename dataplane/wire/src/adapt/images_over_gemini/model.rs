//! What Google's models make, as far as their names tell.

/// A shape by its name, its width, and its height.
pub(super) type Ratio = (&'static str, u64, u64);

/// What a model makes, and how it is asked for it.
#[derive(Debug)]
pub(super) struct ImageModel {
    /// It has a method of its own, `:predict`; else generateContent.
    pub(super) predicts: bool,
    /// Images that one request can ask for.
    pub(super) images_max: u64,
    pub(super) ratios: &'static [Ratio],
    /// The largest of the classes of size.
    pub(super) largest: ImageClass,
}

/// How many pixels an image has: of a square, 1024 to a side, or two or four times that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ImageClass {
    K1,
    K2,
    K4,
}

impl ImageModel {
    /// A model of which nothing is known is taken for one of the later ones of Gemini.
    pub(super) fn named(name: &str) -> &'static Self {
        let known = [("imagen-3", &IMAGEN_3), ("imagen", &IMAGEN), ("gemini-2", &GEMINI_2)];
        known.iter().find(|(part, _)| name.contains(part)).map_or(&GEMINI, |(_, model)| model)
    }
}

impl ImageClass {
    /// Its name at the target.
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
