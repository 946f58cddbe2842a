//! Whole image answers.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::NOT_INLINE;
use crate::chat::UsageReader;
use crate::envelope::{StreamError, named_event};
use crate::extras::picture;
use crate::translation::{BadAnswer, TranslatedAnswer};

/// The members of an answer that are read. The images are not copied.
#[derive(Debug, Deserialize)]
struct ImagesAnswer<'a> {
    #[serde(borrow)]
    data: Option<Vec<AnsweredImage<'a>>>,
    usage: Option<Value>,
    error: Option<Value>,
    quality: Option<Value>,
    size: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct AnsweredImage<'a> {
    #[serde(borrow)]
    b64_json: Option<&'a RawValue>,
    #[serde(borrow)]
    url: Option<&'a RawValue>,
}

/// Reads an answer that passes unchanged.
pub fn whole(body: Bytes) -> Result<TranslatedAnswer, BadAnswer> {
    let answer = match serde_json::from_slice::<ImagesAnswer<'_>>(&body) {
        Ok(answer) if answer.error.as_ref().is_none_or(Value::is_null) => answer,
        Ok(_) | Err(_) => {
            let error = StreamError::of_odd(&body);
            return Err(
                error.map_or(BadAnswer::Invalid("it is not a response with images"), BadAnswer::Error)
            );
        }
    };
    let images = answer.data.unwrap_or_default();
    if let Some(image) = images.iter().find(|image| !is_inline(image.b64_json)) {
        let why = if image.url.is_some() { NOT_INLINE } else { "it contains an image without b64_json" };
        return Err(BadAnswer::Invalid(why));
    }
    if images.is_empty() {
        return Err(BadAnswer::Invalid("it contains no images"));
    }
    let usage = answer.usage.as_ref().map(UsageReader::of_images);
    let mut extras = usage.as_ref().map(UsageReader::extras).unwrap_or_default();
    extras.units.images = images.len().try_into().unwrap_or(u64::MAX);
    extras.picture = picture(text(answer.quality.as_ref()), text(answer.size.as_ref()));
    Ok(TranslatedAnswer {
        body,
        usage: usage.and_then(|usage| usage.counts()),
        extras,
        ..TranslatedAnswer::default()
    })
}

fn text(member: Option<&Value>) -> Option<&str> {
    member.and_then(Value::as_str)
}

/// True if the member is a non-empty string.
pub(super) fn is_inline(member: Option<&RawValue>) -> bool {
    member.is_some_and(|raw| raw.get().len() > 2 && raw.get().starts_with('"'))
}

/// Converts the whole answer `whole` to a stream, for a client that requested one: one completed image after the other,
/// the last with the usage. `None` if `whole` is not a valid answer.
pub fn synthesize_stream(whole: &[u8]) -> Option<Vec<u8>> {
    let mut answer: Map<String, Value> = serde_json::from_slice(whole).ok()?;
    let created = answer.remove("created");
    let usage = answer.remove("usage");
    let Some(Value::Array(images)) = answer.remove("data") else { return None };
    let mut stream = Vec::with_capacity(whole.len() + 256);
    let last = images.len().saturating_sub(1);
    for (position, image) in images.into_iter().enumerate() {
        let Value::Object(image) = image else { return None };
        let mut event = Map::new();
        event.insert("type".to_owned(), COMPLETED.into());
        event.extend(image);
        event.insert("created_at".to_owned(), created.clone().unwrap_or(Value::Null));
        for name in ["background", "output_format", "quality", "size"] {
            event.extend(answer.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        event.extend(usage.clone().filter(|_| position == last).map(|usage| ("usage".to_owned(), usage)));
        stream.extend_from_slice(&named_event(COMPLETED, &Value::Object(event).to_string()));
    }
    Some(stream)
}

pub(super) const COMPLETED: &str = "image_generation.completed";
