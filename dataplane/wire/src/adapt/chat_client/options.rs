//! Reads the other options of a chat request: usage, stop sequences, effort and response format.

use simd_json::prelude::ValueAsScalar as _;
use simd_json::tape::Object;

use crate::adapt::{Fate, Loss, Rejection, Traits, loss, read};
use crate::json::{JsonWriter, Tree};

/// Rejects the request if it has a top-level member that `losses` rejects. A member without a row is not an error; it
/// is dropped.
pub(in crate::adapt) fn refuse_listed(
    request: &Object<'_, '_>,
    losses: &'static [Loss],
) -> Result<(), Rejection> {
    for (name, value) in read::members(request).filter(|(name, value)| !read::asks_for_nothing(name, *value))
    {
        let rejected = losses.iter().any(|loss| loss.field == name && loss.fate == Fate::Rejected);
        if rejected && !is_usual(name, value) {
            return Err(loss::refuse(losses, name, name));
        }
    }
    Ok(())
}

/// True if the value asks for what every answer has anyway, such as `n: 1`.
fn is_usual(name: &str, value: Tree<'_, '_>) -> bool {
    let is_text = |kind: Tree<'_, '_>| read::as_text(kind) == Some("text");
    match name {
        "n" | "frame_count" => value.as_u64() == Some(1),
        "modalities" => value.as_array().is_some_and(|wanted| wanted.iter().all(is_text)),
        _ => false,
    }
}

/// True if the client asked for usage at the end of a stream.
pub(in crate::adapt) fn wants_usage(request: &Object<'_, '_>) -> bool {
    let options = read::member(request, "stream_options").and_then(|options| options.as_object());
    options.and_then(|options| read::member(&options, "include_usage")?.as_bool()) == Some(true)
}

/// Writes `stop` as the list `name`, unless it is empty. Rejects more sequences than the target allows.
pub(in crate::adapt) fn copy_stop(
    request: &Object<'_, '_>,
    name: &str,
    target: &Traits<'_>,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let Some(stop) = read::member(request, "stop").filter(|stop| !read::is_empty(*stop)) else {
        return Ok(());
    };
    if read::as_text(stop).is_some() {
        json.name(name).list().tree(stop).end_list();
        return Ok(());
    }
    let sequences = read::array(stop, || "stop".to_owned())?;
    if let Some(most) = target.stops_max.filter(|most| sequences.len() > *most) {
        let why = format!("has more than {most} sequences, the most that the target supports.");
        return Err(Rejection::new("stop", &why));
    }
    for (position, text) in sequences.iter().enumerate() {
        read::text(text, || format!("stop.{position}"))?;
    }
    json.name(name).tree(stop);
    Ok(())
}

/// Returns `reasoning_effort`, or `None` if the model does not reason.
pub(in crate::adapt) fn effort<'i>(request: &Object<'_, 'i>, target: &Traits<'_>) -> Option<&'i str> {
    read::member_text(request, "reasoning_effort").filter(|_| target.reasoning)
}

/// The form of the answer that `response_format` asks for.
pub(in crate::adapt) enum ChatResponseFormat<'t, 'i> {
    Text,
    AnyJson,
    /// The object `json_schema`, which contains `schema`.
    Schema(Option<Object<'t, 'i>>),
}

/// Reads `response_format`. Rejects a schema if the target cannot enforce one.
pub(in crate::adapt) fn format<'t, 'i>(
    request: &Object<'t, 'i>,
    target: &Traits<'_>,
) -> Result<ChatResponseFormat<'t, 'i>, Rejection> {
    let path = || "response_format".to_owned();
    let Some(format) = read::member(request, "response_format") else { return Ok(ChatResponseFormat::Text) };
    let format = read::object(format, path)?;
    match read::needed_text(&format, "type", path)? {
        "text" => Ok(ChatResponseFormat::Text),
        "json_object" => Ok(ChatResponseFormat::AnyJson),
        "json_schema" if target.json_schema => Ok(ChatResponseFormat::Schema(
            read::member(&format, "json_schema").and_then(|inner| inner.as_object()),
        )),
        "json_schema" => Err(Rejection::new(path(), "requires a schema, which the target does not support.")),
        _ => Err(Rejection::malformed("response_format.type", "is not known.")),
    }
}
