//! Gemini's protocol, generateContent: the types of its answers.

mod answer;
mod usage;

pub(crate) use answer::{FunctionCall, GeminiAnswer, GeminiCandidate, GeminiPart, is_filtered, usage_in};
pub(crate) use usage::GeminiUsage;
