//! Streams of images: partial images, then the whole one. A truncated image is useless, and an address instead of an
//! image must not pass.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::NOT_INLINE;
use super::whole::{COMPLETED, is_inline};
use crate::chat::UsageReader;
use crate::envelope::StreamError;
use crate::extras::picture;
use crate::media::events::{MediaEvents, MediaListener, is_error};
use crate::stream::StreamState;

/// A stream of image events.
pub type ImageStream = MediaEvents<Images>;

/// Reads the events of image streams.
#[derive(Debug, Default)]
pub struct Images;

const PARTIAL: &str = "image_generation.partial_image";

/// The members of an event that are read.
#[derive(Debug, Deserialize)]
struct ImageEvent<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    b64_json: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
    usage: Option<Value>,
    #[serde(borrow)]
    quality: Option<Cow<'a, str>>,
    #[serde(borrow)]
    size: Option<Cow<'a, str>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl MediaListener for Images {
    fn read(&mut self, name: &[u8], document: &[u8], state: &mut StreamState) -> Result<(), StreamError> {
        let Ok(event) = serde_json::from_slice::<ImageEvent<'_>>(document) else {
            return Err(StreamError::of_bad_answer("The upstream sent an event that is not JSON."));
        };
        let kind = event.kind.as_deref().unwrap_or_default();
        if name == b"error" || kind == "error" || event.error.is_some_and(is_error) {
            return Err(StreamError::of_odd(document)
                .unwrap_or_else(|| StreamError::of_words(StreamError::UNREADABLE)));
        }
        let (partial, completed) = (kind == PARTIAL, kind == COMPLETED);
        if !partial && !completed {
            return Ok(());
        }
        if !is_inline(event.b64_json) {
            let why = if event.url.is_some() { NOT_INLINE } else { "it contains an image without b64_json" };
            let message = format!("The upstream's response is invalid: {why}.");
            return Err(StreamError::of_bad_answer(&message));
        }
        state.content = true;
        state.content_events = state.content_events.saturating_add(1);
        state.finished |= completed;
        if completed {
            state.extras.units.images = state.extras.units.images.saturating_add(1);
            state.extras.picture = picture(event.quality.as_deref(), event.size.as_deref());
        }
        if let Some(usage) = event.usage.as_ref().map(UsageReader::of_images) {
            state.usage = usage.counts().or(state.usage);
            state.extras.replace_by(usage.extras());
        }
        Ok(())
    }
}
