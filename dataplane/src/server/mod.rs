//! The listener's side: sockets, HTTP framing, paths and bodies.

pub(crate) mod accept;
pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod http1;
mod http2;
pub(crate) mod io;
pub(crate) mod unpack;
