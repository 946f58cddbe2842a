//! Operations of the data plane, one file each.

mod answer;
mod arrival;
pub(crate) mod cors;
pub(crate) mod count_gemini;
pub(crate) mod count_responses;
pub(crate) mod count_tokens;
mod cursor;
pub(crate) mod error_response;
pub(crate) mod explain;
pub(crate) mod health;
pub(crate) mod inference;
pub(crate) mod metrics;
pub(crate) mod models;
pub(crate) mod refused_span;
mod rehearsal;
pub(crate) mod stored;
pub(crate) mod videos;
pub(crate) mod watched;
