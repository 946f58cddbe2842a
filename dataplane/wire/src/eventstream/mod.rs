//! The binary framing of Amazon's event streams: a decoder that checks every sum.

mod decoder;
mod message;

pub use decoder::{Decoder, Fault, MESSAGE_BYTES_MAX};
pub use message::Message;
