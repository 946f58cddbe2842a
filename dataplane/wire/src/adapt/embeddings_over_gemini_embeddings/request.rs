//! Translates the request for `:batchEmbedContents`, or Vertex AI's `:predict`.

use super::answer::VectorAnswers;
use super::losses::{LOSSES, TOKENS, refuse};
use crate::adapt::loss::unknown;
use crate::adapt::read::{self, Object, as_text, as_whole, member};
use crate::adapt::{Asking, EmbeddingForm, Prepared, Rejection, Traits};
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
    let mut json = JsonWriter::default();
    match asking.target.embeddings {
        EmbeddingForm::Predict => predict(&texts, dimensions, &mut json),
        EmbeddingForm::Gemini | EmbeddingForm::Vertex => batch(&texts, dimensions, asking.target, &mut json),
    }
    let answers = VectorAnswers {
        model: quote(asking.selector),
        form: form(&request)?,
        count: texts.len(),
        is_prediction: asking.target.embeddings == EmbeddingForm::Predict,
    };
    Ok(Prepared {
        body: json.finish().into(),
        answers: Box::new(answers),
        dropped: unknown(read::members(&request).map(|(name, _)| name), LOSSES),
        changed: Vec::new(),
    })
}

/// Writes the body for `:batchEmbedContents`.
fn batch(texts: &[&str], dimensions: Option<u64>, target: &Traits<'_>, json: &mut JsonWriter) {
    let is_vertex = target.embeddings == EmbeddingForm::Vertex;
    let model = format!("models/{}", target.model);
    json.object().name("requests").list();
    for text in texts {
        json.object();
        if !is_vertex {
            json.name("model").text(&model);
        }
        json.name("content").object();
        if is_vertex {
            json.name("role").text("user");
        }
        json.name("parts").list().object().name("text").text(text).end_object().end_list().end_object();
        match dimensions {
            Some(dimensions) if is_vertex => {
                json.name("embedContentConfig").object();
                json.name(DIMENSIONS).number(dimensions).end_object();
            }
            Some(dimensions) => drop(json.name(DIMENSIONS).number(dimensions)),
            None => {}
        }
        json.end_object();
    }
    json.end_list().end_object();
}

/// Writes the body for `:predict`.
fn predict(texts: &[&str], dimensions: Option<u64>, json: &mut JsonWriter) {
    json.object().name("instances").list();
    for text in texts {
        json.object().name("content").text(text).end_object();
    }
    json.end_list();
    if let Some(dimensions) = dimensions {
        json.name("parameters").object().name(DIMENSIONS).number(dimensions).end_object();
    }
    json.end_object();
}

const DIMENSIONS: &str = "outputDimensionality";

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
