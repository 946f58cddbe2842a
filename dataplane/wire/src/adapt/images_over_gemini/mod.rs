//! Images over Google's models: those of Gemini are asked by generateContent, Imagen's by `:predict`. The path of
//! the request, which is not made here, holds the model. Images always come inline, and in one piece.

mod answer;
mod losses;
mod model;
mod request;
mod said;
mod size;

use shared::operation::Dialect;

use super::Adaptation;

/// The row of the table.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Images,
    target: Dialect::Gemini,
    via: None,
    losses: losses::LOSSES,
    prepare: request::prepare,
    origin: None,
};
