//! OpenAI's videos API: `POST /videos`, `GET /videos/{id}`, `GET /videos/{id}/content`.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use shared::usage::Units;

use super::start::{FrameSize, VideoStart};
use super::{Video, VideoState};
use crate::chat::scaled;
use crate::envelope::StreamError;
use crate::extras::{Extras, picture};
use crate::json::JsonWriter;
use crate::translation::Rejection;

/// Translates a start into OpenAI's format, in which the seconds are a string.
pub(super) fn start(start: &VideoStart<'_>) -> Result<Vec<u8>, Rejection> {
    let untranslated = [
        ("seed", start.seed.is_some()),
        ("negative_prompt", start.negative_prompt.is_some()),
        ("generate_audio", start.generate_audio == Some(false)),
    ];
    if let Some((name, _)) = untranslated.iter().find(|(_, given)| *given) {
        return Err(Rejection::new(*name, "is not supported by OpenAI's videos API."));
    }
    let mut out = JsonWriter::default();
    out.object().name("model").text(start.model).name("prompt").text(start.prompt);
    if let Some(seconds) = start.seconds {
        out.name("seconds").text(&seconds.to_string());
    }
    if let Some(FrameSize(width, height)) = size(start)? {
        out.name("size").text(&format!("{width}x{height}"));
    }
    if let Some(image) = &start.image {
        out.name("input_reference").object().name("image_url").text(image.uri).end_object();
    }
    out.end_object();
    Ok(out.finish())
}

/// Returns the given size, or the one that the aspect ratio and resolution imply.
fn size(start: &VideoStart<'_>) -> Result<Option<FrameSize>, Rejection> {
    let (Some(ratio), None | Some("720p")) = (start.aspect_ratio, start.resolution) else {
        return match (start.aspect_ratio, start.resolution) {
            (_, Some("720p")) | (None, None) => Ok(start.size),
            _ => Err(Rejection::new("resolution", "must be \"720p\" for this target: use 'size'.")),
        };
    };
    match ratio {
        "16:9" => Ok(Some(FrameSize(1280, 720))),
        "9:16" => Ok(Some(FrameSize(720, 1280))),
        _ => Err(Rejection::new("aspect_ratio", "must be \"16:9\" or \"9:16\" for this target: use 'size'.")),
    }
}

#[derive(Debug, Deserialize)]
struct VideoJob {
    id: Option<String>,
    status: Option<String>,
    progress: Option<f64>,
    error: Option<Value>,
}

/// The properties of the video in an answer. The seconds are a number in a string.
#[derive(Debug, Default, Deserialize)]
struct VideoOutput {
    seconds: Option<Value>,
    size: Option<Value>,
}

pub(super) fn started(answer: &[u8]) -> Option<String> {
    serde_json::from_slice::<VideoJob>(answer).ok()?.id
}

/// Returns the length and size of the video that an answer reports.
pub(super) fn extras(answer: &[u8]) -> Extras {
    let made: VideoOutput = serde_json::from_slice(answer).unwrap_or_default();
    let seconds = match made.seconds {
        Some(Value::String(text)) => scaled(text.as_bytes(), MILLI),
        Some(Value::Number(number)) => scaled(number.to_string().as_bytes(), MILLI),
        _ => None,
    };
    let size = made.size.as_ref().and_then(Value::as_str);
    let units = Units { video_ms: seconds.unwrap_or(0), ..Units::ZERO };
    Extras { units, picture: picture(None, size), ..Extras::default() }
}

pub(super) fn state(answer: &Bytes) -> Option<VideoState> {
    let job: VideoJob = serde_json::from_slice(answer).ok()?;
    Some(match job.status.as_deref()? {
        "queued" | "in_progress" => VideoState::Running(job.progress.map(hundredths)),
        "completed" => VideoState::Done(Video::Kept),
        "failed" | "cancelled" | "expired" => {
            VideoState::Failed(match job.error.filter(|error| !error.is_null()) {
                Some(error) => StreamError::of_member(&error),
                None => StreamError::of_words("The provider generated no video and sent no reason."),
            })
        }
        _ => return None,
    })
}

/// Milliseconds per second.
const MILLI: f64 = 1e3;

/// Rounds a progress down to a whole percentage from 0 to 100.
fn hundredths(progress: f64) -> u64 {
    (0..=100_u8).rev().find(|part| f64::from(*part) <= progress).unwrap_or(0).into()
}
