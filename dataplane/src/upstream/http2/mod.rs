//! HTTP/2 to upstreams: hyper's client, whose connections the requests of a worker share.

mod connection;
mod socket;
#[cfg(test)]
mod tests;

pub(super) use self::connection::{NotSent, send_http2};
pub(crate) use self::connection::{SharedConnection, StreamLease};
