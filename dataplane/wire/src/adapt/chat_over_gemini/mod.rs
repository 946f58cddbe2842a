//! Chat over Gemini's generateContent. The path of the request, which is not made here, holds the model, and
//! `:generateContent` or `:streamGenerateContent?alt=sse`.

mod answer;
mod config;
mod contents;
mod losses;
mod request;
mod stream;
mod usage;
mod whole;

use shared::operation::Dialect;

pub(super) use answer::{GeminiText, finish_reason, usage_in};
pub(super) use usage::GeminiUsage;

use super::Adaptation;

/// The row of the table.
pub(super) const PAIR: Adaptation = Adaptation {
    client: Dialect::Chat,
    target: Dialect::Gemini,
    via: None,
    losses: losses::LOSSES,
    prepare: request::prepare,
    origin: None,
};
