//! Readers, writers and translators of every format that crosses the network, without sockets, clocks or a runtime.
//!
//! All readers accept input in pieces of any size, buffer a bounded part of it, take linear time, and return "need
//! more" as a value. No input causes a panic.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod adapt;
pub mod answer_shape;
pub mod chat;
pub mod envelope;
pub mod eventstream;
pub mod extras;
pub mod json;
pub mod media;
pub mod messages;
pub mod multipart;
pub mod native;
pub mod request;
pub mod responses;
pub mod retry;
pub mod sse;
pub mod stream;
pub mod tokens;
pub mod translation;
pub mod vendor_errors;

mod bedrock;
mod claude;
#[cfg(test)]
mod cutting;
mod finish_word;
mod gemini;
mod passthrough;
