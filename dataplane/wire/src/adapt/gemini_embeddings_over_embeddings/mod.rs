//! Gemini's embeddings over OpenAI's: `:embedContent` and `:batchEmbedContents` become one request with a list of texts.

mod answer;
mod losses;
mod request;

use shared::operation::Dialect;

use super::Adaptation;

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::GeminiEmbeddings,
    target: Dialect::Embeddings,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: request::prepare,
    origin: None,
};
