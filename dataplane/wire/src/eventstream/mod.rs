//! Amazon's binary event stream framing: a decoder that verifies every checksum.

mod decoder;
mod message;

pub use decoder::{EventStreamDecoder, EventStreamFault, MESSAGE_BYTES_MAX};
pub use message::EventStreamMessage;
