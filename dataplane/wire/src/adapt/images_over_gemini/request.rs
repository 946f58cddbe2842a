//! Translates the request, for generateContent or `:predict`.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::Object;

use super::answer::ImageAnswers;
use super::losses::{FORMAT, LOSSES, TRANSPARENT, refuse};
use super::model::ImageModel;
use super::size::ImageShape;
use crate::adapt::chat_client::refuse_listed;
use crate::adapt::loss::unknown;
use crate::adapt::{Asking, Prepared, Rejection, read};
use crate::json::{self, JsonWriter, Tree};

/// The options of a request, without the prompt.
#[derive(Debug)]
struct ImageOptions<'t, 'i> {
    count: u64,
    size: Option<ImageShape>,
    mime_type: Option<&'static str>,
    compression: Option<Tree<'t, 'i>>,
}

/// Translates an images request into a request to one of Google's models.
pub(super) fn prepare(asking: &Asking<'_>) -> Result<Prepared, Rejection> {
    let mut body = asking.body.to_vec();
    let tape = json::parse(&mut body).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), String::new)?;
    refuse_listed(read::members(&request), LOSSES)?;
    let model = ImageModel::of(asking.target.rules.image_family);
    let prompt = read::member(&request, "prompt").ok_or_else(|| Rejection::new("prompt", "is missing."))?;
    let prompt = read::text(prompt, || "prompt".to_owned())?;
    let wanted = wanted(&request, model)?;
    let mut json = JsonWriter::default();
    if model.predicts {
        write_predict(prompt, &wanted, &mut json);
    } else {
        write_generate(prompt, wanted.size, &mut json);
    }
    let answers = ImageAnswers { predicts: model.predicts, created: asking.now_s };
    let dropped = unknown(read::members(&request).map(|(name, _)| name), LOSSES);
    Ok(Prepared { body: json.finish().into(), answers: Box::new(answers), dropped, changed: Vec::new() })
}

fn wanted<'t, 'i>(request: &Object<'t, 'i>, model: &ImageModel) -> Result<ImageOptions<'t, 'i>, Rejection> {
    if read::member_text(request, "background") == Some("transparent") {
        return Err(refuse(TRANSPARENT, "background"));
    }
    let size = match read::member(request, "size") {
        None => None,
        Some(size) => ImageShape::read(read::text(size, || "size".to_owned())?, model)?,
    };
    Ok(ImageOptions {
        count: count(request, model)?,
        size,
        mime_type: mime_type(request, model)?,
        compression: read::member(request, "output_compression"),
    })
}

fn count(request: &Object<'_, '_>, model: &ImageModel) -> Result<u64, Rejection> {
    let Some(count) = read::member(request, "n") else { return Ok(1) };
    let fits = |count: &u64| (1..=model.images_max).contains(count);
    count.as_u64().filter(fits).ok_or_else(|| match model.images_max {
        1 => Rejection::new("n", "must be 1: this model makes one image at a time."),
        most => {
            Rejection::new("n", &format!("must be 1 to {most}: this is the model's maximum for one request."))
        }
    })
}

/// Returns the media type to request. `None` leaves it to the model: Gemini models have no such option. Rejects other
/// formats.
fn mime_type(request: &Object<'_, '_>, model: &ImageModel) -> Result<Option<&'static str>, Rejection> {
    let Some(format) = read::member(request, "output_format") else { return Ok(None) };
    match (read::as_text(format), model.predicts) {
        (Some("png"), true) => Ok(Some("image/png")),
        (Some("png"), false) => Ok(None),
        (Some("jpeg"), true) => Ok(Some(JPEG)),
        _ => Err(refuse(FORMAT, "output_format")),
    }
}

const JPEG: &str = "image/jpeg";

fn write_generate(prompt: &str, size: Option<ImageShape>, json: &mut JsonWriter) {
    json.object().name("contents").list().object().name("role").text("user");
    json.name("parts").list().object().name("text").text(prompt).end_object().end_list();
    json.end_object().end_list();
    json.name("generationConfig").object();
    json.name("responseModalities").list().text("TEXT").text("IMAGE").end_list();
    if let Some(size) = size {
        json.name("imageConfig").object().name("aspectRatio").text(size.ratio);
        if let Some(class) = size.class {
            json.name("imageSize").text(class);
        }
        json.end_object();
    }
    json.end_object().end_object();
}

fn write_predict(prompt: &str, wanted: &ImageOptions<'_, '_>, json: &mut JsonWriter) {
    json.object().name("instances").list().object().name("prompt").text(prompt).end_object().end_list();
    json.name("parameters").object().name("sampleCount").number(wanted.count);
    if let Some(size) = wanted.size {
        json.name("aspectRatio").text(size.ratio);
        if let Some(class) = size.class {
            json.name("sampleImageSize").text(class);
        }
    }
    if let Some(mime_type) = wanted.mime_type {
        json.name("outputOptions").object().name("mimeType").text(mime_type);
        if let Some(quality) = wanted.compression.filter(|_| mime_type == JPEG) {
            json.name("compressionQuality").tree(quality);
        }
        json.end_object();
    }
    // Without this option the response does not mention images that were filtered out.
    json.name("includeRaiReason").raw(b"true").end_object().end_object();
}
