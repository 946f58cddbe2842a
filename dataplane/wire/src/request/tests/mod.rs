//! Tests of requests, by subject.

mod build;
mod dialects;
mod gemini;
mod head;
mod input;
mod preamble;
mod spelling;
