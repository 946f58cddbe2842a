//! Reads a client's request to start a video.

use bytes::Bytes;
use simd_json::prelude::{ValueAsScalar as _, ValueIntoObject as _, ValueIntoString as _};

use crate::json::{self, Tree};
use crate::translation::{Flaw, Rejection};

/// The members of a start. Null members count as absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct VideoStart<'i> {
    pub(super) model: &'i str,
    pub(super) prompt: &'i str,
    pub(super) seconds: Option<u64>,
    pub(super) size: Option<FrameSize>,
    pub(super) aspect_ratio: Option<&'i str>,
    pub(super) resolution: Option<&'i str>,
    pub(super) seed: Option<u64>,
    pub(super) negative_prompt: Option<&'i str>,
    pub(super) image: Option<FirstFrame<'i>>,
    pub(super) generate_audio: Option<bool>,
}

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameSize(pub(super) u32, pub(super) u32);

/// The first frame, given inline in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstFrame<'i> {
    /// The whole data URI.
    pub(super) uri: &'i str,
    pub(super) media_type: &'i str,
    pub(super) base64: &'i str,
}

/// Parses a start and translates it with the function `write`.
pub(super) fn read(
    body: &mut [u8],
    write: impl FnOnce(&VideoStart<'_>) -> Result<Vec<u8>, Rejection>,
) -> Result<Bytes, Rejection> {
    let tape = json::parse(body).map_err(unreadable)?;
    write(&members(tape.as_value())?).map(Bytes::from)
}

/// Returns the rejection of a body that is not JSON.
pub(super) fn unreadable(fault: json::JsonFault) -> Rejection {
    let message = format!("The body is not valid JSON: {fault}.");
    Rejection { param: String::new(), message, flaw: Flaw::Malformed }
}

fn members<'i>(body: Tree<'_, 'i>) -> Result<VideoStart<'i>, Rejection> {
    let mut start = VideoStart::default();
    for (name, value) in body.into_object().iter().flat_map(|object| object.iter()) {
        if value.as_null().is_none() {
            start.take(name, value)?;
        }
    }
    for (name, text) in [("model", start.model), ("prompt", start.prompt)] {
        if text.trim().is_empty() {
            return Err(Rejection::malformed(name, "is missing or empty."));
        }
    }
    for (name, given) in [("aspect_ratio", start.aspect_ratio), ("resolution", start.resolution)] {
        if given.is_some() && start.size.is_some() {
            return Err(Rejection::malformed(
                name,
                "cannot be combined with 'size', which has the same meaning.",
            ));
        }
    }
    Ok(start)
}

impl<'i> VideoStart<'i> {
    fn take(&mut self, name: &'i str, value: Tree<'_, 'i>) -> Result<(), Rejection> {
        let wrong = |what| Rejection::malformed(name, what);
        let text = || value.into_string().ok_or_else(|| wrong("must be a string."));
        match name {
            "model" => self.model = text()?,
            "prompt" => self.prompt = text()?,
            "seconds" => {
                let seconds = whole_number(value).filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
                self.seconds = Some(seconds.ok_or_else(|| wrong(SECONDS))?);
            }
            "size" => self.size = Some(FrameSize::read(text()?).ok_or_else(|| wrong(SIZE))?),
            "aspect_ratio" => {
                self.aspect_ratio = Some(text()?).filter(|ratio| is_ratio(ratio));
                self.aspect_ratio.ok_or_else(|| wrong("must be two numbers, such as \"16:9\"."))?;
            }
            "resolution" => {
                self.resolution = Some(text()?).filter(|name| is_word(name));
                self.resolution
                    .ok_or_else(|| wrong("must be a name such as \"720p\", \"1080p\" or \"4k\"."))?;
            }
            "n" if value.as_u64() == Some(1) => {}
            "n" => {
                return Err(Rejection::new(
                    name,
                    "must be 1: an operation makes one video. Start as many as you need.",
                ));
            }
            "seed" => {
                let seed = value.as_u64().filter(|seed| *seed <= u32::MAX.into());
                self.seed = Some(seed.ok_or_else(|| wrong("must be a whole number from 0 to 4294967295."))?);
            }
            "negative_prompt" => self.negative_prompt = Some(text()?),
            "image" => self.image = Some(FirstFrame::read(text()?).ok_or_else(|| wrong(IMAGE))?),
            "generate_audio" => {
                self.generate_audio = Some(value.as_bool().ok_or_else(|| wrong("must be true or false."))?);
            }
            "stream" if value.as_bool() == Some(false) => {}
            "stream" => {
                return Err(Rejection::new(
                    name,
                    "is not supported: start the video, then poll its operation until it is done.",
                ));
            }
            _ => return Err(Rejection::new(name, UNKNOWN)),
        }
        Ok(())
    }
}

/// Returns a whole number, which may be in a string as in OpenAI's format.
fn whole_number(value: Tree<'_, '_>) -> Option<u64> {
    let of_text = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    value.as_u64().or_else(|| value.into_string().and_then(of_text))
}

fn is_ratio(text: &str) -> bool {
    let is_number =
        |part: &str| (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once(':').is_some_and(|(width, height)| is_number(width) && is_number(height))
}

fn is_word(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

impl FrameSize {
    fn read(text: &str) -> Option<Self> {
        let pixels = |part: &str| {
            let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
            part.parse().ok().filter(|pixels| is_number && (1..=PIXELS_MAX).contains(pixels))
        };
        let (width, height) = text.split_once('x')?;
        Some(Self(pixels(width)?, pixels(height)?))
    }
}

impl<'i> FirstFrame<'i> {
    fn read(uri: &'i str) -> Option<Self> {
        let (media_type, base64) = uri.strip_prefix("data:")?.split_once(";base64,")?;
        let subtype = media_type.strip_prefix("image/")?;
        let is_type = subtype.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-+.".contains(&byte));
        let is_base64 = base64.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        let is_whole = is_type && is_base64 && !subtype.is_empty() && !base64.is_empty();
        is_whole.then_some(Self { uri, media_type, base64 })
    }
}

/// The maximum length: one day, far more than any model supports.
const SECONDS_MAX: u64 = 86_400;
const PIXELS_MAX: u32 = 65_535;
const SECONDS: &str = "must be a whole number of seconds, 1 or more.";
const SIZE: &str = "must be width and height in pixels, such as \"1280x720\".";
const IMAGE: &str = "must be an image as a data URI in base64, such as \"data:image/png;base64,...\".";
const UNKNOWN: &str = "is an unknown member. A video request has model, prompt, seconds, size, aspect_ratio, \
    resolution, n, seed, negative_prompt, image and generate_audio.";
