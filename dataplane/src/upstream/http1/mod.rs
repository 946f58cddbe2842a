//! HTTP/1.1 to upstreams: hyper's client, polled inside the task of the request that waits for the answer.
//!
//! A pooled client spawns a task for each connection, so that each piece of a body passes a channel between two tasks
//! and is written separately. Here the request's task polls hyper's connection itself: the result of one socket read is
//! passed on as one piece, and dropping the answer closes the socket, which cancels the request.

mod connection;
mod socket;
#[cfg(test)]
mod tests;

pub(crate) use self::connection::UpstreamConnection;
