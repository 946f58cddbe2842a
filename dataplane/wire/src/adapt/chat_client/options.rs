//! The other options of a chat request: rejected members, stop sequences, effort and response format.

use simd_json::prelude::ValueAsScalar as _;

use crate::adapt::{Fate, Loss, Rejection, Traits, loss, read};
use crate::chat::request::{AnswerSchema, ChatRequest};
use crate::json::{JsonWriter, Tree};

/// Rejects a request if it has a top-level member that `losses` rejects. A member without a row is not an error; it is
/// dropped.
pub(in crate::adapt) fn refuse_listed<'t, 'i: 't>(
    members: impl Iterator<Item = (&'i str, Tree<'t, 'i>)>,
    losses: &'static [Loss],
) -> Result<(), Rejection> {
    for (name, value) in members.filter(|(name, value)| !read::asks_for_nothing(name, *value)) {
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

/// Writes `stop` as the list `name`, unless it is empty. Rejects more sequences than the target allows.
pub(in crate::adapt) fn copy_stop(
    request: &ChatRequest<'_, '_>,
    name: &str,
    target: &Traits<'_>,
    json: &mut JsonWriter,
) -> Result<(), Rejection> {
    let Some(stop) = request.tree("stop").filter(|stop| !read::is_empty(*stop)) else {
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
pub(in crate::adapt) fn effort<'i>(request: &ChatRequest<'_, 'i>, target: &Traits<'_>) -> Option<&'i str> {
    request.text("reasoning_effort").filter(|_| target.reasoning)
}

/// The form of the answer that `response_format` asks for.
pub(in crate::adapt) enum AnswerFormat<'t, 'i> {
    Text,
    AnyJson,
    Schema(Option<AnswerSchema<'t, 'i>>),
}

/// Returns the form of the answer. Rejects a schema if the target cannot enforce one.
pub(in crate::adapt) fn format<'t, 'i>(
    request: &ChatRequest<'t, 'i>,
    target: &Traits<'_>,
) -> Result<AnswerFormat<'t, 'i>, Rejection> {
    let Some(format) = &request.format else { return Ok(AnswerFormat::Text) };
    match format.kind {
        "text" => Ok(AnswerFormat::Text),
        "json_object" => Ok(AnswerFormat::AnyJson),
        "json_schema" if target.json_schema => Ok(AnswerFormat::Schema(format.schema)),
        "json_schema" => {
            Err(Rejection::new("response_format", "requires a schema, which the target does not support."))
        }
        _ => Err(Rejection::malformed("response_format.type", "is not known.")),
    }
}
