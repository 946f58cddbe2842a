//! Translates Gemini's embeddings into an OpenAI list. Google reports the usage of few models; the others count as zero
//! tokens for the client, and are estimated for the record.

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::provider::path::UpstreamCall;
use shared::usage::TokenCounts;

use crate::adapt::never_streamed::NeverStreamed;
use crate::adapt::{Answers, BadAnswer, TranslatedAnswer};
use crate::envelope::StreamError;
use crate::gemini;
use crate::json::JsonWriter;
use crate::media::embeddings::in_base64;
use crate::request::VectorForm;
use crate::stream::AnswerStream;

/// Translates the answers to one request.
#[derive(Clone, Debug)]
pub(super) struct VectorAnswers {
    /// The model of the answer, as a JSON string.
    pub(super) model: String,
    pub(super) form: VectorForm,
    /// The number of texts.
    pub(super) count: usize,
    /// True for the answers of Vertex AI's `:predict`.
    pub(super) is_prediction: bool,
}

#[derive(Deserialize)]
struct Predictions<'a> {
    #[serde(borrow)]
    predictions: Vec<Prediction<'a>>,
}

#[derive(Deserialize)]
struct Prediction<'a> {
    #[serde(borrow)]
    embeddings: PredictedEmbedding<'a>,
}

#[derive(Deserialize)]
struct PredictedEmbedding<'a> {
    #[serde(borrow)]
    values: &'a RawValue,
    #[serde(default)]
    statistics: Statistics,
}

/// The tokens of a text, which some models report as a fraction with nothing behind the point.
#[derive(Default, Deserialize)]
struct Statistics {
    #[serde(default)]
    token_count: Option<f64>,
}

#[derive(Deserialize)]
struct BatchAnswer<'a> {
    #[serde(borrow)]
    embeddings: Vec<ContentEmbedding<'a>>,
}

#[derive(Deserialize)]
struct ContentEmbedding<'a> {
    #[serde(borrow)]
    values: &'a RawValue,
}

impl Answers for VectorAnswers {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        let read = if self.is_prediction { predicted(body) } else { batch(body) };
        let Some((vectors, usage)) = read else {
            let error = StreamError::of_odd(body);
            return Err(error.map_or(BadAnswer::Invalid("it has no embeddings"), BadAnswer::Error));
        };
        if vectors.len() != self.count {
            return Err(BadAnswer::Invalid("it does not have one embedding for each text"));
        }
        let mut json = JsonWriter::with_capacity(body.len());
        json.object().name("object").text("list").name("data").list();
        for (index, values) in vectors.into_iter().enumerate() {
            json.object().name("object").text("embedding");
            json.name("index").number(index.try_into().unwrap_or(u64::MAX)).name("embedding");
            self.vector(values, &mut json)?;
            json.end_object();
        }
        let tokens = usage.map_or(0, |usage| usage.input_total());
        json.end_list().name("model").raw(self.model.as_bytes()).name("usage").object();
        json.name("prompt_tokens").number(tokens).name("total_tokens").number(tokens);
        json.end_object().end_object();
        Ok(TranslatedAnswer { body: json.finish().into(), usage, ..TranslatedAnswer::default() })
    }

    fn stream(&self, _secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(NeverStreamed::default())
    }

    fn call(&self, _stream: bool) -> UpstreamCall {
        if self.is_prediction { UpstreamCall::Predict } else { UpstreamCall::Batch }
    }
}

impl VectorAnswers {
    /// Writes one vector. Its numbers keep their spelling.
    fn vector(&self, values: &RawValue, json: &mut JsonWriter) -> Result<(), BadAnswer> {
        const INVALID: BadAnswer = BadAnswer::Invalid("an embedding is not a list of numbers");
        let list = values.get().as_bytes();
        let inside = list.strip_prefix(b"[").and_then(|list| list.strip_suffix(b"]")).ok_or(INVALID)?;
        match self.form {
            VectorForm::Numbers => drop(json.raw(list)),
            VectorForm::Base64 => drop(json.raw(&in_base64(inside).ok_or(INVALID)?)),
        }
        Ok(())
    }
}

/// The vectors of an answer, and the usage that it reports.
type Vectors<'a> = (Vec<&'a RawValue>, Option<TokenCounts>);

fn batch(body: &[u8]) -> Option<Vectors<'_>> {
    let answer: BatchAnswer<'_> = serde_json::from_slice(body).ok()?;
    let vectors = answer.embeddings.into_iter().map(|embedding| embedding.values).collect();
    Some((vectors, gemini::usage_in(body)))
}

fn predicted(body: &[u8]) -> Option<Vectors<'_>> {
    let answer: Predictions<'_> = serde_json::from_slice(body).ok()?;
    let tokens = answer.predictions.iter().map(|of| of.embeddings.statistics.token_count);
    let tokens: Option<f64> = tokens.sum();
    let input = tokens.filter(|tokens| *tokens > 0.0).and_then(|tokens| format!("{tokens:.0}").parse().ok());
    let usage = input.map(|input| TokenCounts { input, ..TokenCounts::default() });
    Some((answer.predictions.into_iter().map(|of| of.embeddings.values).collect(), usage))
}
