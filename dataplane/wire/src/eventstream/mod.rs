//! The binary framing of Amazon's event streams: a decoder that checks every sum.

mod decoder;
mod message;

pub use decoder::{EventStreamDecoder, EventStreamFault, MESSAGE_BYTES_MAX};
pub use message::EventStreamMessage;
