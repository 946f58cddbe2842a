//! The fate of each field of an images request at Google's models.

use crate::adapt::loss::{self, hint, mapped, rejected};
use crate::adapt::{Loss, Rejection};

/// The table of fields.
pub(super) static LOSSES: &[Loss] = &[
    mapped("model", "in the path of the request to the target; models named imagen use `:predict`"),
    mapped("prompt", "the text of `contents`, or of Imagen's one of the `instances`"),
    mapped(
        "n",
        "Imagen's `parameters.sampleCount`, up to 4; Gemini models make one image, and higher numbers are \
         rejected",
    ),
    mapped(
        "size",
        "`aspectRatio`, which must be one of the model's ratios within 5 %, and `imageSize` (Imagen: \
         `sampleImageSize`) 2K or 4K for more than the usual megapixel, if the model supports it; the \
         model chooses the exact pixels. `auto` sends nothing",
    ),
    mapped(
        "output_format=png",
        "Imagen's `outputOptions.mimeType`; Gemini models choose the format, and `output_format` of the \
         answer reports it",
    ),
    mapped("output_format=jpeg", "Imagen's `outputOptions.mimeType`; rejected for Gemini models"),
    rejected(FORMAT, "is a format that this model does not support."),
    rejected("output_format=gif", "is a format that this model does not support."),
    rejected("output_format=svg", "is a format that this model does not support."),
    hint("output_compression", "Imagen's `outputOptions.compressionQuality`, for JPEG; otherwise dropped"),
    mapped("response_format", "the target sends only inline images; any value except `b64_json` is rejected"),
    rejected(TRANSPARENT, "requests a transparent background, which the target does not support."),
    hint("background", "dropped: images are opaque"),
    rejected("stream", "requests a stream, which the target does not support: omit it."),
    hint("partial_images", "dropped: they apply to streams only"),
    rejected("frame_count", "requests a moving image, which the target does not support."),
    hint("frame_duration_ms", "dropped"),
    rejected("svg", "requests a line drawing, which the target does not support."),
    hint("complexity", "dropped"),
    hint("quality", "dropped: the model has only one"),
    hint("style", "dropped"),
    hint("moderation", "dropped: the target's own settings apply"),
    hint("user", "dropped"),
];

pub(super) const FORMAT: &str = "output_format=webp";
pub(super) const TRANSPARENT: &str = "background=transparent";

/// Returns the rejection of the member at `path` for the reason in the row of `field`.
pub(super) fn refuse(field: &str, path: &str) -> Rejection {
    loss::refuse(LOSSES, field, path)
}
