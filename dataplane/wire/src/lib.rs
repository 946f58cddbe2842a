//! Bytes to meaning and back: every format that crosses the network, without a socket, a clock or a runtime.
//!
//! All readers take input in pieces of any size, keep a bounded amount of it, take time linear in it, and answer
//! "need more" with a value. Nothing here panics on foreign bytes.
#![warn(clippy::wildcard_enum_match_arm)]

pub mod adapt;
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

mod claude;
#[cfg(test)]
mod cutting;
mod passing;
