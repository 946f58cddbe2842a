//! Server-sent events: a decoder that follows the WHATWG rules, and a scanner for event boundaries in relayed streams.

mod block;
mod decoder;
mod events;

pub use block::{BlockData, Blocks, data_of};
pub use decoder::{EVENT_BYTES_MAX, SseDecoder, SseEvent, TooLarge};
pub(crate) use events::{EventFinder, lossy_text};
