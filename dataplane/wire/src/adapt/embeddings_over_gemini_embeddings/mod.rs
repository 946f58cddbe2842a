//! OpenAI's embeddings over Gemini's: every request becomes `:batchEmbedContents`, or `:predict` for models of Vertex AI that
//! have no other method. The path contains the model.

mod answer;
mod losses;
mod request;

use shared::operation::Dialect;

use super::Adaptation;

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Embeddings,
    target: Dialect::GeminiEmbeddings,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: request::prepare,
    origin: None,
};
