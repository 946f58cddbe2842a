//! What both sides of HTTP/1.1 share: how messages are read from a socket, and written to one.

mod chunked;
mod out;
mod reader;

pub(crate) use self::out::Out;
pub(crate) use self::reader::{Body, Fault, Reader};

/// What is read or written of a body before the other connections of the worker have their turn: whoever sends, or
/// reads, as fast as the worker does would have it to itself for tens of megabytes.
pub(crate) const TURN_BYTES: usize = 512 << 10;
