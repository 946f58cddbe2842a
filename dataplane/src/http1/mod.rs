//! What both sides of HTTP/1.1 share: how messages are read from a socket, and written to one.

mod chunked;
mod out;
mod reader;

pub(crate) use self::out::Out;
pub(crate) use self::reader::{Body, Fault, Reader};
