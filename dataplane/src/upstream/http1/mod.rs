//! HTTP/1.1 to upstreams: hyper's client, polled inside the task of the request that waits for the answer.
//!
//! A pooled client spawns a task for each connection, so that each piece of a body crosses a channel between two tasks
//! and leaves in a write of its own. Here the request's task polls hyper's connection itself: what one read of the
//! socket brought is handed on in one piece, and dropping the answer closes the socket, which cancels the request.

mod connection;
mod framing;
mod quiet_waker;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use self::connection::{Progress, Unanswered, UpstreamConnection};
