//! Images over Google's models: Gemini models are called through generateContent, Imagen through `:predict`. The
//! request path, which is built elsewhere, contains the model. Images are always inline and never streamed.

mod answer;
mod images;
mod losses;
mod model;
mod request;
mod size;

use shared::operation::Dialect;

use super::Adaptation;

/// This pair's entry in the list of adaptations.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Images,
    target: Dialect::Gemini,
    via: None,
    losses: losses::LOSSES,
    agents: &[],
    prepare: request::prepare,
    origin: None,
};
