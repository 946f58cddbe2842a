//! Translates the request for `:batchEmbedContents`.

use super::answer::VectorAnswers;
use super::losses::{LOSSES, TOKENS, refuse};
use crate::adapt::loss::unknown;
use crate::adapt::read::{self, Object, as_text, as_whole, member};
use crate::adapt::{Asking, Prepared, Rejection};
use crate::json::{self, JsonWriter, quote};
use crate::request::VectorForm;

/// Translates a request for embeddings.
pub(super) fn prepare(asking: &Asking<'_>) -> Result<Prepared, Rejection> {
    let mut body = asking.body.to_vec();
    let tape = json::parse(&mut body).map_err(read::refuse_fault)?;
    let request = read::object(tape.as_value(), String::new)?;
    let texts = texts(&request)?;
    let dimensions = match member(&request, "dimensions") {
        None => None,
        Some(dimensions) => Some(
            as_whole(dimensions)
                .ok_or_else(|| Rejection::malformed("dimensions", "must be a whole number."))?,
        ),
    };
    let model = format!("models/{}", asking.target.model);
    let mut json = JsonWriter::default();
    json.object().name("requests").list();
    for text in &texts {
        json.object().name("model").text(&model).name("content").object().name("parts").list();
        json.object().name("text").text(text).end_object().end_list().end_object();
        if let Some(dimensions) = dimensions {
            json.name("outputDimensionality").number(dimensions);
        }
        json.end_object();
    }
    json.end_list().end_object();
    let answers = VectorAnswers { model: quote(asking.selector), form: form(&request)?, count: texts.len() };
    Ok(Prepared {
        body: json.finish().into(),
        answers: Box::new(answers),
        dropped: unknown(read::members(&request).map(|(name, _)| name), LOSSES),
        changed: Vec::new(),
    })
}

fn texts<'i>(request: &Object<'_, 'i>) -> Result<Vec<&'i str>, Rejection> {
    let input = member(request, "input").ok_or_else(|| Rejection::malformed("input", "is missing."))?;
    if let Some(text) = as_text(input) {
        return Ok(vec![text]);
    }
    let list = read::array(input, || "input".to_owned())?;
    let texts = list
        .iter()
        .enumerate()
        .map(|(position, text)| as_text(text).ok_or_else(|| refuse(TOKENS, format!("input.{position}"))));
    let texts = texts.collect::<Result<Vec<_>, _>>()?;
    if texts.is_empty() { Err(Rejection::malformed("input", "must have an element.")) } else { Ok(texts) }
}

/// Returns the form in which the client wants the vectors.
fn form(request: &Object<'_, '_>) -> Result<VectorForm, Rejection> {
    match member(request, "encoding_format").map(as_text) {
        None | Some(Some("float")) => Ok(VectorForm::Numbers),
        Some(Some("base64")) => Ok(VectorForm::Base64),
        Some(_) => Err(Rejection::malformed("encoding_format", "must be \"float\" or \"base64\".")),
    }
}
