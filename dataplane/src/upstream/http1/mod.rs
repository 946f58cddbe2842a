//! HTTP/1.1 to upstreams, spoken inside the task of the request that waits for the answer.
//!
//! A pooled client as libraries have it gives every connection a task of its own: each piece of a body crosses
//! two tasks, one channel and as many wake-ups, and leaves in a write of its own. Here all that one read of the
//! socket brought is decoded in place, relayed in one piece, and dropping the answer drops the socket, which is
//! all that cancelling takes.

mod connection;
mod head;

pub(crate) use self::connection::{Connection, INTERIM_MAX, INTERIM_WITHOUT_END, Phase, Unanswered};
