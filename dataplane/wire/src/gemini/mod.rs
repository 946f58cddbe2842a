//! Gemini's protocol, generateContent, and Imagen's `:predict`: the types of their answers.

mod answer;
mod usage;

pub(crate) use answer::{FunctionCall, GeminiAnswer, GeminiCandidate, GeminiPart, is_filtered, usage_in};
pub(crate) use usage::GeminiUsage;
