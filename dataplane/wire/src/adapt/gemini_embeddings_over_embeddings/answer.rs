//! Translates an OpenAI list of embeddings into Gemini's answer. The numbers of the vectors keep their spelling.

use serde::Deserialize;
use serde_json::value::RawValue;
use shared::operation::Dialect;

use crate::adapt::never_streamed::NeverStreamed;
use crate::adapt::{Answers, BadAnswer, TranslatedAnswer};
use crate::json::{JsonWriter, inside_quotes};
use crate::media::embeddings::in_numbers;
use crate::native;
use crate::stream::AnswerStream;

/// Translates the answers to one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct EmbeddingAnswers {
    /// True if the client sent a list of requests.
    pub(super) is_batch: bool,
    /// The number of contents.
    pub(super) count: usize,
}

#[derive(Deserialize)]
struct EmbeddingList<'a> {
    #[serde(borrow)]
    data: Vec<EmbeddingItem<'a>>,
}

#[derive(Deserialize)]
struct EmbeddingItem<'a> {
    index: Option<usize>,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

impl Answers for EmbeddingAnswers {
    fn whole(&self, body: &[u8]) -> Result<TranslatedAnswer, BadAnswer> {
        let read = native::whole_answer(Dialect::Embeddings, body);
        if let Some(error) = read.error {
            return Err(BadAnswer::Error(error));
        }
        let Ok(mut list) = serde_json::from_slice::<EmbeddingList<'_>>(body) else {
            return Err(BadAnswer::Invalid("it is not a list of embeddings"));
        };
        if list.data.len() != self.count {
            return Err(BadAnswer::Invalid("it does not have one embedding for each content"));
        }
        // The sort is stable: items without an index stay in order.
        list.data.sort_by_key(|item| item.index);
        let mut json = JsonWriter::with_capacity(body.len());
        json.object();
        if self.is_batch {
            json.name("embeddings").list();
        } else {
            json.name("embedding");
        }
        for item in &list.data {
            values(item.embedding, &mut json)?;
        }
        if self.is_batch {
            json.end_list();
        }
        if let Some(usage) = &read.usage {
            let input = usage.input_total();
            json.name("usageMetadata").object().name("promptTokenCount").number(input);
            json.name("totalTokenCount").number(input).end_object();
        }
        json.end_object();
        let (usage, extras) = (read.usage, read.extras);
        Ok(TranslatedAnswer { body: json.finish().into(), usage, extras, ..TranslatedAnswer::default() })
    }

    fn stream(&self, _secrets: Vec<String>) -> Box<dyn AnswerStream> {
        Box::new(NeverStreamed::default())
    }
}

/// Writes one vector, which servers send as numbers, or in base64.
fn values(vector: &RawValue, json: &mut JsonWriter) -> Result<(), BadAnswer> {
    const INVALID: BadAnswer = BadAnswer::Invalid("an embedding is not a list of numbers");
    json.object().name("values");
    match inside_quotes(vector) {
        Some(base64) => drop(json.raw(&in_numbers(base64.as_bytes()).ok_or(INVALID)?)),
        None if vector.get().starts_with('[') => drop(json.raw(vector.get().as_bytes())),
        None => return Err(INVALID),
    }
    json.end_object();
    Ok(())
}
