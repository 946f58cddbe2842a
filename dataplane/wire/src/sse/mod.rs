//! Server-sent events: a decoder after the WHATWG rules, and a finder of event ends for streams that pass by.

mod block;
mod decoder;

pub use block::{BlockData, Blocks, data_of};
pub use decoder::{EVENT_BYTES_MAX, SseDecoder, SseEvent, TooLarge};
