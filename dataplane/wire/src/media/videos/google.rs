//! Google's Veo in the Gemini API and Vertex AI: an operation starts with `:predictLongRunning` and is then read
//! (Gemini) or polled by name (Vertex AI). The answers differ in the position of the video; both forms are accepted
//! from either API.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::start::{FrameSize, VideoStart};
use super::{Video, VideoState, media_type};
use crate::envelope::StreamError;
use crate::json::JsonWriter;
use crate::translation::Rejection;

/// Translates a start into one instance and its parameters.
pub(super) fn start(start: &VideoStart<'_>) -> Result<Vec<u8>, Rejection> {
    let (ratio, resolution) = match start.size {
        Some(size) => named(size)?,
        None => (start.aspect_ratio, start.resolution),
    };
    let mut out = JsonWriter::default();
    out.object().name("instances").list().object().name("prompt").text(start.prompt);
    if let Some(image) = &start.image {
        out.name("image").object().name("bytesBase64Encoded").text(image.base64);
        out.name("mimeType").text(image.media_type).end_object();
    }
    out.end_object().end_list().name("parameters").object();
    for (name, text) in
        [("aspectRatio", ratio), ("resolution", resolution), ("negativePrompt", start.negative_prompt)]
    {
        if let Some(text) = text {
            out.name(name).text(text);
        }
    }
    for (name, number) in [("durationSeconds", start.seconds), ("seed", start.seed)] {
        if let Some(number) = number {
            out.name(name).number(number);
        }
    }
    if let Some(wanted) = start.generate_audio {
        out.name("generateAudio").raw(if wanted { b"true" } else { b"false" });
    }
    out.end_object().end_object();
    Ok(out.finish())
}

type AspectAndResolution = (Option<&'static str>, Option<&'static str>);

/// Returns the aspect ratio and resolution of a size.
fn named(FrameSize(width, height): FrameSize) -> Result<AspectAndResolution, Rejection> {
    let ratio = if width >= height { "16:9" } else { "9:16" };
    let resolution = match (width.max(height), width.min(height)) {
        (1280, 720) => "720p",
        (1920, 1080) => "1080p",
        (3840, 2160) => "4k",
        _ => return Err(Rejection::new("size", SIZES)),
    };
    Ok((Some(ratio), Some(resolution)))
}

const SIZES: &str = "must be 1280x720, 1920x1080, 3840x2160 or one of these in portrait for this target.";

/// Returns the body that polls Vertex AI for the state of the operation `name`.
pub fn poll_body(name: &str) -> Bytes {
    let mut out = JsonWriter::default();
    out.object().name("operationName").text(name).end_object();
    out.finish().into()
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VeoOperation<'a> {
    name: Option<String>,
    done: Option<bool>,
    error: Option<Value>,
    #[serde(borrow)]
    response: Option<VeoOutput<'a>>,
}

/// The output of a Vertex AI operation; the Gemini API nests it one level deeper.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VeoOutput<'a> {
    #[serde(borrow)]
    generate_video_response: Option<Box<VeoOutput<'a>>>,
    #[serde(borrow)]
    videos: Option<Vec<Film<'a>>>,
    #[serde(borrow)]
    generated_samples: Option<Vec<Sample<'a>>>,
    rai_media_filtered_reasons: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct Sample<'a> {
    #[serde(borrow)]
    video: Option<Film<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Film<'a> {
    #[serde(borrow, alias = "encodedVideo", alias = "videoBytes")]
    bytes_base64_encoded: Option<&'a RawValue>,
    #[serde(alias = "gcsUri")]
    uri: Option<String>,
    #[serde(alias = "encoding")]
    mime_type: Option<String>,
}

pub(super) fn started(answer: &[u8]) -> Option<String> {
    serde_json::from_slice::<VeoOperation<'_>>(answer).ok()?.name
}

pub(super) fn state(answer: &Bytes) -> Option<VideoState> {
    let operation: VeoOperation<'_> = serde_json::from_slice(answer).ok()?;
    if let Some(error) = operation.error.filter(|error| !error.is_null()) {
        return operation.done.unwrap_or(false).then(|| VideoState::Failed(failure(&error)));
    }
    if operation.done != Some(true) {
        // Only the presence of a name distinguishes an operation from any other object.
        return operation.name.map(|_| VideoState::Running(None));
    }
    let made = operation.response.unwrap_or_default();
    Some(made.innermost().state(answer))
}

impl<'a> VeoOutput<'a> {
    fn innermost(mut self) -> Self {
        self.generate_video_response.take().map_or(self, |inner| *inner)
    }

    /// Returns the first video (at most one is requested), or the reason why the answer has no video.
    fn state(self, answer: &Bytes) -> VideoState {
        let sampled = self.generated_samples.into_iter().flatten().find_map(|sample| sample.video);
        let film = self.videos.into_iter().flatten().next().or(sampled);
        if let Some(video) = film.and_then(|film| film.video(answer)) {
            return VideoState::Done(video);
        }
        let reasons = self.rai_media_filtered_reasons.unwrap_or_default().join("; ");
        let (message, code) = match reasons.is_empty() {
            true => ("The provider ended the operation without a video.".to_owned(), None),
            false => (reasons, Some("content_policy".to_owned())),
        };
        VideoState::Failed(StreamError { message, code, ..StreamError::default() })
    }
}

impl Film<'_> {
    fn video(self, answer: &Bytes) -> Option<Video> {
        let media_type = media_type(self.mime_type.as_deref());
        let inside = self.bytes_base64_encoded.and_then(|raw| raw.get().strip_prefix('"')?.strip_suffix('"'));
        match (inside.filter(|base64| !base64.is_empty()), self.uri) {
            (Some(base64), _) => {
                Some(Video::Inline { base64: answer.slice_ref(base64.as_bytes()), media_type })
            }
            (None, Some(address)) => Some(Video::At { address, media_type }),
            (None, None) => None,
        }
    }
}

/// Reads a `google.rpc.Status` and replaces its numeric code with the code's name.
fn failure(error: &Value) -> StreamError {
    let number = error.get("code").and_then(Value::as_u64).and_then(|code| usize::try_from(code).ok());
    let name = number.and_then(|code| CODES.get(code)).map(|name| (*name).to_owned());
    let read = StreamError::of_member(error);
    StreamError { code: name.or_else(|| read.code.clone()), ..read }
}

/// The google.rpc codes by number.
const CODES: [&str; 17] = [
    "ok",
    "cancelled",
    "unknown",
    "invalid_argument",
    "deadline_exceeded",
    "not_found",
    "already_exists",
    "permission_denied",
    "resource_exhausted",
    "failed_precondition",
    "aborted",
    "out_of_range",
    "unimplemented",
    "internal",
    "unavailable",
    "data_loss",
    "unauthenticated",
];
