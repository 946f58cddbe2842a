//! Gemini's protocol, generateContent, and Imagen's `:predict`: the types of their answers.

mod answer;
mod collect;
mod usage;

pub(crate) use answer::{FunctionCall, GeminiAnswer, GeminiBlob, GeminiCandidate, GeminiPart, usage_in};
pub(crate) use collect::collect;
pub(crate) use usage::GeminiUsage;
