//! The chat dialect: OpenAI's chat completions, and what other vendors make of them.

mod answer;
mod capture;
mod chunk;
mod judge;
mod response;
mod stream;
mod synthesize;
mod template;
mod usage;

pub use response::{WholeAnswer, WholeScan, whole_answer};
pub use stream::{ChatStream, HELD_BYTES_MAX};
pub use synthesize::synthesize_stream;
pub use usage::token_counts;

pub use crate::envelope::StreamError;

#[cfg(test)]
mod tests;
