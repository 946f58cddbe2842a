//! The fate of each field of an images request at Google's models.

use crate::adapt::loss::{hint, mapped, rejected};
use crate::adapt::{Loss, Rejection, read};

/// The table of fields.
pub(super) static LOSSES: &[Loss] = &[
    mapped(
        "model",
        "stands in the path of the request to the target; one called imagen is asked by `:predict`",
    ),
    mapped("prompt", "the text of `contents`, or of Imagen's one of the `instances`"),
    mapped(
        "n",
        "Imagen's `parameters.sampleCount`, up to 4; models of Gemini make one image, and more are refused",
    ),
    mapped(
        "size",
        "`aspectRatio`, which must be one that the model has, within a twentieth, and `imageSize` (Imagen: \
         `sampleImageSize`) 2K or 4K where more than the usual megapixel is asked for and the model can; the pixels \
         are the model's own choice. `auto` says nothing",
    ),
    mapped(
        "output_format=png",
        "Imagen's `outputOptions.mimeType`; models of Gemini choose themselves, and `output_format` of the answer \
         says what came",
    ),
    mapped("output_format=jpeg", "Imagen's `outputOptions.mimeType`; refused for models of Gemini"),
    rejected(FORMAT, "is a format that this model cannot be asked for."),
    rejected("output_format=gif", "is a format that this model cannot be asked for."),
    rejected("output_format=svg", "is a format that this model cannot be asked for."),
    hint("output_compression", "Imagen's `outputOptions.compressionQuality`, of a JPEG; else dropped"),
    mapped("response_format", "the target sends nothing but inline images; all but `b64_json` is refused"),
    rejected(TRANSPARENT, "asks for a transparent background, which the target does not make."),
    hint("background", "dropped: it is opaque"),
    rejected("stream", "asks for a stream; the target makes its images in one piece, so leave it out."),
    hint("partial_images", "dropped: they belong to a stream"),
    rejected("frame_count", "asks for a moving image, which the target does not make."),
    hint("frame_duration_ms", "dropped"),
    rejected("svg", "asks for a drawing of lines, which the target does not make."),
    hint("complexity", "dropped"),
    hint("quality", "dropped: the model has one"),
    hint("style", "dropped"),
    hint("moderation", "dropped: the target's own settings hold"),
    hint("user", "dropped"),
];

pub(super) const FORMAT: &str = "output_format=webp";
pub(super) const TRANSPARENT: &str = "background=transparent";

/// Returns the rejection of the member at `path` for the reason in the row of `field`.
pub(super) fn refuse(field: &str, path: &str) -> Rejection {
    read::refuse(LOSSES, field, path)
}
